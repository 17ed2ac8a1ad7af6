-- First half of a list (delivery_page is the second) of one delivery.
WITH scanned AS (
    SELECT d.id, d.event_id, d.endpoint_id, d.state, d.reason, d.generation, d.attempts, d.payload_bytes, d.due_at,
           d.replay_id, d.ended_at
    FROM forbear.deliveries d
    WHERE d.id = %(id)s
      AND (d.ended_at IS NULL OR d.ended_at >= %(since)s::timestamptz)  -- true for it: leaves older partitions out
), floor AS (
    SELECT NULL::uuid AS id WHERE false
)
