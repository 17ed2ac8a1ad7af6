-- First half of a rotation, on an endpoint in hand: what has expired goes, the current secret signs for 24 hours more.
WITH expired AS (
    DELETE FROM forbear.secrets s WHERE s.endpoint_id = %(id)s AND s.expires_at <= forbear.now()
)
UPDATE forbear.secrets s SET expires_at = forbear.now() + interval '24 hours'
WHERE s.endpoint_id = %(id)s AND s.expires_at IS NULL
