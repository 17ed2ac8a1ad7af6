-- Keeps what a late result saw; see forbear.keep_late.
SELECT forbear.keep_late(
    %(id)s, %(number)s, %(age)s, %(latency_ms)s, %(url)s, %(address)s, %(request_headers)b, %(status)s,
    %(response_headers)b, %(response_body)b, %(error)s, %(error_detail)s, %(retry_after)s
)
