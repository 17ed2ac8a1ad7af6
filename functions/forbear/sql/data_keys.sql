-- The data keys of a purpose, wrapped.
SELECT d.id, d.wrapped FROM forbear.data_keys d WHERE d.purpose = %(purpose)s
