-- Stores an event with its fan-out; see forbear.ingest, whose four results are one value here: taken apart by a FROM,
-- they would cost the server more. The payload travels as binary: half the bytes of text, and nothing to escape.
SELECT forbear.ingest($1::text, $2::text, $3::text, $4::bytea, $5::timestamptz, $6::text, $7::text, $8::bytea)
