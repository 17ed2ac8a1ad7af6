-- First half of a rotation, on an endpoint in hand: what has expired goes, and so does what nobody can open; the current
-- secret signs for 24 hours more.
WITH expired AS (
    DELETE FROM forbear.secrets s
    WHERE s.endpoint_id = %(id)s AND (s.expires_at <= forbear.now() OR s.secret = ANY (%(unreadable)s::text[]))
)
UPDATE forbear.secrets s SET expires_at = forbear.now() + interval '24 hours'
WHERE s.endpoint_id = %(id)s AND s.expires_at IS NULL AND s.secret <> ALL (%(unreadable)s::text[])
