-- API keys, for callers that the gateway does not vouch for.

-- What a key may do, and a keyed hash of it: the key itself is nowhere, and without the data key (forbear.vault) nobody
-- can make a hash to a key or try keys against hashes. Only `revoked_at` ever changes, so rows stay as evidence.
CREATE TABLE forbear.api_keys (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL,
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    scopes     text[]      NOT NULL CHECK (cardinality(scopes) > 0
                                           AND scopes <@ ARRAY['ingest', 'manage', 'read', 'replay']),
    tenant     text,       -- NULL: of all tenants
    created_at timestamptz NOT NULL DEFAULT forbear.now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- Gives the tenant that a key is bound to (NULL: to none) if the key is valid and has the scope, and raises otherwise:
-- so it can stand in front of a statement, in its transaction and its round trip, and nothing is done. p_scope NULL: a
-- key with any scope will do. p_tenants: whom something is written for.
--
-- SQLSTATEs of a class of our own (classes from I on are ours to define, says the standard):
--   KY401  there is no such key, or it was revoked, or has expired; which of them is nobody's business
--   KY403  the key lacks the scope
--   KY404  the key is bound to a tenant, which the detail names, and one of p_tenants is another
--
-- An unknown key and a wrong hash take the same way. How long the comparison of hashes takes tells nothing: both are
-- HMACs under a key that callers have not, so nobody can choose what is compared, and come nearer byte by byte.
CREATE FUNCTION forbear.authorise(p_id uuid, p_hash bytea, p_scope text, p_tenants text[] DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_scopes text[];
    v_tenant text;
BEGIN
    SELECT k.scopes, k.tenant INTO v_scopes, v_tenant
    FROM forbear.api_keys k
    WHERE k.id = p_id AND k.hash = p_hash AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > forbear.now());
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the API key is not valid' USING ERRCODE = 'KY401';
    END IF;
    -- Who may change things may see them.
    IF p_scope <> ALL (v_scopes || CASE WHEN 'manage' = ANY (v_scopes) THEN ARRAY['read'] END) THEN
        RAISE EXCEPTION 'the API key is not for this' USING ERRCODE = 'KY403';
    END IF;
    IF v_tenant <> ANY (p_tenants) THEN
        RAISE EXCEPTION 'the API key is bound to another tenant' USING ERRCODE = 'KY404', DETAIL = v_tenant;
    END IF;
    RETURN v_tenant;
END
$$;
