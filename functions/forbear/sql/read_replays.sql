-- The newest replays and backfills, or the one with this id; of one tenant, or (NULL) all.
SELECT r.id, r.kind,
       CASE WHEN r.ended_at IS NULL AND r.cancelled_at IS NOT NULL THEN 'cancelling' ELSE r.state END AS state,
       cardinality(r.deliveries) AS deliveries, r.tenant, r.endpoint_id, r.types, r.status, r.reason, r.since, r.until,
       r.rate_per_s, r.step_at, r.matched, r.unchanged, r.cancelled, r.created_at, r.started_at, r.ended_at
FROM forbear.replays r
WHERE (%(id)s::uuid IS NULL OR r.id = %(id)s) AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s)
ORDER BY r.id DESC LIMIT %(limit)s
