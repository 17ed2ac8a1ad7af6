-- Makes forbear_owner the owner of the schema and of all that is in it: of what a restore without owners, or a time when
-- one user did everything, has left with somebody else. Only what is not its own yet; a sequence follows its table.
DO $$
DECLARE
    v_object text;
BEGIN
    FOR v_object IN
        SELECT format('SCHEMA %I', n.nspname) FROM pg_namespace n
        WHERE n.nspname = 'forbear' AND n.nspowner <> 'forbear_owner'::regrole
        UNION ALL
        SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass) FROM pg_class c
        WHERE c.relnamespace = 'forbear'::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND c.relowner <> 'forbear_owner'::regrole
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = 'forbear'::regnamespace AND p.proowner <> 'forbear_owner'::regrole
        UNION ALL
        SELECT format('TYPE %s', c.reltype::regtype) FROM pg_class c
        WHERE c.relnamespace = 'forbear'::regnamespace AND c.relkind = 'c' AND c.relowner <> 'forbear_owner'::regrole
        UNION ALL
        SELECT format('DOMAIN %s', t.oid::regtype) FROM pg_type t
        WHERE t.typnamespace = 'forbear'::regnamespace AND t.typtype = 'd' AND t.typowner <> 'forbear_owner'::regrole
    LOOP
        EXECUTE format('ALTER %s OWNER TO forbear_owner', v_object);
    END LOOP;
END
$$
