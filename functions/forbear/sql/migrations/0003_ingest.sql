-- Taking events in, and who must be woken for them.

-- How many deliveries an event has, wherever they are by now. In a function of its own, since only repeats ask: a
-- statement that might have to look into the history prepares for each of its partitions, whether it looks or not.
CREATE FUNCTION forbear.deliveries_of(p_event uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
BEGIN
    RETURN (SELECT count(*) FROM forbear.queue q WHERE q.event_id = p_event)
           + (SELECT count(*) FROM forbear.history h WHERE h.event_id = p_event);
END
$$;

-- Stores an event with its fan-out and the wake row for its lanes: all or nothing, in the caller's transaction.
-- p_patterns: the subscription patterns that the type matches, separated by spaces. p_key, p_digest: idempotency key and
-- digest, or NULL. Gives its id (of the first event under that key), the deliveries made, whether it repeats an event,
-- and whether the key was used for something else. No lane is touched: an insert that is not committed yet could be
-- overlooked by a claimer that empties the lane, the wake row cannot.
--
-- It does what its namesake below does with arrays of one, by plain statements: that takes the server half to three
-- quarters of the time.
CREATE FUNCTION forbear.ingest(
    p_tenant text, p_type text, p_content_type text, p_payload bytea, p_expires_at timestamptz,
    p_patterns text, p_key text, p_digest bytea,
    OUT event_id uuid, OUT deliveries bigint, OUT duplicate boolean, OUT conflict boolean
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
DECLARE
    v_now       timestamptz := forbear.now();
    v_id        uuid        := uuidv7(v_now - clock_timestamp());
    v_endpoints uuid[];
BEGIN
    IF p_key IS NOT NULL THEN
        -- A key older than 24 hours is taken over; a younger one stays as it is, locked until we are done with it.
        INSERT INTO forbear.idempotency_keys AS k (tenant, key, event_id, digest, created_at)
        VALUES (p_tenant, p_key, v_id, p_digest, v_now)
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
        SET event_id = excluded.event_id, digest = excluded.digest, created_at = excluded.created_at
        WHERE k.created_at <= v_now - interval '24 hours';
        IF NOT FOUND THEN
            -- A new statement, so a new snapshot: it sees the row that a concurrent insert made us wait for.
            SELECT k.event_id, k.digest = p_digest, k.digest <> p_digest INTO event_id, duplicate, conflict
            FROM forbear.idempotency_keys k WHERE k.tenant = p_tenant AND k.key = p_key;
            deliveries := forbear.deliveries_of(event_id);
            RETURN;
        END IF;
    END IF;

    INSERT INTO forbear.events (id, tenant, type, content_type, payload, expires_at)
    VALUES (v_id, p_tenant, p_type, p_content_type, p_payload, p_expires_at);
    -- OFFSET 0 keeps the two apart: to have endpoints in order, a planner that has seen few subscriptions would read all.
    v_endpoints := ARRAY(SELECT DISTINCT m.endpoint_id
                         FROM (SELECT s.endpoint_id FROM forbear.subscriptions s
                               WHERE s.tenant = p_tenant AND s.pattern = ANY (string_to_array(p_patterns, ' '))
                               OFFSET 0) m);
    event_id := v_id;
    deliveries := cardinality(v_endpoints);
    duplicate := false;
    conflict := false;
    IF deliveries > 0 THEN
        INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes, expires_at)
        SELECT uuidv7(v_now - clock_timestamp()), v_id, e.id, v_now, octet_length(p_payload), p_expires_at
        FROM unnest(v_endpoints) AS e (id);
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        VALUES (v_endpoints, array_fill(v_now, ARRAY[cardinality(v_endpoints)]));
    END IF;
END
$$;

-- Stores several events, likewise. Takes parallel arrays, one entry an event, and gives one row an event, in order.
CREATE FUNCTION forbear.ingest(
    p_tenants text[], p_types text[], p_content_types text[], p_payloads bytea[], p_expires timestamptz[],
    p_patterns text[], p_keys text[], p_digests bytea[]
) RETURNS TABLE (n bigint, event_id uuid, deliveries bigint, duplicate boolean, conflict boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
DECLARE
    v_now   timestamptz := forbear.now();
    v_ids   uuid[]      := ARRAY(SELECT uuidv7(v_now - clock_timestamp()) FROM generate_subscripts(p_types, 1));
    v_firsts uuid[]     := v_ids;
    v_taken bytea[]     := p_digests;
BEGIN
    IF array_remove(p_keys, NULL) <> '{}' THEN
        -- One statement, its keys in order: two batches with the same keys wait for each other and not in a circle. A
        -- key older than 24 hours is taken over; a younger one stays as it is, locked until we are done with it.
        INSERT INTO forbear.idempotency_keys AS k (tenant, key, event_id, digest, created_at)
        SELECT DISTINCT ON (i.tenant, i.key) i.tenant, i.key, i.id, i.digest, v_now
        FROM unnest(p_tenants, p_keys, v_ids, p_digests) WITH ORDINALITY AS i (tenant, key, id, digest, n)
        WHERE i.key IS NOT NULL
        ORDER BY i.tenant, i.key, i.n
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
        SET event_id = excluded.event_id, digest = excluded.digest, created_at = excluded.created_at
        WHERE k.created_at <= v_now - interval '24 hours';
        -- A new statement, so a new snapshot: it sees the row that a concurrent insert made us wait for.
        SELECT array_agg(coalesce(k.event_id, i.id) ORDER BY i.n), array_agg(k.digest ORDER BY i.n)
        INTO v_firsts, v_taken
        FROM unnest(p_tenants, p_keys, v_ids) WITH ORDINALITY AS i (tenant, key, id, n)
        LEFT JOIN forbear.idempotency_keys k ON k.tenant = i.tenant AND k.key = i.key;
    END IF;

    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT * FROM unnest(p_tenants, p_types, p_content_types, p_payloads, p_expires, p_patterns, p_digests,
                             v_ids, v_firsts, v_taken)
            WITH ORDINALITY AS g (tenant, type, content_type, payload, expires_at, patterns, digest,
                                  id, first_id, taken, n)
    ), stored AS (
        INSERT INTO forbear.events (id, tenant, type, content_type, payload, expires_at)
        SELECT g.id, g.tenant, g.type, g.content_type, g.payload, g.expires_at
        FROM given g WHERE g.id = g.first_id
    ), fan_out AS (
        INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes, expires_at)
        -- A microsecond apart, so that a lane's low-water mark can pass each of them.
        SELECT uuidv7(v_now - clock_timestamp()), g.id, m.endpoint_id,
               v_now - (cardinality(v_ids) - g.n) * interval '1 microsecond',
               octet_length(g.payload), g.expires_at
        FROM given g CROSS JOIN LATERAL (
            SELECT DISTINCT f.endpoint_id
            FROM (SELECT s.endpoint_id FROM forbear.subscriptions s
                  WHERE s.tenant = g.tenant AND s.pattern = ANY (string_to_array(g.patterns, ' ')) OFFSET 0) f) m
        WHERE g.id = g.first_id
        RETURNING queue.event_id, queue.endpoint_id, queue.due_at
    ), woken AS (
        INSERT INTO forbear.wakes (endpoint_ids, due_ats)
        SELECT array_agg(l.endpoint_id), array_agg(l.due_at)
        FROM (SELECT f.endpoint_id, min(f.due_at) AS due_at FROM fan_out f GROUP BY f.endpoint_id) l
        HAVING count(*) > 0
    ), answer AS (
        -- Events and their new deliveries side by side, and counted by a window: a join would compare each with each.
        SELECT a.*, count(*) FILTER (WHERE a.n IS NULL) OVER (PARTITION BY a.first_id) AS made
        FROM (SELECT g.n, g.id, g.first_id, g.taken = g.digest AS same FROM given g
              UNION ALL SELECT NULL, NULL, f.event_id, NULL FROM fan_out f) a
    )
    SELECT a.n, a.first_id,
           -- A repeat's deliveries were made just now, in this batch, or are older and somewhere on their way.
           CASE WHEN a.id = a.first_id OR a.made > 0 THEN a.made ELSE forbear.deliveries_of(a.first_id) END,
           a.id <> a.first_id AND a.same,
           a.id <> a.first_id AND NOT a.same
    FROM answer a WHERE a.n IS NOT NULL ORDER BY a.n;
END
$$;

-- After a COMMIT that made work: true for the one caller that must invoke a claimer, since none is awake or called.
-- Its mark says for five seconds that a claimer is on its way; the claimer replaces it by its own. It must run in a
-- transaction of its own after the commit: inside, two transactions could each miss what the other one writes.
-- Whoever is told true must invoke, whatever became of its own work: the next one is told false. p_for_wakes: call only
-- if a wake row is there. So an event that nobody wants calls nobody, and leaves no mark that silences another.
-- p_relying: a mark of one that was called is as good as that of one that is awake. It is not for who repeats an event
-- that was stored before: the ingest that left the mark may have died over it. It waits for no lock for long: the answer
-- to the commit comes together with this one's, and who gets none calls. (Set where it counts and not for the function,
-- which every event calls and which rarely gets that far.)
CREATE FUNCTION forbear.call_claimer(p_for_wakes boolean DEFAULT false, p_relying boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := forbear.now();
BEGIN
    IF EXISTS (SELECT FROM forbear.claimers WHERE awake_until > v_now
                     AND (p_relying OR id <> '00000000-0000-0000-0000-000000000000')) THEN
        RETURN false;
    END IF;
    -- Looked at last: under load, when the table is full of dead rows, somebody is awake.
    IF p_for_wakes AND NOT EXISTS (SELECT FROM forbear.wakes) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', '500ms', true);
    INSERT INTO forbear.claimers (id, awake_until)
    VALUES ('00000000-0000-0000-0000-000000000000', v_now + interval '5 seconds')
    ON CONFLICT (id) DO UPDATE SET awake_until = excluded.awake_until
    WHERE claimers.awake_until <= v_now OR NOT p_relying;
    RETURN FOUND;
END
$$;
