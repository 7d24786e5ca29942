-- People: operators; and what servers need that is no write.

-- Operators: people who undo the writes of any account, and who stop accounts. No server has the role countersign_operator.

create function countersign.admit_undo(
    correlation uuid, writes uuid[], who text, tool text, arguments json, arguments_summary text, print text, plan_digest text default null,
    out verdict text, out original uuid, out call_slot bytea
) language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    account  text;
    other    countersign.attempt;
begin
    perform countersign.refuse_within_a_write(), countersign.refuse_after_loss();
    select max(r.account_id) into account from countersign.record r where r.correlation_id = any (writes);
    call_slot := sha256(convert_to('undo ' || array_to_string(writes, ' '), 'UTF8'));
    if not pg_try_advisory_xact_lock(countersign.slot_lock(call_slot)) then
        verdict := 'in_flight';
        return;
    end if;
    for round in 1 .. 2 loop
        insert into countersign.attempt (slot, correlation_id, account_id, actor, tool_name, fingerprint, idempotency_key, params,
            params_summary, undo_of, by_operator, own_transaction)
        values (call_slot, correlation, coalesce(account, ''), who, tool, print,
            case when cardinality(writes) = 1 then 'undo:' || writes[1] else 'undo:' || plan_digest end, arguments, arguments_summary, writes,
            true, true)
        on conflict (slot) do nothing;
        if found then
            verdict := 'run';
            return;
        end if;
        -- As in `admit`: an old attempt that no transaction has locked belongs to a process that died.
        delete from countersign.attempt a where a.slot = (
            select b.slot from countersign.attempt b where b.slot = call_slot and b.admitted_at < clock_timestamp() - interval '1 second'
            for update skip locked)
        returning * into other;
        exit when other.correlation_id is null;
        perform countersign.end_attempt(other, 'failure', 'in_doubt_aborted', null,
            'the process went away before the undo committed; nothing was written', null, null);
    end loop;
    verdict := 'in_flight';
    original := (select a.correlation_id from countersign.attempt a where a.slot = call_slot);
end $$;
comment on function countersign.admit_undo(uuid, uuid[], text, text, json, text, text, text) is
    'Admits an undo by a person, of whatever account. run | in_flight. The record names the person (actor) and the database login.';

create function countersign.freeze(of_kind text, of_name text, who text, why text default null) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    insert into countersign.freeze (kind, name, frozen_by, reason) values (of_kind, coalesce(of_name, ''), who, why)
    on conflict (kind, name) where unfrozen_at is null do nothing;
    if found then
        perform countersign.note_event('freeze', array['person', who, 'subject', of_kind, 'name', of_name], why);
    end if;
    return (select count(*) from countersign.attempt a
            where of_kind = 'all' or of_kind = 'account' and a.account_id = of_name or of_kind = 'actor' and a.actor = of_name);
end $$;
comment on function countersign.freeze(text, text, text, text) is
    'Refuses the writes of an account, an actor or all (account_frozen), those in flight included; how many of these are on record.';

create function countersign.unfreeze(of_kind text, of_name text, who text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    update countersign.freeze f set unfrozen_at = clock_timestamp(), unfrozen_by = who, unfrozen_login = session_user
    where f.kind = of_kind and f.name = coalesce(of_name, '') and f.unfrozen_at is null;
    if not found then
        return false;
    end if;
    perform countersign.note_event('unfreeze', array['person', who, 'subject', of_kind, 'name', of_name]);
    return true;
end $$;
comment on function countersign.unfreeze(text, text, text) is 'Lets the writes go on; false if they were not frozen.';

------------------------------------------------------------------------------------------------------------------ servers

create function countersign.reader_credentials(of_callers boolean default false) returns table (role_name name, password text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query select l.role_name, l.password from countersign.reader_login l where l.for_callers = of_callers;
end $$;
comment on function countersign.reader_credentials(boolean) is 'How servers log in to read. Not for the statements of a write.';

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
comment on function countersign.state_keys() is 'The keys that seal what clients carry; the one that seals is marked.';

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
comment on function countersign.rotate_state_key(boolean) is
    'Adds a key, and removes those that sealed nothing within 25 hours (sealed values live 24). at_once: the new key is the only one. For the owner.';

create function countersign.note_fingerprint_key(id text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.fingerprint_key k where k.used_at < clock_timestamp() - interval '1 day';
    insert into countersign.fingerprint_key values (id, clock_timestamp())
    on conflict (key_id) do update set used_at = excluded.used_at;
end $$;
comment on function countersign.note_fingerprint_key(text) is 'Each server calls it every minute.';

create function countersign.database_identity() returns table (system_identifier bigint, database_oid oid)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.system_identifier, d.oid from pg_control_system() c, pg_database d where d.datname = current_database()
$$;
comment on function countersign.database_identity() is 'Cluster and database of this session.';

insert into countersign.identity (system_identifier, database_oid)
select p.system_identifier, p.database_oid from countersign.database_identity() p;

create function countersign.current_identity() returns table (ledger_id uuid, is_here boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select i.ledger_id, (i.system_identifier, i.database_oid) = (p.system_identifier, p.database_oid)
    from countersign.identity i, countersign.database_identity() p
    order by i.no desc limit 1
$$;
comment on function countersign.current_identity() is 'The name of the ledger, and whether it was made for this database.';

create function countersign.fork(is_restored boolean default false, previous text default null) returns table (ledger_id uuid, proposals bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from countersign.seal_state for update;
    lock table countersign.identity in share row exclusive mode;
    if not is_restored and (select i.is_here from countersign.current_identity() i) then
        raise exception 'the ledger was made for this database' using errcode = '55000';
    end if;
    update countersign.proposal p
    set status = case p.status when 'pending' then 'expired' else 'stale' end,
        error_code = case p.status when 'pending' then null else 'proposal_stale' end,
        error_message = case p.status when 'pending' then null else 'the ledger was copied, and the proposal belongs to the original' end,
        completed_at = clock_timestamp()
    where p.status in ('pending', 'confirmed');
    get diagnostics proposals = row_count;
    -- The original tells of these.
    delete from countersign.notice;
    delete from countersign.erasure;
    perform countersign.rebind_tables();
    insert into countersign.identity (system_identifier, database_oid)
    select p.system_identifier, p.database_oid from countersign.database_identity() p
    returning identity.ledger_id into ledger_id;
    -- The first leaf of the new log: no event that waits to be sealed may come before it.
    perform countersign.note_event('fork', array['previous_origin', split_part(previous, E'\n', 1),
        'previous_size', split_part(previous, E'\n', 2), 'previous_root', split_part(previous, E'\n', 3)]);
    perform countersign.append_leaves('{}', array(select max(v.id) from countersign.event v));
    return next;
end $$;
comment on function countersign.fork(boolean, text) is
    'Lets the ledger of a copy, or of a restored database, go on under a new name. The first entry of its log names the checkpoint `previous`. Open proposals of the original end here. For members of the owner.';
