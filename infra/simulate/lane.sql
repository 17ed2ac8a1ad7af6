-- What the simulation looks at after each step: the breaker, the adaptive limit, when the next claim may find something,
-- whether the endpoint is disabled, and how many deliveries ended now because the policy lets none wait for an open
-- breaker.
SELECT l.breaker_state, l.concurrency_limit, l.disabled_reason,
       CASE WHEN NOT l.held AND l.ready_at < 'infinity' THEN l.ready_at END AS ready_at,
       CASE WHEN l.dead_letter THEN
           (SELECT count(*) FROM forbear.history h
            WHERE h.endpoint_id = l.endpoint_id AND h.reason = 'circuit_open' AND h.ended_at = forbear.now())
       ELSE 0 END AS dropped
FROM forbear.lanes l WHERE l.endpoint_id = %(endpoint)s
