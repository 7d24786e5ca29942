-- Writes that wait for agreement: what was proposed, who decided, what became of it. docs/internals/proposals.md has
-- the order of these functions.

create table countersign.proposal (
    id               bigint generated always as identity primary key,
    proposal_id      uuid        not null unique,
    account_id       text        not null,
    actor            text,
    session_id       text,
    client_name      text,
    client_version   text,
    trace_id         text,
    reason           text,
    caller_context   json,
    tool_name        text        not null,
    title            text        not null,
    tool_version     text        not null,
    definition       text        not null check (octet_length(definition) = 64),
    tier             text        not null check (tier in ('confirm', 'approve')),
    approvals        integer     not null default 1 check (approvals between 1 and 10),
    approvers        text,
    description      text        not null,
    params           json        not null,
    fingerprint      text        not null check (octet_length(fingerprint) = 64),
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
    decided_via      text        check (decided_via in ('confirm_proposal', 'reject_proposal', 'elicitation', 'command_line', 'console')),
    decided_at       timestamptz,
    decision_reason  text,
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
    constraint approver_is_not_proposer check (tier <> 'approve' or decision is distinct from 'confirmed'
        or (decided_via in ('command_line', 'console') and lower(decided_by) <> lower(account_id)
            and lower(decided_by) is distinct from lower(actor))),
    constraint only_people_approve check (tier = 'approve' or (approvals = 1 and approvers is null)),
    constraint executed_has_its_record check (status <> 'executed' or correlation_id is not null or tool_name = 'audit erase'),
    constraint open_is_not_completed check ((status in ('pending', 'confirmed')) = (completed_at is null))
);

comment on table countersign.proposal is
    'Writes that were shown and wait for a decision, and those that were decided on.';
comment on column countersign.proposal.definition is
    'SHA-256 of what the tool does. A proposal of a tool that has changed since is stale.';
comment on column countersign.proposal.title is 'For people: what the call does.';
comment on column countersign.proposal.tier is 'confirm: the proposing account or a person agrees. approve: a person who is not the proposer.';
comment on column countersign.proposal.approvals is
    'How many people have to approve, as the tool said when it was proposed. A later manifest does not change it.';
comment on column countersign.proposal.approvers is 'The group that has to approve: a role of PostgreSQL, or for the console a group of the person.';
comment on column countersign.proposal.description is 'For people: what would happen.';
comment on column countersign.proposal.preview is
    'What the write did when it was tried and rolled back. Values that the database generates are null, and named.';
comment on column countersign.proposal.reason is 'Why the agent wants to write, in its words.';
comment on column countersign.proposal.caller_context is 'The role and the claims that the write runs with, as {role, claims}.';
comment on column countersign.proposal.decision_reason is 'Why the proposal was rejected.';
comment on column countersign.proposal.digest is 'SHA-256 of the proposal as shown, with its proposer and its expiry.';
comment on column countersign.proposal.decided_login is 'The database login that decided.';
comment on column countersign.proposal.attempt is
    'The write that carries it out; until attempt_until no other is begun.';
comment on column countersign.proposal.correlation_id is 'The write that ended it. Its record may be pruned before this.';
comment on column countersign.proposal.client_name is 'The client that proposed, with its session and trace. Not part of the digest.';

create unique index proposal_pending on countersign.proposal
    (account_id, tool_name, fingerprint, coalesce(idempotency_key, ''), definition, preview_hash, approvals, coalesce(approvers, ''))
    where status = 'pending';
create index proposal_open on countersign.proposal (status, id) where status in ('pending', 'confirmed');
create index proposal_waiting on countersign.proposal (expires_at) where status = 'pending';
create index proposal_account on countersign.proposal (account_id, id);
create index proposal_correlation_id on countersign.proposal (correlation_id) where correlation_id is not null;
create index proposal_refused on countersign.proposal (completed_at) where status in ('rejected', 'expired');
create index proposal_ended on countersign.proposal (completed_at) where status in ('executed', 'failed', 'stale');

create function countersign.proposal_digest(p countersign.proposal) returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
select encode(sha256(convert_to(json_build_array(
    'countersign proposal 4', p.proposal_id::text, p.account_id, p.actor, p.tool_name, p.title, p.tool_version, p.definition, p.tier,
    p.approvals, p.approvers, p.description, p.params::text, p.fingerprint, p.idempotency_key, p.preview::text,
    p.reason, p.caller_context::text, extract(epoch from p.created_at)::text, extract(epoch from p.expires_at)::text
)::text, 'UTF8')), 'hex') $$;
comment on function countersign.proposal_digest(countersign.proposal) is 'SHA-256 of what a proposal says.';

create table countersign.approval (
    proposal_id    uuid         not null references countersign.proposal (proposal_id) on delete cascade,
    number         integer      not null check (number >= 1),
    person         text         not null check (person <> ''),
    decided_by     text         not null,
    decided_login  name         not null default session_user,
    decided_via    text         not null check (decided_via in ('command_line', 'console')),
    decided_at     timestamptz  not null default clock_timestamp(),
    primary key (proposal_id, number)
);
comment on table countersign.approval is
    'The approvals of proposals of tier approve. The one that makes them enough confirms the proposal. Rows never change.';
comment on column countersign.approval.number is '1, 2 and so on for each proposal: two approvals at once cannot have the same one.';
comment on column countersign.approval.person is
    'Who counts: the database login of the command line, or the person that the console has verified.';
comment on column countersign.approval.decided_by is 'The person, or the user of the operating system that the command line named.';
create unique index approval_person on countersign.approval (proposal_id, lower(person));

create table countersign.question (
    proposal_id  uuid         not null references countersign.proposal (proposal_id) on delete cascade,
    number       integer      not null check (number >= 1),
    asked_by     text         not null,
    asked_login  name         not null default session_user,
    asked_via    text         not null check (asked_via in ('command_line', 'console')),
    asked_at     timestamptz  not null default clock_timestamp(),
    question     text         not null check (char_length(question) between 1 and 1000),
    primary key (proposal_id, number)
);
comment on table countersign.question is 'What reviewers have asked the agent before they decide. The digest of a proposal does not depend on it.';
comment on column countersign.question.asked_by is 'The person, or the user of the operating system that the command line named.';

create table countersign.proposal_rows (
    proposal_id  uuid  primary key references countersign.proposal (proposal_id) on delete cascade,
    rows         json  not null
);
comment on table countersign.proposal_rows is 'The rows of a large preview beyond those that it has itself.';
comment on column countersign.proposal_rows.rows is '{rows, labels}, whose SHA-256 the preview has: so the digest of the proposal covers them.';

create function countersign.is_in_progress(p countersign.proposal) returns boolean language sql volatile
set search_path = pg_catalog, pg_temp as $$
select p.status = 'confirmed' and p.attempt is not null and p.attempt_until > clock_timestamp() $$;
comment on function countersign.is_in_progress(countersign.proposal) is 'Whether a server executes the proposal now.';

create function countersign.approvals_of(p countersign.proposal) returns json language sql volatile
set search_path = pg_catalog, pg_temp as $$
select json_agg(json_build_object(
    'person', a.person, 'decided_by', a.decided_by, 'decided_login', a.decided_login, 'decided_via', a.decided_via,
    'decided_at', to_char(a.decided_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) order by a.number)
from countersign.approval a where a.proposal_id = p.proposal_id $$;
comment on function countersign.approvals_of(countersign.proposal) is 'Who has approved, the first one first; null for nobody.';

create function countersign.has_its_approvals(p countersign.proposal) returns boolean language sql volatile
set search_path = pg_catalog, pg_temp as $$
select p.tier <> 'approve'
    or (select count(distinct lower(a.person)) from countersign.approval a where a.proposal_id = p.proposal_id) >= p.approvals $$;
comment on function countersign.has_its_approvals(countersign.proposal) is 'Whether as many people have approved as the proposal needs.';

create function countersign.protect_approval() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if not exists (select from countersign.proposal p where p.proposal_id = old.proposal_id) then
            return old;
        end if;
    elsif tg_op = 'INSERT' then
        if exists (select from countersign.proposal p
                   where p.proposal_id = new.proposal_id and p.tier = 'approve' and p.status = 'pending') then
            return new;
        end if;
    end if;
    raise exception 'approvals are made while a proposal is pending, and kept with it' using errcode = '42501';
end $$;
comment on function countersign.protect_approval() is 'An approval is of a pending proposal, never changes, and goes with its proposal.';
create trigger protect_approval before insert or update or delete on countersign.approval
    for each row execute function countersign.protect_approval();
create trigger protect_approvals before truncate on countersign.approval
    for each statement execute function countersign.protect_approval();

-- The state machine: these changes and no others, whatever makes them.
--     pending -> confirmed | rejected | expired
--     confirmed -> executed | failed | stale | expired, and while no server executes it -> rejected
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
    if countersign.proposal_digest(new) <> countersign.proposal_digest(old) or new.digest <> old.digest or new.id <> old.id
       or (new.session_id, new.client_name, new.client_version, new.trace_id)
          is distinct from (old.session_id, old.client_name, old.client_version, old.trace_id)
    then
        if countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{title,description,params,preview,reason,idempotency_key,decision_reason,error_message}') then
            return new;
        end if;
        raise exception 'what proposal % says cannot change', old.proposal_id using errcode = '55000';
    end if;
    if not (case old.status
        when new.status then old.status = 'confirmed' or countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{decision_reason,error_message}')
        when 'pending' then new.status in ('confirmed', 'rejected', 'expired')
        when 'confirmed' then new.status in ('confirmed', 'executed', 'failed', 'stale', 'expired')
            or new.status = 'rejected' and not countersign.is_in_progress(old)
        else false end)
    then
        raise exception 'proposal % is %, and cannot become %', old.proposal_id, old.status, new.status using errcode = '55000';
    end if;
    if old.status = 'pending' and new.status = 'confirmed' and not countersign.has_its_approvals(new) then
        raise exception 'proposal % needs % approvals', old.proposal_id, new.approvals using errcode = '55000';
    end if;
    if old.status = 'confirmed' and new.status <> 'rejected'
       and (new.decision, new.decided_by, new.decided_login, new.decided_via, new.decided_at, new.decision_reason)
           is distinct from (old.decision, old.decided_by, old.decided_login, old.decided_via, old.decided_at, old.decision_reason)
    then
        raise exception 'the decision on proposal % cannot change', old.proposal_id using errcode = '55000';
    end if;
    return new;
end $$;

create function countersign.proposal_is_disposable(p countersign.proposal) returns boolean language sql volatile
set search_path = pg_catalog, pg_temp as $$
select p.completed_at < clock_timestamp() - interval '7 days' and (p.status in ('rejected', 'expired')
    or not exists (select from countersign.record r where r.correlation_id = p.correlation_id)) $$;
comment on function countersign.proposal_is_disposable(countersign.proposal) is
    'Nothing was written for it, and a week has passed; or the record of what was written is gone.';

create trigger protect_proposal before update or delete on countersign.proposal
    for each row execute function countersign.protect_proposal();
create trigger protect_proposals before truncate on countersign.proposal
    for each statement execute function countersign.protect_proposal();

create function countersign.find_identical_pending(p countersign.proposal) returns uuid language sql volatile
set search_path = pg_catalog, pg_temp as $$
select o.proposal_id from countersign.proposal o
where o.status = 'pending' and o.account_id = p.account_id and o.tool_name = p.tool_name and o.fingerprint = p.fingerprint
  and coalesce(o.idempotency_key, '') = coalesce(p.idempotency_key, '') and o.definition = p.definition
  and o.preview_hash = p.preview_hash and o.approvals = p.approvals and o.approvers is not distinct from p.approvers
  and o.expires_at > clock_timestamp() $$;
comment on function countersign.find_identical_pending(countersign.proposal) is 'The proposal that says the same and is pending.';

create function countersign.propose(
    proposal uuid, account text, who text, tool text, title text, version text, definition_hash text, wanted_tier text, words text,
    arguments json, hash text, caller_key text, shown json, lifetime interval, most integer,
    of_session text, name_of_client text, version_of_client text, trace text, needed integer, of_group text, why text,
    of_caller json default null, further_rows json default null
) returns table (verdict text, stored uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
    if tool = 'audit erase' then
        raise exception 'people propose erasures, and no server' using errcode = '42501';
    end if;
    p.proposal_id := proposal;
    p.account_id := account;
    p.actor := who;
    p.tool_name := tool;
    p.title := title;
    p.tool_version := version;
    p.definition := definition_hash;
    p.tier := wanted_tier;
    p.approvals := needed;
    p.approvers := of_group;
    p.description := words;
    p.params := arguments;
    p.fingerprint := hash;
    p.idempotency_key := caller_key;
    p.preview := shown;
    -- What is unusual depends on the newest statistics, and not on the write.
    p.preview_hash := encode(sha256(convert_to((shown::jsonb - 'unusual')::text, 'UTF8')), 'hex');
    p.created_at := clock_timestamp();
    p.expires_at := p.created_at + lifetime;
    p.session_id := of_session;
    p.client_name := name_of_client;
    p.client_version := version_of_client;
    p.trace_id := trace;
    p.reason := why;
    p.caller_context := of_caller;
    p.digest := countersign.proposal_digest(p);
    update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id in (
        select e.id from countersign.proposal e
        where e.account_id = account and e.status = 'pending' and e.expires_at <= clock_timestamp()
        order by e.id for update skip locked);
    -- A reviewer has asked, and the same call with another reason is the answer: its proposal takes the place of the one that waits.
    stored := countersign.find_identical_pending(p);
    if exists (select from countersign.proposal o where o.proposal_id = stored and o.reason is distinct from why and why is not null
               and exists (select from countersign.question q where q.proposal_id = stored)) then
        perform countersign.decide_pending(stored, 'rejected', account, account, 'reject_proposal', null,
            'The agent has answered with a new proposal.', null, interval '0');
    end if;
    if (select count(*) from countersign.proposal o where o.account_id = account and o.status = 'pending'
          and o.expires_at > clock_timestamp()) >= most then
        stored := countersign.find_identical_pending(p);
        verdict := case when stored is null then 'crowded' else 'found' end;
        return next;
        return;
    end if;
    for round in 1 .. 10 loop
        insert into countersign.proposal (proposal_id, account_id, actor, tool_name, title, tool_version, definition, tier,
            approvals, approvers, description, params, fingerprint, idempotency_key, preview, preview_hash, created_at, expires_at, digest,
            session_id, client_name, client_version, trace_id, reason, caller_context)
        values (p.proposal_id, p.account_id, p.actor, p.tool_name, p.title, p.tool_version, p.definition, p.tier,
            p.approvals, p.approvers, p.description, p.params, p.fingerprint, p.idempotency_key, p.preview, p.preview_hash, p.created_at, p.expires_at, p.digest,
            p.session_id, p.client_name, p.client_version, p.trace_id, p.reason, p.caller_context)
        on conflict (account_id, tool_name, fingerprint, coalesce(idempotency_key, ''), definition, preview_hash, approvals,
            coalesce(approvers, ''))
            where status = 'pending' do nothing;
        if found then
            if further_rows is not null then
                insert into countersign.proposal_rows (proposal_id, rows) values (proposal, further_rows);
            end if;
            return query select 'stored', proposal;
            return;
        end if;
        stored := countersign.find_identical_pending(p);
        if stored is not null then
            verdict := 'found';
            return next;
            return;
        end if;
        -- It was decided on in between, so this one may be stored after all.
    end loop;
end $$;
comment on function countersign.propose(uuid, text, text, text, text, text, text, text, text, json, text, text, json, interval, integer, text, text, text, text, integer, text, text, json, json) is
    'Stores a proposal. Verdicts: stored | found (the same proposal is pending) | crowded (the account has too many that are pending).';

create function countersign.decide_pending(
    proposal uuid, outcome text, who text, of_person text, via text, shown_digest text, why text, correlation uuid, lease interval
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    p      countersign.proposal;
    given  integer;
begin
    perform countersign.commit_durably();
    -- Every decision on a proposal holds this lock: they come one after the other.
    select * into p from countersign.proposal o where o.proposal_id = proposal for update;
    if not found then
        return 'not_found';
    elsif countersign.proposal_digest(p) <> p.digest then
        return 'altered';
    elsif p.status = 'pending' and p.expires_at <= clock_timestamp() then
        update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id = p.id;
        return 'expired';
    elsif p.status <> 'pending' and not (p.status = 'confirmed' and outcome = 'rejected' and via in ('command_line', 'console')
                                         and not countersign.is_in_progress(p)) then
        return p.status;
    elsif shown_digest is distinct from p.digest and (outcome = 'confirmed' or shown_digest is not null) then
        return 'digest_mismatch';
    elsif outcome = 'asked' then
        given := (select count(*) + 1 from countersign.question q where q.proposal_id = p.proposal_id);
        if given > 10 then
            return 'enough';
        end if;
        insert into countersign.question (proposal_id, number, asked_by, asked_via, question)
        values (p.proposal_id, given, who, via, why);
        perform countersign.note_event('question', array['person', who, 'proposal_id', p.proposal_id::text, 'digest', p.digest,
            'via', via, 'tool', p.tool_name, 'account', p.account_id], why);
        return 'done';
    elsif outcome = 'confirmed' and p.tier = 'approve' then
        if exists (select from countersign.approval a where a.proposal_id = p.proposal_id and lower(a.person) = lower(of_person)) then
            return 'repeated';
        elsif exists (select from countersign.approval a where a.proposal_id = p.proposal_id and a.decided_via <> via) then
            return 'other_channel';
        end if;
        given := (select count(*) + 1 from countersign.approval a where a.proposal_id = p.proposal_id);
        insert into countersign.approval (proposal_id, number, person, decided_by, decided_via)
        values (p.proposal_id, given, of_person, who, via);
    end if;
    perform countersign.note_event('decision', array['person', who, 'proposal_id', p.proposal_id::text, 'digest', p.digest,
        'decision', case when given < p.approvals then 'approved' else outcome end, 'via', via,
        'approvals', case when p.approvals > 1 then given || '/' || p.approvals end, 'tier', p.tier, 'tool', p.tool_name,
        'account', p.account_id], why);
    if given < p.approvals then
        return 'approved';
    end if;
    update countersign.proposal o
    set status = outcome, decision = outcome, decided_by = who, decided_login = session_user, decided_via = via,
        decided_at = clock_timestamp(), decision_reason = why,
        completed_at = case outcome when 'rejected' then clock_timestamp() end,
        attempts = case when correlation is null then 0 else 1 end,
        attempt = correlation, attempt_until = clock_timestamp() + lease
    where o.id = p.id;
    return 'done';
end $$;
comment on function countersign.decide_pending(uuid, text, text, text, text, text, text, uuid, interval) is
    'Compare and swap from pending, for every way to decide; a person also rejects what is confirmed and not in progress. Callers have checked '
    'who decides. approved: it counts, and more people have to approve; '
    'asked is no decision: the proposal stays pending, and enough means that it has 10 questions; '
    'repeated: this person has approved before; other_channel: the approvals of a proposal come all by the command line, or all by the console.';

create function countersign.decide_proposal(
    proposal uuid, account text, outcome text, via text, shown_digest text, why text, correlation uuid, lease interval, of_caller json default null
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
    select * into p from countersign.proposal o where o.proposal_id = proposal and o.account_id = account and o.tool_name <> 'audit erase'
        and (o.caller_context is null or o.caller_context::text = of_caller::text);
    if not found then
        return 'not_found';
    elsif outcome = 'asked' or outcome = 'confirmed' and p.tier <> 'confirm' then
        return 'not_yours';
    end if;
    return countersign.decide_pending(proposal, outcome, account, account, via, shown_digest, why, correlation, lease);
end $$;
comment on function countersign.decide_proposal(uuid, text, text, text, text, text, uuid, interval, json) is
    'The proposing account decides, with the role and the claims of the proposal. done, or why not: not_found | not_yours | altered | digest_mismatch | the state that it is in. '
    '`correlation` is the write that will carry it out, and has until `lease` for it.';

create function countersign.counts_of_preview(preview json) returns json
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
        'rows', preview -> 'rows_affected',
        'changed', coalesce((select sum((t ->> 'count')::bigint) from json_array_elements(preview #> '{effects,by_table}') t), l.rows),
        'listed', l.rows + coalesce((preview #>> '{further_rows,count}')::bigint, 0),
        'reversible', (preview #>> '{rollback,reversible}')::boolean,
        'unfiltered', coalesce(json_array_length(preview -> 'unfiltered'), 0),
        'unusual', coalesce(json_array_length(preview -> 'unusual'), 0),
        'warnings', coalesce(json_array_length(preview -> 'warnings'), 0))
    -- Without rows that are as they were.
    from (select count(*) as rows from json_array_elements(preview #> '{effects,rows}') r where r ->> 'change' <> 'update'
              or r ->> 'columns' <> '{}' or coalesce(r -> 'is_cut', r -> 'has_sensitive_changes') is not null) l
$$;
comment on function countersign.counts_of_preview(json) is
    'The numbers of a preview, without a value of a row. rows: those that the statements change, null if they were only planned.';

create function countersign.executable_until(p countersign.proposal) returns timestamptz language sql immutable
set search_path = pg_catalog, pg_temp as
$$ select greatest(p.expires_at, p.decided_at + interval '5 minutes',
                   case when p.attempt is not null then p.attempt_until + interval '1 minute' end) $$;
comment on function countersign.executable_until(countersign.proposal) is
    'Until when a confirmed proposal may be executed. An attempt has its time, a pause between attempts adds none.';

create function countersign.claim_proposal(proposal uuid, correlation uuid, lease interval) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p          countersign.proposal;
    left_over  countersign.attempt;
    verdict    text := 'done';
begin
    perform countersign.refuse_within_a_write();
    perform countersign.commit_durably();
    select * into p from countersign.proposal o where o.proposal_id = proposal and o.tool_name <> 'audit erase' for update skip locked;
    if not found then
        return 'busy';
    elsif p.status <> 'confirmed' then
        return p.status;
    elsif p.attempt_until > clock_timestamp() then
        return 'busy';
    elsif countersign.executable_until(p) <= clock_timestamp() then
        update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id = p.id;
        return 'expired';
    elsif countersign.proposal_digest(p) <> p.digest then
        update countersign.proposal o
        set status = 'failed', error_code = 'digest_mismatch', completed_at = clock_timestamp(),
            error_message = 'it was modified in the database after it was created; nothing was written'
        where o.id = p.id;
        return 'failed';
    elsif p.attempts >= 5 then
        update countersign.proposal o
        set status = 'failed', error_code = 'in_doubt_aborted', completed_at = clock_timestamp(),
            error_message = 'it was tried 5 times and could not be carried out; nothing was written'
        where o.id = p.id;
        return 'failed';
    end if;
    if p.attempt is not null then
        -- Locked by its write: that server is still at work.
        select * into left_over from countersign.attempt a where a.correlation_id = p.attempt for update nowait;
        if found then
            delete from countersign.attempt a where a.slot = left_over.slot;
            perform countersign.end_attempt(left_over, 'failure', 'in_doubt_aborted', null,
                'the server went away before the write committed; nothing was written', null, null);
        end if;
        if exists (select from countersign.record r where r.correlation_id = p.attempt) then
            verdict := 'again';
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
comment on function countersign.claim_proposal(uuid, uuid, interval) is
    'Takes a confirmed proposal up for this write. done | again (an earlier attempt had begun, and was ended) | busy | the state that it is in.';

create function countersign.release_proposal(proposal uuid, correlation uuid, code text, message text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    update countersign.proposal p
    set attempt = null, attempts = greatest(p.attempts - 1, 0), error_code = code, error_message = message,
        attempt_until = case when correlation is null then p.attempt_until else clock_timestamp()
            + least(greatest((clock_timestamp() - p.decided_at) / 4, interval '2 seconds'), interval '1 minute') end
    where p.proposal_id = proposal and p.attempt is not distinct from correlation and p.status = 'confirmed';
end $$;
comment on function countersign.release_proposal(uuid, uuid, text, text) is
    'What is agreed to waits, and why: any server takes it up after a pause of 2 seconds to a minute, the longer the longer it has waited. '
    'Only attempts whose server went away are counted. Without a correlation id no server has made an attempt, and there is no pause.';

create function countersign.lock_proposal(proposal uuid, correlation uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
    a  countersign.attempt;
begin
    select * into p from countersign.proposal o where o.proposal_id = proposal for no key update;
    a := countersign.claimed_attempt();
    -- What waits for a lock holds a session, and others may be executed meanwhile: it is tried again. What cannot be tried is not.
    if p.preview ->> 'rows_affected' is not null then
        perform countersign.limit_lock_wait();
    end if;
    return case
        when p.id is null then 'not_found'
        when p.status <> 'confirmed' then p.status
        when (p.attempt, a.correlation_id) is distinct from (correlation, correlation) then 'busy'
        when countersign.proposal_digest(p) <> p.digest then 'altered'
        when not countersign.has_its_approvals(p) then 'altered'
        when (p.account_id, p.tool_name, p.fingerprint) is distinct from (a.account_id, a.tool_name, a.fingerprint) then 'altered'
        else 'done' end;
end $$;
comment on function countersign.lock_proposal(uuid, uuid) is
    'In the transaction of the write, before the work: locks the proposal until it ends. done, or why it must not be carried out.';

create function countersign.decision_of(p countersign.proposal) returns json
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
        'proposal_id', p.proposal_id, 'digest', p.digest, 'tier', p.tier, 'approvals', p.approvals, 'approvers', p.approvers,
        'approved_by', countersign.approvals_of(p), 'decided_by', p.decided_by,
        'decided_login', p.decided_login, 'decided_via', p.decided_via,
        'decided_at', to_char(p.decided_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'reason', p.decision_reason)
$$;
comment on function countersign.decision_of(countersign.proposal) is 'Who agreed to what, for the record of the write.';

-- Called by `finish`: the proposal ends with its write, or neither does.
create function countersign.execute_proposal(a countersign.attempt) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p           countersign.proposal;
    difference  text;
begin
    update countersign.proposal o
    set status = 'executed', correlation_id = a.correlation_id, completed_at = clock_timestamp(), error_code = null, error_message = null
    where o.proposal_id = a.proposal_id and o.status = 'confirmed' and o.attempt = a.correlation_id
      and (o.account_id, o.tool_name, o.fingerprint) = (a.account_id, a.tool_name, a.fingerprint)
    returning o.* into p;
    if not found then
        raise exception 'proposal % is not to be completed here', a.proposal_id using errcode = 'CS001', detail = 'fenced';
    end if;
    -- Here, where every write of a proposal ends, so that no server of whatever version can leave it out.
    if p.preview ->> 'agreed_rows' is not null then
        difference := countersign.difference_of_rows(a.correlation_id, p.preview -> 'agreed_rows');
        if difference is not null then
            raise exception '%', difference using errcode = 'CS008';
        end if;
    end if;
    return countersign.decision_of(p);
end $$;
comment on function countersign.execute_proposal(countersign.attempt) is
    'Marks the proposal of a write as executed; who agreed to it, for the record. CS008: the write changes other rows than were agreed on.';

create function countersign.refuse_proposal(proposal uuid, correlation uuid, outcome text, code text, message text) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    update countersign.proposal o
    set status = outcome, correlation_id = correlation, error_code = code, error_message = message, completed_at = clock_timestamp()
    where o.proposal_id = proposal and o.status = 'confirmed' and o.attempt = correlation
    returning o.* into p;
    return case when found then countersign.decision_of(p) end;
end $$;
comment on function countersign.refuse_proposal(uuid, uuid, text, text, text) is
    'Called by `fail`: the proposal fails, or is stale, with its write; who had agreed to it, for the record.';

create function countersign.end_proposal(proposal uuid, who uuid, outcome text, code text, message text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    if outcome not in ('failed', 'stale') then
        raise exception 'a proposal does not become % without a write', outcome using errcode = '22023';
    end if;
    update countersign.proposal o
    set status = outcome, error_code = code, error_message = message, completed_at = clock_timestamp()
    where o.proposal_id = proposal and o.status = 'confirmed' and o.attempt is not distinct from who and o.tool_name <> 'audit erase';
    return found;
end $$;
comment on function countersign.end_proposal(uuid, uuid, text, text, text) is
    'Ends a confirmed proposal that no write will carry out: its tool is gone, or an identical write stands.';

create function countersign.sweep_proposals(most integer) returns table (ended uuid, was text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query
        with over as (
            select o.id, o.status from countersign.proposal o
            where (o.status = 'pending' and o.expires_at <= clock_timestamp())
               or (o.status = 'confirmed' and countersign.executable_until(o) <= clock_timestamp()
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
    delete from countersign.notice n where n.created_at < clock_timestamp() - interval '3 days';
    -- A proposal that is older than the oldest record has none any more.
    delete from countersign.proposal o where o.id in (
        select d.id from countersign.proposal d
        where d.status in ('executed', 'failed', 'stale') and countersign.proposal_is_disposable(d)
          and d.completed_at < (select r.completed_at from countersign.record r order by r.id limit 1)
        order by d.completed_at limit most for update skip locked);
end $$;
comment on function countersign.sweep_proposals(integer) is 'Ends what has expired, and removes what is old. Passes over a proposal that is being carried out.';
