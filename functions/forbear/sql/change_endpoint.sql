-- Writes a locked endpoint's new settings; its headers are sealed.
WITH endpoint AS (
    UPDATE forbear.endpoints e
    SET url = %(url)s, description = %(description)s, event_types = %(event_types)s::text[],
        headers = %(headers)s, policy = %(policy)s::jsonb, updated_at = forbear.now()
    WHERE e.id = %(id)s
), unsubscribed AS (
    DELETE FROM forbear.subscriptions s
    WHERE s.endpoint_id = %(id)s AND s.pattern <> ALL (%(event_types)s::text[])
)
INSERT INTO forbear.subscriptions (tenant, pattern, endpoint_id)
SELECT %(tenant)s, p.pattern, %(id)s FROM unnest(%(event_types)s::text[]) AS p (pattern)
ON CONFLICT DO NOTHING
