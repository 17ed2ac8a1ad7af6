-- What goes through an endpoint's circuit: how many deliveries wait (counted up to a bound), how many are in flight,
-- and what the latest attempts came to. Nothing is counted while deliveries are made; this reads the attempts of the
-- 500 newest finished deliveries that have any, and of as many unfinished ones, those that are due last (a retry is due
-- later than what has not been tried), and takes the 1,000 newest of these. Attempts are looked up delivery by
-- delivery, hence LIMIT: a join might be made by reading all of them.
WITH finished AS MATERIALIZED (
    SELECT h.id, h.ended_at
    FROM forbear.newest_ended(%(id)s, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
                              '-infinity', 2000) h
    WHERE h.attempts > 0  -- a cancelled one may have none
    ORDER BY h.id DESC LIMIT 500
), unfinished AS MATERIALIZED (
    SELECT q.id FROM forbear.last_due(%(id)s, 500) q WHERE q.attempts > 0
), attempt AS MATERIALIZED (
    SELECT a.*
    FROM (
        SELECT a.* FROM finished f CROSS JOIN LATERAL (
            SELECT a.started_at, a.verdict, a.retry_after_s, a.retry_after_honoured FROM forbear.history_attempts a
            WHERE a.delivery_id = f.id AND a.ended_at = f.ended_at
            ORDER BY a.number DESC LIMIT 50) a
        UNION ALL
        SELECT a.* FROM unfinished u CROSS JOIN LATERAL (
            SELECT a.started_at, a.verdict, a.retry_after_s, a.retry_after_honoured FROM forbear.queue_attempts a
            WHERE a.delivery_id = u.id
            ORDER BY a.number DESC LIMIT 50) a
    ) a
    ORDER BY a.started_at DESC LIMIT 1000
)
SELECT forbear.count_pending(%(id)s, %(count_to)s + 1) AS pending,
       (SELECT count(*) FROM forbear.queue q
        WHERE q.endpoint_id = %(id)s AND q.lease_token IS NOT NULL
          AND q.lease_until > (SELECT forbear.now())) AS in_flight,
       (SELECT count(*) FROM attempt) AS attempts,
       (SELECT count(*) FROM attempt a WHERE a.verdict = 'success') AS successes,
       (SELECT min(a.started_at) FROM attempt a) AS since,
       (SELECT count(*) FROM attempt a WHERE a.retry_after_s IS NOT NULL) AS retry_after_seen,
       (SELECT count(*) FROM attempt a WHERE a.retry_after_honoured) AS retry_after_honoured
