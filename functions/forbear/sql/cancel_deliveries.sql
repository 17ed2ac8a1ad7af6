-- Cancels those of the given deliveries that are unfinished, on lanes in hand. What is being settled or taken over this
-- instant is not waited for (both hold several deliveries, so somebody could wait in a circle) but left to the next
-- try: `busy` says how many, and counts those too whose lanes are not in hand because they came back just now.
WITH wanted AS MATERIALIZED (
    SELECT q.id FROM forbear.queue q JOIN forbear.lanes l ON l.endpoint_id = q.endpoint_id
    WHERE q.id = ANY (%(ids)s::uuid[]) AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
), taken AS MATERIALIZED (
    SELECT q.id FROM forbear.queue q
    WHERE q.id = ANY (ARRAY(SELECT w.id FROM wanted w)) AND q.endpoint_id = ANY (%(lanes)s::uuid[])
    FOR UPDATE OF q SKIP LOCKED
), ids AS MATERIALIZED (
    SELECT coalesce(array_agg(t.id), '{}') AS ids FROM taken t
)
SELECT forbear.finish(i.ids, array_fill('cancelled'::text, ARRAY[cardinality(i.ids)]),
                      array_fill(NULL::text, ARRAY[cardinality(i.ids)]), forbear.now()) AS cancelled,
       (SELECT count(*) FROM wanted) - cardinality(i.ids) AS busy
FROM ids i
