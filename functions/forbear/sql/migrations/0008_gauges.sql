-- What a claimer measures of the database, and the ends of deliveries that only the database knows of.

-- Deliveries that ended dead without a settle that a claimer could count (reasons lost and circuit_open): appended by
-- what ends them, in the same transaction, and taken by the next claimer that measures. So each is counted once.
CREATE TABLE forbear.uncounted (
    id   bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    dead int    NOT NULL CHECK (dead > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Only what gauges count stands in it: a closed breaker, nearly every one, costs nothing.
CREATE INDEX lanes_unclosed ON forbear.lanes (endpoint_id) WHERE breaker_state <> 'closed' AND deleted_at IS NULL;

-- The gauges, under the names of their metrics (forbear.metrics); by how many seconds the most overdue thing that a
-- claimer would work on is overdue; and the deliveries that ended dead and are not counted yet: they are from now on.
--
-- It costs the same whatever is queued, finished or idle: it reads as many rows as there are breakers that are not
-- closed, leases (a claimer holds 1,000 at most) and sessions. So the backlog is the statistics' estimate of the queue's
-- live rows, what is in flight among them: exact to about a second of changes, and from zero again after a crash or a
-- fail-over until the next ANALYZE. A wake row that waits is a ready lane that nobody has looked at yet.
--
-- Sessions of other roles show their times only to members of pg_read_all_stats; without that the oldest snapshot is the
-- oldest of the caller's own role. Vacuuming is left out: it holds back nobody.
CREATE FUNCTION forbear.measure(
    OUT backlog_deliveries bigint, OUT oldest_ready_age_seconds float8, OUT oldest_lease_age_seconds float8,
    OUT oldest_snapshot_age_seconds float8, OUT breakers_open bigint, OUT claimers_awake bigint,
    OUT overdue_s float8, OUT uncounted_dead bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_now     timestamptz := forbear.now();
    v_ready   timestamptz;
    v_claimed timestamptz;
    v_lapse   timestamptz;
    v_step    timestamptz;
BEGIN
    backlog_deliveries := coalesce(pg_stat_get_live_tuples('forbear.queue'::regclass), 0);

    IF (SELECT c.paused_at IS NULL FROM forbear.control c) THEN
        v_ready := least(
            (SELECT l.ready_at FROM forbear.lanes l WHERE NOT l.held AND l.ready_at < 'infinity'
             ORDER BY l.ready_at LIMIT 1),
            (SELECT min(d.due_at)
             FROM (SELECT w.due_ats FROM forbear.wakes w ORDER BY w.id LIMIT 100) w
             CROSS JOIN LATERAL unnest(w.due_ats) AS d (due_at)));
    END IF;
    SELECT min(q.claimed_at), min(q.lease_until) INTO v_claimed, v_lapse
    FROM forbear.queue q WHERE q.lease_token IS NOT NULL;
    v_step := (SELECT min(r.step_at) FROM forbear.replays r WHERE r.state IN ('waiting', 'running'));

    oldest_ready_age_seconds := greatest(0, extract(epoch FROM v_now - v_ready));
    oldest_lease_age_seconds := greatest(0, extract(epoch FROM v_now - v_claimed));
    overdue_s := greatest(0, extract(epoch FROM v_now - least(v_ready, v_lapse, v_step)));

    SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(a.xact_start))) INTO oldest_snapshot_age_seconds
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
      AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL);

    SELECT count(*) INTO breakers_open
    FROM forbear.lanes l WHERE l.breaker_state <> 'closed' AND l.deleted_at IS NULL;

    SELECT count(*) INTO claimers_awake
    FROM forbear.claimers c WHERE c.awake_until > v_now AND c.id <> '00000000-0000-0000-0000-000000000000';

    WITH taken AS (
        DELETE FROM forbear.uncounted u
        WHERE u.id = ANY (ARRAY(SELECT n.id FROM forbear.uncounted n ORDER BY n.id LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING u.dead
    )
    SELECT coalesce(sum(t.dead), 0) INTO uncounted_dead FROM taken t;
END
$$;
