-- First half of a list (delivery_page is the second): everybody's deliveries, by the primary keys.
WITH ended AS MATERIALIZED (
    SELECT h.* FROM forbear.newest_ended_of_all(
        %(first)s, %(end)s, %(since)s, greatest(%(limit)s + 1, %(look_at_ended)s)) h
    WHERE %(want_ended)s
), unfinished AS MATERIALIZED (
    SELECT q.* FROM forbear.newest_unfinished_of_all(
        %(first)s, %(end)s, %(leased)s, %(walk)s, %(look_at_unfinished)s) q
    WHERE %(want_unfinished)s
), scanned AS (
    SELECT h.id, h.event_id, h.endpoint_id, h.state, h.reason, h.generation, h.attempts, h.payload_bytes,
           NULL::timestamptz AS due_at, h.replay_id, h.ended_at
    FROM ended h
    UNION ALL
    SELECT q.id, q.event_id, q.endpoint_id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END, NULL,
           q.generation, q.attempts, q.payload_bytes, q.due_at, q.replay_id, NULL
    FROM unfinished q
), floor AS MATERIALIZED (
    -- Where a source was cut off: it may hold more from there down, so nothing below is shown yet.
    SELECT f.id
    FROM (SELECT (array_agg(h.id ORDER BY h.id))[1] AS id FROM ended h
          HAVING count(*) >= greatest(%(limit)s + 1, %(look_at_ended)s)
          UNION ALL
          SELECT CASE WHEN count(*) >= %(look_at_unfinished)s THEN (array_agg(u.id ORDER BY u.id))[1]
                      ELSE forbear.end_of_walk(%(first)s, %(end)s, %(walk)s) END
          FROM unfinished u HAVING %(want_unfinished)s) f
    WHERE f.id IS NOT NULL
    ORDER BY f.id DESC LIMIT 1
)
