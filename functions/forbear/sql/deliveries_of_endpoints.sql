-- First half of a list (delivery_page is the second): deliveries of an endpoint, or of a tenant's endpoints, deleted
-- ones included.
--
-- Finished ones are read endpoint by endpoint from the index on (endpoint_id, id). The first column is compared by
-- BETWEEN so that only that index gives the order: with = the planner might take it from the primary key and read
-- through everybody else's rows. How many rows an endpoint may give is bounded, by more than a page where a filter will
-- leave some out. The queue, which has no such index, is read in whole where it holds few of these endpoints' rows
-- (by endpoint), and otherwise, as they are a good part of it, walked down by its primary key.
WITH scope AS MATERIALIZED (
    SELECT l.endpoint_id FROM forbear.lanes l
    WHERE (%(endpoint)s::uuid IS NULL OR l.endpoint_id = %(endpoint)s)
      AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
), share AS MATERIALIZED (
    SELECT CASE WHEN %(filtered)s THEN greatest(%(limit)s + 1, %(budget)s / greatest(count(*), 1))
                ELSE %(limit)s + 1 END AS rows
    FROM scope
), ended AS MATERIALIZED (
    SELECT h.* FROM scope s CROSS JOIN LATERAL (
        SELECT h.id, h.event_id, h.endpoint_id, h.state, h.reason, h.generation, h.attempts, h.payload_bytes,
               NULL::timestamptz AS due_at, h.replay_id, h.ended_at
        FROM forbear.history h
        WHERE h.endpoint_id BETWEEN s.endpoint_id AND s.endpoint_id AND h.id >= %(first)s AND h.id < %(end)s
          AND h.ended_at >= %(since)s::timestamptz  -- true for all from there on: leaves older partitions out
          AND %(want_ended)s AND (NOT %(want_unhappy)s OR h.state <> 'delivered')
        ORDER BY h.endpoint_id DESC, h.id DESC
        LIMIT (SELECT share.rows FROM share)) h
), few AS MATERIALIZED (
    SELECT q.* FROM scope s CROSS JOIN LATERAL (
        SELECT * FROM forbear.queue q
        WHERE q.endpoint_id = s.endpoint_id AND q.lease_token IS NULL AND %(want_unfinished)s
        UNION ALL
        SELECT * FROM forbear.queue q
        WHERE q.endpoint_id = s.endpoint_id AND q.lease_token IS NOT NULL AND %(want_unfinished)s) q
    LIMIT %(few)s + 1
), walked AS MATERIALIZED (
    SELECT * FROM forbear.queue q
    WHERE (SELECT count(*) FROM few) > %(few)s AND q.id >= %(first)s AND q.id < %(end)s
    ORDER BY q.id DESC LIMIT %(walk)s
), scanned AS (
    SELECT * FROM ended
    UNION ALL
    SELECT q.id, q.event_id, q.endpoint_id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END, NULL,
           q.generation, q.attempts, q.payload_bytes, q.due_at, q.replay_id, NULL
    FROM (SELECT * FROM few
          WHERE (SELECT count(*) FROM few) <= %(few)s AND few.id >= %(first)s AND few.id < %(end)s
          UNION ALL
          SELECT * FROM walked WHERE walked.endpoint_id IN (SELECT s.endpoint_id FROM scope s)) q
), floor AS MATERIALIZED (
    -- Where a source was cut off: it may hold more from there down, so nothing below is shown yet.
    SELECT f.id
    FROM (SELECT (array_agg(e.id ORDER BY e.id))[1] AS id FROM ended e
          GROUP BY e.endpoint_id HAVING count(*) >= (SELECT share.rows FROM share)
          UNION ALL
          SELECT (array_agg(w.id ORDER BY w.id))[1] FROM walked w HAVING count(*) >= %(walk)s) f
    ORDER BY f.id DESC LIMIT 1
)
