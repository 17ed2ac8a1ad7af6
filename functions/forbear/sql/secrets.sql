-- An endpoint's live secrets, the current one first, then the earlier ones, the latest first.
SELECT s.secret, s.created_at, s.expires_at
FROM forbear.secrets s JOIN forbear.lanes l ON l.endpoint_id = s.endpoint_id
WHERE s.endpoint_id = %(id)s AND l.deleted_at IS NULL AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
  AND (s.expires_at IS NULL OR s.expires_at > (SELECT forbear.now()))
ORDER BY s.expires_at DESC NULLS FIRST, s.created_at DESC
