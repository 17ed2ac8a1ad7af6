-- Locks the lanes of those of the given deliveries that are unfinished, in the order of their ids.
SELECT l.endpoint_id
FROM forbear.lanes l
WHERE l.endpoint_id IN (SELECT q.endpoint_id FROM forbear.queue q WHERE q.id = ANY (%(ids)s::uuid[]))
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
ORDER BY l.endpoint_id
FOR NO KEY UPDATE
