-- Keeps a data key, unless there is one for its purpose already. The caller holds the table's lock.
INSERT INTO forbear.data_keys (purpose, wrapped)
SELECT %(purpose)s, %(wrapped)s WHERE NOT EXISTS (SELECT FROM forbear.data_keys d WHERE d.purpose = %(purpose)s)
