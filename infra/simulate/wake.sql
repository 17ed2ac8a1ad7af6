-- Tells a lane of deliveries that were put in, as whoever makes some pending does.
INSERT INTO forbear.wakes (endpoint_ids, due_ats) VALUES (ARRAY[%(endpoint)s::uuid], ARRAY[%(due_at)s::timestamptz])
