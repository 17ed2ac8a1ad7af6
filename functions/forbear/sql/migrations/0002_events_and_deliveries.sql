-- Events, deliveries and attempts. What is unfinished lives in small tables that the claimer works on; when a delivery
-- ends, it moves with its attempts into the partition of that day, and retention drops whole partitions.

-- Partitioned by id, which is a time: one table a day. The payload is kept as the bytes that came in.
CREATE TABLE forbear.events (
    id           uuid        PRIMARY KEY,
    tenant       text        NOT NULL,
    type         text        NOT NULL,
    content_type text        NOT NULL,
    payload      bytea       NOT NULL,
    expires_at   timestamptz
) PARTITION BY RANGE (id);
-- The condition says nothing new; but it makes the index no candidate for who looks an id up. In the empty partition of a
-- new day it would seem to cost no more than the key, and connections that keep such a plan read all of it for each id.
-- A comparison of rows does not imply it: such queries say `tenant >=`, too.
CREATE INDEX events_of_tenant ON forbear.events (tenant, id) WHERE tenant IS NOT NULL;

-- An Idempotency-Key, or an event's own id, of the last 24 hours, with the digest of what was posted under it.
CREATE TABLE forbear.idempotency_keys (
    tenant     text        NOT NULL,
    key        text        NOT NULL,
    event_id   uuid        NOT NULL,
    digest     bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_by_age ON forbear.idempotency_keys (created_at);

-- Unfinished deliveries: pending, or leased while `lease_token` is set.
CREATE TABLE forbear.queue (
    id            uuid        PRIMARY KEY,
    event_id      uuid        NOT NULL,
    endpoint_id   uuid        NOT NULL,
    due_at        timestamptz NOT NULL,
    payload_bytes int         NOT NULL CHECK (payload_bytes >= 0),
    generation    int         NOT NULL DEFAULT 1 CHECK (generation > 0),
    -- attempts begun in all generations, lost ones included: the number of the latest
    attempts      int         NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- of this generation: attempts that moved the schedule on, those among them with the verdict `limited`, lost ones
    tries         int         NOT NULL DEFAULT 0 CHECK (tries >= 0),
    limited       int         NOT NULL DEFAULT 0 CHECK (limited BETWEEN 0 AND tries),
    lost          int         NOT NULL DEFAULT 0 CHECK (lost >= 0),
    -- the generation's first attempt, and how long the lane had been held in all by then
    started_at    timestamptz,
    held_mark     interval,
    expires_at    timestamptz,
    replay_id     uuid,
    lease_token   uuid,
    lease_until   timestamptz,
    claimed_at    timestamptz,
    -- the generation's first attempt has been made: the retry budget is for these
    retry         boolean     NOT NULL GENERATED ALWAYS AS (tries + lost > 0) STORED,
    CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CHECK ((lease_token IS NULL) = (claimed_at IS NULL)),
    CHECK ((started_at IS NULL) = (held_mark IS NULL)),
    -- a lease is an attempt of its own, one that has begun
    CHECK (attempts >= tries + lost + (lease_token IS NOT NULL)::int),
    CHECK (lease_token IS NULL OR started_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX queue_due    ON forbear.queue (endpoint_id, retry, due_at) WHERE lease_token IS NULL;
CREATE INDEX queue_leased ON forbear.queue (endpoint_id, lease_until)   WHERE lease_token IS NOT NULL;
CREATE INDEX queue_event  ON forbear.queue (event_id);
CREATE INDEX queue_replay ON forbear.queue (replay_id, id) WHERE replay_id IS NOT NULL;

-- Finished deliveries, by the day they ended.
CREATE TABLE forbear.history (
    id            uuid        NOT NULL,
    event_id      uuid        NOT NULL,
    endpoint_id   uuid        NOT NULL,
    payload_bytes int         NOT NULL,
    state         text        NOT NULL CHECK (state IN ('delivered', 'dead', 'cancelled')),
    reason        text,
    generation    int         NOT NULL CHECK (generation > 0),
    attempts      int         NOT NULL CHECK (attempts >= 0),
    replay_id     uuid,
    ended_at      timestamptz NOT NULL,
    PRIMARY KEY (id, ended_at),
    CHECK ((state = 'dead') = (reason IS NOT NULL)),
    CHECK (reason IN ('exhausted', 'expired', 'permanent', 'gone', 'unsendable', 'lost', 'circuit_open'))
) PARTITION BY RANGE (ended_at);
CREATE INDEX history_event       ON forbear.history (event_id);
-- See the index of events.
CREATE INDEX history_of_endpoint ON forbear.history (endpoint_id, id) WHERE endpoint_id IS NOT NULL;
CREATE INDEX history_unhappy     ON forbear.history (endpoint_id, id)
    WHERE state <> 'delivered' AND endpoint_id IS NOT NULL;

-- One HTTP request each, with its evidence. The attempts of an unfinished delivery are here, the others move with it.
CREATE TABLE forbear.queue_attempts (
    delivery_id      uuid        NOT NULL,
    number           int         NOT NULL CHECK (number > 0),
    generation       int         NOT NULL,
    started_at       timestamptz NOT NULL,
    latency_ms       float8      NOT NULL,
    url              text        NOT NULL,
    address          text,
    request_headers  bytea       NOT NULL,
    status           int         CHECK (status BETWEEN 100 AND 599),
    response_headers bytea       NOT NULL DEFAULT '',
    response_body    bytea       NOT NULL DEFAULT '' CHECK (octet_length(response_body) <= 16384),
    error            text,
    error_detail     text        NOT NULL DEFAULT '',
    verdict          text        NOT NULL CHECK (verdict IN ('success', 'retry', 'limited', 'permanent', 'gone', 'lost')),
    retry_after_s    float8,
    retry_after_honoured boolean NOT NULL DEFAULT false,
    next_due_at      timestamptz,
    -- the result came after the lease had lapsed: evidence that changed no state
    late             boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (delivery_id, number),
    CHECK (status IS NOT NULL OR error IS NOT NULL),
    CHECK (verdict <> 'success' OR (status IS NOT NULL AND error IS NULL)),
    CHECK (verdict = 'lost' OR NOT late)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE forbear.history_attempts (
    LIKE forbear.queue_attempts INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (delivery_id, number, ended_at)
) PARTITION BY RANGE (ended_at);

-- Both halves as one, for reading.
CREATE VIEW forbear.deliveries AS
    SELECT id, event_id, endpoint_id, CASE WHEN lease_token IS NULL THEN 'pending' ELSE 'leased' END AS state,
           NULL::text AS reason, generation, attempts, payload_bytes, due_at, replay_id, NULL::timestamptz AS ended_at
    FROM forbear.queue
    UNION ALL
    SELECT id, event_id, endpoint_id, state, reason, generation, attempts, payload_bytes, NULL, replay_id, ended_at
    FROM forbear.history;

CREATE VIEW forbear.attempts AS
    SELECT *, NULL::timestamptz AS ended_at FROM forbear.queue_attempts
    UNION ALL
    SELECT * FROM forbear.history_attempts;

-- Replays and backfills, worked off in steps by the claimer.
CREATE TABLE forbear.replays (
    id            uuid        PRIMARY KEY DEFAULT forbear.new_id(),
    kind          text        NOT NULL CHECK (kind IN ('replay', 'backfill')),
    state         text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'cancelled')),
    -- what to take: deliveries by their ids in order, or finished ones by what the following columns say (NULL: any);
    -- a backfill takes events. types: subscription patterns. since, until: when the delivery or event was made.
    deliveries    uuid[]      CHECK (cardinality(deliveries) > 0),
    tenant        text,
    endpoint_id   uuid        REFERENCES forbear.endpoints,
    types         text[]      CHECK (cardinality(types) > 0),
    status        text        CHECK (status IN ('dead', 'delivered', 'cancelled')),
    reason        text,
    since         timestamptz,
    until         timestamptz,
    rate_per_s    float8      CHECK (rate_per_s > 0),
    -- when the next step may run
    step_at       timestamptz NOT NULL,
    -- where the walk stands: the endpoint, and the last delivery (replay) or event (backfill) looked at
    lane          uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    cursor        uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    -- a backfill starts when these (virtual) transactions have ended: they may not know of its endpoint
    wait_for      text[],
    matched       bigint      NOT NULL DEFAULT 0,  -- deliveries made pending
    unchanged     bigint      NOT NULL DEFAULT 0,  -- asked for, and left as they were
    cancelled     bigint      NOT NULL DEFAULT 0,  -- of the matched, after the replay was cancelled
    created_at    timestamptz NOT NULL DEFAULT forbear.now(),
    -- the first step: a filter takes what had ended by then
    started_at    timestamptz,
    cancelled_at  timestamptz,
    ended_at      timestamptz,
    CHECK ((state IN ('done', 'cancelled')) = (ended_at IS NOT NULL)),
    CHECK (state <> 'cancelled' OR cancelled_at IS NOT NULL),
    CHECK (deliveries IS NULL OR (endpoint_id IS NULL AND types IS NULL AND status IS NULL AND reason IS NULL
                                  AND since IS NULL AND until IS NULL)),
    CHECK (kind <> 'backfill' OR (deliveries IS NULL AND endpoint_id IS NOT NULL)),
    CHECK (kind = 'backfill' OR (deliveries IS NULL) = (status IS NOT NULL)),
    CHECK (reason IS NULL OR status IS NOT DISTINCT FROM 'dead')
);
CREATE INDEX replays_unfinished ON forbear.replays (step_at) WHERE state IN ('waiting', 'running');

-- Creates the daily partitions from the day of p_from on, p_days of them. Attaching (unlike CREATE … PARTITION OF)
-- does not lock the claimer out of the parent. Safe to call at any time and from several processes.
CREATE FUNCTION forbear.make_partitions(p_from timestamptz, p_days int) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    v_day    timestamptz;
    v_table  text;
    v_name   text;
    v_bounds text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('forbear.make_partitions', 0));
    FOR v_day IN SELECT date_trunc('day', p_from) + n * interval '1 day' FROM generate_series(0, p_days - 1) AS n LOOP
        FOREACH v_table IN ARRAY ARRAY['events', 'history', 'history_attempts'] LOOP
            v_name := v_table || '_' || to_char(v_day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('forbear.' || v_name) IS NOT NULL;
            v_bounds := CASE v_table
                WHEN 'events' THEN format('FROM (%L) TO (%L)', forbear.first_id(v_day),
                                          forbear.first_id(v_day + interval '1 day'))
                ELSE format('FROM (%L) TO (%L)', v_day, v_day + interval '1 day') END;
            EXECUTE format('CREATE TABLE forbear.%I (LIKE forbear.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                           v_name, v_table);
            EXECUTE format('ALTER TABLE forbear.%I ATTACH PARTITION forbear.%I FOR VALUES %s',
                           v_table, v_name, v_bounds);
        END LOOP;
    END LOOP;
END
$$;

-- The same for yesterday, today and the week to come, for anybody who meets a missing partition: making one takes the
-- owner of the parents, whose rights are lent for these days and nothing else.
CREATE FUNCTION forbear.make_partitions() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT forbear.make_partitions(forbear.now() - interval '1 day', 9)
$$;

-- Whether maintenance must be called: true for one caller, when the last one is longer ago than p_every. Its mark says for
-- five minutes that maintenance is on its way. So claimers that come and go each second do not all call, and a call that
-- was lost costs minutes and not an hour: only maintenance itself notes that it ran.
CREATE FUNCTION forbear.call_maintenance(p_every interval) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := forbear.now();
BEGIN
    UPDATE forbear.control c SET maintenance_called_at = v_now
    WHERE c.maintained_at < v_now - p_every AND c.maintenance_called_at < v_now - interval '5 minutes';
    RETURN FOUND;
END
$$;

-- The days whose partitions retention may drop: they ended more than p_keep ago, and for events nothing points there:
-- nothing unfinished, and no delivery whose own partition stays. Looks for one index entry in each of those.
CREATE FUNCTION forbear.droppable_partitions(p_keep interval) RETURNS TABLE (parent text, partition text)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    -- A day before it is the last to go.
    v_kept  timestamptz := date_trunc('day', forbear.now() - p_keep);
    v_table text;
    v_name  text;
    v_day   timestamptz;
    v_used  boolean;
BEGIN
    FOR v_table, v_name IN
        SELECT p.relname, c.relname
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
        WHERE p.oid IN ('forbear.events'::regclass, 'forbear.history'::regclass, 'forbear.history_attempts'::regclass)
        -- deliveries before their attempts, which a replay takes along, and before the events that they point to
        ORDER BY array_position(ARRAY['history', 'history_attempts', 'events'], p.relname::text), c.relname
    LOOP
        v_day := to_timestamp(right(v_name, 8), 'YYYYMMDD');
        CONTINUE WHEN v_day >= v_kept;
        IF v_table = 'events' THEN
            v_used := EXISTS (SELECT FROM forbear.queue q WHERE q.event_id >= forbear.first_id(v_day)
                                                            AND q.event_id < forbear.first_id(v_day + interval '1 day'))
                   OR EXISTS (SELECT FROM forbear.history h WHERE h.event_id >= forbear.first_id(v_day)
                                                              AND h.event_id < forbear.first_id(v_day + interval '1 day')
                                                              AND h.ended_at >= v_kept);
            CONTINUE WHEN v_used;
        END IF;
        parent := v_table;
        partition := v_name;
        RETURN NEXT;
    END LOOP;
END
$$;
