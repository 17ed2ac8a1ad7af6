-- First half of a list (delivery_page is the second): everybody's deliveries, by the primary keys.
WITH ended AS MATERIALIZED (
    SELECT h.id, h.event_id, h.endpoint_id, h.state, h.reason, h.generation, h.attempts, h.payload_bytes,
           NULL::timestamptz AS due_at, h.replay_id, h.ended_at
    FROM forbear.history h
    WHERE h.id >= %(first)s AND h.id < %(end)s
      AND h.ended_at >= %(since)s::timestamptz AND %(want_ended)s
    ORDER BY h.id DESC
    LIMIT CASE WHEN %(filtered)s THEN %(budget)s ELSE %(limit)s + 1 END
), unfinished AS MATERIALIZED (
    SELECT q.id, q.event_id, q.endpoint_id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END AS state,
           NULL::text AS reason, q.generation, q.attempts, q.payload_bytes, q.due_at, q.replay_id,
           NULL::timestamptz AS ended_at
    FROM forbear.queue q
    WHERE q.id >= %(first)s AND q.id < %(end)s AND %(want_unfinished)s
    ORDER BY q.id DESC
    LIMIT CASE WHEN %(filtered)s THEN %(budget)s ELSE %(limit)s + 1 END
), scanned AS (
    SELECT * FROM ended UNION ALL SELECT * FROM unfinished
), floor AS MATERIALIZED (
    -- Where a source was cut off: it may hold more from there down, so nothing below is shown yet.
    SELECT f.id
    FROM (SELECT (array_agg(e.id ORDER BY e.id))[1] AS id FROM ended e
          HAVING count(*) >= CASE WHEN %(filtered)s THEN %(budget)s ELSE %(limit)s + 1 END
          UNION ALL
          SELECT (array_agg(u.id ORDER BY u.id))[1] FROM unfinished u
          HAVING count(*) >= CASE WHEN %(filtered)s THEN %(budget)s ELSE %(limit)s + 1 END) f
    ORDER BY f.id DESC LIMIT 1
)
