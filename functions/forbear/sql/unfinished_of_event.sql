-- The unfinished deliveries of a tenant's event (no tenant: of any), by its index; as many as one call cancels.
SELECT q.id FROM forbear.queue q
WHERE q.event_id = %(event)s
  AND (%(tenant)s::text IS NULL OR (SELECT e.tenant FROM forbear.events e WHERE e.id = %(event)s) = %(tenant)s)
LIMIT %(limit)s
