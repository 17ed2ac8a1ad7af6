-- A step of cancelling by filter, on a lane in hand: all that is leased, and the next pending ones in the order in
-- which they are due. `looked` says how many pending ones it looked at, `due_at` and `id` where it stopped. What is being
-- settled or taken over this instant is not waited for (see cancel_deliveries): `busy`.
--
-- Nothing slips through between the steps: what is claimed meanwhile is among the leased at the next one, and what
-- comes back from there is due no earlier than it was before.
WITH leased AS MATERIALIZED (
    SELECT q.id, q.event_id FROM forbear.queue q
    WHERE q.endpoint_id = %(endpoint)s AND q.lease_token IS NOT NULL
), pending AS MATERIALIZED (
    SELECT q.id, q.event_id, q.due_at FROM forbear.next_due(%(endpoint)s, %(due_at)s, %(id)s, %(limit)s) q
), wanted AS MATERIALIZED (
    SELECT w.id
    FROM (SELECT l.id, l.event_id FROM leased l UNION ALL SELECT p.id, p.event_id FROM pending p) w
    WHERE w.id >= %(first)s AND w.id < %(end)s
      AND (%(type)s::text IS NULL OR (SELECT v.type FROM forbear.events v WHERE v.id = w.event_id) = %(type)s)
), taken AS MATERIALIZED (
    SELECT q.id FROM forbear.queue q WHERE q.id = ANY (ARRAY(SELECT w.id FROM wanted w))
    FOR UPDATE OF q SKIP LOCKED
), ids AS MATERIALIZED (
    SELECT coalesce(array_agg(t.id), '{}') AS ids FROM taken t
)
SELECT forbear.finish(i.ids, array_fill('cancelled'::text, ARRAY[cardinality(i.ids)]),
                      array_fill(NULL::text, ARRAY[cardinality(i.ids)]), forbear.now()) AS cancelled,
       (SELECT count(*) FROM wanted) - cardinality(i.ids) AS busy,
       (SELECT count(*) FROM pending) AS looked, last.due_at, last.id
FROM ids i LEFT JOIN (SELECT p.due_at, p.id FROM pending p ORDER BY p.due_at DESC, p.id DESC LIMIT 1) last ON true
