-- First half of a list (event_page is the second): a tenant's events.
WITH looked AS MATERIALIZED (
    SELECT * FROM forbear.newest_events(%(tenant)s, %(first)s, %(end)s, %(look_at)s)
)
