-- Second half of a rotation: the new secret. Later than every other one, even while a simulation holds the clock.
INSERT INTO forbear.secrets (endpoint_id, secret, created_at)
SELECT %(id)s, %(secret)s, greatest(forbear.now(), max(s.created_at) + interval '1 microsecond')
FROM forbear.secrets s WHERE s.endpoint_id = %(id)s
