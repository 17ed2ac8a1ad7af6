-- Second half of a list of deliveries: of what the first half scanned, the newest that the filter lets through, with
-- what there is to say about them. Gives at least one row, for `floor`: below that id nothing has been looked at.
-- The filter is asked row by row, from the newest down (hence OFFSET 0), and stops when the page is full. Events are
-- looked up by scalar subqueries: a join might be made by reading all of them.
, page AS MATERIALIZED (
    SELECT s.*
    FROM (SELECT s.* FROM scanned s
          WHERE s.id >= coalesce((SELECT f.id FROM floor f), '00000000-0000-0000-0000-000000000000')
          ORDER BY s.id DESC OFFSET 0) s
    WHERE (%(tenant)s::text IS NULL
           OR (SELECT l.tenant FROM forbear.lanes l WHERE l.endpoint_id = s.endpoint_id) = %(tenant)s)
      AND (%(status)s::text IS NULL OR s.state = %(status)s)
      AND (%(reason)s::text IS NULL OR s.reason = %(reason)s)
      AND (%(type)s::text IS NULL OR (SELECT v.type FROM forbear.events v WHERE v.id = s.event_id) = %(type)s)
    LIMIT %(limit)s + 1
)
SELECT (SELECT f.id FROM floor f) AS floor,
       p.id, p.event_id, p.endpoint_id, l.tenant, (SELECT v.type FROM forbear.events v WHERE v.id = p.event_id) AS type,
       p.state, p.reason, p.generation, p.attempts, p.payload_bytes, p.due_at, p.replay_id, p.ended_at,
       l.paused_at, l.tenant_paused_at, c.paused_at AS everything_paused_at, l.disabled_at, l.disabled_reason,
       l.breaker_state, l.breaker_since, l.breaker_reason, l.breaker_failures,
       coalesce(l.breaker_until, l.probe_until)             AS next_probe_at,
       CASE WHEN l.wait_until > n.now THEN l.wait_until END AS retry_after_until
FROM (VALUES (true)) AS always
CROSS JOIN forbear.control c
CROSS JOIN (SELECT forbear.now() AS now OFFSET 0) n
LEFT JOIN page p ON true
LEFT JOIN forbear.lanes l ON l.endpoint_id = p.endpoint_id
ORDER BY p.id DESC
