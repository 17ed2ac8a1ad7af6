-- Marks a locked endpoint as deleted: nothing new comes to it, and its secrets are gone. Its deliveries stay readable.
WITH endpoint AS (
    UPDATE forbear.endpoints e SET deleted_at = forbear.now() WHERE e.id = %(id)s
), unsubscribed AS (
    DELETE FROM forbear.subscriptions s WHERE s.endpoint_id = %(id)s
), secret AS (
    DELETE FROM forbear.secrets s WHERE s.endpoint_id = %(id)s
)
UPDATE forbear.lanes l SET deleted_at = forbear.now() WHERE l.endpoint_id = %(id)s
