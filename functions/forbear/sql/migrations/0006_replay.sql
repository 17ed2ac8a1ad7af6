-- Another life for finished deliveries, and deliveries for events that an endpoint did not get. Both go in steps: a
-- step is a transaction of its own, looks at a bounded number of rows from where the last one stopped, and moves on.

-- Whether one of the patterns matches an event type: the rule of the module forbear.event_types.
CREATE FUNCTION forbear.type_matches(p_type text, p_patterns text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT FROM unnest(p_patterns) AS p (pattern)
                   WHERE p.pattern IN ('*', p_type)
                      OR (p.pattern LIKE '%.*' AND starts_with(p_type, left(p.pattern, -1))))
$$;

-- Puts finished deliveries back in the queue as a new generation: the full schedule again, the same event and body, the
-- earlier attempts kept. What an event's expires_at said is left out: somebody asked for this. They ended between
-- p_ended_from and p_ended_to: other partitions are not looked at. In the order of their ids they become due p_gap
-- apart, the first at p_from; so a lane's low-water mark can pass each of them. Gives the number put back.
--
-- Left where it is: what is in the queue by now, what belongs to a deleted endpoint, and what has lost its event to
-- retention. Several replays of the same deliveries wait for each other in the order of the ids, so not in a circle.
-- Should the endpoint be deleted meanwhile: the wake row makes a claimer visit the lane, which cancels.
--
-- Here and in what follows, partitioned tables are read by arrays of ids and by scalar subqueries and not by joins. A
-- join's cost is guessed as if every row looked into every partition, and a small table then made the planner read all
-- of it once a row; these have one plan. Planned with the values at hand, which rules out partitions beforehand.
CREATE FUNCTION forbear.revive(
    p_ids uuid[], p_ended_from timestamptz, p_ended_to timestamptz, p_replay uuid, p_from timestamptz, p_gap interval
) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids  uuid[];
    v_back bigint;
BEGIN
    IF p_ids = '{}' THEN
        RETURN 0;
    END IF;
    v_ids := ARRAY(
        SELECT h.id FROM forbear.history h
        WHERE h.id = ANY (p_ids) AND h.ended_at BETWEEN p_ended_from AND p_ended_to
          AND (SELECT l.deleted_at IS NULL FROM forbear.lanes l WHERE l.endpoint_id = h.endpoint_id)
          AND (SELECT true FROM forbear.events e WHERE e.id = h.event_id)
        ORDER BY h.id FOR UPDATE);

    WITH back AS (
        DELETE FROM forbear.history h
        WHERE h.id = ANY (v_ids) AND h.ended_at BETWEEN p_ended_from AND p_ended_to
        RETURNING h.*
    ), attempts AS (
        DELETE FROM forbear.history_attempts a
        WHERE a.delivery_id = ANY (v_ids) AND a.ended_at BETWEEN p_ended_from AND p_ended_to
        RETURNING a.delivery_id, a.number, a.generation, a.started_at, a.latency_ms, a.url, a.address,
                  a.request_headers, a.status, a.response_headers, a.response_body, a.error, a.error_detail, a.verdict,
                  a.retry_after_s, a.retry_after_honoured, a.next_due_at, a.late
    ), attempts_back AS (
        INSERT INTO forbear.queue_attempts SELECT * FROM attempts
    ), queued AS (
        INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes, generation, attempts, replay_id)
        SELECT b.id, b.event_id, b.endpoint_id, p_from + (row_number() OVER (ORDER BY b.id) - 1) * p_gap,
               b.payload_bytes, b.generation + 1, b.attempts, p_replay
        FROM back b
        RETURNING endpoint_id, due_at
    ), woken AS (
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        SELECT array_agg(l.endpoint_id), array_agg(l.due_at)
        FROM (SELECT q.endpoint_id, min(q.due_at) AS due_at FROM queued q GROUP BY q.endpoint_id) l
        HAVING count(*) > 0
    )
    SELECT count(*) INTO v_back FROM queued;
    RETURN v_back;
END
$$;

-- The next finished deliveries that a replay's filter takes, p_take at most, out of about p_limit looked at: endpoint
-- by endpoint, in the order of the ids, from where p_replay stands. Gives where it stands then, and between which times
-- those deliveries ended.
--
-- In the walks of this file the bounds are rows of two columns. Were the first column compared by =, the order by id
-- would do, and the planner might take it from the primary key and read through everybody else's rows; so only the
-- index on both columns gives the order, and it is entered at the very row where the last step stopped.
CREATE FUNCTION forbear.walk_history(
    p_replay forbear.replays, p_limit int, p_take bigint,
    OUT lane uuid, OUT cursor uuid, OUT walked int, OUT ids uuid[], OUT ended_from timestamptz,
    OUT ended_to timestamptz, OUT finished boolean
)
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_sort = off SET enable_incremental_sort = off
AS $$
DECLARE
    v_before timestamptz := coalesce(p_replay.started_at, forbear.now());
    v_first  uuid        := forbear.first_id(coalesce(p_replay.since, 'epoch'));
    v_end    uuid        := coalesce(forbear.first_id(p_replay.until), 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    v_more   boolean     := p_replay.lane <> '00000000-0000-0000-0000-000000000000';
    v_next   uuid;
    v_room   int;
    v_rows   int;
    v_last   uuid;
    v_ids    uuid[];
    v_from   timestamptz;
    v_to     timestamptz;
BEGIN
    lane := p_replay.lane;
    cursor := p_replay.cursor;
    walked := 0;
    ids := '{}';
    finished := false;
    WHILE walked < p_limit AND cardinality(ids) < p_take LOOP
        IF NOT v_more THEN
            v_next := CASE
                WHEN p_replay.endpoint_id IS NOT NULL THEN (
                    SELECT e.id FROM forbear.endpoints e
                    WHERE e.id = p_replay.endpoint_id AND e.id > lane AND e.deleted_at IS NULL)
                WHEN p_replay.tenant IS NOT NULL THEN (
                    SELECT e.id FROM forbear.endpoints e
                    WHERE (e.tenant, e.id) > (p_replay.tenant, lane) AND e.tenant <= p_replay.tenant
                      AND e.deleted_at IS NULL
                    ORDER BY e.tenant, e.id LIMIT 1)
                ELSE (
                    SELECT e.id FROM forbear.endpoints e WHERE e.id > lane AND e.deleted_at IS NULL
                    ORDER BY e.id LIMIT 1) END;
            IF v_next IS NULL THEN
                finished := true;
                EXIT;
            END IF;
            lane := v_next;
            cursor := v_first;
            walked := walked + 10;  -- an endpoint costs something even if it has nothing to give
        END IF;

        v_room := greatest(1, p_limit - walked);
        WITH step AS MATERIALIZED (
            SELECT h.id, h.event_id, h.ended_at, h.state, h.reason
            FROM forbear.history h
            WHERE (h.endpoint_id, h.id) > (lane, cursor) AND (h.endpoint_id, h.id) < (lane, v_end)
              AND h.endpoint_id >= lane  -- true for all: an index's condition
              AND (p_replay.status = 'delivered' OR h.state <> 'delivered')
              AND h.ended_at >= coalesce(p_replay.since, '-infinity')  -- true for all: leaves older partitions out
            ORDER BY h.endpoint_id, h.id LIMIT v_room
        ), match AS (
            SELECT s.id, s.ended_at, row_number() OVER (ORDER BY s.id) AS n
            FROM step s
            WHERE s.state = p_replay.status AND s.ended_at <= v_before
              AND (p_replay.reason IS NULL OR s.reason = p_replay.reason)
              AND (p_replay.types IS NULL OR (
                  SELECT forbear.type_matches(e.type, p_replay.types) FROM forbear.events e WHERE e.id = s.event_id))
        )
        SELECT (SELECT count(*) FROM step s), (SELECT s.id FROM step s ORDER BY s.id DESC LIMIT 1),
               coalesce(array_agg(m.id ORDER BY m.n), '{}'), min(m.ended_at), max(m.ended_at)
        INTO v_rows, v_last, v_ids, v_from, v_to
        FROM match m WHERE m.n <= p_take - cardinality(ids);

        walked := walked + v_rows;
        ids := ids || v_ids;
        ended_from := least(ended_from, v_from);
        ended_to := greatest(ended_to, v_to);
        v_more := v_rows = v_room;
        cursor := CASE WHEN cardinality(ids) = p_take THEN ids[p_take] ELSE coalesce(v_last, cursor) END;
    END LOOP;
END
$$;

-- The same for a replay whose deliveries are named by their ids: the finished ones among the next p_take.
CREATE FUNCTION forbear.walk_named(
    p_replay forbear.replays, p_take bigint,
    OUT lane uuid, OUT cursor uuid, OUT walked int, OUT ids uuid[], OUT ended_from timestamptz,
    OUT ended_to timestamptz, OUT finished boolean
)
LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    WITH step AS MATERIALIZED (
        SELECT i.id,
               -- It ended after it was made, and its id is that time: earlier partitions are not looked at.
               (SELECT h.ended_at FROM forbear.history h
                WHERE h.id = i.id AND h.ended_at >= uuid_extract_timestamp(i.id)) AS ended_at
        FROM (SELECT d.id FROM unnest(p_replay.deliveries) AS d (id) WHERE d.id > p_replay.cursor
              ORDER BY d.id LIMIT p_take) i
    ), stand AS (
        SELECT coalesce((SELECT s.id FROM step s ORDER BY s.id DESC LIMIT 1), p_replay.cursor) AS cursor
    )
    SELECT p_replay.lane, t.cursor, (SELECT count(*)::int FROM step s),
           ARRAY(SELECT s.id FROM step s WHERE s.ended_at IS NOT NULL ORDER BY s.id),
           (SELECT min(s.ended_at) FROM step s), (SELECT max(s.ended_at) FROM step s),
           t.cursor >= p_replay.deliveries[cardinality(p_replay.deliveries)]
    FROM stand t
$$;

-- Where deliveries stand, for replaying them: one row for each that there is, in the order of the ids. 'finished' ones
-- can be put back; the others are 'pending' (or leased), or cannot be sent again: 'endpoint_deleted', 'event_gone'.
-- p_tenant: leaves out what is another tenant's; NULL for all.
CREATE FUNCTION forbear.standings(p_ids uuid[], p_tenant text) RETURNS TABLE (id uuid, standing text)
LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    WITH delivery AS MATERIALIZED (
        SELECT i.id,
               (SELECT q.endpoint_id FROM forbear.queue q WHERE q.id = i.id) AS pending_to,
               (SELECT h FROM forbear.history h
                WHERE h.id = i.id AND h.ended_at >= uuid_extract_timestamp(i.id)) AS ended
        FROM (SELECT DISTINCT u.id FROM unnest(p_ids) AS u (id)) i
    ), known AS MATERIALIZED (
        SELECT d.id, d.pending_to, (d.ended).event_id,
               (SELECT l FROM forbear.lanes l
                WHERE l.endpoint_id = coalesce(d.pending_to, (d.ended).endpoint_id)) AS lane
        FROM delivery d
    )
    SELECT k.id, CASE WHEN k.pending_to IS NOT NULL        THEN 'pending'
                      WHEN (k.lane).deleted_at IS NOT NULL THEN 'endpoint_deleted'
                      WHEN (SELECT true FROM forbear.events e WHERE e.id = k.event_id) THEN 'finished'
                      ELSE 'event_gone' END
    FROM known k
    WHERE (k.lane).tenant = coalesce(p_tenant, (k.lane).tenant)
    ORDER BY k.id
$$;

-- Writes down how far a replay has come by a step, and when the next one may run.
CREATE FUNCTION forbear.advance(
    p_id uuid, p_now timestamptz, p_step_at timestamptz, p_lane uuid, p_cursor uuid,
    p_matched bigint, p_unchanged bigint, p_cancelled bigint, p_finished boolean
) RETURNS void
LANGUAGE sql AS $$
    UPDATE forbear.replays r
    SET state      = CASE WHEN NOT p_finished THEN 'running' WHEN r.cancelled_at IS NULL THEN 'done'
                          ELSE 'cancelled' END,
        started_at = coalesce(r.started_at, p_now),
        ended_at   = CASE WHEN p_finished THEN p_now END,
        step_at    = p_step_at,
        lane       = p_lane,
        cursor     = p_cursor,
        matched    = r.matched + p_matched,
        unchanged  = r.unchanged + p_unchanged,
        cancelled  = r.cancelled + p_cancelled
    WHERE r.id = p_id
$$;

-- A replay's next step: puts back what the walk found. With a rate, ten seconds' worth at most, due one after the
-- other; the next step then comes when those are due. Gives the number of rows looked at.
CREATE FUNCTION forbear.replay_some(p_replay forbear.replays, p_limit int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_now  timestamptz := forbear.now();
    v_rate float8      := p_replay.rate_per_s;
    v_take bigint      := CASE WHEN v_rate IS NULL THEN p_limit
                               ELSE least(p_limit, greatest(1, floor(10 * v_rate))) END;
    v_gap  interval    := CASE WHEN v_rate IS NULL THEN interval '1 microsecond' ELSE interval '1 second' / v_rate END;
    v_walk record;
    v_from timestamptz;
    v_back bigint;
BEGIN
    IF p_replay.deliveries IS NOT NULL THEN
        SELECT * INTO v_walk FROM forbear.walk_named(p_replay, v_take);
    ELSE
        p_replay.started_at := coalesce(p_replay.started_at, v_now);
        SELECT * INTO v_walk FROM forbear.walk_history(p_replay, p_limit, v_take);
    END IF;
    v_from := CASE WHEN v_rate IS NULL THEN v_now - cardinality(v_walk.ids) * v_gap ELSE v_now END;
    v_back := forbear.revive(v_walk.ids, v_walk.ended_from, v_walk.ended_to, p_replay.id, v_from, v_gap);
    PERFORM forbear.advance(
        p_replay.id, v_now, CASE WHEN v_rate IS NULL THEN v_now ELSE v_now + v_back * v_gap END,
        v_walk.lane, v_walk.cursor, v_back,
        CASE WHEN p_replay.deliveries IS NULL THEN cardinality(v_walk.ids) ELSE v_walk.walked END - v_back, 0,
        v_walk.finished);
    RETURN v_walk.walked;
END
$$;

-- The transactions of others that have read the subscriptions and have not ended.
CREATE FUNCTION forbear.holders_of_subscriptions() RETURNS TABLE (virtualtransaction text)
LANGUAGE sql AS $$
    SELECT DISTINCT k.virtualtransaction FROM pg_locks k
    WHERE k.locktype = 'relation' AND k.relation = 'forbear.subscriptions'::regclass AND k.granted
      AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND k.pid <> pg_backend_pid()
$$;

-- A backfill's next step: makes deliveries to its endpoint for events of its tenant that the endpoint subscribes to and
-- has no delivery of. Test events and events that are stale by now stay out. Gives the number of events looked at.
CREATE FUNCTION forbear.backfill_some(p_replay forbear.replays, p_limit int) RETURNS int
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_sort = off SET enable_incremental_sort = off SET timezone = 'UTC'
AS $$
DECLARE
    v_now    timestamptz := forbear.now();
    v_tenant text;
    v_types  text[];
    v_oldest timestamptz;
    v_from   uuid;
    -- Events since then were fanned out to the endpoint when they came.
    v_end    uuid := forbear.first_id(least(p_replay.until, p_replay.created_at + interval '1 millisecond'));
    v_rows   int;
    v_last   uuid;
    v_wanted bigint;
    v_made   bigint;
BEGIN
    -- No ingest takes a minute: a foreign transaction that does is not waited for.
    IF v_now < p_replay.created_at + interval '1 minute' AND EXISTS (
        SELECT FROM forbear.holders_of_subscriptions() h WHERE h.virtualtransaction = ANY (p_replay.wait_for)) THEN
        UPDATE forbear.replays SET step_at = v_now + interval '100 milliseconds' WHERE id = p_replay.id;
        RETURN 0;
    END IF;

    SELECT e.tenant, e.event_types INTO v_tenant, v_types
    FROM forbear.endpoints e WHERE e.id = p_replay.endpoint_id AND e.deleted_at IS NULL;
    IF NOT FOUND THEN
        PERFORM forbear.advance(p_replay.id, v_now, v_now, p_replay.lane, p_replay.cursor, 0, 0, 0, true);
        RETURN 0;
    END IF;

    -- Of days whose history is gone nobody knows any more what was delivered; their events may be about to go, too.
    -- The lock (which blocks nobody) keeps the days that are left until this step has ended.
    LOCK TABLE ONLY forbear.history IN ACCESS SHARE MODE;
    v_oldest := (SELECT min(to_timestamp(right(c.relname, 8), 'YYYYMMDD'))
                 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'forbear.history'::regclass AND NOT i.inhdetachpending);
    v_from := greatest(p_replay.cursor, forbear.first_id(greatest(p_replay.since, v_oldest)));
    -- Two backfills of one endpoint must see what each other has made.
    PERFORM pg_advisory_xact_lock(hashtextextended('forbear.backfill.' || p_replay.endpoint_id, 0));

    WITH step AS MATERIALIZED (
        SELECT e.id, e.type, octet_length(e.payload) AS payload_bytes, e.expires_at
        FROM forbear.events e
        WHERE (e.tenant, e.id) > (v_tenant, v_from) AND (e.tenant, e.id) < (v_tenant, v_end)
          AND e.tenant >= v_tenant  -- true for all: the index's condition
          AND e.id BETWEEN v_from AND v_end  -- true for all: leaves other partitions out
        ORDER BY e.tenant, e.id LIMIT p_limit
    ), wanted AS MATERIALIZED (
        SELECT s.* FROM step s
        WHERE s.type <> 'forbear.test' AND forbear.type_matches(s.type, v_types)
          AND (p_replay.types IS NULL OR forbear.type_matches(s.type, p_replay.types))
    ), missing AS MATERIALIZED (
        SELECT w.*, row_number() OVER (ORDER BY w.id) AS n
        FROM wanted w
        WHERE (w.expires_at IS NULL OR w.expires_at > v_now)
          AND (SELECT true FROM forbear.queue q
               WHERE q.event_id = w.id AND q.endpoint_id = p_replay.endpoint_id LIMIT 1) IS NULL
          AND (SELECT true FROM forbear.history h
               WHERE h.event_id = w.id AND h.endpoint_id = p_replay.endpoint_id
                 AND h.ended_at >= uuid_extract_timestamp(w.id) LIMIT 1) IS NULL
    ), made AS (
        INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes, expires_at, replay_id)
        SELECT forbear.new_id(), m.id, p_replay.endpoint_id, v_now - (p_limit - m.n) * interval '1 microsecond',
               m.payload_bytes, m.expires_at, p_replay.id
        FROM missing m
        RETURNING due_at
    ), woken AS (
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        SELECT ARRAY[p_replay.endpoint_id], ARRAY[min(m.due_at)] FROM made m HAVING count(*) > 0
    )
    SELECT (SELECT count(*) FROM step s), (SELECT s.id FROM step s ORDER BY s.id DESC LIMIT 1),
           (SELECT count(*) FROM wanted w), (SELECT count(*) FROM made m)
    INTO v_rows, v_last, v_wanted, v_made;

    PERFORM forbear.advance(p_replay.id, v_now, v_now, p_replay.lane, coalesce(v_last, p_replay.cursor), v_made,
                            v_wanted - v_made, 0, v_rows < p_limit);
    RETURN v_rows;
END
$$;

-- A cancelled replay's next step: cancels what it put back and what is still pending. Leased deliveries go on. Gives
-- the number of rows looked at.
CREATE FUNCTION forbear.undo_some(p_replay forbear.replays, p_limit int) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off
AS $$
DECLARE
    v_now       timestamptz := forbear.now();
    v_walked    uuid[];
    v_pending   uuid[];
    v_cancelled bigint;
BEGIN
    v_walked := ARRAY(SELECT q.id FROM forbear.queue q
                      WHERE (q.replay_id, q.id) > (p_replay.id, p_replay.cursor) AND q.replay_id <= p_replay.id
                      ORDER BY q.replay_id, q.id LIMIT p_limit);
    PERFORM FROM forbear.lanes l
    WHERE l.endpoint_id = ANY (ARRAY(SELECT DISTINCT q.endpoint_id FROM forbear.queue q WHERE q.id = ANY (v_walked)))
    ORDER BY l.endpoint_id FOR NO KEY UPDATE;
    v_pending := ARRAY(SELECT q.id FROM forbear.queue q
                       WHERE q.id = ANY (v_walked) AND q.replay_id = p_replay.id AND q.lease_token IS NULL
                       ORDER BY q.id FOR UPDATE);
    v_cancelled := forbear.finish(v_pending, array_fill('cancelled'::text, ARRAY[cardinality(v_pending)]),
                                  array_fill(NULL::text, ARRAY[cardinality(v_pending)]), v_now);
    PERFORM forbear.advance(p_replay.id, v_now, v_now, p_replay.lane,
                            coalesce(v_walked[cardinality(v_walked)], p_replay.cursor), 0, 0, v_cancelled,
                            cardinality(v_walked) < p_limit);
    RETURN cardinality(v_walked);
END
$$;

-- Runs a step of this replay, due or not, over at most about p_limit rows. Gives the number of rows looked at; NULL if
-- there is no such replay or it has ended.
CREATE FUNCTION forbear.step_replay(p_id uuid, p_limit int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    v_replay forbear.replays;
BEGIN
    SELECT * INTO v_replay FROM forbear.replays r WHERE r.id = p_id AND r.ended_at IS NULL FOR UPDATE;
    RETURN CASE WHEN v_replay.id IS NULL                THEN NULL
                WHEN v_replay.cancelled_at IS NOT NULL THEN forbear.undo_some(v_replay, p_limit)
                WHEN v_replay.kind = 'backfill'        THEN forbear.backfill_some(v_replay, p_limit)
                ELSE forbear.replay_some(v_replay, p_limit) END;
END
$$;

-- Runs a step of the replay that has been due for the longest time and that nobody else is at. Gives the number of rows
-- looked at, NULL if there is none to run.
CREATE FUNCTION forbear.replay_step(p_limit int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
    RETURN forbear.step_replay(
        (SELECT r.id FROM forbear.replays r WHERE r.state IN ('waiting', 'running') AND r.step_at <= forbear.now()
         ORDER BY r.step_at LIMIT 1 FOR UPDATE SKIP LOCKED), p_limit);
END
$$;
