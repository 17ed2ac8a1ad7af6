-- Cancels the first of what is unfinished on a deleted lane in hand, and has the claimer cancel the rest: whatever held
-- the lane, it is ready now. A statement of its own, after the one that marked the lane, whose trigger sets ready_at.
WITH lane AS (
    UPDATE forbear.lanes l SET ready_at = forbear.now() WHERE l.endpoint_id = %(id)s
)
SELECT forbear.cancel_lane(%(id)s, %(limit)s) AS cancelled
