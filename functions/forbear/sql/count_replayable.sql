-- Counts what a filter would replay, a bounded part of it: from where `replay` (columns of forbear.replays as JSON)
-- stands, so many rows looked at. Gives where the count stands then. The statement is short, and so is its snapshot.
SELECT w.lane, w.cursor, cardinality(w.ids) AS matched, w.finished
FROM forbear.walk_history(jsonb_populate_record(NULL::forbear.replays, %(replay)s), %(limit)s, %(limit)s) w
