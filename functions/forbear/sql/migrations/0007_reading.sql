-- What the management API reads from: each function walks one index from one end and gives at most so many entries. The
-- settings leave the planner no other way, on an empty, a just filled and a large table alike, without statistics;
-- they are why these are functions. Planned once a connection.
--
-- Where an index has two columns they are compared together, as rows: exactly a range of that index. With = on the
-- first, the order by the second would do, and might be taken from the primary key, past everybody else's rows.

-- An endpoint's finished deliveries, the newest first. p_since: none of them ended before; leaves out older partitions.
CREATE FUNCTION forbear.newest_ended(p_endpoint uuid, p_first uuid, p_end uuid, p_since timestamptz, p_limit bigint)
RETURNS SETOF forbear.history
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM forbear.history h
    WHERE (h.endpoint_id, h.id) >= (p_endpoint, p_first) AND (h.endpoint_id, h.id) < (p_endpoint, p_end)
      AND h.endpoint_id >= p_endpoint  -- the index's condition
      AND h.ended_at >= p_since
    ORDER BY h.endpoint_id DESC, h.id DESC LIMIT p_limit
$$;

-- Those of them that did not succeed.
CREATE FUNCTION forbear.newest_unhappy(p_endpoint uuid, p_first uuid, p_end uuid, p_since timestamptz, p_limit bigint)
RETURNS SETOF forbear.history
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM forbear.history h
    WHERE (h.endpoint_id, h.id) >= (p_endpoint, p_first) AND (h.endpoint_id, h.id) < (p_endpoint, p_end)
      AND h.endpoint_id >= p_endpoint  -- the index's condition
      AND h.ended_at >= p_since
      AND h.state <> 'delivered'
    ORDER BY h.endpoint_id DESC, h.id DESC LIMIT p_limit
$$;

-- Everybody's finished deliveries, the newest first.
CREATE FUNCTION forbear.newest_ended_of_all(p_first uuid, p_end uuid, p_since timestamptz, p_limit bigint)
RETURNS SETOF forbear.history
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM forbear.history h
    WHERE h.id >= p_first AND h.id < p_end AND h.ended_at >= p_since
    ORDER BY h.id DESC LIMIT p_limit
$$;

-- An endpoint's unfinished deliveries, in no order.
CREATE FUNCTION forbear.unfinished_of(p_endpoint uuid, p_limit bigint) RETURNS SETOF forbear.queue
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT * FROM forbear.queue q WHERE q.endpoint_id = p_endpoint AND q.lease_token IS NOT NULL
    UNION ALL
    SELECT * FROM forbear.queue q WHERE q.endpoint_id = p_endpoint AND q.lease_token IS NULL
    LIMIT p_limit
$$;

-- Everybody's unfinished deliveries, the newest first; p_leased: only the leased ones, or only the others.
CREATE FUNCTION forbear.newest_unfinished_of_all(
    p_first uuid, p_end uuid, p_leased boolean, p_walk bigint, p_limit bigint
) RETURNS SETOF forbear.queue
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM (SELECT * FROM forbear.queue q WHERE q.id >= p_first AND q.id < p_end
                   ORDER BY q.id DESC LIMIT p_walk) q
    WHERE p_leased IS NULL OR p_leased = (q.lease_token IS NOT NULL)
    LIMIT p_limit
$$;

-- The same of some endpoints, found among the newest p_walk of everybody's. (A plain IN would become a join, and that
-- would lose the order.)
CREATE FUNCTION forbear.newest_unfinished(
    p_endpoints uuid[], p_first uuid, p_end uuid, p_leased boolean, p_walk bigint, p_limit bigint
) RETURNS SETOF forbear.queue
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM (SELECT * FROM forbear.queue q WHERE q.id >= p_first AND q.id < p_end
                   ORDER BY q.id DESC LIMIT p_walk) q
    WHERE coalesce(q.endpoint_id IN (SELECT unnest(p_endpoints)), false)
      AND (p_leased IS NULL OR p_leased = (q.lease_token IS NOT NULL))
    LIMIT p_limit
$$;

-- The last one of such a walk; NULL if it comes to the end.
CREATE FUNCTION forbear.end_of_walk(p_first uuid, p_end uuid, p_walk bigint) RETURNS uuid
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT q.id FROM forbear.queue q WHERE q.id >= p_first AND q.id < p_end ORDER BY q.id DESC OFFSET p_walk - 1 LIMIT 1
$$;

-- An endpoint's pending deliveries behind one of them, in the order in which they are due.
CREATE FUNCTION forbear.next_due(p_endpoint uuid, p_due_at timestamptz, p_id uuid, p_limit bigint)
RETURNS SETOF forbear.queue
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM (
        (SELECT * FROM forbear.queue q
         WHERE (q.endpoint_id, q.retry, q.due_at, q.id) > (p_endpoint, false, p_due_at, p_id)
           AND (q.endpoint_id, q.retry) <= (p_endpoint, false) AND q.lease_token IS NULL
         ORDER BY q.endpoint_id, q.retry, q.due_at, q.id LIMIT p_limit)
        UNION ALL
        (SELECT * FROM forbear.queue q
         WHERE (q.endpoint_id, q.retry, q.due_at, q.id) > (p_endpoint, true, p_due_at, p_id)
           AND (q.endpoint_id, q.retry) <= (p_endpoint, true) AND q.lease_token IS NULL
         ORDER BY q.endpoint_id, q.retry, q.due_at, q.id LIMIT p_limit)) q
    ORDER BY q.due_at, q.id LIMIT p_limit
$$;

-- An endpoint's pending deliveries that are due last.
CREATE FUNCTION forbear.last_due(p_endpoint uuid, p_limit bigint) RETURNS SETOF forbear.queue
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT * FROM (
        (SELECT * FROM forbear.queue q
         WHERE (q.endpoint_id, q.retry) >= (p_endpoint, false) AND (q.endpoint_id, q.retry) <= (p_endpoint, false)
           AND q.lease_token IS NULL
         ORDER BY q.endpoint_id DESC, q.retry DESC, q.due_at DESC LIMIT p_limit)
        UNION ALL
        (SELECT * FROM forbear.queue q
         WHERE (q.endpoint_id, q.retry) >= (p_endpoint, true) AND (q.endpoint_id, q.retry) <= (p_endpoint, true)
           AND q.lease_token IS NULL
         ORDER BY q.endpoint_id DESC, q.retry DESC, q.due_at DESC LIMIT p_limit)) q
    ORDER BY q.due_at DESC LIMIT p_limit
$$;

-- How many of an endpoint's deliveries are pending; counts no further than p_limit.
CREATE FUNCTION forbear.count_pending(p_endpoint uuid, p_limit bigint) RETURNS bigint
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT count(*) FROM (SELECT FROM forbear.queue q WHERE q.endpoint_id = p_endpoint AND q.lease_token IS NULL
                          LIMIT p_limit) q
$$;

-- A tenant's events, the newest first, without their payloads.
CREATE FUNCTION forbear.newest_events(p_tenant text, p_first uuid, p_end uuid, p_limit bigint)
RETURNS TABLE (id uuid, tenant text, type text, content_type text, payload_bytes int, expires_at timestamptz)
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT e.id, e.tenant, e.type, e.content_type, octet_length(e.payload), e.expires_at
    FROM forbear.events e
    WHERE (e.tenant, e.id) >= (p_tenant, p_first) AND (e.tenant, e.id) < (p_tenant, p_end)
      AND e.tenant >= p_tenant  -- the index's condition
      AND e.id >= p_first AND e.id < p_end  -- no partition beside
    ORDER BY e.tenant DESC, e.id DESC LIMIT p_limit
$$;

-- Everybody's events, the newest first, without their payloads.
CREATE FUNCTION forbear.newest_events_of_all(p_first uuid, p_end uuid, p_limit bigint)
RETURNS TABLE (id uuid, tenant text, type text, content_type text, payload_bytes int, expires_at timestamptz)
LANGUAGE sql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
    SELECT e.id, e.tenant, e.type, e.content_type, octet_length(e.payload), e.expires_at
    FROM forbear.events e
    WHERE e.id >= p_first AND e.id < p_end
    ORDER BY e.id DESC LIMIT p_limit
$$;
