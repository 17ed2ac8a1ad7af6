-- First half of a list (event_page is the second): everybody's events.
WITH looked AS MATERIALIZED (
    SELECT * FROM forbear.newest_events_of_all(%(first)s, %(end)s, %(look_at)s)
)
