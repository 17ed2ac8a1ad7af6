-- Carries a tenant's pause, whose row is in hand, to its lanes: in the order of their ids, as everybody locks several.
WITH lane AS MATERIALIZED (
    SELECT l.endpoint_id FROM forbear.lanes l
    WHERE l.tenant = %(tenant)s AND l.deleted_at IS NULL
      AND l.tenant_paused_at IS DISTINCT FROM %(paused_at)s::timestamptz
    ORDER BY l.endpoint_id FOR NO KEY UPDATE
)
UPDATE forbear.lanes l SET tenant_paused_at = %(paused_at)s::timestamptz
FROM lane WHERE l.endpoint_id = lane.endpoint_id
