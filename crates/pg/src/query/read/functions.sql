-- The functions with these names: their schemas, and why a read may not call them, if it may not. A plan shows names, so a
-- name is refused if any function of that name is. $1: names of calls. $2: names after a point, which may be columns.
--
-- A function is refused if the plan does not show its effect, or if the effect outlasts the transaction:
-- * It runs SQL given as text, or reads a relation given by name. The relation may be a view that calls anything, or
--   pg_prepared_statements, which shows the texts of other agents. In pg_catalog these are the C functions that go through
--   SPI (xml.c, tsvector_op.c, tsquery_rewrite.c). Functions that ask the catalog fixed questions are allowed
--   (pg_get_viewdef and similar; table_to_xmlschema, schema_to_xmlschema and database_to_xmlschema read no rows).
-- * It stops other sessions, notifies them or waits for them; it writes files, large objects or the server log; or it sets
--   something that RESET ALL does not reset.
-- * PUBLIC may not execute it. This covers most functions that work on files, and those of pg_visibility, pgstattuple,
--   amcheck, pg_buffercache, pg_freespacemap and pg_walinspect. The extensions named below reach out and are open to PUBLIC.
select p.proname, n.nspname,
    case
        when n.nspname = 'pg_catalog' and p.proname in ('pg_cancel_backend', 'pg_terminate_backend')
            then 'it stops other sessions'
        when n.nspname = 'pg_catalog' and (
                p.proname in ('pg_logical_emit_message', 'pg_replication_slot_advance', 'pg_drop_replication_slot',
                              'pg_sync_replication_slots', 'gin_clean_pending_list')
                or p.proname ~ '^(pg_create_|pg_copy_).*_replication_slot$' or p.proname ~ '^pg_logical_slot_'
                or p.proname ~ '^(brin_(de)?summarize|binary_upgrade_|pg_(restore|clear)_[a-z_]+_stats)')
            then 'what it does is not undone by ROLLBACK'
        -- READ ONLY stops these from PostgreSQL 16 on.
        when n.nspname = 'pg_catalog'
                and p.proname in ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_put', 'lowrite', 'lo_truncate',
                                  'lo_truncate64', 'lo_unlink', 'lo_import', 'lo_export')
            then 'it writes large objects or files'
        when n.nspname = 'pg_catalog' and p.proname = 'pg_notify' then 'it tells other sessions something'
        when n.nspname = 'pg_catalog' and (p.proname ~ '^(query|cursor)_to_xml' or p.proname in ('ts_stat', 'ts_rewrite'))
            then 'it runs SQL that is given as text'
        when n.nspname = 'pg_catalog' and p.proname ~ '^(table|schema|database)_to_xml(_and_xmlschema)?$'
            then 'it reads tables and views that are given by name'
        when e.extname = 'isn' and p.proname = 'isn_weak' then 'what it does is not undone by ROLLBACK'
        when e.extname = 'tablefunc' and p.proname ~ '^(crosstab|connectby)' or e.extname = 'xml2' and p.proname = 'xpath_table'
            then 'it runs SQL that is given as text'
        when e.extname in ('dblink', 'http', 'pg_net') then 'it reaches other servers'
        -- It takes a node of a parse tree as text, and does not survive some that are malformed (Citus 13.2).
        when e.extname = 'citus' and p.proname = 'column_to_column_name' then 'it can crash the server'
        -- Citus: whatever is not known to stay within the transaction. Its functions run texts on other nodes, in transactions of
        -- their own, move shards, change its metadata, and read by the names of relations. read_intermediate_result reads what
        -- the same transaction has put aside; Citus calls it for subqueries.
        when e.extname in ('citus', 'citus_columnar', 'citus_internal') and p.proname !~ ('^(citus_(version|(total_)?relation_size|'
                || 'table_size|shard_sizes|is_coordinator|is_primary_node|coordinator_nodeid|nodename_for_nodeid|nodeport_for_nodeid|'
                || 'table_is_visible|shard_name)|worker_partial_agg(_[sf]func)?|coord_combine_agg(_[sf]func)?|(array|json|jsonb)_cat_agg|'
                || 'worker_hash|get_shard_id_for_distribution_column|shard_name|relation_is_a_known_shard|read_intermediate_results?|'
                || 'any_value(_agg)?)$')
            then 'it may act on other nodes, beyond the transaction'
        when e.extname in ('adminpack', 'pageinspect', 'pg_surgery', 'pg_prewarm', 'pg_walinspect')
            then 'it works on files beneath the tables'
        -- Not what every role may call, and granted neither to this login nor to a role that it is in: only a
        -- superuser or its owner can. A column may have such a name.
        when p.proname = any ($1::pg_catalog.name[]) and not exists (
                select from pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
                where a.privilege_type = 'EXECUTE'
                    and (a.grantee = 0
                         or a.grantee <> p.proowner and a.grantee = r.oid
                         or a.grantee <> p.proowner and not r.rolsuper and pg_catalog.pg_has_role(r.oid, a.grantee, 'usage')))
            then 'it is not granted to this login or to everybody'
    end as why
from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    cross join (select oid, rolsuper from pg_catalog.pg_roles where rolname = session_user) r
    left join pg_catalog.pg_depend d
        on d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.objid = p.oid and d.deptype = 'e'
    left join pg_catalog.pg_extension e on e.oid = d.refobjid
        and d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
where p.proname = any ($1::pg_catalog.name[] || $2::pg_catalog.name[])
