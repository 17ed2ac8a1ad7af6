"""What must be true of the rows at any time, whatever happened before. Each is a query for what breaks it.

Knows no model and no operation: it also judges what several sessions have made of the rows at once.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

type Connection = psycopg.Connection[Any]

# When a lane is looked at again: when it is ready, or when a claimer consumes its wake row. And what waits there.
LOOKED_AT = """
    WITH woken AS MATERIALIZED (
        SELECT w.endpoint_id, min(w.due_at) AS due_at
        FROM forbear.wakes r CROSS JOIN LATERAL unnest(r.endpoint_ids, r.due_ats) AS w (endpoint_id, due_at)
        GROUP BY w.endpoint_id
    ), waiting AS MATERIALIZED (
        SELECT q.endpoint_id, q.retry, min(q.due_at) AS due_at, count(*) AS number
        FROM forbear.queue q WHERE q.lease_token IS NULL GROUP BY q.endpoint_id, q.retry
    )
"""
RULES = {
    "a delivery is in the queue or in the history, once": """
        SELECT d.id, count(*) FROM (SELECT id FROM forbear.queue UNION ALL SELECT id FROM forbear.history) d
        GROUP BY d.id HAVING count(*) > 1
    """,
    "no event has two deliveries to one endpoint": """
        SELECT d.event_id, d.endpoint_id, count(*) FROM forbear.deliveries d
        GROUP BY d.event_id, d.endpoint_id HAVING count(*) > 1
    """,
    "attempts are numbered without gaps over all generations": """
        SELECT d.id, d.state, d.attempts, a.numbers
        FROM forbear.deliveries d
        LEFT JOIN (SELECT a.delivery_id, array_agg(a.number ORDER BY a.number) AS numbers FROM forbear.attempts a
                   GROUP BY a.delivery_id) a ON a.delivery_id = d.id
        -- What is in flight has a number, and evidence when its result came too late and nobody has taken it over yet.
        WHERE coalesce(a.numbers, '{}') <> ARRAY(SELECT generate_series(1, d.attempts))
          AND NOT (d.state = 'leased' AND coalesce(a.numbers, '{}') = ARRAY(SELECT generate_series(1, d.attempts - 1)))
    """,
    "attempts stand where their delivery stands, in the order of its generations": """
        SELECT a.delivery_id, a.number
        FROM (SELECT a.*, lag(a.generation, 1, 1) OVER (PARTITION BY a.delivery_id ORDER BY a.number) AS earlier
              FROM forbear.attempts a) a
        LEFT JOIN forbear.deliveries d ON d.id = a.delivery_id
        WHERE d.id IS NULL OR d.ended_at IS DISTINCT FROM a.ended_at OR a.generation > d.generation
           OR a.generation < a.earlier
    """,
    "what is unfinished has its event, with the payload that is reckoned with": """
        SELECT q.id FROM forbear.queue q LEFT JOIN forbear.events e ON e.id = q.event_id
        WHERE octet_length(e.payload) IS DISTINCT FROM q.payload_bytes
    """,
    "a lane is held while something holds it and not a moment longer": """
        SELECT l.endpoint_id FROM forbear.lanes l LEFT JOIN forbear.tenants t ON t.tenant = l.tenant
        WHERE l.held <> (l.deleted_at IS NULL AND (l.paused_at IS NOT NULL OR l.tenant_paused_at IS NOT NULL
                                                   OR l.disabled_at IS NOT NULL))
           OR l.deleted_at IS NULL AND l.tenant_paused_at IS DISTINCT FROM t.paused_at
    """,
    "nothing unfinished stays on a deleted lane that nobody will look at": LOOKED_AT
    + """
        SELECT l.endpoint_id FROM forbear.lanes l LEFT JOIN woken w ON w.endpoint_id = l.endpoint_id
        WHERE l.deleted_at IS NOT NULL AND EXISTS (SELECT FROM forbear.queue q WHERE q.endpoint_id = l.endpoint_id)
          AND least(l.ready_at, w.due_at) > forbear.now()
    """,
    # What is due may wait for a bar, a second for a place, and for tokens, which the machine's policies give soon.
    "a lane with something pending is looked at when that may go": LOOKED_AT
    + """
        SELECT l.endpoint_id, l.ready_at, w.due_at AS woken_at, p.due_at, forbear.barred_until(l) AS barred_until,
               forbear.now() AS now
        FROM forbear.lanes l
        JOIN (SELECT p.endpoint_id, min(p.due_at) AS due_at FROM waiting p GROUP BY p.endpoint_id) p
             ON p.endpoint_id = l.endpoint_id
        LEFT JOIN woken w ON w.endpoint_id = l.endpoint_id
        WHERE NOT l.held AND l.deleted_at IS NULL
          AND least(l.ready_at, greatest(w.due_at, CASE WHEN w.due_at IS NOT NULL THEN forbear.barred_until(l) END))
              > greatest(p.due_at, forbear.barred_until(l), forbear.now())
                + (1.001 + coalesce(1 / l.rate_per_s, 0) + coalesce(1 / l.budget_floor, 0)) * interval '1 second'
    """,
    "nothing pending lies below its lane's low-water mark": LOOKED_AT
    + """
        SELECT l.endpoint_id, p.retry, p.due_at, l.low_water, l.retry_low_water, w.due_at AS woken_at
        FROM forbear.lanes l
        JOIN waiting p ON p.endpoint_id = l.endpoint_id
        LEFT JOIN woken w ON w.endpoint_id = l.endpoint_id
        WHERE NOT l.held AND l.deleted_at IS NULL
          AND least(CASE WHEN p.retry THEN l.retry_low_water ELSE l.low_water END, w.due_at) > p.due_at
    """,
    "an unfinished replay has a next step": """
        SELECT r.id, r.state, r.step_at FROM forbear.replays r
        WHERE r.ended_at IS NULL AND (r.state NOT IN ('waiting', 'running') OR NOT isfinite(r.step_at))
    """,
}


# All of them in one round trip; a backend plans it once.
BROKEN = " UNION ALL ".join(
    f"(SELECT '{rule.replace("'", "''")}', to_json(b) FROM ({broken_by}) b)" for rule, broken_by in RULES.items()
)


def check(connection: Connection) -> None:
    """Look whether everything is true.

    Raises:
        AssertionError: something is not; it says which rule is broken by what.
    """
    broken = connection.cursor(row_factory=tuple_row).execute(BROKEN).fetchall()
    assert not broken, "\n".join(f"{rule}, but: {by}" for rule, by in broken)
