-- Pauses everything in a database that has come from a snapshot: the snapshot says which cluster it was taken of, and this
-- one is another. Only once: the row then names this cluster.
UPDATE forbear.control c
SET cluster = %(cluster)s, paused_at = coalesce(c.paused_at, forbear.now())
WHERE c.cluster IS DISTINCT FROM %(cluster)s
RETURNING c.paused_at
