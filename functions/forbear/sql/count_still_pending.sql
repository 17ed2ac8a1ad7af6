-- How many deliveries of a replay's making have not ended, up to a bound. The order has the index of replays serve.
SELECT count(*) AS count
FROM (SELECT FROM forbear.queue q WHERE q.replay_id BETWEEN %(id)s AND %(id)s
      ORDER BY q.replay_id, q.id LIMIT %(bound)s) q
