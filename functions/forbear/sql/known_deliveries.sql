-- Which of the given deliveries there are.
SELECT d.id FROM forbear.deliveries d JOIN forbear.lanes l ON l.endpoint_id = d.endpoint_id
WHERE d.id = ANY (%(ids)s::uuid[]) AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
