-- A stand-in for Citus 13.2: an extension of its name, with functions of its signatures that act as its own do (in a connection
-- of their own, so that what they do is committed), and its metadata.
create extension dblink;
set allow_system_table_mods = on;
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
values (65001, 'citus', 10, 'pg_catalog'::regnamespace, false, '13.2-1');

create function pg_catalog.run_elsewhere(command text) returns text language plpgsql security definer as $$
begin
    return (select r from public.dblink(format('dbname=%s port=%s host=%s user=postgres', current_database(), current_setting('port'),
        split_part(current_setting('unix_socket_directories'), ',', 1)), command) as t (r text));
end $$;
revoke execute on function pg_catalog.run_elsewhere(text) from public;

create function pg_catalog.run_command_on_workers(command text, parallel bool default true,
    out nodename text, out nodeport int, out success bool, out result text) returns setof record
language sql security definer as $$ select 'w1', 5432, true, run_elsewhere(command) $$;
create function pg_catalog.run_command_on_all_nodes(command text, parallel bool default true, give_warning_for_connection_errors bool default false,
    out nodeid int, out success bool, out result text) returns setof record
language sql security definer as $$ select 1, true, run_elsewhere(command) $$;
create function pg_catalog.run_command_on_coordinator(command text, give_warning_for_connection_errors bool default false,
    out nodeid int, out success bool, out result text) returns setof record
language sql security definer as $$ select 1, true, run_elsewhere(command) $$;
create function pg_catalog.run_command_on_shards(table_name regclass, command text, parallel bool default true,
    out shardid bigint, out success bool, out result text) returns setof record
language sql security definer as $$ select 1::bigint, true, run_elsewhere(format(command, table_name)) $$;
create function pg_catalog.run_command_on_placements(table_name regclass, command text, parallel bool default true,
    out nodename text, out nodeport int, out shardid bigint, out success bool, out result text) returns setof record
language sql security definer as $$ select 'w1', 5432, 1::bigint, true, run_elsewhere(format(command, table_name)) $$;
create function pg_catalog.run_command_on_colocated_placements(table_name1 regclass, table_name2 regclass, command text, parallel bool default true,
    out nodename text, out nodeport int, out shardid1 bigint, out shardid2 bigint, out success bool, out result text) returns setof record
language sql security definer as $$ select 'w1', 5432, 1::bigint, 2::bigint, true, run_elsewhere(format(command, table_name1, table_name2)) $$;
create function pg_catalog.master_run_on_worker(worker_name text[], port int[], command text[], parallel bool,
    out node_name text, out node_port int, out success bool, out result text) returns setof record
language sql stable security definer as $$ select 'w1', 5432, true, run_elsewhere(command[1]) $$;
create function pg_catalog.citus_check_connection_to_node(nodename text, nodeport int default 5432) returns bool
language sql security definer as $$ select run_elsewhere('insert into public.victim values (99) returning id::text') is not null $$;
create schema citus;
create type citus.shard_transfer_mode as enum ('auto', 'force_logical', 'block_writes');
create function pg_catalog.citus_move_shard_placement(shard_id bigint, source_node_id int, target_node_id int,
    transfer_mode citus.shard_transfer_mode default 'auto') returns void
language sql security definer as $$ select run_elsewhere('insert into public.victim values (98) returning id::text') $$;
create function pg_catalog.broadcast_intermediate_result(result_id text, query text) returns bigint
language sql security definer as $$ select run_elsewhere(query)::bigint $$;
-- Citus does not survive some malformed values of the second parameter.
create function pg_catalog.column_to_column_name(table_name regclass, column_var_text text) returns text
language sql security definer as $$ select run_elsewhere('insert into public.victim values (97) returning id::text') $$;
create type pg_catalog.citus_copy_format as enum ('csv', 'binary', 'text');
create function pg_catalog.read_intermediate_result(result_id text, format citus_copy_format default 'csv') returns setof record
language sql as $$ select 1 $$;
create function pg_catalog.lock_shard_resources(lock_mode int, shard_id bigint[]) returns void language sql as '';
create function pg_catalog.citus_version() returns text language sql stable as $$ select 'Citus 13.2-1' $$;

-- The sessions of one write have one number: that of the caller, and those with which Citus changes rows of this node for it.
create function pg_catalog.citus_backend_gpid() returns bigint language sql as $$ select pg_backend_pid()::bigint $$;
create function pg_catalog.get_all_active_transactions(out datid oid, out process_id int, out initiator_node_identifier int,
    out worker_query bool, out transaction_number bigint, out transaction_stamp timestamptz, out global_pid bigint) returns setof record
language sql security definer as $$
    select a.datid, a.pid, 0, own.gpid is not null, 7::bigint, now(), coalesce(own.gpid, a.pid)
    from pg_stat_activity a, lateral (select substring(a.application_name from '^citus_internal gpid=(\d+)$')::bigint) own (gpid)
    where a.datname = current_database()
$$;

create table pg_catalog.pg_dist_partition (logicalrelid regclass not null, partmethod "char" not null, partkey text,
    colocationid int not null default 0, repmodel "char" not null default 'c', autoconverted bool default false);
grant select on pg_catalog.pg_dist_partition to public;

do $$ declare f regprocedure; begin
    for f in select oid from pg_proc where pronamespace = 'pg_catalog'::regnamespace and oid >= 16384 and proname <> 'run_elsewhere'
    loop execute format('alter extension citus add function %s', f); end loop;
end $$;

create table public.victim (id int);
grant select on public.victim to public;
