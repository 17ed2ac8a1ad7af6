-- Leasing due deliveries, fairly over lanes and within their limits.
--
-- A connection keeps the first plan of a statement, made perhaps when the tables were empty, for as long as it lives.
-- So the plans here and in the next file must not hang on statistics:
--   - a table is read by its key in a subquery that the planner cannot pull up (LATERAL … LIMIT 1, or a scalar one), or
--     by `= ANY (array)` and nothing else;
--   - an UPDATE or DELETE with values of its own for each row finds them by where they stand (ctid), having looked that
--     up so: a join by key could be turned round, and read a whole index, where tables were vacuumed while empty. The
--     rows are locked before, or whoever moves one meanwhile has made it none of ours;
--   - beside `id =` no condition says or implies that lease_token is or is not null: the partial indexes, read in full,
--     would look as good as the primary key.

-- Consumes wake rows: their lanes become ready, no earlier than what bars them. A lane in another claimer's hands is
-- not waited for; a wake row goes only when all its lanes were in hand, so none is forgotten.
CREATE FUNCTION forbear.absorb_wakes(p_limit int) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
DECLARE
    v_wakes  bigint[];
    -- parallel: the lanes to wake with the earliest time given for each; and those of them that are in hand
    v_lanes  uuid[];
    v_dues   timestamptz[];
    v_locked uuid[];
    v_due_at timestamptz[];
    v_missed uuid[];
BEGIN
    WITH taken AS MATERIALIZED (
        SELECT w.id, w.endpoint_ids, w.due_ats FROM forbear.wakes w ORDER BY w.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), lane AS (
        SELECT l.endpoint_id, min(l.due_at) AS due_at
        FROM taken t CROSS JOIN LATERAL unnest(t.endpoint_ids, t.due_ats) AS l (endpoint_id, due_at)
        GROUP BY l.endpoint_id
    )
    SELECT (SELECT array_agg(t.id) FROM taken t), array_agg(l.endpoint_id), array_agg(l.due_at)
    INTO v_wakes, v_lanes, v_dues FROM lane l;
    IF v_wakes IS NULL THEN
        RETURN;
    END IF;

    SELECT array_agg(h.endpoint_id), array_agg(h.due_at) INTO v_locked, v_due_at
    FROM (SELECT l.endpoint_id, w.due_at
          FROM unnest(v_lanes, v_dues) AS w (endpoint_id, due_at)
          CROSS JOIN LATERAL (SELECT l.endpoint_id FROM forbear.lanes l WHERE l.endpoint_id = w.endpoint_id
                              LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l) h;

    UPDATE forbear.lanes l
    SET ready_at        = least(l.ready_at, greatest(w.due_at, forbear.barred_until(l))),
        low_water       = least(l.low_water, w.due_at),
        retry_low_water = least(l.retry_low_water, w.due_at)
    FROM (SELECT w.due_at, s.spot FROM unnest(v_locked, v_due_at) AS w (endpoint_id, due_at)
          CROSS JOIN LATERAL (SELECT l.ctid AS spot FROM forbear.lanes l WHERE l.endpoint_id = w.endpoint_id
                              LIMIT 1) s) w
    WHERE l.ctid = w.spot
      AND (l.low_water > w.due_at OR l.retry_low_water > w.due_at
           OR l.ready_at > greatest(w.due_at, forbear.barred_until(l)));

    v_missed := ARRAY(SELECT unnest(v_lanes) EXCEPT SELECT unnest(v_locked));
    DELETE FROM forbear.wakes w WHERE w.id = ANY (v_wakes) AND NOT w.endpoint_ids && v_missed;
END
$$;

-- Moves deliveries of the queue, with their attempts, to the history: they ended at p_now. Parallel arrays; p_reasons
-- says why for the state `dead`. The caller holds the rows' locks. What is in flight leaves an attempt with the verdict
-- `lost`, for nobody knows whether the receiver got it; should its result still come, that is kept in its place. Gives
-- the number moved.
CREATE FUNCTION forbear.finish(p_ids uuid[], p_states text[], p_reasons text[], p_now timestamptz) RETURNS bigint
LANGUAGE sql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
    WITH gone AS (
        DELETE FROM forbear.queue q
        USING (SELECT e.state, e.reason, s.spot FROM unnest(p_ids, p_states, p_reasons) AS e (id, state, reason)
               CROSS JOIN LATERAL (SELECT q.ctid AS spot FROM forbear.queue q WHERE q.id = e.id LIMIT 1) s) e
        WHERE q.ctid = e.spot RETURNING q.*, e.state, e.reason
    ), moved AS (
        DELETE FROM forbear.queue_attempts a WHERE a.delivery_id = ANY (p_ids) RETURNING a.*
    ), kept AS (
        INSERT INTO forbear.history_attempts
        SELECT m.*, p_now FROM moved m
        UNION ALL
        SELECT g.id, g.attempts, g.generation, g.claimed_at, extract(epoch FROM p_now - g.claimed_at) * 1000,
               (SELECT p.url FROM forbear.endpoints p WHERE p.id = g.endpoint_id), NULL, '', NULL, '', '',
               'lost', g.state || ' while it was in flight: the receiver may have got it', 'lost', NULL, false, NULL,
               false, p_now
        FROM gone g WHERE g.lease_token IS NOT NULL
        ON CONFLICT DO NOTHING  -- a late result is there already
    ), ended AS (
        INSERT INTO forbear.history (id, event_id, endpoint_id, payload_bytes, state, reason, generation, attempts,
                                     replay_id, ended_at)
        SELECT g.id, g.event_id, g.endpoint_id, g.payload_bytes, g.state, g.reason, g.generation, g.attempts,
               g.replay_id, p_now
        FROM gone g RETURNING 1
    )
    SELECT count(*) FROM ended
$$;

-- Cancels what is unfinished on a lane that the caller has locked, at most p_limit deliveries. Gives their number. A
-- leased one that is being settled or taken over this instant is not waited for: should it become pending again, its
-- wake row brings a claimer back to the lane.
CREATE FUNCTION forbear.cancel_lane(p_endpoint uuid, p_limit int) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids uuid[] := ARRAY(SELECT q.id FROM forbear.queue q
                          WHERE q.endpoint_id = p_endpoint AND q.lease_token IS NOT NULL
                          LIMIT p_limit FOR UPDATE SKIP LOCKED);
BEGIN
    v_ids := v_ids || ARRAY(SELECT q.id FROM forbear.queue q WHERE q.endpoint_id = p_endpoint AND q.lease_token IS NULL
                            LIMIT p_limit - cardinality(v_ids) FOR UPDATE);
    RETURN forbear.finish(v_ids, array_fill('cancelled'::text, ARRAY[cardinality(v_ids)]),
                          array_fill(NULL::text, ARRAY[cardinality(v_ids)]), forbear.now());
END
$$;

-- Ends what is due on a lane that the caller has locked, at most p_limit deliveries, because its breaker is open and its
-- policy says that they must not wait. Gives their number.
CREATE FUNCTION forbear.dead_letter_lane(p_endpoint uuid, p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids   uuid[] := ARRAY(SELECT q.id FROM forbear.queue q
                            WHERE q.endpoint_id = p_endpoint AND NOT q.retry AND q.lease_token IS NULL
                              AND q.due_at <= p_now
                            LIMIT p_limit FOR UPDATE);
    v_ended bigint;
BEGIN
    v_ids := v_ids || ARRAY(SELECT q.id FROM forbear.queue q
                            WHERE q.endpoint_id = p_endpoint AND q.retry AND q.lease_token IS NULL
                              AND q.due_at <= p_now
                            LIMIT p_limit - cardinality(v_ids) FOR UPDATE);
    v_ended := forbear.finish(v_ids, array_fill('dead'::text, ARRAY[cardinality(v_ids)]),
                              array_fill('circuit_open'::text, ARRAY[cardinality(v_ids)]), p_now);
    INSERT INTO forbear.uncounted (dead) SELECT v_ended WHERE v_ended > 0;
    RETURN v_ended;
END
$$;

-- What the outcomes of attempts change about a lane, as the policy code reads it.
CREATE FUNCTION forbear.control_of(p_lane forbear.lanes) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'state', p_lane.breaker_state, 'since', p_lane.breaker_since, 'failures', p_lane.breaker_failures,
        'trips', p_lane.breaker_trips, 'until', p_lane.breaker_until, 'epoch', p_lane.breaker_epoch,
        'reason', p_lane.breaker_reason, 'allows', p_lane.breaker_allows, 'limit', p_lane.concurrency_limit,
        'memory', p_lane.control_memory, 'version', p_lane.control_version)
$$;

-- The retry budget's two kinds of tokens, p_elapsed seconds after they were p_tokens and p_deposits. The floor's come
-- at p_floor a second, up to p_window seconds' worth (and room for one). Deposits, p_ratio for each first attempt, are
-- forgotten with the time constant p_window. A retry takes one token, of the deposits first. After Finagle's
-- RetryBudget, whose window is a sliding one.
CREATE FUNCTION forbear.budget(
    p_tokens float8, p_deposits float8, p_elapsed float8, p_floor float8, p_window float8
) RETURNS TABLE (tokens float8, deposits float8)
LANGUAGE sql IMMUTABLE ROWS 1 AS $$
    SELECT least(greatest(1, p_floor * p_window), p_tokens + p_floor * p_elapsed),
           -- what is next to nothing is nothing: an underflow is an error
           CASE WHEN p_deposits < 1e-9 OR p_elapsed > 30 * p_window THEN 0
                ELSE p_deposits * exp(-p_elapsed / p_window) END
$$;

-- A claim's visit to a lane: what was free there, and what it gave.
CREATE TYPE forbear.visit AS (
    place        int,          -- among the claim's visits, from 1
    endpoint_id  uuid,
    in_flight    int,          -- before it,
    lapse_at     timestamptz,  -- when the first of them lapses, or, with none, one that it gives
    quota        int,          -- deliveries it might give,
    retry_quota  int,          -- and how many of them retries
    limited_by   text,         -- what set the quota: probe, rate or share (of the concurrency, or of the claimer's slots)
    slow_start   boolean,      -- a hold has ended: if more is due than the one that may go, a trickle begins
    tokens       float8,       -- of the rate, before it; NULL without one
    floor        float8,       -- of the retry budget: tokens of the floor a second,
    floor_tokens float8,       -- those there were before it,
    deposits     float8,       -- and those of first attempts
    count        int,          -- deliveries it gave,
    retries      int,          -- and how many of them retries
    due_from     timestamptz,  -- no first attempt that is left is due earlier,
    retry_from   timestamptz   -- and no retry
);

-- A delivery that a claim has leased, as far as it is told.
CREATE TYPE forbear.leased AS (
    id           uuid,
    event_id     uuid,
    endpoint_id  uuid,
    lease_until  timestamptz,
    generation   int,
    attempts     int,
    tries        int,
    limited      int,
    started_at   timestamptz,
    held_s       float8,
    expires_at   timestamptz,
    replay_id    uuid,
    visit        int,          -- its lane's
    first        boolean       -- of its lane's
);

-- Leases due deliveries to a claimer: at most p_slots of them, p_bytes of payload in all (one is always let through),
-- from at most p_lanes lanes. p_free: the claimer's free slots, of which p_slots is a batch; NULL: the same. A lease
-- lasts the endpoint's timeout and thirty seconds; no setting shortens the margin. Gives one row a lease, the event and
-- what is needed to sign and send it included; `endpoint`, `control` and `in_flight` only on a lane's first row.
--
-- A lane's quota is the least of: its concurrency (the policy's, the adaptive one, a trickle's width) and its fair share
-- less what is in flight by live leases, the tokens of its rate, and one when a half-open breaker may probe. Retries
-- within it need a token of the retry budget each, but not a probe. A lane whose hold has ended since its last visit
-- (a pause, a Retry-After) starts with a trickle if its policy says so. The fair share is the dynamic threshold of Choudhury and
-- Hahne ("Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2), 1998), half of the
-- slots that stay free when all the lanes take as much, for each claimer that is awake: whoever is slow cannot fill the
-- last slots.
--
-- Quotas are counted by statements that come after the one that locked the lanes: in plpgsql each has a snapshot of its
-- own, so no other claimer's leases on these lanes are missed. Nothing here waits for a lane while it holds others; what
-- it ends of a lane (deleted, or dead-lettered) it waits for as long as a late result takes to be kept.
CREATE FUNCTION forbear.claim(p_slots int, p_bytes bigint, p_lanes int, p_free int DEFAULT NULL)
RETURNS TABLE (
    delivery_id uuid, event_id uuid, endpoint_id uuid, lease_token uuid, lease_until timestamptz,
    generation int, attempt int, tries int, limited int, started_at timestamptz, held_s float8, expires_at timestamptz,
    replay_id uuid, probe boolean, event_type text, content_type text, payload bytea, endpoint text, control text,
    in_flight int
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
#variable_conflict use_column
DECLARE
    v_now       timestamptz := forbear.now();
    v_token     uuid        := gen_random_uuid();
    v_lanes     uuid[];
    v_share     int;
    -- the time that everything was paused counts for each lane as if it had been paused itself
    v_held      interval;
    v_resumed   timestamptz;
    v_lane_id   uuid;
    v_deleted   boolean;
    v_ended     bigint;
    v_may_end   int         := 1000;
    -- parallel: where the deliveries to lease stand in their table, until when, how long their lanes had been held in
    -- all, their lanes' visits, and whether they are their lanes' first
    v_spots     tid[];
    v_untils    timestamptz[];
    v_helds     interval[];
    v_places    int[];
    v_firsts    boolean[];
    v_leased    forbear.leased[];
    v_visits    forbear.visit[];
    -- by visit: what the lane is told, if it gives anything
    v_probes    boolean[];
    v_controls  text[];
    v_in_flight int[];
BEGIN
    SELECT c.held_total, c.resumed_at INTO v_held, v_resumed FROM forbear.control c WHERE c.paused_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM forbear.absorb_wakes(1000);

    -- The comparison with infinity says nothing new but to the planner: the partial index will do.
    v_lanes := ARRAY(SELECT l.endpoint_id FROM forbear.lanes l
                     WHERE NOT l.held AND l.ready_at <= v_now AND l.ready_at < 'infinity'
                     ORDER BY l.ready_at LIMIT p_lanes FOR NO KEY UPDATE SKIP LOCKED);
    IF v_lanes = '{}' THEN
        RETURN;
    END IF;

    FOR v_lane_id, v_deleted IN
        SELECT l.endpoint_id, l.deleted_at IS NOT NULL FROM forbear.lanes l
        WHERE l.endpoint_id = ANY (v_lanes) AND (l.deleted_at IS NOT NULL OR l.dead_letter AND l.breaker_until > v_now)
    LOOP
        IF v_deleted THEN
            v_ended := forbear.cancel_lane(v_lane_id, v_may_end);
            UPDATE forbear.lanes l SET ready_at = CASE WHEN v_ended < v_may_end THEN 'infinity' ELSE v_now END
            WHERE l.endpoint_id = v_lane_id;
        ELSE
            v_ended := forbear.dead_letter_lane(v_lane_id, v_may_end, v_now);
        END IF;
        v_may_end := v_may_end - v_ended;
        EXIT WHEN v_may_end = 0;
    END LOOP;

    v_share := greatest(1, floor(0.5 * coalesce(p_free, p_slots) / (1 + 0.5 * cardinality(v_lanes)))::int)
               * greatest(1, (SELECT count(*)::int FROM forbear.claimers c
                              WHERE c.awake_until > v_now AND c.id <> '00000000-0000-0000-0000-000000000000'));

    WITH lane AS MATERIALIZED (
        SELECT (row_number() OVER ())::int AS place,
               l.endpoint_id, l.low_water, l.retry_low_water, l.ready_at, l.held_total + v_held AS held_total,
               u.lease_until, f.in_flight, least(f.lapse_at, u.lease_until) AS lapse_at, q.quota,
               CASE WHEN w.step = 'probe' OR l.budget_floor IS NULL THEN q.quota
                    ELSE least(q.quota, floor(b.tokens + b.deposits + 1e-6)::int) END AS retry_quota,
               CASE WHEN w.step = 'probe' THEN 'probe'
                    WHEN r.whole < w.width - f.in_flight THEN 'rate'
                    ELSE 'share' END AS limited_by,
               w.step IS NOT DISTINCT FROM 'start' AS slow_start,
               r.tokens, l.budget_floor AS floor, b.tokens AS floor_tokens, b.deposits
        FROM forbear.lanes l
        -- A clock that was set back makes no time pass.
        CROSS JOIN LATERAL (SELECT greatest(0, extract(epoch FROM v_now - greatest(l.visited_at,
                                                                                   v_now - interval '1 day')))
                                   AS elapsed_s) e
        CROSS JOIN LATERAL (SELECT v_now + (l.timeout_s + 30) * interval '1 second' AS lease_until) u
        CROSS JOIN LATERAL (SELECT count(*)::int AS in_flight, min(q.lease_until) AS lapse_at FROM forbear.queue q
                            WHERE q.endpoint_id = l.endpoint_id AND q.lease_token IS NOT NULL
                              AND q.lease_until > v_now AND q.lease_until >= l.lease_low_water) f
        -- What adds up to one but for rounding is one.
        CROSS JOIN LATERAL (SELECT t.tokens, floor(t.tokens + 1e-6)::int AS whole
                            FROM (SELECT CASE WHEN l.rate_per_s IS NOT NULL
                                              THEN least(l.burst, l.tokens + l.rate_per_s * e.elapsed_s) END
                                         AS tokens) t) r
        CROSS JOIN LATERAL forbear.budget(l.budget_tokens, l.budget_deposits, e.elapsed_s, l.budget_floor,
                                          l.budget_window) b
        CROSS JOIN LATERAL (SELECT s.step, least(l.concurrency, l.concurrency_limit, v_share, l.breaker_allows,
                                                 CASE WHEN s.step = 'start' THEN 1 END) AS width
                            FROM (SELECT CASE WHEN l.breaker_state IN ('open', 'half_open_probe') THEN 'probe'
                                              WHEN l.slow_start
                                                   AND greatest(l.released_at, l.wait_until, v_resumed) > l.visited_at
                                                  THEN 'start' END AS step) s) w
        CROSS JOIN LATERAL (SELECT CASE WHEN greatest(l.wait_until, l.breaker_until, l.probe_until) > v_now THEN 0
                                        WHEN w.step = 'probe' THEN 1
                                        ELSE greatest(0, least(w.width - f.in_flight, r.whole)) END AS quota) q
        WHERE l.endpoint_id = ANY (v_lanes) AND l.deleted_at IS NULL
    ), due AS MATERIALIZED (
        SELECT lane.*, q.spot, q.due_at, q.retry, q.turn = 1 AS first,
               q.spot IS NOT NULL AND row_number() OVER turns <= p_slots
               AND (sum(q.payload_bytes) OVER turns <= p_bytes OR row_number() OVER turns = 1) AS taken
        FROM lane LEFT JOIN LATERAL (
            SELECT q.*, row_number() OVER (ORDER BY q.due_at) AS turn
            FROM ((SELECT q.ctid AS spot, q.due_at, q.payload_bytes, q.retry FROM forbear.queue q
                   WHERE q.endpoint_id = lane.endpoint_id AND NOT q.retry AND q.lease_token IS NULL
                     AND q.due_at >= lane.low_water AND q.due_at <= v_now
                   ORDER BY q.due_at LIMIT least(lane.quota, p_slots))
                  UNION ALL
                  (SELECT q.ctid, q.due_at, q.payload_bytes, q.retry FROM forbear.queue q
                   WHERE q.endpoint_id = lane.endpoint_id AND q.retry AND q.lease_token IS NULL
                     AND q.due_at >= lane.retry_low_water AND q.due_at <= v_now
                   ORDER BY q.due_at LIMIT least(lane.retry_quota, p_slots))
                  ORDER BY due_at LIMIT least(lane.quota, p_slots)) q) q ON true
        -- Every lane's first, then every lane's second: when slots or bytes run out, they run out for all alike.
        WINDOW turns AS (ORDER BY q.turn NULLS LAST, lane.ready_at, lane.endpoint_id)
    ), taken AS (
        SELECT array_agg(d.spot) AS spots, array_agg(d.lease_until) AS untils, array_agg(d.held_total) AS helds,
               array_agg(d.place) AS places, array_agg(d.first) AS firsts
        FROM due d WHERE d.taken
    ), visit AS (
        SELECT d.place, d.endpoint_id, d.in_flight, d.lapse_at, d.quota, d.retry_quota, d.limited_by, d.slow_start,
               d.tokens, d.floor, d.floor_tokens, d.deposits,
               (count(*) FILTER (WHERE d.taken))::int AS count, (count(*) FILTER (WHERE d.taken AND d.retry))::int AS retries,
               coalesce(max(d.due_at) FILTER (WHERE d.taken AND NOT d.retry), d.low_water) AS due_from,
               coalesce(max(d.due_at) FILTER (WHERE d.taken AND d.retry), d.retry_low_water) AS retry_from
        FROM due d
        GROUP BY d.place, d.endpoint_id, d.in_flight, d.lapse_at, d.quota, d.retry_quota, d.limited_by, d.slow_start,
                 d.tokens, d.floor, d.floor_tokens, d.deposits, d.low_water, d.retry_low_water
    )
    SELECT t.spots, t.untils, t.helds, t.places, t.firsts, v.visits
    INTO v_spots, v_untils, v_helds, v_places, v_firsts, v_visits
    FROM taken t, (SELECT array_agg(v::forbear.visit ORDER BY v.place) AS visits FROM visit v) v;

    -- No other claimer can have taken them, nor anybody moved them: they are pending, and the lanes are in hand. By where
    -- they stand, there is but one way to find them, whatever the statistics say.
    WITH leased AS (
        UPDATE forbear.queue q
        SET lease_token = v_token,
            lease_until = t.lease_until,
            claimed_at  = v_now,
            attempts    = q.attempts + 1,
            started_at  = coalesce(q.started_at, v_now),
            held_mark   = coalesce(q.held_mark, t.held_total)
        FROM unnest(v_spots, v_untils, v_helds, v_places, v_firsts) AS t (spot, lease_until, held_total, place, first)
        WHERE q.ctid = t.spot AND q.lease_until IS NULL
        RETURNING q.id, q.event_id, q.endpoint_id, q.lease_until, q.generation, q.attempts, q.tries, q.limited,
                  CASE WHEN q.tries + q.lost > 0 THEN q.started_at END,
                  extract(epoch FROM t.held_total - q.held_mark)::float8, q.expires_at, q.replay_id, t.place, t.first
    )
    SELECT array_agg(l::forbear.leased) INTO v_leased FROM leased l;
    IF cardinality(v_leased) IS DISTINCT FROM cardinality(v_spots) THEN
        -- Deleted by hand, say. Nothing is lost: the claimer asks again.
        RAISE EXCEPTION 'a pending delivery was moved by somebody who did not hold its lane'
            USING ERRCODE = 'serialization_failure';
    END IF;

    -- When to come back to each lane: when something is due and nothing bars it. Where more is due now: at once if it
    -- was for want of slots or bytes that no more went, when there is a token again, or in a second; a settle wakes a
    -- saturated lane before that.
    WITH visited AS (
        UPDATE forbear.lanes l
        SET low_water       = coalesce(s.next_first, v_now),
            retry_low_water = coalesce(s.next_retry, v_now),
            lease_low_water = CASE WHEN s.in_flight + s.count > 0 THEN s.lapse_at ELSE 'infinity' END,
            visited_at      = greatest(l.visited_at, v_now),
            tokens          = coalesce(s.tokens - s.count, 'infinity'),
            budget_tokens   = coalesce(s.floor_left, l.budget_tokens),
            budget_deposits = coalesce(greatest(0, s.deposits - s.retries) + l.budget_ratio * (s.count - s.retries), 0),
            breaker_state   = CASE WHEN s.probing THEN 'half_open_probe' WHEN s.starting THEN 'half_open_trickle'
                                   ELSE l.breaker_state END,
            breaker_epoch   = l.breaker_epoch + (s.probing OR s.starting)::int,
            breaker_since   = CASE WHEN s.probing OR s.starting THEN v_now ELSE l.breaker_since END,
            breaker_reason  = CASE WHEN s.starting THEN 'a hold has ended: starting slowly' ELSE l.breaker_reason END,
            breaker_until   = CASE WHEN NOT s.probing THEN l.breaker_until END,
            breaker_allows  = CASE WHEN s.starting THEN 1 ELSE l.breaker_allows END,
            control_memory  = CASE WHEN s.starting THEN l.control_memory - 'passed' ELSE l.control_memory END,
            probe_until     = CASE WHEN s.probing THEN v_now + (l.timeout_s + 30) * interval '1 second'
                                   ELSE l.probe_until END,
            control_version = l.control_version + (s.probing OR s.starting)::int,
            saturated       = s.more AND s.count = s.quota AND s.limited_by = 'share',
            ready_at        = CASE WHEN s.next_due IS NULL THEN 'infinity' ELSE greatest(
                CASE WHEN s.probing THEN v_now + (l.timeout_s + 30) * interval '1 second'
                     ELSE forbear.barred_until(l) END,
                CASE WHEN NOT s.more THEN s.next_due
                     WHEN s.count < s.quota OR l.dead_letter AND l.breaker_until > v_now THEN v_now
                     WHEN s.limited_by = 'rate'
                         THEN v_now + least(86400, greatest(0, 1 - (s.tokens - s.count)) / l.rate_per_s)
                                      * interval '1 second'
                     ELSE v_now + interval '1 second' END) END
        FROM (
            SELECT d.*, m.more, d.limited_by = 'probe' AND d.count > 0 AS probing,
                   d.slow_start AND m.more AS starting
            FROM (
                SELECT u.*, p.spot, b.floor_left, n.next_first, n.next_retry, least(
                           n.next_first,
                           -- retries that want a token wait for the floor's next
                           CASE WHEN u.retries < u.retry_quota OR u.retry_quota = u.quota THEN n.next_retry
                                WHEN n.next_retry IS NOT NULL
                                    THEN greatest(n.next_retry, v_now + greatest(0, 1 - b.floor_left) / u.floor
                                                                        * interval '1 second') END) AS next_due
                FROM unnest(v_visits) u
                CROSS JOIN LATERAL (SELECT l.ctid AS spot FROM forbear.lanes l WHERE l.endpoint_id = u.endpoint_id
                                    LIMIT 1) p
                CROSS JOIN LATERAL (SELECT CASE WHEN u.floor IS NOT NULL
                    THEN greatest(0, u.floor_tokens - greatest(0, u.retries - u.deposits)) END AS floor_left) b
                CROSS JOIN LATERAL (
                    SELECT (SELECT q.due_at FROM forbear.queue q
                            WHERE q.endpoint_id = u.endpoint_id AND NOT q.retry AND q.lease_token IS NULL
                              AND q.due_at >= u.due_from ORDER BY q.due_at LIMIT 1) AS next_first,
                           (SELECT q.due_at FROM forbear.queue q
                            WHERE q.endpoint_id = u.endpoint_id AND q.retry AND q.lease_token IS NULL
                              AND q.due_at >= u.retry_from ORDER BY q.due_at LIMIT 1) AS next_retry
                    OFFSET 0) n  -- keeps the look at the queue one a lane
            ) d
            CROSS JOIN LATERAL (SELECT coalesce(d.next_due <= v_now, false) AS more) m
        ) s
        WHERE l.ctid = s.spot
        RETURNING s.place, s.probing, CASE WHEN s.count > 0 THEN forbear.control_of(l)::text END AS control,
                  s.in_flight + s.count AS in_flight
    )
    SELECT array_agg(v.probing ORDER BY v.place), array_agg(v.control ORDER BY v.place),
           array_agg(v.in_flight ORDER BY v.place)
    INTO v_probes, v_controls, v_in_flight
    FROM visited v;

    RETURN QUERY
    SELECT q.id, q.event_id, q.endpoint_id, v_token, q.lease_until, q.generation, q.attempts, q.tries, q.limited,
           q.started_at, q.held_s, q.expires_at, q.replay_id, v_probes[q.visit], e.type, e.content_type, e.payload,
           CASE WHEN q.first THEN (
               SELECT jsonb_build_object('url', p.url, 'headers', p.headers, 'policy', p.policy, 'secrets', (
                          SELECT jsonb_agg(s.secret ORDER BY s.expires_at NULLS FIRST) FROM forbear.secrets s
                          WHERE s.endpoint_id = p.id AND (s.expires_at IS NULL OR s.expires_at > v_now)))::text
               FROM forbear.endpoints p WHERE p.id = q.endpoint_id) END,
           CASE WHEN q.first THEN v_controls[q.visit] END,
           CASE WHEN q.first THEN v_in_flight[q.visit] END
    FROM unnest(v_leased) q
    -- Without its event a delivery is given all the same: it may be the one that tells of its lane.
    LEFT JOIN LATERAL (SELECT * FROM forbear.events e WHERE e.id = q.event_id LIMIT 1) e ON true;
END
$$;

-- What is next for a claimer, in one cheap look: the clock, the earliest time that anything wants attention (a lane or a
-- wake row, a lease to lapse, a replay's step; NULL when there is nothing), and the claimers awake besides p_claimer.
-- While others are awake leases are not looked at: they are the others', who also take over what the dead left. Nor are
-- they without p_leases: that is the dearer part, where a snapshot that somebody holds keeps dead rows from being cleared.
CREATE FUNCTION forbear.outlook(p_claimer uuid, p_leases boolean DEFAULT true)
RETURNS TABLE (clock timestamptz, next_at timestamptz, lease_at timestamptz, replay_at timestamptz, others int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_now    timestamptz := forbear.now();
    v_others int         := (SELECT count(*) FROM forbear.claimers c
                             WHERE c.awake_until > v_now AND c.id <> p_claimer
                               AND c.id <> '00000000-0000-0000-0000-000000000000');
BEGIN
    RETURN QUERY
    SELECT v_now,
           CASE WHEN (SELECT c.paused_at IS NULL FROM forbear.control c) THEN
               CASE WHEN EXISTS (SELECT FROM forbear.wakes) THEN v_now
                    ELSE (SELECT l.ready_at FROM forbear.lanes l WHERE NOT l.held AND l.ready_at < 'infinity'
                          ORDER BY l.ready_at LIMIT 1) END END,
           CASE WHEN p_leases AND v_others = 0 THEN
               (SELECT min(q.lease_until) FROM forbear.queue q WHERE q.lease_token IS NOT NULL) END,
           (SELECT min(r.step_at) FROM forbear.replays r WHERE r.state IN ('waiting', 'running')),
           v_others;
END
$$;

-- Writes or renews a claimer's mark, unless p_limit others are awake (NULL: in any case): it is awake until p_for from
-- now. Takes the place of the mark of one that was called, and clears away marks of the dead. Gives the clock, whether
-- it is marked, and the state that the schedule was last put in.
CREATE FUNCTION forbear.stay_awake(p_claimer uuid, p_for interval, p_limit int)
RETURNS TABLE (clock timestamptz, marked boolean, schedule text)
LANGUAGE plpgsql AS $$
BEGIN
    -- One after the other: of several that start at once, as many as the limit allows stay, and not none.
    SELECT c.schedule INTO schedule FROM forbear.control c FOR NO KEY UPDATE;
    clock := forbear.now();
    marked := p_limit IS NULL OR p_limit > (
        SELECT count(*) FROM forbear.claimers c
        WHERE c.id <> p_claimer AND c.awake_until > clock AND c.id <> '00000000-0000-0000-0000-000000000000');
    IF marked THEN
        INSERT INTO forbear.claimers (id, awake_until) VALUES (p_claimer, clock + p_for)
        ON CONFLICT (id) DO UPDATE SET awake_until = excluded.awake_until;
    END IF;
    DELETE FROM forbear.claimers c WHERE c.id IN (
        SELECT d.id FROM forbear.claimers d
        WHERE d.id <> p_claimer AND (d.awake_until <= clock OR d.id = '00000000-0000-0000-0000-000000000000')
        FOR UPDATE SKIP LOCKED);
    RETURN NEXT;
END
$$;
