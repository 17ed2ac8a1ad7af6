-- An event with its payload.
SELECT e.id, e.tenant, e.type, e.content_type, octet_length(e.payload) AS payload_bytes, e.expires_at, e.payload
FROM forbear.events e
WHERE e.id = %(id)s AND (%(tenant)s::text IS NULL OR e.tenant = %(tenant)s)
