-- The lanes, from one on, of an endpoint or of a tenant's endpoints that have anything unfinished, in the order of
-- their ids.
SELECT l.endpoint_id
FROM forbear.lanes l
WHERE (%(endpoint)s::uuid IS NULL OR l.endpoint_id = %(endpoint)s)
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
  AND l.endpoint_id >= %(from)s
  AND (SELECT count(*) FROM forbear.unfinished_of(l.endpoint_id, 1)) > 0
ORDER BY l.endpoint_id
