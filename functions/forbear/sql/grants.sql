-- What each function may do in the database: what its statements need, and nothing else. Run by the schema's owner after
-- every migration.
--
-- SQL functions run with their caller's rights, so the right to call one gives nothing away. The one that does not,
-- make_partitions(), makes the partitions of the coming days. Partitioned tables are granted by their parents: nobody
-- but the owner reads a partition by its own name.
--
-- Locking a row (SELECT … FOR UPDATE, SHARE, …) takes the right to update some column. Where a role only locks, that is
-- one whose change does no more harm than what the role may do anyhow.

GRANT USAGE ON SCHEMA forbear TO forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA forbear TO forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
REVOKE EXECUTE ON FUNCTION forbear.make_partitions(timestamptz, int)
    FROM PUBLIC, forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
GRANT SELECT ON forbear.clock TO forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;

-- Wrapped, a data key is worth nothing to who cannot use the key outside.
GRANT SELECT ON forbear.data_keys TO forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;

-- Is a claimer awake, and who calls one: all but the claimer ask after their commit.
GRANT SELECT (id) ON forbear.wakes TO forbear_ingest, forbear_replay, forbear_manage;
GRANT SELECT, INSERT, UPDATE (awake_until), DELETE ON forbear.claimers
    TO forbear_ingest, forbear_replay, forbear_manage;

-- Ingest writes events, and reads neither them nor anything of an endpoint but what it subscribes to.
GRANT SELECT ON forbear.subscriptions TO forbear_ingest;
GRANT SELECT, INSERT, UPDATE (event_id, digest, created_at) ON forbear.idempotency_keys TO forbear_ingest;
GRANT INSERT ON forbear.events, forbear.wakes TO forbear_ingest;
GRANT INSERT, SELECT (event_id, endpoint_id, due_at) ON forbear.queue TO forbear_ingest;
GRANT SELECT (event_id) ON forbear.history TO forbear_ingest;

-- The claimer reads payloads, and headers and secrets as they are sealed, to sign and send; it moves deliveries to the
-- history, and back for replays. It changes no endpoint, only its lane.
GRANT SELECT ON forbear.endpoints, forbear.secrets, forbear.events TO forbear_claimer;
GRANT SELECT, UPDATE ON forbear.lanes TO forbear_claimer;
GRANT SELECT, UPDATE (schedule, maintenance_called_at) ON forbear.control TO forbear_claimer;
GRANT SELECT, INSERT, UPDATE (id), DELETE ON forbear.wakes, forbear.uncounted TO forbear_claimer;
GRANT SELECT, INSERT, UPDATE, DELETE ON forbear.claimers, forbear.queue, forbear.queue_attempts,
    forbear.history_attempts TO forbear_claimer;
GRANT SELECT, INSERT, UPDATE (id), DELETE ON forbear.history TO forbear_claimer;
GRANT SELECT, UPDATE ON forbear.replays TO forbear_claimer;

-- Replay moves deliveries between history and queue. Of events and endpoints it reads what it selects by: no payload,
-- no header, no secret.
GRANT SELECT, INSERT, UPDATE ON forbear.replays TO forbear_replay;
GRANT SELECT (id, tenant, url, deleted_at) ON forbear.endpoints TO forbear_replay;
GRANT SELECT (id, type) ON forbear.events TO forbear_replay;
GRANT SELECT, UPDATE (visited_at) ON forbear.lanes TO forbear_replay;
GRANT SELECT, INSERT, UPDATE (id), DELETE ON forbear.queue, forbear.history TO forbear_replay;
GRANT SELECT, INSERT, DELETE ON forbear.queue_attempts, forbear.history_attempts TO forbear_replay;
GRANT INSERT ON forbear.wakes TO forbear_replay;

-- Manage owns endpoints and what holds them, reads everything, and cancels: what has ended it neither changes nor
-- deletes. It makes deliveries by test events and by the first steps of backfills.
GRANT SELECT, INSERT, UPDATE ON forbear.endpoints, forbear.lanes TO forbear_manage;
GRANT SELECT, INSERT, DELETE ON forbear.subscriptions TO forbear_manage;
GRANT SELECT, INSERT, UPDATE (expires_at), DELETE ON forbear.secrets TO forbear_manage;
GRANT SELECT, INSERT, UPDATE (paused_at) ON forbear.tenants TO forbear_manage;
GRANT SELECT, UPDATE (paused_at, resumed_at, held_total) ON forbear.control TO forbear_manage;
GRANT SELECT, INSERT ON forbear.events, forbear.history, forbear.history_attempts TO forbear_manage;
GRANT SELECT, INSERT, UPDATE (id), DELETE ON forbear.queue TO forbear_manage;
GRANT SELECT, DELETE ON forbear.queue_attempts TO forbear_manage;
GRANT SELECT ON forbear.deliveries, forbear.attempts TO forbear_manage;
GRANT SELECT, INSERT, UPDATE ON forbear.replays TO forbear_manage;
GRANT INSERT ON forbear.wakes TO forbear_manage;

-- Whoever takes API keys checks them in the database, as data keys hash them. Only manage makes and revokes them; what a
-- key is for, and whose, stays as it was made.
GRANT SELECT (id, hash, scopes, tenant, expires_at, revoked_at) ON forbear.api_keys TO forbear_ingest, forbear_replay;
GRANT SELECT, INSERT, UPDATE (revoked_at) ON forbear.api_keys TO forbear_manage;
