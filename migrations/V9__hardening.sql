-- What protects the ledger from other users of its database. docs/security.md, "Other users of the database", has the threats.
--
-- `init` grants by itself (crates/ledger/src/setup). It calls no function that is stored in the database: a stored function
-- would run with the rights of the administrator who runs `init`, and whoever may replace it would have these rights.

drop function countersign.ensure_roles(name);
drop function countersign.ensure_reader(text);
drop function countersign.grant_writers(name);

-- What `init` has granted to the reader, or decided not to: the next `init` leaves it as the administrator has left it.
create table countersign.reader_relation (
    relation  regclass primary key
);
comment on table countersign.reader_relation is
    'The tables and views that existed when `init` last granted SELECT to the reader: `init` grants on newer ones only.';
create table countersign.reader_schema (
    schema_name  name primary key
);
comment on table countersign.reader_schema is 'The schemas that existed then.';
insert into countersign.reader_schema
select n.nspname from pg_catalog.pg_namespace n
where exists (select from countersign.reader_login)
  and n.nspname not in ('countersign', 'information_schema') and n.nspname not like 'pg\_%';
insert into countersign.reader_relation
select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname in (select s.schema_name from countersign.reader_schema s);

-- The keys that seal what clients carry for the servers: the newest one whose time has come seals, and all of them open.
create table countersign.state_key (
    id          integer      generated always as identity primary key,
    key         bytea        not null check (length(key) = 32),
    created_at  timestamptz  not null default clock_timestamp(),
    seals_from  timestamptz  not null
);
comment on table countersign.state_key is 'Servers get the keys from countersign.state_keys.';
comment on column countersign.state_key.seals_from is
    'No server seals with the key before this time, so that every server knows the key when the first one uses it.';
insert into countersign.state_key (key, seals_from) select r.key, '-infinity' from countersign.request_state_key r;
drop function countersign.sealing_key();
drop table countersign.request_state_key;

-- A key is good for one database of one cluster: what was sealed for the original does not open in a restored dump or in a
-- copy made by CREATE DATABASE .. TEMPLATE. A physical copy of the whole cluster has the same keys.
create function countersign.state_keys() returns table (id integer, key text, seals boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    place  text;
begin
    perform countersign.refuse_within_a_write();
    select c.system_identifier || ' ' || d.oid into place
    from pg_control_system() c, pg_database d where d.datname = current_database();
    return query
        select k.id, encode(sha256(k.key || convert_to(place, 'UTF8')), 'hex'),
               k.id = (select max(n.id) from countersign.state_key n where n.seals_from <= clock_timestamp())
        from countersign.state_key k order by k.id;
end $$;

-- Adds a key, and removes the keys that sealed nothing within the last 25 hours: what is sealed is good for 24 hours. At once:
-- the new key is the only one, and what was sealed before does not open any more. For the ledger's owner.
create function countersign.rotate_state_key(at_once boolean) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    made  integer;
begin
    lock table countersign.state_key in share row exclusive mode;
    insert into countersign.state_key (key, seals_from)
    select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')),
           case when at_once then '-infinity' else clock_timestamp() + interval '3 minutes' end
    returning state_key.id into made;
    delete from countersign.state_key k
    where k.id <> made and (at_once or exists (
        select from countersign.state_key newer
        where newer.id > k.id and newer.seals_from < clock_timestamp() - interval '25 hours'));
    return made;
end $$;

-- An approval takes two transactions of the approver: the first one, once the proposal has been shown, gets a nonce, and the
-- second one decides with it. SQL that is made to run within one statement of the approver's session cannot do both.
create table countersign.decision_nonce (
    nonce_hash   bytea        primary key,
    proposal_id  uuid         not null,
    login        name         not null default session_user,
    created_at   timestamptz  not null default clock_timestamp()
);
comment on table countersign.decision_nonce is 'SHA-256 of each nonce that was given to an approver; one counts once, for 15 minutes.';

create function countersign.begin_decision(proposal uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    nonce  text := gen_random_uuid()::text || gen_random_uuid()::text;
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.decision_nonce n where n.created_at < clock_timestamp() - interval '15 minutes';
    insert into countersign.decision_nonce (nonce_hash, proposal_id) values (sha256(convert_to(nonce, 'UTF8')), proposal);
    return nonce;
end $$;
comment on function countersign.begin_decision is 'A nonce for countersign.decide_as_person, in another transaction.';

drop function countersign.decide_as_person(uuid, text, text, text, text);
create function countersign.decide_as_person(
    proposal uuid, outcome text, who text, shown_digest text, why text, nonce text
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    -- Nor in the transaction that got the nonce: that one has a transaction id.
    perform countersign.refuse_within_a_write();
    delete from countersign.decision_nonce n
    where n.nonce_hash = sha256(convert_to(nonce, 'UTF8')) and n.proposal_id = proposal and n.login = session_user
      and n.created_at >= clock_timestamp() - interval '15 minutes';
    if not found then
        return 'nonce_unknown';
    end if;
    select * into p from countersign.proposal o where o.proposal_id = proposal;
    if not found then
        return 'not_found';
    elsif outcome = 'confirmed' and p.tier <> 'approve' then
        return 'not_yours';
    elsif outcome = 'confirmed' and (who = p.account_id or who = p.actor) then
        return 'proposer';
    end if;
    return countersign.swap_pending(proposal, outcome, who, 'command_line', shown_digest, why, null, interval '0');
end $$;
comment on function countersign.decide_as_person is
    'As decide_proposal; nonce_unknown: there was no begin_decision; proposer: whoever proposed cannot approve.';

-- Secrets. A grant on these tables, or membership in pg_read_all_data, shows no row: only their owner is past row level
-- security, and with it the functions that belong to the owner.
alter table countersign.reader_login enable row level security;
alter table countersign.state_key enable row level security;
alter table countersign.decision_nonce enable row level security;

alter function countersign.protect_seal() set search_path = pg_catalog, pg_temp;

-- PostgreSQL lets everybody call a new function.
do $$
declare
    signature  text;
begin
    for signature in
        select p.oid::pg_catalog.regprocedure::text from pg_catalog.pg_proc p
        where p.pronamespace = 'countersign'::pg_catalog.regnamespace
    loop
        execute pg_catalog.format('revoke all on function %s from public', signature);
    end loop;
end $$;
