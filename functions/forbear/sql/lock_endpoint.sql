-- Locks an endpoint for a change by its lane's row, before any other of its rows; no row: there is no such endpoint.
SELECT e.event_types, e.description, e.url, e.headers, e.policy, e.tenant
FROM forbear.lanes l JOIN forbear.endpoints e ON e.id = l.endpoint_id
WHERE l.endpoint_id = %(id)s AND l.deleted_at IS NULL AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
FOR NO KEY UPDATE OF l
