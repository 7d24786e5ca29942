-- Who may do what. The ledger belongs to a role that nobody logs in as; the server logs in as a writer that can change the
-- ledger through the functions of the protocol and in no other way.
--
-- The rule: a function of this schema that is SECURITY DEFINER is one that the server may call. Everything else here is
-- for the ledger's owner.

alter table countersign.mutation_audit add column after_image json;
comment on column countersign.mutation_audit.before_image is 'The rows that the write was about to change, where its tool looks at them.';
comment on column countersign.mutation_audit.after_image is 
    'The same rows after the write, in its own transaction: those that are gone are absent.';

create table countersign.writer_login (
    role_name  name primary key
);
comment on table countersign.writer_login is 'The roles that servers log in as.';

-- Makes the owner and the writer, unless they are there, and brings ownership and grants up to date. The roles belong to
-- the whole cluster: several databases may share them.
create function countersign.ensure_roles(writer name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    item  record;
begin
    -- Another `init` may make them at the same time, in another database.
    begin
        if to_regrole('countersign_owner') is null then
            create role countersign_owner nologin;
        end if;
    exception when duplicate_object or unique_violation then
        null;
    end;
    begin
        if not exists (select from pg_roles where rolname = writer) then
            -- Without a password: whoever runs the server gives it one, or lets it in another way (pg_hba.conf).
            execute format('create role %I login nosuperuser nocreatedb nocreaterole noreplication nobypassrls', writer);
        end if;
    exception when duplicate_object or unique_violation then
        null;
    end;
    if not pg_has_role(current_user, 'countersign_owner', 'usage') then
        execute format('grant countersign_owner to %I', current_user);
    end if;

    execute 'alter schema countersign owner to countersign_owner';
    for item in
        select c.oid::regclass as name from pg_class c
        where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'v')
          and c.relowner <> 'countersign_owner'::regrole
    loop
        execute format('alter table %s owner to countersign_owner', item.name);
    end loop;
    for item in select p.oid::regprocedure as name, p.prosecdef, p.proowner from pg_proc p
        where p.pronamespace = 'countersign'::regnamespace
    loop
        if item.proowner <> 'countersign_owner'::regrole then
            execute format('alter function %s owner to countersign_owner', item.name);
        end if;
        execute format('revoke all on function %s from public', item.name);
        if item.prosecdef then
            execute format('grant execute on function %s to %I', item.name, writer);
        end if;
    end loop;

    execute format('grant connect on database %I to %I', current_database(), writer);
    execute format('grant usage on schema countersign to %I', writer);
    execute format('grant select on all tables in schema countersign to %I', writer);
    execute format('revoke all on countersign.reader_login from %I', writer);
    insert into countersign.writer_login values (writer) on conflict do nothing;
end $$;

-- Lets the servers' roles read and write every table of a schema. For the demo; an operator grants less.
create function countersign.grant_writers(space name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    login  name;
begin
    for login in select role_name from countersign.writer_login loop
        execute format('grant usage on schema %I to %I', space, login);
        execute format('grant select, insert, update, delete on all tables in schema %I to %I', space, login);
        execute format('grant usage on all sequences in schema %I to %I', space, login);
    end loop;
end $$;

-- How the server logs in to read. Not within a write: an agent's SQL has no business with it.
create function countersign.reader_credentials() returns table (role_name name, password text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(current_setting('countersign.claimed', true), '') <> '' then
        raise exception 'the reader''s login is for servers' using errcode = '42501';
    end if;
    return query select l.role_name, l.password from countersign.reader_login l;
end $$;
comment on table countersign.reader_login is 'How servers log in to read; they get it from countersign.reader_credentials.';

-- A success that was acknowledged has to survive a crash of the server, whatever the role's default.
create function countersign.commit_durably() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- The functions of a write have no sequential scans in their plans: the tables grow by thousands between two ANALYZE, and a
-- plan that was made for a small one would be kept.

-- Takes the guard for an attempt, unless an identical one holds it or its window has not passed.
create function countersign.take_guard(account text, tool text, caller_key text, hash text, correlation uuid)
returns boolean language plpgsql as $$
begin
    insert into countersign.idempotency_guard as g (account_id, tool_name, key, holder, fingerprint, expires_at, bound_until)
    values (account, tool, coalesce('key:' || caller_key, 'fp:' || hash), correlation, hash,
            'infinity', clock_timestamp() + interval '24 hours')
    on conflict (account_id, tool_name, key) do update
        set holder = excluded.holder, fingerprint = excluded.fingerprint,
            expires_at = excluded.expires_at, bound_until = excluded.bound_until
        where g.expires_at <= clock_timestamp()
          and (g.fingerprint = excluded.fingerprint or g.bound_until <= clock_timestamp());
    return found;
end $$;

-- T1, as before, and: unless `durable`, the commit of an admission that T2 will follow does not wait for the disk. T2's
-- commit comes later in the same log, so whatever is durable of T2, its T1 is durable too; what a crash takes of T1 it
-- takes of T2 as well, and nothing was written. Verdicts that end the record are durable.
drop function countersign.admit(uuid, text, text, text, text, text, json, text);
create function countersign.admit(
    correlation uuid, account text, who text, tool text, hash text, caller_key text,
    arguments json, arguments_summary text, durable boolean
) returns table (verdict text, original uuid, original_result json)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    insert into countersign.mutation_audit
        (correlation_id, account_id, actor, tool_name, params_hash, idempotency_key, params, params_summary)
    values (correlation, account, who, tool, hash, caller_key, arguments, arguments_summary);
    if countersign.take_guard(account, tool, caller_key, hash, correlation) then
        verdict := 'run';
        original := correlation;
        if durable then
            perform countersign.commit_durably();
        else
            perform set_config('synchronous_commit', 'off', true);
        end if;
        return next;
    else
        return query select * from countersign.contend(correlation);
    end if;
end $$;
comment on function countersign.admit is
    'verdict: run | duplicate (original_result has its answer) | in_flight (ask countersign.contend again) | key_reused';

-- For an attempt whose T1 was lost with its connection or in a crash: its receipt finds a record all the same, and should
-- that T1 be on its way yet, it will find its id taken.
create function countersign.record_aborted(
    correlation uuid, account text, who text, tool text, hash text, caller_key text,
    arguments json, arguments_summary text
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into countersign.mutation_audit
        (correlation_id, account_id, actor, tool_name, params_hash, idempotency_key, params, params_summary)
    values (correlation, account, who, tool, hash, caller_key, arguments, arguments_summary)
    on conflict (correlation_id) do nothing;
    if found then
        perform countersign.finish_failure(correlation, 'in_doubt_aborted', null,
            'the connection was lost before the intent was recorded; nothing was written');
    end if;
end $$;

-- As before; the verdict is durable whatever it is, since T1 may be long past.
create or replace function countersign.contend(correlation uuid)
returns table (verdict text, original uuid, original_result json)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    mine  countersign.mutation_audit;
    held  record;
begin
    perform countersign.commit_durably();
    -- A record that was swept while it waited is final, and must not take the guard: nobody would ever give it back.
    --     A  runs                                fails, guard free
    --     B  waits   (swept: failure)                               contend -> run: guard held by a failure, for good
    -- The lock keeps the sweep away until the verdict is committed; records are locked before guards, everywhere.
    select * into mine from countersign.mutation_audit a
    where a.correlation_id = correlation and a.status = 'pending' for update;
    if not found then
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
    end if;

    if countersign.take_guard(mine.account_id, mine.tool_name, mine.idempotency_key, mine.params_hash, correlation) then
        return query select 'run', correlation, null::json;
        return;
    end if;

    select g.fingerprint, a.correlation_id, a.status, a.result into held
    from countersign.idempotency_guard g join countersign.mutation_audit a on a.correlation_id = g.holder
    where g.account_id = mine.account_id and g.tool_name = mine.tool_name
      and g.key = coalesce('key:' || mine.idempotency_key, 'fp:' || mine.params_hash);

    if held.fingerprint is distinct from mine.params_hash then
        perform countersign.finish_failure(correlation, 'idempotency_key_reused', null,
            'the idempotency_key is bound to other arguments');
        return query select 'key_reused', held.correlation_id, null::json;
    elsif held.status = 'success' then
        update countersign.mutation_audit a
        set status = 'duplicate', duplicate_of = held.correlation_id, completed_at = clock_timestamp(),
            elapsed_ms = countersign.age_ms(a.created_at)
        where a.correlation_id = correlation;
        return query select 'duplicate', held.correlation_id, held.result;
    else
        return query select 'in_flight', held.correlation_id, null::json;
    end if;
end $$;

-- The claim is the record's row lock, held until T2 ends: a version of the row less to write. That this transaction has it,
-- and has not lost it by ending, finish_success sees by a setting that ends with the transaction.
create or replace function countersign.claim(correlation uuid, timeout_ms integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    perform countersign.commit_durably(),
            set_config('countersign.claimed', correlation::text, true),
            set_config('statement_timeout', timeout_ms::text, true),
            set_config('lock_timeout', timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', timeout_ms::text, true);
    -- Not FOR UPDATE: rows that point to this record may be inserted meanwhile.
    perform from countersign.mutation_audit a
    where a.correlation_id = correlation and a.status = 'pending' for no key update;
    if not found then
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
    end if;
end $$;
comment on column countersign.mutation_audit.exec_xid is 'The transaction that wrote.';

-- The server makes nothing else; a regular expression for each version of a row is dear.
alter table countersign.mutation_audit drop constraint mutation_audit_params_hash_check,
    add constraint params_hash_is_sha256 check (octet_length(params_hash) = 64);

-- As before, and durable: an end that was answered is not forgotten in a crash.
create or replace function countersign.finish_failure(correlation uuid, code text, state text, reason text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.commit_durably();
    update countersign.mutation_audit a
    set status = 'failure', error_code = code, error_sqlstate = state, error_message = reason,
        completed_at = clock_timestamp(), elapsed_ms = countersign.age_ms(a.created_at)
    where a.correlation_id = correlation and a.status = 'pending';
    if not found then
        raise exception 'mutation % is not to be completed here', correlation using errcode = 'CS001';
    end if;
    update countersign.idempotency_guard g set expires_at = '-infinity' where g.holder = correlation;
end $$;

alter function countersign.resolve(uuid, integer) security definer set search_path = pg_catalog, pg_temp;
alter function countersign.sweep(interval, integer) security definer set search_path = pg_catalog, pg_temp;
alter function countersign.protect_record() set search_path = pg_catalog, pg_temp;
alter function countersign.ensure_reader(text) set search_path = pg_catalog, pg_temp;
