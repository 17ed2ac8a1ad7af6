-- Stores an API key: what it may do and its keyed hash, not the key.
INSERT INTO forbear.api_keys (id, name, hash, scopes, tenant, expires_at)
VALUES (%(id)s, %(name)s, %(hash)s, %(scopes)s::text[], %(tenant)s, %(expires_at)s)
RETURNING id, name, scopes, tenant, created_at, expires_at, revoked_at
