-- First half of a list (delivery_page is the second): deliveries of an endpoint, or of a tenant's endpoints, deleted
-- ones included.
--
-- Finished ones are read endpoint by endpoint, each giving so many rows and no more. The queue has no index on endpoint
-- and id. So all of it is read (endpoint by endpoint) where it holds few rows of these endpoints; otherwise they are a
-- good part of it, and it is walked down by its primary key.
WITH scope AS MATERIALIZED (
    SELECT l.endpoint_id FROM forbear.lanes l
    WHERE (%(endpoint)s::uuid IS NULL OR l.endpoint_id = %(endpoint)s)
      AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
), share AS MATERIALIZED (
    SELECT greatest(%(limit)s + 1, %(look_at_ended)s / greatest(count(*), 1)) AS rows FROM scope
), ended AS MATERIALIZED (
    SELECT h.* FROM scope s CROSS JOIN LATERAL forbear.newest_ended(
        s.endpoint_id, %(first)s, %(end)s, %(since)s, (SELECT share.rows FROM share)) h
    WHERE %(want_ended)s AND NOT %(want_unhappy)s
    UNION ALL
    SELECT h.* FROM scope s CROSS JOIN LATERAL forbear.newest_unhappy(
        s.endpoint_id, %(first)s, %(end)s, %(since)s, (SELECT share.rows FROM share)) h
    WHERE %(want_unhappy)s
), few AS MATERIALIZED (
    SELECT q.* FROM scope s CROSS JOIN LATERAL forbear.unfinished_of(s.endpoint_id, %(few)s + 1) q
    WHERE %(want_unfinished)s
    LIMIT %(few)s + 1
), many AS MATERIALIZED (
    SELECT count(*) > %(few)s AS yes FROM few
), walked AS MATERIALIZED (
    SELECT q.* FROM forbear.newest_unfinished(
        ARRAY(SELECT s.endpoint_id FROM scope s), %(first)s, %(end)s, %(leased)s, %(walk)s, %(look_at_unfinished)s) q
    WHERE (SELECT m.yes FROM many m)
), scanned AS (
    SELECT h.id, h.event_id, h.endpoint_id, h.state, h.reason, h.generation, h.attempts, h.payload_bytes,
           NULL::timestamptz AS due_at, h.replay_id, h.ended_at
    FROM ended h
    UNION ALL
    SELECT q.id, q.event_id, q.endpoint_id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END, NULL,
           q.generation, q.attempts, q.payload_bytes, q.due_at, q.replay_id, NULL
    FROM (SELECT * FROM few WHERE NOT (SELECT m.yes FROM many m) AND few.id >= %(first)s AND few.id < %(end)s
          UNION ALL
          SELECT * FROM walked) q
), floor AS MATERIALIZED (
    -- Where a source was cut off: it may hold more from there down, so nothing below is shown yet.
    SELECT f.id
    FROM (SELECT (array_agg(h.id ORDER BY h.id))[1] AS id FROM ended h
          GROUP BY h.endpoint_id HAVING count(*) >= (SELECT share.rows FROM share)
          UNION ALL
          SELECT CASE WHEN count(*) >= %(look_at_unfinished)s THEN (array_agg(w.id ORDER BY w.id))[1]
                      ELSE forbear.end_of_walk(%(first)s, %(end)s, %(walk)s) END
          FROM walked w HAVING (SELECT m.yes FROM many m)) f
    WHERE f.id IS NOT NULL
    ORDER BY f.id DESC LIMIT 1
)
