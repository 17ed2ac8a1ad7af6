-- Pauses an endpoint; one that is paused stays paused since then.
UPDATE forbear.lanes l SET paused_at = forbear.now()
WHERE l.endpoint_id = %(id)s AND l.paused_at IS NULL AND l.deleted_at IS NULL
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
