-- First half of a list (event_page is the second): everybody's events. The partitions are read one after the other.
WITH looked AS MATERIALIZED (
    SELECT e.id, e.tenant, e.type, e.content_type, octet_length(e.payload) AS payload_bytes, e.expires_at
    FROM forbear.events e
    WHERE e.id >= %(first)s AND e.id < %(end)s
    ORDER BY e.id DESC
    LIMIT CASE WHEN %(type)s::text IS NULL THEN %(limit)s + 1 ELSE %(budget)s END
)
