-- Second half of a list of events: of what the first half looked at, the newest that the filter lets through. Gives at
-- least one row, for `floor`: where the bound to how many are looked at was reached, if it was.
, floor AS (
    SELECT (array_agg(l.id ORDER BY l.id))[1] AS id FROM looked l HAVING count(*) >= %(look_at)s
), page AS (
    SELECT * FROM looked l WHERE %(type)s::text IS NULL OR l.type = %(type)s ORDER BY l.id DESC LIMIT %(limit)s + 1
)
SELECT (SELECT f.id FROM floor f) AS floor, p.*
FROM (VALUES (true)) AS always LEFT JOIN page p ON true
ORDER BY p.id DESC
