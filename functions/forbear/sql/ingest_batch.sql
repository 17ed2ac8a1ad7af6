-- Stores events with their fan-out; see forbear.ingest. One row an event, in order. Payloads travel as binary.
SELECT event_id, deliveries, duplicate, conflict
FROM forbear.ingest(
    $1::text[], $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::text[], $7::text[], $8::bytea[]
)
ORDER BY n
