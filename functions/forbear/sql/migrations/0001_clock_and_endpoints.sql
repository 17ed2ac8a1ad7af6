-- The clock, the endpoints with their lanes, and what holds them.

-- One clock for due times, leases, breaker windows and retention. A test or a simulation shifts or freezes it for
-- every process at once; in production the row stays as it is here.
CREATE TABLE forbear.clock (
    only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    shift     interval    NOT NULL DEFAULT '0',
    frozen_at timestamptz
);
INSERT INTO forbear.clock DEFAULT VALUES;

CREATE FUNCTION forbear.now() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(frozen_at, clock_timestamp() + shift) FROM forbear.clock
$$;

-- A UUIDv7 stamped by Forbear's clock, so that an id's time and its partition agree with everything else.
CREATE FUNCTION forbear.new_id() RETURNS uuid
LANGUAGE sql VOLATILE AS $$
    SELECT uuidv7(forbear.now() - clock_timestamp())
$$;

-- The smallest UUID a UUIDv7 of that time can have (RFC 9562 5.7: 48 bits of milliseconds lead).
CREATE FUNCTION forbear.first_id(p_at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT rpad(lpad(to_hex(floor(extract(epoch FROM p_at) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- What concerns everything: the stop switch, the state the schedule was last put in, the last maintenance and when it
-- was last called for.
CREATE TABLE forbear.control (
    only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    paused_at      timestamptz,
    -- when the latest pause of everything ended, and how long all of them took, the present one left out
    resumed_at     timestamptz NOT NULL DEFAULT '-infinity',
    held_total     interval    NOT NULL DEFAULT '0',
    schedule       text        NOT NULL DEFAULT 'unknown',
    maintained_at  timestamptz NOT NULL DEFAULT '-infinity',
    maintenance_called_at timestamptz NOT NULL DEFAULT '-infinity',
    -- which cluster this is, if it came from a snapshot
    cluster        text
);
INSERT INTO forbear.control DEFAULT VALUES;

CREATE TABLE forbear.tenants (
    tenant    text        PRIMARY KEY,
    paused_at timestamptz
);

-- A text that a data key has sealed: the key's number and base64 (forbear.vault). A domain, whose violation, other than
-- a table's, does not show what somebody tried to store.
CREATE DOMAIN forbear.sealed AS text CHECK (VALUE ~ '^[0-9]{1,5}[.][A-Za-z0-9+/]+=*$');

CREATE TABLE forbear.endpoints (
    id          uuid        PRIMARY KEY DEFAULT forbear.new_id(),
    tenant      text        NOT NULL,
    url         text        NOT NULL,
    description text        NOT NULL DEFAULT '',
    event_types text[]      NOT NULL CHECK (cardinality(event_types) > 0),
    -- all of them as one text; NULL: none
    headers     forbear.sealed,
    policy      jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT forbear.now(),
    updated_at  timestamptz NOT NULL DEFAULT forbear.now(),
    deleted_at  timestamptz
);
CREATE INDEX endpoints_of_tenant ON forbear.endpoints (tenant, id) WHERE deleted_at IS NULL;

-- Who wants what: one row a pattern, found by equality with the patterns that a type matches.
CREATE TABLE forbear.subscriptions (
    tenant      text NOT NULL,
    pattern     text NOT NULL,
    endpoint_id uuid NOT NULL REFERENCES forbear.endpoints,
    PRIMARY KEY (tenant, pattern, endpoint_id)
);
CREATE INDEX subscriptions_of_endpoint ON forbear.subscriptions (endpoint_id);

-- Signing secrets in the order they sign: a rotated one signs on until it expires.
CREATE TABLE forbear.secrets (
    endpoint_id uuid        NOT NULL REFERENCES forbear.endpoints,
    secret      forbear.sealed NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT forbear.now(),
    expires_at  timestamptz,
    PRIMARY KEY (endpoint_id, created_at)
);
CREATE UNIQUE INDEX one_current_secret ON forbear.secrets (endpoint_id) WHERE expires_at IS NULL;

-- An endpoint's queue as the claimer sees it. Whoever changes a pending delivery holds its lane's row lock, and takes
-- it before any delivery's; several lanes are locked in the order of their ids. So nobody waits in a circle.
CREATE TABLE forbear.lanes (
    endpoint_id      uuid        PRIMARY KEY REFERENCES forbear.endpoints,
    tenant           text        NOT NULL,
    -- when to look at the lane again; infinity when it is empty
    ready_at         timestamptz NOT NULL DEFAULT 'infinity',
    -- no pending first attempt, and no pending retry, is due earlier: the claim's index scans start here and not in
    -- front of dead entries
    low_water        timestamptz NOT NULL DEFAULT '-infinity',
    retry_low_water  timestamptz NOT NULL DEFAULT '-infinity',
    -- no live lease lapses earlier: for the same reason
    lease_low_water  timestamptz NOT NULL DEFAULT '-infinity',
    -- more was due than the concurrency or the fair share let go: a settle wakes the lane
    saturated        boolean     NOT NULL DEFAULT false,
    -- when a claim last had the lane in hand
    visited_at       timestamptz NOT NULL DEFAULT forbear.now(),

    paused_at        timestamptz,
    tenant_paused_at timestamptz,
    disabled_at      timestamptz,
    disabled_reason  text,
    deleted_at       timestamptz,
    held             boolean     NOT NULL DEFAULT false,
    held_since       timestamptz,
    held_total       interval    NOT NULL DEFAULT '0',
    -- for how long everything had been paused in all when the hold began
    held_beside      interval,
    -- when a hold last ended: a slow start is due if the lane has not been visited since
    released_at      timestamptz NOT NULL DEFAULT '-infinity',
    -- a receiver's Retry-After
    wait_until       timestamptz NOT NULL DEFAULT '-infinity',

    -- the policy's, copied by forbear.copy_policy whenever that is set
    timeout_s        float8      NOT NULL DEFAULT 15,
    concurrency      int,
    rate_per_s       float8,
    burst            int         NOT NULL DEFAULT 1,
    budget_ratio     float8,
    budget_floor     float8,
    budget_window    float8,
    slow_start       boolean     NOT NULL DEFAULT false,
    dead_letter      boolean     NOT NULL DEFAULT false,

    -- the tokens of the rate, and those of the retry budget: its floor's and what first attempts deposited; as they were
    -- at visited_at
    tokens           float8      NOT NULL DEFAULT 'infinity',
    budget_tokens    float8      NOT NULL DEFAULT 'infinity',
    budget_deposits  float8      NOT NULL DEFAULT 0,

    -- what the outcomes of attempts change (forbear.policy.control); the version rises with every change
    breaker_state    text        NOT NULL DEFAULT 'closed'
                     CHECK (breaker_state IN ('closed', 'open', 'half_open_probe', 'half_open_trickle')),
    breaker_since    timestamptz NOT NULL DEFAULT forbear.now(),
    breaker_failures int         NOT NULL DEFAULT 0,
    breaker_trips    int         NOT NULL DEFAULT 0,
    breaker_until    timestamptz,
    breaker_epoch    bigint      NOT NULL DEFAULT 0,
    breaker_reason   text,
    -- in the trickle: how many may be in flight
    breaker_allows   int         CHECK (breaker_allows > 0),
    -- the half-open probe's lease: when it has lapsed, another probe may go
    probe_until      timestamptz,
    -- the adaptive concurrency; NULL: the policy's own limit
    concurrency_limit int        CHECK (concurrency_limit > 0),
    -- what only the policy code reads
    control_memory   jsonb       NOT NULL DEFAULT '{}',
    control_version  bigint      NOT NULL DEFAULT 0,

    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    CHECK (held = (held_since IS NOT NULL)),
    CHECK (held = (held_beside IS NOT NULL)),
    CHECK ((breaker_state = 'open') = (breaker_until IS NOT NULL)),
    CHECK ((breaker_state = 'half_open_probe') = (probe_until IS NOT NULL)),
    CHECK ((breaker_state = 'half_open_trickle') = (breaker_allows IS NOT NULL)),
    CHECK (timeout_s BETWEEN 0 AND 60 AND concurrency > 0 AND rate_per_s > 0 AND burst > 0 AND budget_floor > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_ready ON forbear.lanes (ready_at) WHERE NOT held AND ready_at < 'infinity';
CREATE INDEX lanes_of_tenant ON forbear.lanes (tenant);

-- Until when a lane is barred, whatever is due: NULL or past when it is not. One whose policy dead-letters while its
-- breaker is open is visited all the same.
CREATE FUNCTION forbear.barred_until(l forbear.lanes) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(l.wait_until, CASE WHEN NOT l.dead_letter THEN l.breaker_until END, l.probe_until)
$$;

-- Copies what the claim needs of a policy to its lane, and lets the claimer have a look at once: what is allowed now may
-- have been barred by a limit before. Without a breaker in the policy the lane's is closed; how much concurrency the
-- receiver bears is found out anew.
CREATE FUNCTION forbear.copy_policy() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_endpoint uuid  := CASE TG_TABLE_NAME WHEN 'lanes' THEN (to_jsonb(NEW) ->> 'endpoint_id')::uuid
                                           ELSE (to_jsonb(NEW) ->> 'id')::uuid END;
    v_policy   jsonb := (SELECT e.policy FROM forbear.endpoints e WHERE e.id = v_endpoint);
BEGIN
    UPDATE forbear.lanes l
    SET timeout_s     = coalesce((v_policy ->> 'timeout_s')::float8, l.timeout_s),
        concurrency   = (v_policy #>> '{limits,concurrency}')::int,
        rate_per_s    = (v_policy #>> '{limits,rate_per_s}')::float8,
        burst         = coalesce((v_policy #>> '{limits,burst}')::int,
                                 greatest(1, ceil((v_policy #>> '{limits,rate_per_s}')::float8))),
        budget_ratio  = (v_policy #>> '{budget,ratio}')::float8,
        budget_floor  = (v_policy #>> '{budget,floor_per_s}')::float8,
        budget_window = (v_policy #>> '{budget,window_s}')::float8,
        slow_start    = coalesce((v_policy #>> '{breaker,slow_start}')::boolean, false),
        dead_letter   = n.dead_letter,
        concurrency_limit = NULL,
        breaker_state = CASE WHEN n.unbroken THEN 'closed' ELSE l.breaker_state END,
        breaker_since = CASE WHEN n.unbroken AND l.breaker_state <> 'closed' THEN forbear.now()
                             ELSE l.breaker_since END,
        breaker_reason = CASE WHEN NOT n.unbroken THEN l.breaker_reason END,
        breaker_failures = CASE WHEN n.unbroken THEN 0 ELSE l.breaker_failures END,
        breaker_trips = CASE WHEN n.unbroken THEN 0 ELSE l.breaker_trips END,
        control_memory = CASE WHEN n.unbroken THEN l.control_memory - ARRAY['passed', 'recent', 'failing_since']
                              ELSE l.control_memory END,
        breaker_until = CASE WHEN NOT n.unbroken THEN l.breaker_until END,
        breaker_allows = CASE WHEN NOT n.unbroken THEN l.breaker_allows END,
        probe_until   = CASE WHEN NOT n.unbroken THEN l.probe_until END,
        breaker_epoch = l.breaker_epoch + n.unbroken::int,
        control_version = l.control_version + 1,
        ready_at      = CASE WHEN l.ready_at < 'infinity' THEN
                            least(l.ready_at, greatest(forbear.now(), l.wait_until, CASE WHEN NOT n.unbroken THEN
                                greatest(l.probe_until, CASE WHEN NOT n.dead_letter THEN l.breaker_until END) END))
                            ELSE 'infinity' END
    FROM (SELECT coalesce(v_policy -> 'breaker' = 'null', false) AS unbroken,
                 coalesce((v_policy #>> '{breaker,dead_letter}')::boolean, false) AS dead_letter) n
    WHERE l.endpoint_id = v_endpoint;
    RETURN NULL;
END
$$;
CREATE TRIGGER copy_policy AFTER INSERT ON forbear.lanes FOR EACH ROW EXECUTE FUNCTION forbear.copy_policy();
CREATE TRIGGER copy_policy AFTER UPDATE OF policy ON forbear.endpoints
    FOR EACH ROW WHEN (OLD.policy IS DISTINCT FROM NEW.policy) EXECUTE FUNCTION forbear.copy_policy();

-- `held` follows from what holds the lane; time held is summed up so that a delivery's window can leave it out. What of it
-- everything was paused for, too, is not: the claim adds all of that time, and it must count once.
-- A deleted lane is not held: the claimer visits it to cancel what is left.
CREATE FUNCTION forbear.keep_held() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_beside interval := (SELECT c.held_total + coalesce(forbear.now() - c.paused_at, '0') FROM forbear.control c);
BEGIN
    NEW.held := NEW.deleted_at IS NULL
                AND (NEW.paused_at IS NOT NULL OR NEW.tenant_paused_at IS NOT NULL OR NEW.disabled_at IS NOT NULL);
    IF NEW.held AND NEW.held_since IS NULL THEN
        NEW.held_since := forbear.now();
        NEW.held_beside := v_beside;
    ELSIF NOT NEW.held AND NEW.held_since IS NOT NULL THEN
        NEW.held_total := NEW.held_total + (forbear.now() - NEW.held_since) - (v_beside - NEW.held_beside);
        NEW.held_since := NULL;
        NEW.held_beside := NULL;
        NEW.released_at := forbear.now();
        NEW.ready_at := greatest(forbear.now(), forbear.barred_until(NEW));
        NEW.low_water := '-infinity';
        NEW.retry_low_water := '-infinity';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_held BEFORE INSERT OR UPDATE OF paused_at, tenant_paused_at, disabled_at, deleted_at
    ON forbear.lanes FOR EACH ROW EXECUTE FUNCTION forbear.keep_held();

-- Lanes to look at: appended by whoever makes deliveries pending, in the same transaction, and consumed by claimers.
CREATE TABLE forbear.wakes (
    id           bigint        PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    endpoint_ids uuid[]        NOT NULL,
    due_ats      timestamptz[] NOT NULL CHECK (cardinality(due_ats) = cardinality(endpoint_ids))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Claimers that are awake, each until its mark expires. The nil id stands for one that was called but is not up yet.
CREATE TABLE forbear.claimers (
    id          uuid        PRIMARY KEY,
    awake_until timestamptz NOT NULL
);

-- Keys that encrypt and hash what lies here, each for one purpose; wrapped by a key outside (forbear.vault).
CREATE TABLE forbear.data_keys (
    id         smallint    PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    purpose    text        NOT NULL CHECK (purpose IN ('secrets', 'api_keys')),
    wrapped    bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT forbear.now()
);
