-- Sends an endpoint an event of its own: stored and queued like any other, but for this endpoint only. Its timestamp is
-- read from its id, as whoever shows the event reads it: another look at the clock could be a millisecond later.
WITH given AS MATERIALIZED (
    SELECT l.tenant, n.now, n.event_id, forbear.new_id() AS delivery_id,
           convert_to(format('{"type":"forbear.test","timestamp":"%%s","data":{"endpoint":"%%s"}}',
                             to_char(uuid_extract_timestamp(n.event_id) AT TIME ZONE 'UTC',
                                     'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                             %(shown_id)s::text), 'UTF8') AS payload
    FROM forbear.lanes l CROSS JOIN (SELECT forbear.now() AS now, forbear.new_id() AS event_id OFFSET 0) n
    WHERE l.endpoint_id = %(id)s AND l.deleted_at IS NULL AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
), event AS (
    INSERT INTO forbear.events (id, tenant, type, content_type, payload)
    SELECT g.event_id, g.tenant, 'forbear.test', 'application/json', g.payload FROM given g
), delivery AS (
    INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)
    SELECT g.delivery_id, g.event_id, %(id)s, g.now, octet_length(g.payload) FROM given g
), woken AS (
    INSERT INTO forbear.wakes (endpoint_ids, due_ats) SELECT ARRAY[%(id)s::uuid], ARRAY[g.now] FROM given g
)
SELECT g.event_id, g.delivery_id FROM given g
