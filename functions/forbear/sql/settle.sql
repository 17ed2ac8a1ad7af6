-- Records a batch of results in one round trip; see forbear.settle. The casts give empty arrays their types.
SELECT late, stale
FROM forbear.settle(
    %(ids)b::uuid[], %(tokens)b::uuid[], %(endpoints)b::uuid[], %(outcomes)b::text[], %(reasons)b::text[],
    %(delays)b::float8[], %(limited)b::boolean[], %(verdicts)b::text[], %(ages)b::float8[], %(latencies_ms)b::float8[], %(urls)b::text[], %(addresses)b::text[],
    %(request_headers)b::bytea[], %(statuses)b::int[], %(response_headers)b::bytea[], %(response_bodies)b::bytea[],
    %(errors)b::text[], %(error_details)b::text[], %(retry_afters)b::float8[], %(honoured)b::boolean[],
    %(lane_ids)b::uuid[], %(versions)b::bigint[], %(controls)b::text[]::jsonb[], %(waits)b::float8[],
    %(disables)b::text[], %(same_ids)b::uuid[], %(same_versions)b::bigint[]
)
