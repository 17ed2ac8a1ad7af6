-- Revokes an API key, once: whoever asks again changes nothing.
UPDATE forbear.api_keys SET revoked_at = coalesce(revoked_at, forbear.now()) WHERE id = %(id)s RETURNING id
