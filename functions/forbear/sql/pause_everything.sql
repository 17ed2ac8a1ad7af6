-- Pauses everything, since now or since it was paused; or ends that pause. What is in flight is not called back.
UPDATE forbear.control c SET paused_at = CASE WHEN %(paused)s THEN coalesce(c.paused_at, forbear.now()) END
RETURNING c.paused_at
