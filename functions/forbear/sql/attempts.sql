-- A delivery's attempts, the latest first, from below a number.
SELECT a.number, a.generation, a.started_at, a.latency_ms, a.url, a.address, a.request_headers, a.status,
       a.response_headers, a.response_body, a.error, a.error_detail, a.verdict, a.retry_after_s,
       a.retry_after_honoured, a.next_due_at, a.late
FROM forbear.attempts a
WHERE a.delivery_id = %(id)s AND a.number < %(below)s
ORDER BY a.number DESC
LIMIT %(limit)s
