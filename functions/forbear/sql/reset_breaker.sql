-- Closes an endpoint's breaker as if nothing had failed, gives it its full concurrency and ends the wait that a
-- Retry-After asked for; what was held starts slowly. The new epoch makes what is in flight, a probe too, count for
-- nothing. A breaker that is as new is left alone.
UPDATE forbear.lanes l
SET breaker_state = 'closed', breaker_since = forbear.now(), breaker_failures = 0, breaker_trips = 0,
    breaker_until = NULL, breaker_epoch = l.breaker_epoch + 1, breaker_reason = 'reset by hand', probe_until = NULL,
    breaker_allows = NULL, concurrency_limit = NULL, control_memory = '{}', control_version = l.control_version + 1,
    released_at = forbear.now(), wait_until = '-infinity', ready_at = least(l.ready_at, forbear.now())
WHERE l.endpoint_id = %(id)s AND l.deleted_at IS NULL
  AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s)
  AND (l.breaker_state <> 'closed' OR l.breaker_failures > 0 OR l.breaker_trips > 0 OR l.wait_until > forbear.now()
       OR l.concurrency_limit IS NOT NULL OR l.control_memory <> '{}')
