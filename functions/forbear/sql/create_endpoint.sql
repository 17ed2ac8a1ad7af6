-- Stores an endpoint with its lane, subscriptions and secret; headers and secret are sealed for its id. The tenant's row
-- is there already; its lock lets no pause of the tenant pass by: a pause that commits first is seen here, one that comes
-- later finds the lane.
WITH holder AS MATERIALIZED (
    SELECT t.paused_at FROM forbear.tenants t WHERE t.tenant = %(tenant)s FOR SHARE
), endpoint AS (
    INSERT INTO forbear.endpoints (id, tenant, url, description, event_types, headers, policy)
    VALUES (%(id)s, %(tenant)s, %(url)s, %(description)s, %(event_types)s::text[], %(headers)s, %(policy)s::jsonb)
    RETURNING id
), lane AS (
    INSERT INTO forbear.lanes (endpoint_id, tenant, paused_at, tenant_paused_at)
    SELECT e.id, %(tenant)s, CASE WHEN %(paused)s THEN forbear.now() END, h.paused_at
    FROM endpoint e CROSS JOIN holder h
), subscription AS (
    INSERT INTO forbear.subscriptions (tenant, pattern, endpoint_id)
    SELECT %(tenant)s, p.pattern, e.id FROM endpoint e CROSS JOIN unnest(%(event_types)s::text[]) AS p (pattern)
), secret AS (
    INSERT INTO forbear.secrets (endpoint_id, secret) SELECT e.id, %(secret)s FROM endpoint e
)
SELECT e.id FROM endpoint e
