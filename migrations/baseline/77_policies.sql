-- The policies of tools: their rules and the limits of their calls and rows (docs/adr/0082). `apply_policy` decides in the transaction
-- that admits a write. If the call may not run, that transaction is rolled back, so there is no attempt and no record.
-- `apply_row_limit` decides where a write ends, since its rows are known there; a write that it refuses has a record. The log of these
-- decisions is not sealed.

create table countersign.policy_log (
    id              bigint       generated always as identity primary key,
    decided_at      timestamptz  not null,
    login           name         not null default session_user,
    account_id      text,
    actor           text,
    session_id      text,
    client_name     text,
    client_version  text,
    trace_id        text,
    tool_name       text,
    outcome         text         not null,
    rule            integer,
    matched         integer[],
    correlation_id  uuid,
    rows            bigint,
    entries         bigint
);
comment on table countersign.policy_log is
    'One row for each decision about a call of a tool that has rules or a limit. Rows never change. Old ones are removed with the records, and a '
    'row with the outcome pruned says so.';
comment on column countersign.policy_log.login is 'The database login of the server.';
comment on column countersign.policy_log.outcome is
    'run, confirm or approve (a proposal was required), deny (by a rule), limit (too many calls); rows (what a write under a limit of rows '
    'changed); or pruned.';
comment on column countersign.policy_log.rule is 'The number of the rule that decided, from 1; null if the tier of the tool or its limit did.';
comment on column countersign.policy_log.matched is 'The numbers of all rules whose conditions held.';
comment on column countersign.policy_log.correlation_id is
    'The record of the write, if the outcome is run or rows.';
comment on column countersign.policy_log.rows is 'For rows: how many the write changed.';
comment on column countersign.policy_log.entries is 'For pruned: how many rows were removed.';
create index policy_log_rows  on countersign.policy_log (tool_name, account_id, decided_at) include (actor, rows) where outcome = 'rows';
create index policy_log_calls on countersign.policy_log (tool_name, account_id, decided_at) where outcome in ('run', 'confirm', 'approve');

create function countersign.apply_policy(
    mode text, call_slot bytea, tool text, account text, who text, of_session text, name_of_client text, version_of_client text, trace text, correlation uuid,
    tier text, actions text[], conditions boolean[], most_calls integer default null, per_s integer default null,
    of_actor boolean default false
) returns json language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    outcome  text := case tier when 'auto' then 'run' else tier end;
    matched  integer[];
    decisive integer;
    now_at   timestamptz;
    used     bigint;
    oldest   timestamptz;
    retry_s  bigint;
    verdict  json;
    admitted record;
    prior    record;
begin
    if mode <> 'run' then
        perform countersign.refuse_within_a_write();
    else
        select a.xmin = pg_current_xact_id()::xid as is_new, a.admitted_at, a.fingerprint into admitted
        from countersign.attempt a where a.slot = call_slot and a.correlation_id = correlation;
        if not coalesce(admitted.is_new, false) then
            -- The second admission of an attempt whose claim was refused: the first one has applied the policy. Statements of a write have an
            -- attempt like this one, and no effect here.
            if exists (select from countersign.policy_log l
                       where l.tool_name = tool and l.account_id = account and l.outcome = 'run' and l.decided_at >= admitted.admitted_at
                         and l.correlation_id = correlation) then
                return json_build_object('outcome', 'run');
            end if;
            raise exception 'the policy of a call is applied where it is admitted' using errcode = '42501';
        end if;
        select r.holds_until > clock_timestamp() as holds, r.fingerprint, r.status into prior
        from countersign.record r where r.slot = call_slot order by r.id desc limit 1;
        if prior.holds and (prior.fingerprint <> admitted.fingerprint or prior.status = 'success') then
            -- `claim` refuses this call, and `admit` answers it as it does without a policy.
            return json_build_object('outcome', 'run');
        end if;
    end if;
    -- NULL counts as true: a rule that cannot tell whether it is about this call is about it.
    select array_agg(c.number::integer order by c.number) into matched
    from unnest(conditions) with ordinality c (holds, number) where c.holds is distinct from false;
    select a.number, a.action into decisive, outcome
    from unnest(actions) with ordinality a (action, number)
    where a.number = any (matched)
      and array_position(array['auto', 'confirm', 'approve', 'deny'], a.action) > array_position(array['auto', 'confirm', 'approve', 'deny'], tier)
    order by array_position(array['auto', 'confirm', 'approve', 'deny'], a.action) desc, a.number limit 1;
    outcome := coalesce(outcome, case tier when 'auto' then 'run' else tier end);
    if outcome <> 'deny' and most_calls is not null and mode <> 'preview' then
        -- Calls that one limit counts are decided one after the other: the next statement sees those that had the lock before.
        perform pg_advisory_xact_lock(hashtextextended(json_build_array(tool, account, case when of_actor then who end)::text, 1668641652));
        now_at := clock_timestamp();
        select count(*), min(c.decided_at) into used, oldest
        from (
            select l.decided_at from countersign.policy_log l
            where l.tool_name = tool and l.account_id = account and (not of_actor or l.actor is not distinct from who)
              and l.outcome in ('run', 'confirm', 'approve') and l.decided_at > now_at - make_interval(secs => per_s)
            order by l.decided_at desc limit most_calls) c;
        if used >= most_calls then
            outcome := 'limit';
            decisive := null;
            retry_s := greatest(1, ceil(extract(epoch from oldest + make_interval(secs => per_s) - now_at)));
        end if;
    end if;
    verdict := json_build_object('outcome', outcome, 'rule', decisive, 'retry_after_s', retry_s);
    if mode = 'run' and outcome <> 'run' then
        raise exception 'the policy of % does not let this call run', tool using errcode = 'CS004', detail = verdict::text;
    end if;
    if mode = 'run' or mode = 'refuse' and outcome <> 'run' then
        insert into countersign.policy_log (decided_at, account_id, actor, session_id, client_name, client_version, trace_id, tool_name,
            outcome, rule, matched, correlation_id)
        values (coalesce(now_at, clock_timestamp()), account, who, of_session, name_of_client, version_of_client, trace, tool,
            outcome, decisive, matched, case when outcome = 'run' then correlation end);
    end if;
    return verdict;
end $$;
comment on function countersign.apply_policy(text, bytea, text, text, text, text, text, text, text, uuid, text, text[], boolean[], integer, integer, boolean) is
    'Decides about a call by the conditions of its rules and logs it. Mode run: CS004 unless it may run now, DETAIL has the decision. Mode refuse: '
    'logs what mode run has refused. Mode preview: logs nothing and counts nothing.';

create function countersign.apply_row_limit(correlation uuid, most_rows bigint, per_s integer, of_actor boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    write    record;
    now_at   timestamptz;
    used     bigint;
    free_at  timestamptz;
begin
    select r.tool_name, r.account_id, r.actor, r.session_id, r.client_name, r.client_version, r.trace_id,
        coalesce(r.rows_affected, 0) as rows, r.approval is not null as is_agreed into write
    from countersign.record r where r.correlation_id = correlation and r.xid = pg_current_xact_id() and r.status = 'success';
    if not found then
        raise exception 'a limit of rows is applied where a write ends' using errcode = '42501';
    end if;
    -- Until COMMIT: writes that one limit counts end one after the other, and the next statement sees those before.
    perform pg_advisory_xact_lock(hashtextextended(
        json_build_array(write.tool_name, write.account_id, case when of_actor then write.actor end)::text, 1668641653));
    now_at := clock_timestamp();
    select coalesce(sum(l.rows), 0) into used
    from countersign.policy_log l
    where l.tool_name = write.tool_name and l.account_id = write.account_id and (not of_actor or l.actor is not distinct from write.actor)
      and l.outcome = 'rows' and l.decided_at > now_at - make_interval(secs => per_s);
    -- A write that somebody has agreed to is not refused.
    if used + write.rows > most_rows and write.rows > 0 and not write.is_agreed then
        -- The newest of the writes that leave no room for this one.
        select max(l.decided_at) + make_interval(secs => per_s) into free_at
        from (
            select w.decided_at, sum(w.rows) over (order by w.decided_at desc, w.id desc) as rows
            from countersign.policy_log w
            where w.tool_name = write.tool_name and w.account_id = write.account_id
              and (not of_actor or w.actor is not distinct from write.actor)
              and w.outcome = 'rows' and w.decided_at > now_at - make_interval(secs => per_s)) l
        where l.rows + write.rows > most_rows;
        raise exception 'the limit of the rows of % is reached', write.tool_name using errcode = 'CS004', detail = json_build_object(
            'rows', write.rows, 'used', used,
            'retry_after_s', case when write.rows <= most_rows then greatest(1, ceil(extract(epoch from free_at - now_at))) end)::text;
    end if;
    if write.rows > 0 then
        insert into countersign.policy_log (decided_at, account_id, actor, session_id, client_name, client_version, trace_id, tool_name,
            outcome, correlation_id, rows)
        values (now_at, write.account_id, write.actor, write.session_id, write.client_name, write.client_version, write.trace_id,
            write.tool_name, 'rows', correlation, write.rows);
    end if;
end $$;
comment on function countersign.apply_row_limit(uuid, bigint, integer, boolean) is
    'Compares the rows of the write that ends in this transaction with the limit of its tool, and logs them. CS004: more rows than are left, '
    'DETAIL has the numbers.';

create function countersign.prune_policy_log(made_before timestamptz, who text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    removed  bigint;
begin
    -- A limit counts the calls of 24 hours at most.
    if made_before is null or made_before > clock_timestamp() - interval '1 day' then
        raise exception 'decisions of the last day are not pruned' using errcode = '22023';
    end if;
    delete from countersign.policy_log l where l.decided_at < made_before;
    get diagnostics removed = row_count;
    if removed > 0 then
        insert into countersign.policy_log (decided_at, actor, outcome, entries) values (clock_timestamp(), who, 'pruned', removed);
    end if;
    return removed;
end $$;
comment on function countersign.prune_policy_log(timestamptz, text) is
    'Removes old decisions, and says so in the log; the number of its rows. For members of the owner.';
