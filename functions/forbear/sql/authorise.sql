-- Whose an API key is, if it is valid and may do this; see forbear.authorise.
SELECT forbear.authorise($1::uuid, $2::bytea, $3::text, $4::text[]) AS tenant
