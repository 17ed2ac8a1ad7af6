-- First half of a list (delivery_page is the second): an event's deliveries. The inner query, which the planner cannot
-- pull up, leaves it no other index than the event's: without statistics it would walk a range of ids instead.
WITH scanned AS (
    SELECT d.id, d.event_id, d.endpoint_id, d.state, d.reason, d.generation, d.attempts, d.payload_bytes, d.due_at,
           d.replay_id, d.ended_at
    FROM (SELECT * FROM forbear.deliveries d
          WHERE d.event_id = %(event)s
            AND (d.ended_at IS NULL OR d.ended_at >= %(since)s::timestamptz)  -- true for all: leaves older partitions out
          OFFSET 0) d
    WHERE d.id >= %(first)s AND d.id < %(end)s
      AND (%(endpoint)s::uuid IS NULL OR d.endpoint_id = %(endpoint)s)
), floor AS (
    SELECT NULL::uuid AS id WHERE false
)
