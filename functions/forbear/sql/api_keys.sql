-- API keys, the newest first; those bound to a tenant, or (NULL) all.
SELECT k.id, k.name, k.scopes, k.tenant, k.created_at, k.expires_at, k.revoked_at
FROM forbear.api_keys k
WHERE k.id < %(below)s AND (%(tenant)s::text IS NULL OR k.tenant = %(tenant)s)
ORDER BY k.id DESC
LIMIT %(limit)s
