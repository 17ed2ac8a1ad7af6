-- Stores a replay or a backfill; its steps follow. Where an endpoint is named, the tenant is that endpoint's.
--
-- A backfill must wait for the events that are being taken in just now by transactions that have read the subscriptions
-- already, perhaps from before its endpoint was among them. Whoever reads a table holds a lock on it to the end, and
-- took it before the snapshot: so these are the holders.
INSERT INTO forbear.replays (
    kind, deliveries, tenant, endpoint_id, types, status, reason, since, until, rate_per_s, step_at, wait_for)
VALUES (
    %(kind)s, %(deliveries)s,
    coalesce((SELECT e.tenant FROM forbear.endpoints e WHERE e.id = %(endpoint_id)s), %(tenant)s),
    %(endpoint_id)s, %(types)s, %(status)s, %(reason)s, %(since)s, %(until)s, %(rate_per_s)s,
    coalesce(%(at)s, forbear.now()),
    CASE WHEN %(kind)s = 'backfill'
         THEN ARRAY(SELECT h.virtualtransaction FROM forbear.holders_of_subscriptions() h) END)
RETURNING id
