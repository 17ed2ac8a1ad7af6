-- Stores arrivals: an event and its delivery for each, as forbear.ingest does, but due when it arrives and not now. The
-- ids are a UUIDv7's time and then the arrival's number, so that a lease tells which one it is.
WITH arrival AS (
    SELECT (left(forbear.first_id(a.due_at)::text, 14) || '7000-8000-' || lpad(to_hex(%(first)s + a.n - 1), 12, '0'))
               ::uuid AS id,
           a.due_at
    FROM (SELECT %(start)s + t.due_s * interval '1 second' AS due_at, t.n
          FROM unnest(%(times)s::float8[]) WITH ORDINALITY AS t (due_s, n)) a
), event AS (
    INSERT INTO forbear.events (id, tenant, type, content_type, payload)
    SELECT a.id, %(tenant)s, 'simulated', 'application/json', %(payload)s FROM arrival a
)
INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)
SELECT a.id, a.id, %(endpoint)s, a.due_at, octet_length(%(payload)s) FROM arrival a
