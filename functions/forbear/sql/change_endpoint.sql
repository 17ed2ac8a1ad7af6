-- Writes a locked endpoint's new settings. The claimer has a look at once: what is allowed now may have been barred by
-- a limit before.
WITH endpoint AS (
    UPDATE forbear.endpoints e
    SET url = %(url)s, description = %(description)s, event_types = %(event_types)s::text[],
        headers = %(headers)s::jsonb, policy = %(policy)s::jsonb, updated_at = forbear.now()
    WHERE e.id = %(id)s
), lane AS (
    UPDATE forbear.lanes l
    SET timeout_s = %(timeout_s)s, concurrency = %(concurrency)s, rate_per_s = %(rate_per_s)s, burst = %(burst)s,
        ready_at = least(l.ready_at, greatest(forbear.now(), l.wait_until, l.breaker_until, l.probe_until))
    WHERE l.endpoint_id = %(id)s
), unsubscribed AS (
    DELETE FROM forbear.subscriptions s
    WHERE s.endpoint_id = %(id)s AND s.pattern <> ALL (%(event_types)s::text[])
)
INSERT INTO forbear.subscriptions (tenant, pattern, endpoint_id)
SELECT %(tenant)s, p.pattern, %(id)s FROM unnest(%(event_types)s::text[]) AS p (pattern)
ON CONFLICT DO NOTHING
