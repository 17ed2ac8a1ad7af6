-- Enables a disabled endpoint again; a trigger makes the lane ready if nothing else holds it.
UPDATE forbear.lanes l SET disabled_at = NULL, disabled_reason = NULL
WHERE l.endpoint_id = %(id)s AND l.disabled_at IS NOT NULL AND l.deleted_at IS NULL
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
