-- Takes back whatever the functions' roles, and everybody (PUBLIC), may do in the schema. In the transaction that grants
-- anew what is meant: nobody else sees the time between. With a table go the rights to its columns.
REVOKE ALL ON SCHEMA forbear
    FROM PUBLIC, forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
REVOKE ALL ON ALL TABLES IN SCHEMA forbear
    FROM PUBLIC, forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA forbear
    FROM PUBLIC, forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
REVOKE ALL ON ALL ROUTINES IN SCHEMA forbear
    FROM PUBLIC, forbear_ingest, forbear_claimer, forbear_replay, forbear_manage;
