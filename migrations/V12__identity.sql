-- For which database the ledger was made. A copy of a database (CREATE DATABASE .. TEMPLATE, a restored dump) has the records,
-- proposals and approvals of the original, and a server on it would carry them out a second time. A copy of the whole cluster
-- (a standby that was promoted, a file system's snapshot) has the same place and is not recognised.

create table countersign.identity (
    no                 integer      generated always as identity primary key,
    ledger_id          uuid         not null default gen_random_uuid(),
    system_identifier  bigint       not null,
    database_oid       oid          not null,
    since              timestamptz  not null default clock_timestamp(),
    made_by            name         not null default session_user
);
comment on table countersign.identity is 'The newest row counts: the ledger as it goes on here. `countersign audit fork` adds one.';
comment on column countersign.identity.system_identifier is 'Of the cluster, as pg_control_system() has it.';

create function countersign.place() returns table (system_identifier bigint, database_oid oid)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.system_identifier, d.oid from pg_control_system() c, pg_database d where d.datname = current_database()
$$;

insert into countersign.identity (system_identifier, database_oid)
select p.system_identifier, p.database_oid from countersign.place() p;

-- The ledger's name, and whether it was made for this database.
create function countersign.current_identity() returns table (ledger_id uuid, is_here boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select i.ledger_id, (i.system_identifier, i.database_oid) = (p.system_identifier, p.database_oid)
    from countersign.identity i, countersign.place() p
    order by i.no desc limit 1
$$;

-- Lets the ledger of a copy go on as one of its own: it gets a new name, and what was proposed in the original is not carried out
-- here. Returns the new name and how many proposals have ended. For members of the ledger's owner.
create function countersign.fork() returns table (ledger_id uuid, proposals bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    lock table countersign.identity in share row exclusive mode;
    if (select i.is_here from countersign.current_identity() i) then
        raise exception 'the ledger was made for this database' using errcode = '55000';
    end if;
    update countersign.proposal p
    set status = case p.status when 'pending' then 'expired' else 'stale' end,
        error_code = case p.status when 'pending' then null else 'proposal_stale' end,
        error_message = case p.status when 'pending' then null else 'the ledger was copied, and the proposal belongs to the original' end,
        completed_at = clock_timestamp()
    where p.status in ('pending', 'confirmed');
    get diagnostics proposals = row_count;
    insert into countersign.identity (system_identifier, database_oid)
    select p.system_identifier, p.database_oid from countersign.place() p
    returning identity.ledger_id into ledger_id;
    return next;
end $$;
