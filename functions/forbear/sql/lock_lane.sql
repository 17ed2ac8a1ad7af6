-- Locks a lane.
SELECT FROM forbear.lanes l WHERE l.endpoint_id = %(endpoint)s FOR NO KEY UPDATE
