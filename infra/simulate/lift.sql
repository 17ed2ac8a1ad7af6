-- Lets a whole step's deliveries go at once, or by the limits of before again: the policy's and the adaptive one. A step
-- stands for seconds in which they would have gone one after the other; so its leases must outlast it, too.
UPDATE forbear.lanes l
SET concurrency       = CASE WHEN NOT %(lifted)s THEN %(concurrency)s::int END,
    concurrency_limit = CASE WHEN NOT %(lifted)s THEN %(limit)s::int END,
    timeout_s         = CASE WHEN %(lifted)s THEN 60 ELSE %(timeout_s)s END
WHERE l.endpoint_id = %(endpoint)s
