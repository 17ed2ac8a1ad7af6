-- Pauses a tenant, since now or since it was paused; or ends its pause. Its row is there already.
UPDATE forbear.tenants t SET paused_at = CASE WHEN %(paused)s THEN coalesce(t.paused_at, forbear.now()) END
WHERE t.tenant = %(tenant)s
RETURNING t.paused_at
