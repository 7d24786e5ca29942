-- Changes of tables' definitions, which people carry out in their own logins: no server has rights on definitions. An agent proposes SQL
-- as text, or a person brings a file; the end of each step is on record. docs/topics/schema-changes.md has the use,
-- docs/adr/0110-people-carry-out-schema-changes.md the reasons, crates/ledger/src/people/schema_changes the work.

create table countersign.schema_change (
    id               bigint generated always as identity primary key,
    change_id        uuid         not null unique,
    account_id       text         not null,
    actor            text,
    session_id       text,
    client_name      text,
    client_version   text,
    trace_id         text,
    caller_context   json,
    origin           text         not null check (origin in ('tool', 'command_line')),
    proposed_login   name         not null default session_user,
    reason           text         not null check (char_length(reason) between 1 and 500),
    sql              text         not null check (octet_length(sql) between 1 and 65536),
    digest           text         not null check (octet_length(digest) = 64),
    created_at       timestamptz  not null default clock_timestamp(),
    expires_at       timestamptz  not null,
    ended_steps      integer      not null default 0,
    status           text         not null default 'pending'
                     check (status in ('pending', 'applying', 'applied', 'failed', 'rejected', 'expired')),
    decided_by       text,
    decided_login    name,
    decided_at       timestamptz,
    decision_reason  text         check (char_length(decision_reason) <= 1000),
    error_message    text,
    completed_at     timestamptz,
    constraint decision_is_whole check (num_nulls(decided_by, decided_login, decided_at) in (0, 3)),
    constraint decided_as_it_says check ((status in ('pending', 'expired')) = (decided_by is null)),
    constraint open_is_not_completed check ((status in ('pending', 'applying')) = (completed_at is null))
);
comment on table countersign.schema_change is 'Changes of definitions: what was proposed, who carries it out, what became of it.';
comment on column countersign.schema_change.origin is 'tool: an agent proposed it. command_line: a person brought it, and may carry it out.';
comment on column countersign.schema_change.sql is 'Exactly what is carried out.';
comment on column countersign.schema_change.digest is 'SHA-256 of what the change says, with who proposed it and until when.';
comment on column countersign.schema_change.ended_steps is
    'A step in a transaction is counted in that transaction, a statement that runs alone after it: without a count, whether it ended is not known.';
comment on column countersign.schema_change.decided_by is 'The user of the operating system that the command line named; decided_login is the login.';
comment on column countersign.schema_change.decision_reason is 'Why it was rejected, or given up.';
create unique index schema_change_pending on countersign.schema_change (account_id, origin, md5(sql)) where status = 'pending';
create index schema_change_open on countersign.schema_change (status, id) where status in ('pending', 'applying');
create index schema_change_ended on countersign.schema_change (completed_at) where status in ('rejected', 'expired');

create function countersign.schema_change_digest(c countersign.schema_change) returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
select encode(sha256(convert_to(json_build_array(
    'countersign schema change 1', c.change_id::text, c.account_id, c.actor, c.origin, c.proposed_login, c.reason, c.sql, c.caller_context::text,
    extract(epoch from c.created_at)::text, extract(epoch from c.expires_at)::text
)::text, 'UTF8')), 'hex') $$;
comment on function countersign.schema_change_digest(countersign.schema_change) is 'SHA-256 of what a change says.';

-- The state machine: these changes and no others, whatever makes them.
--     pending -> applying | rejected | expired          applying -> applying with one more step | applied | failed
create function countersign.protect_schema_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' and old.status in ('rejected', 'expired') and old.completed_at < clock_timestamp() - interval '7 days' then
        return old;
    elsif tg_op <> 'UPDATE' then
        raise exception 'schema changes are kept' using errcode = '42501';
    elsif countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{sql,reason,decision_reason,error_message}') then
        return new;
    elsif countersign.schema_change_digest(new) <> countersign.schema_change_digest(old) or new.digest <> old.digest or new.id <> old.id
       or (new.session_id, new.client_name, new.client_version, new.trace_id)
          is distinct from (old.session_id, old.client_name, old.client_version, old.trace_id)
    then
        raise exception 'what schema change % says cannot change', old.change_id using errcode = '55000';
    elsif not (case old.status
        when 'pending' then new.status in ('applying', 'rejected', 'expired') and new.ended_steps = 0
        when 'applying' then (new.status, new.ended_steps) in
                (('applying', old.ended_steps + 1), ('applied', old.ended_steps), ('failed', old.ended_steps))
            and (new.decided_by, new.decided_login, new.decided_at) is not distinct from (old.decided_by, old.decided_login, old.decided_at)
        else false end)
    then
        raise exception 'schema change % is %, and cannot become %', old.change_id, old.status, new.status using errcode = '55000';
    end if;
    return new;
end $$;
comment on function countersign.protect_schema_change() is 'What a change says stays, and its state goes forward only.';
create trigger protect_schema_change before update or delete on countersign.schema_change
    for each row execute function countersign.protect_schema_change();
create trigger protect_schema_changes before truncate on countersign.schema_change
    for each statement execute function countersign.protect_schema_change();

create function countersign.store_schema_change(c countersign.schema_change, most integer, out verdict text, out stored uuid)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    c.created_at := clock_timestamp();
    c.expires_at := c.created_at + interval '14 days';
    c.proposed_login := session_user;
    c.digest := countersign.schema_change_digest(c);
    update countersign.schema_change o set status = 'expired', completed_at = clock_timestamp()
    where o.account_id = c.account_id and o.status = 'pending' and o.expires_at <= clock_timestamp();
    if (select count(*) from countersign.schema_change o where o.account_id = c.account_id and o.status = 'pending') < most then
        insert into countersign.schema_change (change_id, account_id, actor, session_id, client_name, client_version, trace_id, caller_context,
            origin, proposed_login, reason, sql, digest, created_at, expires_at)
        values (c.change_id, c.account_id, c.actor, c.session_id, c.client_name, c.client_version, c.trace_id, c.caller_context,
            c.origin, c.proposed_login, c.reason, c.sql, c.digest, c.created_at, c.expires_at)
        on conflict (account_id, origin, md5(sql)) where status = 'pending' do nothing;
        if found then
            verdict := 'stored';
            stored := c.change_id;
            return;
        end if;
    end if;
    select o.change_id into stored from countersign.schema_change o
    where o.account_id = c.account_id and o.origin = c.origin and o.sql = c.sql and o.status = 'pending';
    verdict := case when stored is null then 'crowded' else 'found' end;
end $$;
comment on function countersign.store_schema_change(countersign.schema_change, integer) is
    'Stores a change. stored | found (the same text of the account is pending) | crowded (the account has too many that are pending).';

create function countersign.propose_schema_change(
    change uuid, account text, who text, of_session text, name_of_client text, version_of_client text, trace text, of_caller json,
    why text, own_sql text, most integer, out verdict text, out stored uuid
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c  countersign.schema_change;
begin
    c.change_id := change;
    c.account_id := account;
    c.actor := who;
    c.session_id := of_session;
    c.client_name := name_of_client;
    c.client_version := version_of_client;
    c.trace_id := trace;
    c.caller_context := of_caller;
    c.origin := 'tool';
    c.reason := why;
    c.sql := own_sql;
    select s.verdict, s.stored into verdict, stored from countersign.store_schema_change(c, most) s;
end $$;
comment on function countersign.propose_schema_change(uuid, text, text, text, text, text, text, json, text, text, integer) is
    'For servers: an agent proposes a change.';

create function countersign.bring_schema_change(change uuid, who text, why text, own_sql text, out verdict text, out stored uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c  countersign.schema_change;
begin
    c.change_id := change;
    c.account_id := session_user;
    c.actor := who;
    c.origin := 'command_line';
    c.reason := why;
    c.sql := own_sql;
    select s.verdict, s.stored into verdict, stored from countersign.store_schema_change(c, 100) s;
end $$;
comment on function countersign.bring_schema_change(uuid, text, text, text) is
    'For countersign_approver, which no server has: a person brings a change of their own.';

create function countersign.note_schema_event(c countersign.schema_change, who text, action text, why text) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
select countersign.note_event('schema_change', array['person', who, 'change_id', c.change_id::text, 'digest', c.digest, 'action', action,
    'account', c.account_id, 'steps', c.ended_steps::text], why) $$;
comment on function countersign.note_schema_event(countersign.schema_change, text, text, text) is 'Logs what became of a change, with the number of ended steps.';

-- Whoever carries a change out holds this lock in the session.
create function countersign.schema_change_lock(change uuid) returns bigint language sql immutable
set search_path = pg_catalog, pg_temp as
$$ select ('x' || left(encode(sha256(convert_to('schema change ' || change, 'UTF8')), 'hex'), 16))::bit(64)::bigint $$;
comment on function countersign.schema_change_lock(uuid) is 'The advisory lock of a change.';

create function countersign.begin_schema_change(change uuid, who text, shown_digest text, nonce text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c  countersign.schema_change;
begin
    if not countersign.use_nonce(change, nonce) then
        return 'nonce_unknown';
    end if;
    perform countersign.commit_durably();
    select * into c from countersign.schema_change o where o.change_id = change for update;
    if not found then
        return 'not_found';
    elsif countersign.schema_change_digest(c) <> c.digest then
        return 'altered';
    elsif shown_digest is distinct from c.digest then
        return 'digest_mismatch';
    elsif c.origin = 'tool' and exists (
              select from unnest(array[who, session_user]) name where lower(name) in (lower(c.account_id), lower(c.actor))) then
        return 'proposer';
    elsif c.status = 'pending' and c.expires_at <= clock_timestamp() then
        update countersign.schema_change o set status = 'expired', completed_at = clock_timestamp() where o.id = c.id;
        return 'expired';
    elsif c.status <> 'pending' then
        return c.status;
    end if;
    update countersign.schema_change o
    set status = 'applying', decided_by = who, decided_login = session_user, decided_at = clock_timestamp() where o.id = c.id;
    perform countersign.note_schema_event(c, who, 'begun', c.reason);
    return 'done';
end $$;
comment on function countersign.begin_schema_change(uuid, text, text, text) is
    'Before the first step, after begin_decision. done | proposer (under the own name) | digest_mismatch | the state that it is in.';

create function countersign.note_schema_step(change uuid, of_number integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.commit_durably();
    update countersign.schema_change o set ended_steps = of_number
    where o.change_id = change and o.status = 'applying' and o.ended_steps = of_number - 1;
    if not found then
        raise exception 'the steps of a schema change come one after the other' using errcode = '55000';
    end if;
end $$;
comment on function countersign.note_schema_step(uuid, integer) is
    'Counts a step that has ended: one in a transaction within it, a statement that runs alone after it.';

create function countersign.end_schema_change(change uuid, who text, outcome text, message text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c  countersign.schema_change;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    if outcome not in ('applied', 'failed') then
        raise exception 'a schema change does not end as %', outcome using errcode = '22023';
    end if;
    update countersign.schema_change o set status = outcome, error_message = message, completed_at = clock_timestamp()
    where o.change_id = change and o.status = 'applying' returning o.* into c;
    if not found then
        raise exception 'the schema change is not being carried out' using errcode = '55000';
    end if;
    perform countersign.note_schema_event(c, who, outcome, message);
end $$;
comment on function countersign.end_schema_change(uuid, text, text, text) is 'After the last step: applied, or failed with a message.';

create function countersign.reject_schema_change(change uuid, who text, why text, nonce text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    c  countersign.schema_change;
begin
    if not countersign.use_nonce(change, nonce) then
        return 'nonce_unknown';
    end if;
    perform countersign.commit_durably();
    select * into c from countersign.schema_change o where o.change_id = change for update;
    if not found then
        return 'not_found';
    elsif c.status = 'pending' then
        update countersign.schema_change o
        set status = 'rejected', decided_by = who, decided_login = session_user, decided_at = clock_timestamp(), decision_reason = why,
            completed_at = clock_timestamp()
        where o.id = c.id;
        perform countersign.note_schema_event(c, who, 'rejected', why);
        return 'done';
    elsif c.status = 'applying' and not pg_try_advisory_xact_lock(countersign.schema_change_lock(change)) then
        return 'busy';
    elsif c.status = 'applying' then
        update countersign.schema_change o
        set status = 'failed', decision_reason = why, error_message = 'it was given up', completed_at = clock_timestamp() where o.id = c.id;
        perform countersign.note_schema_event(c, who, 'given_up', why);
        return 'given_up';
    end if;
    return c.status;
end $$;
comment on function countersign.reject_schema_change(uuid, text, text, text) is
    'done: it is never carried out. given_up: it was begun, and its end was not on record; its ended steps stay. busy: it is being carried out now.';

create function countersign.expire_schema_changes() returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update countersign.schema_change o set status = 'expired', completed_at = clock_timestamp()
    where o.status = 'pending' and o.expires_at <= clock_timestamp();
    delete from countersign.schema_change o
    where o.status in ('rejected', 'expired') and o.completed_at < clock_timestamp() - interval '7 days';
end $$;
comment on function countersign.expire_schema_changes() is 'Called by sweep: ends what has expired, and removes what was not carried out, after a week.';
