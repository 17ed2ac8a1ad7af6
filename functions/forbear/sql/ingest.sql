-- Stores events with their fan-out; see forbear.ingest. One row an event, in order. Payloads travel as binary: half the
-- bytes of text, and nothing to escape.
SELECT event_id, deliveries, duplicate, conflict
FROM forbear.ingest(
    %(tenants)s::text[], %(types)s::text[], %(content_types)s::text[], %(payloads)b::bytea[],
    %(expires)s::timestamptz[], %(patterns)s::text[], %(keys)s::text[], %(digests)s::bytea[]
)
ORDER BY n
