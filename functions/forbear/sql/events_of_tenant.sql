-- First half of a list (event_page is the second): a tenant's events. BETWEEN and not =, so that only the index on
-- (tenant, id) gives the order: from the primary key it would be that of everybody's events.
WITH looked AS MATERIALIZED (
    SELECT e.id, e.tenant, e.type, e.content_type, octet_length(e.payload) AS payload_bytes, e.expires_at
    FROM forbear.events e
    WHERE e.tenant BETWEEN %(tenant)s AND %(tenant)s AND e.id >= %(first)s AND e.id < %(end)s
    ORDER BY e.tenant DESC, e.id DESC
    LIMIT CASE WHEN %(type)s::text IS NULL THEN %(limit)s + 1 ELSE %(budget)s END
)
