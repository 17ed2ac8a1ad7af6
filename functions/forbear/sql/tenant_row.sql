-- Makes sure that a tenant has its row, which everybody locks who changes or relies on its pause.
INSERT INTO forbear.tenants (tenant) VALUES (%(tenant)s) ON CONFLICT DO NOTHING
