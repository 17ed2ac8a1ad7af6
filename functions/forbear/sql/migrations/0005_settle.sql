-- Recording what attempts came to, and taking over what claimers left behind. For the shape of the statements see the
-- file before this one.

-- Applies what a batch came to for its lanes (see forbear.settle for the arrays): control only where it is still the one
-- that the caller worked from, and nothing for lanes with late results. Locks the lanes in the order of their ids. Gives
-- the lanes whose control was left as it was, as [{"endpoint": id, "control": {...}}], or NULL.
CREATE FUNCTION forbear.change_lanes(
    p_lane_ids uuid[], p_versions bigint[], p_controls jsonb[], p_waits float8[], p_disables text[],
    p_late_lanes uuid[], p_now timestamptz
) RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
DECLARE
    v_changed  uuid[];
    v_disabled uuid[];
BEGIN
    PERFORM FROM forbear.lanes l WHERE l.endpoint_id = ANY (p_lane_ids) ORDER BY l.endpoint_id FOR NO KEY UPDATE;

    WITH changed AS (
        UPDATE forbear.lanes l
        SET breaker_state     = c.control ->> 'state',
            breaker_since     = (c.control ->> 'since')::timestamptz,
            breaker_failures  = (c.control ->> 'failures')::int,
            breaker_trips     = (c.control ->> 'trips')::int,
            breaker_until     = (c.control ->> 'until')::timestamptz,
            breaker_epoch     = (c.control ->> 'epoch')::bigint,
            breaker_reason    = c.control ->> 'reason',
            breaker_allows    = (c.control ->> 'allows')::int,
            probe_until       = CASE WHEN c.control ->> 'state' = 'half_open_probe' THEN l.probe_until END,
            concurrency_limit = (c.control ->> 'limit')::int,
            control_memory    = c.control -> 'memory',
            control_version   = l.control_version + 1,
            -- Another state is another bar; that of the old one (a probe's lease, say) must not hold the lane longer.
            ready_at          = CASE WHEN (c.control ->> 'epoch')::bigint = l.breaker_epoch THEN l.ready_at
                                     ELSE greatest(p_now, l.wait_until, CASE WHEN NOT l.dead_letter
                                                   THEN (c.control ->> 'until')::timestamptz END) END
        FROM (SELECT c.version, c.control, s.spot
              FROM unnest(p_lane_ids, p_versions, p_controls) AS c (endpoint_id, version, control)
              CROSS JOIN LATERAL (SELECT l.ctid AS spot FROM forbear.lanes l
                                  WHERE l.endpoint_id = c.endpoint_id LIMIT 1) s
              WHERE c.control IS NOT NULL) c
        WHERE l.ctid = c.spot AND l.control_version = c.version
          AND NOT l.endpoint_id = ANY (p_late_lanes)
        RETURNING l.endpoint_id
    )
    SELECT array_agg(c.endpoint_id) INTO v_changed FROM changed c;

    UPDATE forbear.lanes l
    SET wait_until = greatest(l.wait_until, p_now + w.wait_s * interval '1 second'),
        ready_at   = greatest(l.ready_at, p_now + w.wait_s * interval '1 second')
    FROM (SELECT w.wait_s, s.spot FROM unnest(p_lane_ids, p_waits) AS w (endpoint_id, wait_s)
          CROSS JOIN LATERAL (SELECT l.ctid AS spot FROM forbear.lanes l WHERE l.endpoint_id = w.endpoint_id LIMIT 1) s
          WHERE w.wait_s IS NOT NULL) w
    WHERE l.ctid = w.spot AND l.wait_until < p_now + w.wait_s * interval '1 second'
      AND NOT l.endpoint_id = ANY (p_late_lanes);

    v_disabled := ARRAY(SELECT d.endpoint_id FROM unnest(p_lane_ids, p_disables, p_controls) AS d (endpoint_id, reason, control)
                        WHERE d.reason IS NOT NULL AND (d.control IS NULL OR d.endpoint_id = ANY (v_changed)));
    UPDATE forbear.lanes l
    SET disabled_at = p_now, disabled_reason = p_disables[array_position(p_lane_ids, l.endpoint_id)]
    WHERE l.endpoint_id = ANY (v_disabled) AND l.disabled_at IS NULL AND NOT l.endpoint_id = ANY (p_late_lanes);

    RETURN (SELECT jsonb_agg(jsonb_build_object('endpoint', l.endpoint_id, 'control', forbear.control_of(l)))
            FROM unnest(p_lane_ids, p_controls) AS c (endpoint_id, control)
            CROSS JOIN LATERAL (SELECT * FROM forbear.lanes l WHERE l.endpoint_id = c.endpoint_id LIMIT 1) l
            WHERE c.control IS NOT NULL AND NOT c.endpoint_id = ANY (coalesce(v_changed, '{}')));
END
$$;

-- Keeps what a late result saw. The delivery went on without it; the attempt's number is still its own: there may be a
-- row that calls it lost by now, or none yet. A transaction of its own for each, since it may wait for the delivery's
-- row, and who waits must not hold another.
CREATE FUNCTION forbear.keep_late(
    p_id uuid, p_number int, p_age_s float8, p_latency_ms float8, p_url text,
    p_address text, p_request_headers bytea, p_status int, p_response_headers bytea, p_response_body bytea,
    p_error text, p_error_detail text, p_retry_after_s float8
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_started    timestamptz := forbear.now() - p_age_s * interval '1 second';
    v_generation int;
    v_ended      timestamptz;
BEGIN
    -- The row lock keeps the delivery where it is until the evidence stands beside it; it bars no claim. What is in
    -- neither table, retention has dropped, or a replay has just carried it from the second to the first: hence again.
    FOR v_look IN 1..3 LOOP
        SELECT q.generation INTO v_generation FROM forbear.queue q WHERE q.id = p_id FOR KEY SHARE;
        IF FOUND THEN
            INSERT INTO forbear.queue_attempts (
                delivery_id, number, generation, started_at, latency_ms, url, address, request_headers, status,
                response_headers, response_body, error, error_detail, verdict, retry_after_s, late)
            VALUES (p_id, p_number, v_generation, v_started, p_latency_ms, p_url, p_address, p_request_headers,
                    p_status, p_response_headers, p_response_body, p_error, p_error_detail, 'lost', p_retry_after_s,
                    true)
            ON CONFLICT (delivery_id, number) DO UPDATE
            SET started_at = excluded.started_at, latency_ms = excluded.latency_ms, url = excluded.url,
                address = excluded.address, request_headers = excluded.request_headers, status = excluded.status,
                response_headers = excluded.response_headers, response_body = excluded.response_body,
                error = excluded.error, error_detail = excluded.error_detail,
                retry_after_s = excluded.retry_after_s, late = true
            WHERE queue_attempts.verdict = 'lost';
            RETURN;
        END IF;

        SELECT h.generation, h.ended_at INTO v_generation, v_ended
        FROM forbear.history h WHERE h.id = p_id ORDER BY h.ended_at DESC LIMIT 1 FOR KEY SHARE;
        IF FOUND THEN
            INSERT INTO forbear.history_attempts (
                delivery_id, number, generation, started_at, latency_ms, url, address, request_headers, status,
                response_headers, response_body, error, error_detail, verdict, retry_after_s, late, ended_at)
            VALUES (p_id, p_number, v_generation, v_started, p_latency_ms, p_url, p_address, p_request_headers,
                    p_status, p_response_headers, p_response_body, p_error, p_error_detail, 'lost', p_retry_after_s,
                    true, v_ended)
            ON CONFLICT (delivery_id, number, ended_at) DO UPDATE
            SET started_at = excluded.started_at, latency_ms = excluded.latency_ms, url = excluded.url,
                address = excluded.address, request_headers = excluded.request_headers, status = excluded.status,
                response_headers = excluded.response_headers, response_body = excluded.response_body,
                error = excluded.error, error_detail = excluded.error_detail,
                retry_after_s = excluded.retry_after_s, late = true
            WHERE history_attempts.verdict = 'lost';
            RETURN;
        END IF;
    END LOOP;
END
$$;

-- Writes a batch of results: attempts, deliveries, lane changes and the wake row.
--
-- Takes parallel arrays, one entry a delivery. p_outcomes: 'delivered', 'dead' (with the reason in p_reasons), 'retry'
-- (due again after p_delays seconds) or 'return' (given back unsent, due likewise; no attempt was made). p_limited: the
-- verdict was `limited`. The evidence of an attempt stands in the arrays from p_verdicts on; a NULL verdict says that
-- none was made. p_ages: seconds since the attempt began.
-- Then, one entry a lane that changes: p_lane_ids with the control that it came to (p_controls; NULL: none) and the
-- version of the one that the caller worked from, the seconds that a receiver asked everybody to wait (p_waits), and why
-- the endpoint is disabled (p_disables). And the lanes whose control the batch leaves as the caller knows it, with its
-- version: a success says nothing about a control without failures, but it does about the one that is there by now.
--
-- A result counts only while its lease token stands and the lease has not lapsed. Gives the places (from 1) of
-- the others, the late ones, for forbear.keep_late; and the lanes whose control was not changed, or not to be changed,
-- with what it is now: it was no longer the one that the caller worked from, or some of the lane's results are late, which must not count for
-- anything. The caller decides again, from those that are not.
CREATE FUNCTION forbear.settle(
    p_ids uuid[], p_tokens uuid[], p_endpoints uuid[], p_outcomes text[], p_reasons text[], p_delays float8[],
    p_limited boolean[], p_verdicts text[], p_ages float8[], p_latencies_ms float8[], p_urls text[], p_addresses text[],
    p_request_headers bytea[], p_statuses int[], p_response_headers bytea[], p_response_bodies bytea[],
    p_errors text[], p_error_details text[], p_retry_afters float8[], p_honoured boolean[],
    p_lane_ids uuid[], p_versions bigint[], p_controls jsonb[], p_waits float8[], p_disables text[],
    p_same_ids uuid[], p_same_versions bigint[]
) RETURNS TABLE (late int[], stale jsonb)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
DECLARE
    v_now     timestamptz := forbear.now();
    v_settled int[];
    v_earlier uuid[];
    v_late_lanes uuid[];
BEGIN
    IF p_lane_ids <> '{}' THEN
        v_late_lanes := ARRAY(
            SELECT r.endpoint_id FROM unnest(p_ids, p_tokens, p_endpoints) AS r (id, token, endpoint_id)
            WHERE (SELECT count(*) FROM forbear.queue q
                   WHERE q.id = r.id AND q.lease_token IS NOT DISTINCT FROM r.token AND q.lease_until > v_now) = 0);
        stale := forbear.change_lanes(p_lane_ids, p_versions, p_controls, p_waits, p_disables, v_late_lanes, v_now);
    END IF;
    stale := coalesce(stale, '[]') || coalesce((
        SELECT jsonb_agg(jsonb_build_object('endpoint', l.endpoint_id, 'control', forbear.control_of(l)))
        FROM unnest(p_same_ids, p_same_versions) AS s (endpoint_id, version)
        CROSS JOIN LATERAL (SELECT * FROM forbear.lanes l WHERE l.endpoint_id = s.endpoint_id LIMIT 1) l
        WHERE l.control_version <> s.version), '[]');

    WITH result AS MATERIALIZED (
        SELECT r.*, s.spot
        FROM unnest(p_ids, p_tokens, p_outcomes, p_reasons, p_delays, p_limited, p_verdicts, p_ages, p_latencies_ms,
                    p_urls, p_addresses, p_request_headers, p_statuses, p_response_headers, p_response_bodies, p_errors,
                    p_error_details, p_retry_afters, p_honoured)
            WITH ORDINALITY
            AS r (id, token, outcome, reason, delay_s, limited, verdict, age_s, latency_ms, url, address,
                  request_headers, status, response_headers, response_body, error, error_detail, retry_after_s,
                  honoured, place)
        CROSS JOIN LATERAL (SELECT q.ctid AS spot FROM forbear.queue q
                            WHERE q.id = r.id AND q.lease_token IS NOT DISTINCT FROM r.token AND q.lease_until > v_now
                            LIMIT 1) s
    ), ended AS (
        DELETE FROM forbear.queue q USING result r
        WHERE q.ctid = r.spot AND q.lease_token IS NOT DISTINCT FROM r.token AND q.lease_until > v_now
          AND r.outcome IN ('delivered', 'dead')
        RETURNING q.event_id, q.endpoint_id, q.payload_bytes, q.generation, q.replay_id, r.*,
                  CASE WHEN r.verdict IS NULL THEN q.attempts - 1 ELSE q.attempts END AS attempts
    ), again AS (
        UPDATE forbear.queue q
        SET due_at      = v_now + r.delay_s * interval '1 second',
            attempts    = CASE WHEN r.outcome = 'return' THEN q.attempts - 1 ELSE q.attempts END,
            tries       = q.tries + (r.outcome = 'retry')::int,
            limited     = q.limited + r.limited::int,
            started_at  = CASE WHEN r.outcome = 'return' AND q.tries + q.lost = 0 THEN NULL ELSE q.started_at END,
            held_mark   = CASE WHEN r.outcome = 'return' AND q.tries + q.lost = 0 THEN NULL ELSE q.held_mark END,
            lease_token = NULL, lease_until = NULL, claimed_at = NULL
        FROM result r
        WHERE q.ctid = r.spot AND q.lease_token IS NOT DISTINCT FROM r.token AND q.lease_until > v_now
          AND r.outcome IN ('retry', 'return')
        RETURNING q.endpoint_id, q.generation, q.attempts, q.due_at, r.*
    ), kept AS (
        INSERT INTO forbear.history (id, event_id, endpoint_id, payload_bytes, state, reason, generation, attempts,
                                     replay_id, ended_at)
        SELECT e.id, e.event_id, e.endpoint_id, e.payload_bytes, e.outcome, e.reason, e.generation, e.attempts,
               e.replay_id, v_now
        FROM ended e
    ), last_attempt AS (
        INSERT INTO forbear.history_attempts (
            delivery_id, number, generation, started_at, latency_ms, url, address, request_headers, status,
            response_headers, response_body, error, error_detail, verdict, retry_after_s, retry_after_honoured,
            ended_at)
        SELECT e.id, e.attempts, e.generation, v_now - e.age_s * interval '1 second', e.latency_ms, e.url, e.address,
               e.request_headers, e.status, e.response_headers, e.response_body, e.error, e.error_detail, e.verdict,
               e.retry_after_s, e.honoured, v_now
        FROM ended e WHERE e.verdict IS NOT NULL
    ), attempt AS (
        INSERT INTO forbear.queue_attempts (
            delivery_id, number, generation, started_at, latency_ms, url, address, request_headers, status,
            response_headers, response_body, error, error_detail, verdict, retry_after_s, retry_after_honoured,
            next_due_at)
        SELECT a.id, a.attempts, a.generation, v_now - a.age_s * interval '1 second', a.latency_ms, a.url, a.address,
               a.request_headers, a.status, a.response_headers, a.response_body, a.error, a.error_detail, a.verdict,
               a.retry_after_s, a.honoured, a.due_at
        FROM again a WHERE a.verdict IS NOT NULL
    ), touched AS MATERIALIZED (
        SELECT t.endpoint_id, min(t.due_at) AS due_at,
               (SELECT l.saturated FROM forbear.lanes l WHERE l.endpoint_id = t.endpoint_id) AS saturated
        FROM (SELECT a.endpoint_id, a.due_at FROM again a
              UNION ALL SELECT e.endpoint_id, 'infinity' FROM ended e) t
        GROUP BY t.endpoint_id
    ), woken AS (
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        SELECT array_agg(t.endpoint_id), array_agg(CASE WHEN t.saturated THEN least(t.due_at, v_now) ELSE t.due_at END)
        FROM touched t
        WHERE t.saturated OR t.due_at < 'infinity'
        HAVING count(*) > 0
    )
    SELECT array_agg(s.place), array_agg(s.id) FILTER (WHERE s.earlier) INTO v_settled, v_earlier
    FROM (SELECT e.place, e.id, e.attempts > (e.verdict IS NOT NULL)::int AS earlier FROM ended e
          UNION ALL SELECT a.place, a.id, false FROM again a) s;

    IF v_earlier IS NOT NULL THEN
        WITH earlier AS (
            DELETE FROM forbear.queue_attempts a WHERE a.delivery_id = ANY (v_earlier) RETURNING a.*
        )
        INSERT INTO forbear.history_attempts SELECT e.*, v_now FROM earlier e;
    END IF;
    late := ARRAY(SELECT generate_subscripts(p_ids, 1) EXCEPT SELECT unnest(v_settled));
    RETURN NEXT;
END
$$;

-- Lets leases lapse now that their holder will not use: its time is up. Parallel arrays.
CREATE FUNCTION forbear.end_leases(p_ids uuid[], p_tokens uuid[]) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
BEGIN
    UPDATE forbear.queue q SET lease_until = forbear.now()
    FROM (SELECT l.token, s.spot FROM unnest(p_ids, p_tokens) AS l (id, token)
          CROSS JOIN LATERAL (SELECT q.ctid AS spot FROM forbear.queue q WHERE q.id = l.id LIMIT 1) s) l
    WHERE q.ctid = l.spot AND q.lease_token IS NOT DISTINCT FROM l.token;
END
$$;

-- Takes over leases that have lapsed: their claimer died, or froze. Each leaves an attempt with the verdict `lost`, for
-- nobody knows whether the receiver got it; it does not move the schedule on. After the fifth in a generation the
-- delivery is dead, so that a payload which kills its sender ends too. Gives the number taken over.
CREATE FUNCTION forbear.reap(p_limit int) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_material = off
AS $$
DECLARE
    v_now    timestamptz := forbear.now();
    v_lapsed uuid[] := ARRAY(SELECT q.id FROM forbear.queue q WHERE q.lease_token IS NOT NULL AND q.lease_until <= v_now
                             LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_dead   uuid[];
BEGIN
    IF v_lapsed = '{}' THEN
        RETURN 0;
    END IF;
    INSERT INTO forbear.queue_attempts (
        delivery_id, number, generation, started_at, latency_ms, url, request_headers, error, error_detail, verdict,
        next_due_at)
    SELECT q.id, q.attempts, q.generation, q.claimed_at, extract(epoch FROM q.lease_until - q.claimed_at) * 1000,
           (SELECT e.url FROM forbear.endpoints e WHERE e.id = q.endpoint_id), '', 'lost',
           'its claimer gave no result before the lease lapsed: the receiver may have got it', 'lost',
           CASE WHEN q.lost + 1 < 5 THEN v_now END
    FROM forbear.queue q
    WHERE q.id = ANY (v_lapsed)
    ON CONFLICT (delivery_id, number) DO NOTHING;

    WITH again AS (
        UPDATE forbear.queue q
        SET lost = q.lost + 1, due_at = v_now, lease_token = NULL, lease_until = NULL, claimed_at = NULL
        WHERE q.id = ANY (v_lapsed)
        RETURNING q.id, q.endpoint_id, q.lost
    ), woken AS (
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        SELECT array_agg(l.endpoint_id), array_agg(v_now)
        FROM (SELECT DISTINCT a.endpoint_id FROM again a WHERE a.lost < 5) l
        HAVING count(*) > 0
    )
    SELECT array_agg(a.id) INTO v_dead FROM again a WHERE a.lost >= 5;

    IF v_dead IS NOT NULL THEN
        PERFORM forbear.finish(v_dead, array_fill('dead'::text, ARRAY[cardinality(v_dead)]),
                               array_fill('lost'::text, ARRAY[cardinality(v_dead)]), v_now);
        INSERT INTO forbear.uncounted (dead) VALUES (cardinality(v_dead));
    END IF;
    RETURN cardinality(v_lapsed);
END
$$;
