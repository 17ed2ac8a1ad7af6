-- Stores a replay or a backfill; its steps follow. Where an endpoint is named, the tenant is that endpoint's.
INSERT INTO forbear.replays (
    kind, deliveries, tenant, endpoint_id, types, status, reason, since, until, rate_per_s, step_at)
VALUES (
    %(kind)s, %(deliveries)s, coalesce((SELECT e.tenant FROM forbear.endpoints e WHERE e.id = %(endpoint_id)s), %(tenant)s),
    %(endpoint_id)s, %(types)s, %(status)s, %(reason)s, %(since)s, %(until)s, %(rate_per_s)s,
    coalesce(%(at)s, forbear.now()))
RETURNING id
