-- Pauses everything, since now or since it was paused; or ends that pause. What is in flight is not called back.
UPDATE forbear.control c
SET paused_at  = CASE WHEN %(paused)s THEN coalesce(c.paused_at, forbear.now()) END,
    resumed_at = CASE WHEN NOT %(paused)s AND c.paused_at IS NOT NULL THEN forbear.now() ELSE c.resumed_at END,
    held_total = c.held_total + CASE WHEN %(paused)s THEN interval '0'
                                     ELSE coalesce(forbear.now() - c.paused_at, '0') END
RETURNING c.paused_at
