-- Ends an endpoint's pause; a trigger makes the lane ready if nothing else holds it.
UPDATE forbear.lanes l SET paused_at = NULL
WHERE l.endpoint_id = %(id)s AND l.paused_at IS NOT NULL AND l.deleted_at IS NULL
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
