-- Endpoints with what their lanes say: one by its id, or some of them, the newest first. Deleted ones are not there.
SELECT e.id, e.tenant, e.url, e.description, e.event_types, e.headers, e.policy, e.created_at, e.updated_at,
       l.paused_at, l.tenant_paused_at, c.paused_at AS everything_paused_at, l.disabled_at, l.disabled_reason,
       l.breaker_state, l.breaker_since, l.breaker_reason, l.breaker_failures, l.breaker_allows,
       l.concurrency, l.concurrency_limit, floor(b.tokens + b.deposits + 1e-6)::int AS retries,
       coalesce(l.breaker_until, l.probe_until)           AS next_probe_at,
       CASE WHEN l.wait_until > n.now THEN l.wait_until END AS retry_after_until
FROM forbear.endpoints e
JOIN forbear.lanes l ON l.endpoint_id = e.id
CROSS JOIN forbear.control c
CROSS JOIN (SELECT forbear.now() AS now OFFSET 0) n
LEFT JOIN LATERAL forbear.budget(l.budget_tokens, l.budget_deposits, greatest(0, extract(epoch FROM n.now - l.visited_at))::float8,
                                 l.budget_floor, l.budget_window) b ON l.budget_floor IS NOT NULL
WHERE e.deleted_at IS NULL
  AND (%(id)s::uuid IS NULL OR e.id = %(id)s)
  AND (%(tenant)s::text IS NULL OR e.tenant = %(tenant)s)
  AND e.id < %(below)s
ORDER BY e.id DESC
LIMIT %(limit)s
