-- Cancels a replay, a finished one too: its next steps walk once over what it put back and cancel what is pending.
UPDATE forbear.replays r
SET state = 'running', cancelled_at = coalesce(r.cancelled_at, forbear.now()), ended_at = NULL, step_at = forbear.now(),
    cursor = '00000000-0000-0000-0000-000000000000'
WHERE r.id = %(id)s AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s)
RETURNING r.id
