-- Records a batch of results in one round trip; see forbear.settle. The casts give empty arrays their types.
SELECT late, stale
FROM forbear.settle(
    %(ids)s::uuid[], %(tokens)s::uuid[], %(endpoints)s::uuid[], %(outcomes)s::text[], %(reasons)s::text[],
    %(delays)s::float8[], %(limited)s::boolean[], %(verdicts)s::text[], %(ages)s::float8[], %(latencies_ms)s::float8[], %(urls)s::text[], %(addresses)s::text[],
    %(request_headers)b::bytea[], %(statuses)s::int[], %(response_headers)b::bytea[], %(response_bodies)b::bytea[],
    %(errors)s::text[], %(error_details)s::text[], %(retry_afters)s::float8[], %(honoured)s::boolean[],
    %(lane_ids)s::uuid[], %(versions)s::bigint[], %(controls)s::text[]::jsonb[], %(waits)s::float8[],
    %(disables)s::text[]
)
