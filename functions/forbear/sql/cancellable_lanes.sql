-- The lanes, from one on, of an endpoint or of a tenant's endpoints that have anything unfinished, in the order of
-- their ids.
SELECT l.endpoint_id
FROM forbear.lanes l
WHERE (%(endpoint)s::uuid IS NULL OR l.endpoint_id = %(endpoint)s)
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
  AND l.endpoint_id >= %(from)s
  AND (EXISTS (SELECT FROM forbear.queue q WHERE q.endpoint_id = l.endpoint_id AND q.lease_token IS NULL)
       OR EXISTS (SELECT FROM forbear.queue q WHERE q.endpoint_id = l.endpoint_id AND q.lease_token IS NOT NULL))
ORDER BY l.endpoint_id
