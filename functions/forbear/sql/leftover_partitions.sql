-- Partitions that an interrupted clean-up left half detached (to be finalised) or detached but not dropped. A partition
-- that is being made is never among them: it is created and attached in one transaction.
SELECT parent.name, c.relname, CASE WHEN i.inhdetachpending THEN 'FINALIZE' END
FROM (VALUES ('events'), ('history'), ('history_attempts')) AS parent (name)
JOIN pg_class c ON c.relname ~ ('^' || parent.name || '_[0-9]{8}$') AND c.relkind = 'r'
                   AND c.relnamespace = 'forbear'::regnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE i.inhrelid IS NULL OR i.inhdetachpending
