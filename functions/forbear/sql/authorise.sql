-- Whose an API key is, if it is valid and may do this; see forbear.authorise.
SELECT forbear.authorise(%(id)s::uuid, %(hash)s::bytea, %(scope)s::text, %(tenants)s::text[]) AS tenant
