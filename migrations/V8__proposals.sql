-- Writes that wait for somebody's agreement: what was proposed, who decided, what became of it.
-- ARCHITECTURE.md, "A proposal, step by step", has the order of these functions.

create table countersign.proposal (
    id               bigint generated always as identity primary key,
    proposal_id      uuid        not null unique,
    account_id       text        not null,
    actor            text,
    tool_name        text        not null,
    tool_version     text        not null,
    definition       text        not null check (octet_length(definition) = 64),
    tier             text        not null check (tier in ('confirm', 'approve')),
    description      text        not null,
    params           json        not null,
    params_hash      text        not null check (octet_length(params_hash) = 64),
    idempotency_key  text,
    preview          json        not null,
    preview_hash     text        not null,
    created_at       timestamptz not null default clock_timestamp(),
    expires_at       timestamptz not null,
    digest           text        not null check (octet_length(digest) = 64),
    status           text        not null default 'pending'
                     check (status in ('pending', 'confirmed', 'rejected', 'expired', 'executed', 'failed', 'stale')),
    decision         text        check (decision in ('confirmed', 'rejected')),
    decided_by       text,
    decided_login    name,
    decided_via      text        check (decided_via in ('confirm_proposal', 'reject_proposal', 'elicitation', 'command_line')),
    decided_at       timestamptz,
    reason           text,
    attempts         integer     not null default 0,
    attempt          uuid,
    attempt_until    timestamptz,
    correlation_id   uuid,
    error_code       text,
    error_message    text,
    completed_at     timestamptz,
    constraint decision_is_whole
        check (num_nulls(decision, decided_by, decided_login, decided_via, decided_at) in (0, 5)),
    constraint decided_as_it_says check (case
        when status in ('confirmed', 'executed', 'failed', 'stale') then decision is not distinct from 'confirmed'
        when status = 'rejected' then decision is not distinct from 'rejected'
        when status = 'pending' then decision is null
        else decision is distinct from 'rejected' end),
    -- A person decides outside of the agent, and is not whoever proposed.
    constraint approver_is_not_proposer check (tier <> 'approve' or decision is distinct from 'confirmed'
        or (decided_via = 'command_line' and decided_by <> account_id and decided_by is distinct from actor)),
    constraint executed_has_its_record check (status <> 'executed' or correlation_id is not null),
    constraint open_is_not_completed check ((status in ('pending', 'confirmed')) = (completed_at is null))
);
comment on table countersign.proposal is
    'Writes that were shown and wait for somebody to agree, and those that somebody has decided on.';
comment on column countersign.proposal.definition is
    'SHA-256 of what the tool does, its statements above all: a tool that has changed since is not what was agreed to.';
comment on column countersign.proposal.tier is 'confirm: the proposing account agrees. approve: a person who is not the proposer.';
comment on column countersign.proposal.description is 'For people: what would happen, in the server''s own words.';
comment on column countersign.proposal.preview is
    'What the write did when it was tried and rolled back. Values that the database makes anew each time are null, and named.';
comment on column countersign.proposal.digest is 'SHA-256 of what is shown, by whom it was proposed and until when it stands: what is shown is what is agreed to.';
comment on column countersign.proposal.decided_login is 'The database login of whoever told the decision.';
comment on column countersign.proposal.attempt is
    'The mutation that carries it out, or was to: until attempt_until nobody else tries.';
comment on column countersign.proposal.correlation_id is 'The mutation that ended it. Its record may be pruned before this.';

create unique index proposal_pending on countersign.proposal
    (account_id, tool_name, params_hash, coalesce(idempotency_key, ''), definition, preview_hash)
    where status = 'pending';
create index proposal_open on countersign.proposal (status, id) where status in ('pending', 'confirmed');
create index proposal_account on countersign.proposal (account_id, id);
create index proposal_correlation_id on countersign.proposal (correlation_id) where correlation_id is not null;
create index proposal_refused on countersign.proposal (completed_at) where status in ('rejected', 'expired');
create index proposal_ended on countersign.proposal (completed_at) where status in ('executed', 'failed', 'stale');

-- Who agreed to it, beside the write and sealed with it: the proposal itself may be gone by then.
alter table countersign.mutation_audit add column approval json;
comment on column countersign.mutation_audit.approval is 'Of a write that was proposed: the proposal, its digest, and who agreed to it, when and how.';

-- What decides, and what only servers may know, is not for the statements of a write, nor for those of a preview. A write has a
-- transaction id from its claim on, and a preview from its beginning, which no SQL takes back; the setting is one more layer.
create function countersign.refuse_within_a_write() returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if pg_current_xact_id_if_assigned() is not null or coalesce(current_setting('countersign.claimed', true), '') <> '' then
        raise exception 'this is for servers, and not for the statements of a write' using errcode = '42501';
    end if;
end $$;

create or replace function countersign.reader_credentials() returns table (role_name name, password text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query select l.role_name, l.password from countersign.reader_login l;
end $$;

create function countersign.proposal_digest(p countersign.proposal) returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
select encode(sha256(convert_to(json_build_array(
    'countersign proposal 1', p.proposal_id::text, p.account_id, p.actor, p.tool_name, p.tool_version, p.definition, p.tier,
    p.description, p.params::text, p.params_hash, p.idempotency_key, p.preview::text,
    extract(epoch from p.created_at)::text, extract(epoch from p.expires_at)::text
)::text, 'UTF8')), 'hex') $$;

-- The state machine: these changes and no others, whoever makes them.
--     pending -> confirmed | rejected | expired          confirmed -> executed | failed | stale | expired
create function countersign.protect_proposal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        raise exception 'proposals are kept' using errcode = '42501';
    end if;
    if tg_op = 'DELETE' then
        if countersign.proposal_is_disposable(old) then
            return old;
        end if;
        raise exception 'proposal % is kept (%)', old.proposal_id, old.status using errcode = '42501';
    end if;
    -- One that was altered past this trigger can still be ended.
    if countersign.proposal_digest(new) <> countersign.proposal_digest(old) or new.digest <> old.digest or new.id <> old.id then
        raise exception 'what proposal % says cannot change', old.proposal_id using errcode = '55000';
    end if;
    if not (case old.status
        when 'pending' then new.status in ('confirmed', 'rejected', 'expired')
        when 'confirmed' then new.status in ('confirmed', 'executed', 'failed', 'stale', 'expired')
        else false end)
    then
        raise exception 'proposal % is %, and cannot become %', old.proposal_id, old.status, new.status using errcode = '55000';
    end if;
    if old.status = 'confirmed'
       and (new.decision, new.decided_by, new.decided_login, new.decided_via, new.decided_at, new.reason)
           is distinct from (old.decision, old.decided_by, old.decided_login, old.decided_via, old.decided_at, old.reason)
    then
        raise exception 'the decision on proposal % cannot change', old.proposal_id using errcode = '55000';
    end if;
    return new;
end $$;

-- Nothing was written for it, and a week has passed; or what was written was pruned.
create function countersign.proposal_is_disposable(p countersign.proposal) returns boolean language sql volatile
set search_path = pg_catalog, pg_temp as $$
select p.completed_at < clock_timestamp() - interval '7 days' and (p.status in ('rejected', 'expired')
    or not exists (select from countersign.mutation_audit a where a.correlation_id = p.correlation_id)) $$;

create trigger protect_proposal before update or delete on countersign.proposal
    for each row execute function countersign.protect_proposal();
create trigger protect_proposals before truncate on countersign.proposal
    for each statement execute function countersign.protect_proposal();

-- Whether an identical write stands already: then nothing needs to be proposed. Null for none.
create function countersign.standing_write(account text, tool text, hash text, caller_key text)
returns table (verdict text, original uuid, original_result json)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
select case when g.fingerprint <> hash then 'key_reused' else 'duplicate' end, a.correlation_id, a.result
from countersign.idempotency_guard g join countersign.mutation_audit a on a.correlation_id = g.holder
where g.account_id = account and g.tool_name = tool and g.key = coalesce('key:' || caller_key, 'fp:' || hash)
  and ((g.fingerprint = hash and a.status = 'success' and g.expires_at > clock_timestamp())
       or (g.fingerprint <> hash and g.bound_until > clock_timestamp()))
$$;

-- The proposal that says the same as this one and waits.
create function countersign.same_pending(p countersign.proposal) returns uuid language sql volatile as $$
select o.proposal_id from countersign.proposal o
where o.status = 'pending' and o.account_id = p.account_id and o.tool_name = p.tool_name and o.params_hash = p.params_hash
  and coalesce(o.idempotency_key, '') = coalesce(p.idempotency_key, '') and o.definition = p.definition
  and o.preview_hash = p.preview_hash and o.expires_at > clock_timestamp() $$;

-- Stores a proposal; or finds the very same one, that waits already. `crowded` if the account has too many that wait.
create function countersign.propose(
    proposal uuid, account text, who text, tool text, version text, definition_hash text, wanted_tier text, words text,
    arguments json, hash text, caller_key text, shown json, lifetime interval, most integer
) returns table (verdict text, stored uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
    p.proposal_id := proposal;
    p.account_id := account;
    p.actor := who;
    p.tool_name := tool;
    p.tool_version := version;
    p.definition := definition_hash;
    p.tier := wanted_tier;
    p.description := words;
    p.params := arguments;
    p.params_hash := hash;
    p.idempotency_key := caller_key;
    p.preview := shown;
    p.preview_hash := encode(sha256(convert_to(shown::text, 'UTF8')), 'hex');
    p.created_at := clock_timestamp();
    p.expires_at := p.created_at + lifetime;
    p.digest := countersign.proposal_digest(p);
    -- Those that have expired no longer stand in the way.
    update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id in (
        select e.id from countersign.proposal e
        where e.account_id = account and e.status = 'pending' and e.expires_at <= clock_timestamp()
        order by e.id for update skip locked);
    if (select count(*) from countersign.proposal o where o.account_id = account and o.status = 'pending'
          and o.expires_at > clock_timestamp()) >= most then
        stored := countersign.same_pending(p);
        verdict := case when stored is null then 'crowded' else 'found' end;
        return next;
        return;
    end if;
    for round in 1 .. 10 loop
        insert into countersign.proposal (proposal_id, account_id, actor, tool_name, tool_version, definition, tier,
            description, params, params_hash, idempotency_key, preview, preview_hash, created_at, expires_at, digest)
        values (p.proposal_id, p.account_id, p.actor, p.tool_name, p.tool_version, p.definition, p.tier, p.description,
            p.params, p.params_hash, p.idempotency_key, p.preview, p.preview_hash, p.created_at, p.expires_at, p.digest)
        on conflict (account_id, tool_name, params_hash, coalesce(idempotency_key, ''), definition, preview_hash)
            where status = 'pending' do nothing;
        if found then
            return query select 'stored', proposal;
            return;
        end if;
        stored := countersign.same_pending(p);
        if stored is not null then
            verdict := 'found';
            return next;
            return;
        end if;
        -- That one was decided on in between: so this one may be stored after all.
    end loop;
end $$;
comment on function countersign.propose is 'verdict: stored | found (the same proposal waits already) | crowded';

-- Compare and swap from pending, for every way to decide. Not for servers: see decide_proposal and decide_as_person.
create function countersign.swap_pending(
    proposal uuid, outcome text, who text, via text, shown_digest text, why text, correlation uuid, lease interval
) returns text language plpgsql as $$
declare
    p  countersign.proposal;
begin
    perform countersign.commit_durably();
    select * into p from countersign.proposal o where o.proposal_id = proposal for update;
    if not found then
        return 'not_found';
    elsif countersign.proposal_digest(p) <> p.digest then
        return 'altered';
    elsif p.status = 'pending' and p.expires_at <= clock_timestamp() then
        update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id = p.id;
        return 'expired';
    elsif p.status <> 'pending' then
        return p.status;
    elsif shown_digest is distinct from p.digest and (outcome = 'confirmed' or shown_digest is not null) then
        return 'digest_mismatch';
    end if;
    update countersign.proposal o
    set status = outcome, decision = outcome, decided_by = who, decided_login = session_user, decided_via = via,
        decided_at = clock_timestamp(), reason = why,
        completed_at = case outcome when 'rejected' then clock_timestamp() end,
        attempts = case when correlation is null then 0 else 1 end,
        attempt = correlation, attempt_until = clock_timestamp() + lease
    where o.id = p.id;
    return 'done';
end $$;

-- The proposing account decides; `correlation` is the mutation that will carry it out, and has until `lease` for it.
create function countersign.decide_proposal(
    proposal uuid, account text, outcome text, via text, shown_digest text, why text, correlation uuid, lease interval
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
    select * into p from countersign.proposal o where o.proposal_id = proposal and o.account_id = account;
    if not found then
        return 'not_found';
    elsif outcome = 'confirmed' and p.tier <> 'confirm' then
        return 'not_yours';
    end if;
    return countersign.swap_pending(proposal, outcome, account, via, shown_digest, why, correlation, lease);
end $$;
comment on function countersign.decide_proposal is
    'done, or why not: not_found | not_yours | altered | digest_mismatch | the state that it is in';

-- A person decides: for the role countersign_approver, which no server has.
create function countersign.decide_as_person(proposal uuid, outcome text, who text, shown_digest text, why text)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
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
comment on function countersign.decide_as_person is 'As decide_proposal; proposer: whoever proposed cannot approve.';

-- Until when a confirmed proposal may be carried out: a server that comes back later must not surprise anybody.
create function countersign.may_run_until(p countersign.proposal) returns timestamptz language sql immutable
set search_path = pg_catalog, pg_temp as
$$ select greatest(p.expires_at, p.decided_at + interval '5 minutes', p.attempt_until + interval '1 minute') $$;

-- Takes a confirmed proposal up for this attempt, unless another one has time left. What an earlier attempt left is ended
-- first: it was not executed, or the proposal would say so, and from here on it cannot be. `again` says that there was one
-- which had begun: what of its work no rollback takes back may have happened.
create function countersign.take_proposal(proposal uuid, correlation uuid, lease interval) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p        countersign.proposal;
    verdict  text := 'done';
begin
    perform countersign.refuse_within_a_write();
    perform countersign.commit_durably();
    select * into p from countersign.proposal o where o.proposal_id = proposal for update skip locked;
    if not found then
        return 'busy';
    elsif p.status <> 'confirmed' then
        return p.status;
    elsif p.attempt_until > clock_timestamp() then
        return 'busy';
    elsif countersign.may_run_until(p) <= clock_timestamp() then
        update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id = p.id;
        return 'expired';
    elsif p.attempts >= 5 then
        update countersign.proposal o
        set status = 'failed', error_code = 'in_doubt_aborted', completed_at = clock_timestamp(),
            error_message = 'it was tried 5 times and could not be carried out; nothing was written'
        where o.id = p.id;
        return 'failed';
    end if;
    if p.attempt is not null then
        -- Locked by its own T2: that one is still at work.
        perform from countersign.mutation_audit a where a.correlation_id = p.attempt for update nowait;
        if found then
            verdict := 'again';
        end if;
        if exists (select from countersign.mutation_audit a where a.correlation_id = p.attempt and a.status = 'pending') then
            perform countersign.finish_failure(p.attempt, 'in_doubt_aborted', null,
                'the server went away before the write committed; nothing was written');
        end if;
    end if;
    update countersign.proposal o
    set attempts = p.attempts + 1, attempt = correlation,
        attempt_until = clock_timestamp() + least(lease, interval '2 hours')
    where o.id = p.id;
    return verdict;
exception when lock_not_available then
    return 'busy';
end $$;
comment on function countersign.take_proposal is 'done | again | busy | the state that it is in';

-- Nobody works on it any more: the next server may, after a while. An attempt that has not begun does not count.
create function countersign.release_proposal(proposal uuid, correlation uuid, pause interval, counts boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    update countersign.proposal p
    set attempt_until = clock_timestamp() + least(pause, interval '1 hour'),
        attempts = case when counts then p.attempts else greatest(p.attempts - 1, 0) end
    where p.proposal_id = proposal and p.attempt = correlation and p.status = 'confirmed';
end $$;

-- In T2, before the work: the proposal stays as it is until T2 ends.
create function countersign.hold_proposal(proposal uuid, correlation uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
    a  countersign.mutation_audit;
begin
    select * into p from countersign.proposal o where o.proposal_id = proposal for no key update;
    select * into a from countersign.mutation_audit m where m.correlation_id = correlation;
    return case
        when p.id is null then 'not_found'
        when p.status <> 'confirmed' then p.status
        when p.attempt is distinct from correlation then 'busy'
        when countersign.proposal_digest(p) <> p.digest then 'altered'
        when (p.account_id, p.tool_name, p.params_hash) is distinct from (a.account_id, a.tool_name, a.params_hash) then 'altered'
        else 'done' end;
end $$;

-- In T2, with its outcome: the proposal ends with its mutation, or neither does.
create function countersign.finish_proposal(proposal uuid, correlation uuid, outcome text, code text, message text)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    if coalesce(current_setting('countersign.claimed', true), '') <> correlation::text then
        raise exception 'proposal % is not to be completed here', proposal using errcode = 'CS001';
    end if;
    update countersign.proposal o
    set status = outcome, correlation_id = correlation, error_code = code, error_message = message,
        completed_at = clock_timestamp()
    where o.proposal_id = proposal and o.status = 'confirmed' and o.attempt = correlation
    returning o.* into p;
    if not found then
        -- A failure is one all the same; a success that nobody agreed to is none.
        if outcome = 'executed' then
            raise exception 'proposal % is not to be completed here', proposal using errcode = 'CS001';
        end if;
        return;
    end if;
    update countersign.mutation_audit a set approval = json_build_object(
        'proposal_id', p.proposal_id, 'digest', p.digest, 'tier', p.tier, 'decided_by', p.decided_by,
        'decided_login', p.decided_login, 'decided_via', p.decided_via,
        'decided_at', to_char(p.decided_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'reason', p.reason)
    where a.correlation_id = correlation and a.status = 'pending';
end $$;

-- The end of a confirmed proposal that no T2 will carry out: no such tool, an identical write stands.
create function countersign.end_proposal(proposal uuid, who uuid, outcome text, code text, message text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    if outcome not in ('failed', 'stale') then
        raise exception 'a proposal does not become % without a write', outcome using errcode = '22023';
    end if;
    update countersign.proposal o
    set status = outcome, error_code = code, error_message = message, completed_at = clock_timestamp()
    where o.proposal_id = proposal and o.status = 'confirmed' and o.attempt is not distinct from who;
    return found;
end $$;

-- Ends what has expired, and removes what is old. A proposal that is being carried out is locked, and passed over.
create function countersign.sweep_proposals(most integer) returns table (ended uuid, was text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query
        with over as (
            select o.id, o.status from countersign.proposal o
            where (o.status = 'pending' and o.expires_at <= clock_timestamp())
               or (o.status = 'confirmed' and countersign.may_run_until(o) <= clock_timestamp()
                   and coalesce(o.attempt_until, '-infinity') <= clock_timestamp())
            order by o.id limit most for update skip locked
        )
        update countersign.proposal o set status = 'expired', completed_at = clock_timestamp()
        from over where o.id = over.id
        returning o.proposal_id, over.status;
    delete from countersign.proposal o where o.id in (
        select d.id from countersign.proposal d
        where d.status in ('rejected', 'expired') and d.completed_at < clock_timestamp() - interval '7 days'
        order by d.completed_at limit most for update skip locked);
    -- What is older than the oldest record has none any more.
    delete from countersign.proposal o where o.id in (
        select d.id from countersign.proposal d
        where d.status in ('executed', 'failed', 'stale') and countersign.proposal_is_disposable(d)
          and d.completed_at < (select min(a.created_at) from countersign.mutation_audit a)
        order by d.completed_at limit most for update skip locked);
end $$;

-- The key that seals what clients carry for us (MCP's requestState): one for all servers of the ledger.
create table countersign.request_state_key (
    only_row  boolean primary key default true check (only_row),
    key       bytea   not null check (length(key) = 32)
);
comment on table countersign.request_state_key is 'Servers get it from countersign.sealing_key.';
insert into countersign.request_state_key (key)
select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'));

create function countersign.sealing_key() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return (select encode(k.key, 'hex') from countersign.request_state_key k);
end $$;

-- As before, and: row level security beneath the tools can go by the account (countersign.account_id).
create or replace function countersign.claim(correlation uuid, timeout_ms integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    account  text;
begin
    perform countersign.commit_durably(),
            set_config('countersign.claimed', correlation::text, true),
            set_config('statement_timeout', timeout_ms::text, true),
            set_config('lock_timeout', timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', timeout_ms::text, true);
    -- Not FOR UPDATE: rows that point to this record may be inserted meanwhile.
    select a.account_id into account from countersign.mutation_audit a
    where a.correlation_id = correlation and a.status = 'pending' for no key update;
    if not found then
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
    end if;
    perform set_config('countersign.account_id', account, true);
end $$;

-- As before, and: an approval is part of what is sealed. A record without one has the text that it always had.
create or replace function countersign.seal_records(most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    settled  bigint;
    after    bigint;
    sealed   integer := 0;
    entry    countersign.seal;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'records are sealed in read committed transactions only' using errcode = '25001';
    end if;
    perform countersign.commit_durably();
    settled := countersign.settled_id();
    after := countersign.sealed_to();
    while sealed < most loop
        select array_agg(r.id order by r.id), array_agg(r.leaf order by r.id)
        into entry.record_ids, entry.leaves
        from (
            select a.id, sha256(convert_to(json_build_array(
                coalesce('countersign record 2 ' || a.approval::text, 'countersign record 1'),
                a.id::text, a.correlation_id::text, a.idempotency_key, a.tool_name, a.params_hash,
                a.params::text, a.params_summary, a.status, a.duplicate_of::text, a.result::text, a.result_summary,
                a.rows_affected::text, a.before_image::text, a.after_image::text, a.rollback_action::text, a.error_code, a.error_sqlstate,
                a.error_message, a.elapsed_ms::text, a.account_id, a.actor, a.exec_xid::text,
                extract(epoch from a.created_at)::text, extract(epoch from a.completed_at)::text,
                (select string_agg(json_build_array(u.position::text, u.account_id, u.tool_name, u.fingerprint)::text, ','
                                   order by u.position)
                 from countersign.undo_call u where u.correlation_id = a.correlation_id)
            )::text, 'UTF8')) as leaf
            from countersign.mutation_audit a
            where a.id > after and a.id <= settled
              -- OFFSET 0: by the index of pending records, not along the primary key.
              and a.id < coalesce((select min(p.id) from (select w.id from countersign.mutation_audit w
                                                          where w.status = 'pending' offset 0) p), 9223372036854775807)
            order by a.id limit least(most - sealed, 1000)
        ) r;
        exit when entry.record_ids is null;
        entry.from_id := after + 1;
        entry.to_id := entry.record_ids[cardinality(entry.record_ids)];
        perform countersign.append_seal(entry);
        after := entry.to_id;
        sealed := sealed + cardinality(entry.record_ids);
    end loop;
    return sealed;
end $$;

-- As before, with a third role: whoever approves. No server has it, so nothing that a server does, or is made to do, is an
-- approval. Functions that are SECURITY DEFINER are for servers, but for the one that is for approvers.
create or replace function countersign.ensure_roles(writer name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    item    record;
    holder  text;
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
        if to_regrole('countersign_approver') is null then
            create role countersign_approver nologin;
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
    for item in select p.oid::regprocedure as name, p.proname, p.prosecdef, p.proowner from pg_proc p
        where p.pronamespace = 'countersign'::regnamespace
    loop
        if item.proowner <> 'countersign_owner'::regrole then
            execute format('alter function %s owner to countersign_owner', item.name);
        end if;
        execute format('revoke all on function %s from public', item.name);
        if item.proname = 'decide_as_person' then
            execute format('revoke all on function %s from %I', item.name, writer);
            execute format('grant execute on function %s to countersign_approver', item.name);
        elsif item.prosecdef then
            execute format('grant execute on function %s to %I', item.name, writer);
        elsif item.proname = 'may_run_until' then
            -- It only computes.
            execute format('grant execute on function %s to %I, countersign_approver', item.name, writer);
        end if;
    end loop;

    for holder in select unnest(array[writer::text, 'countersign_approver']) loop
        execute format('grant connect on database %I to %I', current_database(), holder);
        execute format('grant usage on schema countersign to %I', holder);
        execute format('grant select on all tables in schema countersign to %I', holder);
        execute format('revoke all on countersign.reader_login, countersign.request_state_key from %I', holder);
    end loop;
    insert into countersign.writer_login values (writer) on conflict do nothing;
end $$;

-- PostgreSQL gives every new function to everybody, and ensure_roles may not run (init as a role that may not create roles).
do $$
declare
    new  text;
begin
    for new in select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'countersign'::regnamespace
        and p.proname in ('refuse_within_a_write', 'proposal_digest', 'protect_proposal', 'proposal_is_disposable', 'standing_write', 'same_pending', 'propose', 'swap_pending', 'decide_proposal', 'decide_as_person', 'may_run_until', 'take_proposal', 'release_proposal', 'hold_proposal', 'finish_proposal', 'end_proposal', 'sweep_proposals', 'sealing_key')
    loop
        execute format('revoke all on function %s from public', new);
    end loop;
end $$;
