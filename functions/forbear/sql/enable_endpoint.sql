-- enable_endpoint
-- Enables a disabled endpoint again; a trigger makes the lane ready if nothing else holds it. The failures that led to
-- it are forgotten, or the next one would disable it once more.
UPDATE forbear.lanes l
SET disabled_at = NULL, disabled_reason = NULL, control_memory = l.control_memory - 'trouble',
    control_version = l.control_version + 1
WHERE l.endpoint_id = %(id)s AND l.disabled_at IS NOT NULL AND l.deleted_at IS NULL
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
