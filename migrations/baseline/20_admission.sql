-- The write protocol. docs/internals/write-protocol.md has the order of these statements:
--
--   BEGIN | begin_write | the tool's statements | SET CONSTRAINTS ALL IMMEDIATE | finish | COMMIT                  the write
--
-- The statements of a caller with a role run as that role, and those of the ledger as the login:
--
--   .. | begin_write | context | SET ROLE | the tool's statements | SET CONSTRAINTS ALL IMMEDIATE | SET ROLE DEFAULT | finish | COMMIT
--
-- A write that others have to see before it begins (durable_admission, a proposal, a tool with a policy) is admitted first:
--
--   BEGIN | take_slot | INSERT INTO countersign.admission | COMMIT AND CHAIN | claim | the tool's statements | ..
--
-- 23505 of attempt_pkey, or CS001 of `begin_write`, `take_slot` or `claim_attempt`, skips the rest; ROLLBACK, then `admit` gives the verdict.
-- A statement that failed: ROLLBACK, then `fail` where there is an attempt, and `record_failure` where there is none. A connection that
-- was lost: `resolve`.

-- What only servers and people may ask is not for the statements of a write. Its transaction has an id from its beginning on, as that
-- of a preview has, and no SQL takes it back.
create function countersign.refuse_within_a_write() returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'this is for servers, and not for the statements of a write' using errcode = '42501';
    end if;
end $$;
comment on function countersign.refuse_within_a_write() is 'Fails in a transaction that has written.';

-- A success that was acknowledged has to survive a crash of PostgreSQL, whatever the role's default.
create function countersign.commit_durably() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;
comment on function countersign.commit_durably() is 'Lets the COMMIT of this transaction wait for the disk.';

-- One expression without SET, so that it is inlined; every name is qualified instead.
create function countersign.slot_of(account text, tool text, caller_key text, print text, undoes uuid[] default null) returns bytea
language sql stable as $$
    select pg_catalog.sha256(pg_catalog.convert_to(
        case when undoes is null
             then pg_catalog.concat(pg_catalog.char_length(account), ' ', pg_catalog.char_length(tool), ' ', account, tool,
                                    case when caller_key is null then 'f' else 'k' end, coalesce(caller_key, print))
             else pg_catalog.concat('undo ', pg_catalog.array_to_string(undoes, ' '),
                                    pg_catalog.substring(caller_key, '^undo:[0-9a-f-]{36}(/[0-9]{1,4})$')) end, 'UTF8'))
$$;
comment on function countersign.slot_of(text, text, text, text, uuid[]) is 'The slot of a call; servers compute the same, and `claim_attempt` compares.';

-- Whoever holds this lock may begin a write of the slot. PostgreSQL releases it after everybody sees how the transaction ended, so the
-- next one sees the record. Two slots with one number wait for each other, and no more.
create function countersign.slot_lock(call_slot bytea) returns bigint language sql immutable as
$$ select pg_catalog.hashtextextended(pg_catalog.encode(call_slot, 'hex'), 1668641654) $$;
comment on function countersign.slot_lock(bytea) is 'The number of the advisory lock of a slot.';

create function countersign.take_slot(call_slot bytea, is_durable boolean, known countersign.known_history default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ignored  text := case when not is_durable then set_config('synchronous_commit', 'off', true) end;
begin
    perform countersign.refuse_after_loss(known);
    if not pg_try_advisory_xact_lock(countersign.slot_lock(call_slot)) then
        raise exception 'an identical call is in flight' using errcode = 'CS001', detail = 'in_flight';
    end if;
end $$;
comment on function countersign.take_slot(bytea, boolean, countersign.known_history) is
    'Before an attempt is inserted: CS001 while a write of the slot runs, CS007 after a loss. Unless is_durable, COMMIT does not wait for the disk.';

create function countersign.end_attempt(
    a countersign.attempt, outcome text, code text, state text, message text, original uuid, detail json, decision json default null
) returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    -- Rows were changed, and the attempt is still there: its transaction was committed without `finish`.
    is_unfinished  boolean := exists (select from countersign.effect e where e.correlation_id = a.correlation_id);
    -- A caller's key stays bound to its arguments after a failure; a refusal binds nothing. The newest record of a slot counts, so this
    -- one must not come after a success that holds it: an identical call that was admitted, and whose server died, would hide it.
    binds          boolean := a.slot = countersign.slot_of(a.account_id, a.tool_name, a.idempotency_key, a.fingerprint, a.undo_of)
                              and a.idempotency_key is not null and a.undo_of is null and outcome = 'failure'
                              and code not in ('idempotency_key_reused', 'superseded', 'account_frozen')
                              and coalesce((select r.status <> 'success' or r.holds_until <= clock_timestamp()
                                            from countersign.record r where r.slot = a.slot order by r.id desc limit 1), true);
begin
    perform countersign.commit_durably();
    insert into countersign.record (correlation_id, account_id, actor, session_id, client_name, client_version, trace_id, reason, tool_name,
        fingerprint, idempotency_key, params, params_summary, status, duplicate_of, undo_of, error_code, error_sqlstate, error_message,
        error_detail, approval, caller_context, login, slot, holds_until, xid, admitted_at, completed_at)
    values (a.correlation_id, a.account_id, a.actor, a.session_id, a.client_name, a.client_version, a.trace_id, a.reason, a.tool_name,
        a.fingerprint, a.idempotency_key, a.params, a.params_summary, case when is_unfinished then 'failure' else outcome end,
        case when not is_unfinished then original end, a.undo_of, case when is_unfinished then 'unfinished' else code end, state,
        case when is_unfinished then 'rows were changed, and no outcome was recorded: the protocol was not kept' else message end,
        detail, decision, a.caller_context, a.login, case when binds then a.slot end, case when binds then a.admitted_at + interval '24 hours' end,
        pg_current_xact_id(), a.admitted_at, clock_timestamp())
    -- It was not: a write that was reported, or an attempt that was on its way when its end was recorded.
    on conflict (correlation_id) do nothing;
    return found;
end $$;
comment on function countersign.end_attempt(countersign.attempt, text, text, text, text, uuid, json, json) is
    'Inserts the record of an attempt that wrote nothing and whose row was deleted in this transaction; false if there was one.';

-- No SET, so that it is inlined; every name is qualified instead.
create function countersign.effects_of_row(relation oid, key text) returns setof countersign.effect language sql stable as $$
    select e.* from countersign.effect e
    where e.relation operator(pg_catalog.=) $1 and e.key operator(pg_catalog.=) $2
      and pg_catalog.hashtextextended(e.key, 0) operator(pg_catalog.=) pg_catalog.hashtextextended($2, 0)
    union all
    select e.* from countersign.effect e
    where e.relation operator(pg_catalog.=) $1 and e.key_before operator(pg_catalog.=) $2
      and pg_catalog.hashtextextended(e.key_before, 0) operator(pg_catalog.=) pg_catalog.hashtextextended($2, 0)
$$;
comment on function countersign.effects_of_row(oid, text) is 'The recorded changes of the row with this key, those that gave it another key included.';

create function countersign.reversal_state(write uuid, out effective_as uuid, out reversed_by uuid)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    undo  uuid;
    redo  uuid;
begin
    effective_as := write;
    loop
        select r.reversed_by into undo from countersign.reversal r where r.correlation_id = effective_as;
        exit when not found;
        select r.reversed_by into redo from countersign.reversal r where r.correlation_id = undo;
        if not found then
            effective_as := null;
            reversed_by := undo;
            exit;
        end if;
        effective_as := redo;
    end loop;
end $$;
comment on function countersign.reversal_state(uuid) is
    'A write that was undone and redone stands as its redo: the write whose effects count, or the undo because of which none do.';

create function countersign.superseded_by(write uuid) returns json
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    standing  record := countersign.reversal_state(write);
begin
    if standing.effective_as is null then
        return json_build_object('reason', 'reversed', 'by', standing.reversed_by);
    end if;
    return (
        select json_build_object('reason', 'changed', 'by', l.correlation_id, 'table', t.name, 'key', l.key::json, 'origin', l.origin)
        from countersign.effect e
        cross join lateral (select e.key union all select e.key_before where e.key_before is not null) k (key)
        cross join lateral countersign.effects_of_row(e.relation, k.key) l
        join countersign.tracked t on t.shape = l.shape
        where e.correlation_id = standing.effective_as and l.position > e.position and l.correlation_id is distinct from e.correlation_id and l.op <> 'N'
        order by l.position desc limit 1);
end $$;
comment on function countersign.superseded_by(uuid) is
    'The change that came after a write: {reason: reversed | changed, by, table, key}. Null: as far as the ledger knows the write stands.';

-- No SET, and it returns a value, so that callers assign it: SET and PERFORM cost more than the settings do. So does each expression.
create function countersign.enter_write(at tid, account text, timeout_ms integer) returns text language plpgsql as $$
declare
    -- A hint for the triggers and `finish`, which believe nothing but the attempt. A statement whose server has died ends, and with it the
    -- claim: only PostgreSQL on Linux is asked, since others may refuse the setting.
    ignored  text := pg_catalog.concat(
        pg_catalog.set_config('countersign.at', at::text, true), pg_catalog.set_config('countersign.account_id', account, true),
        case when timeout_ms is not null then pg_catalog.concat(
            pg_catalog.set_config('statement_timeout', timeout_ms::text, true), pg_catalog.set_config('lock_timeout', timeout_ms::text, true),
            pg_catalog.set_config('idle_in_transaction_session_timeout', timeout_ms::text, true)) end,
        case when pg_catalog.version() like '%linux%' then pg_catalog.set_config('client_connection_check_interval', '1000', true) end);
begin
    -- When this transaction has ended, in whatever way, the session's counts of rows begin at zero (`untracked_counts`). PostgreSQL 14
    -- keeps them for up to half a second.
    if pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 150000 then
        perform pg_catalog.pg_stat_force_next_flush();
    end if;
    return at;
end $$;
comment on function countersign.enter_write(tid, text, integer) is 'The settings of a transaction that carries out an attempt; returns countersign.at.';

create function countersign.limit_lock_wait() returns text language sql volatile set search_path = pg_catalog, pg_temp as $$
    select set_config('lock_timeout', (1000 * extract(epoch from
        least(interval '5 s', 0.9 * nullif(current_setting('statement_timeout')::interval, interval '0'))))::integer::text, true) $$;
comment on function countersign.limit_lock_wait() is
    'For this transaction: a statement waits 5 seconds for a lock, and ends before its own time is over, so that the reason is known.';

create function countersign.begin_write(
    call_slot bytea, correlation uuid, account text, who text, of_session text, name_of_client text, version_of_client text, trace text,
    why text, tool text, print text, caller_key text, arguments json, arguments_summary text, undoes uuid[], proposal uuid, timeout_ms integer,
    of_caller json default null, known countersign.known_history default null
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    at       tid;
    here     text := countersign.incarnation();
begin
    if known.incarnation is distinct from here then
        perform countersign.refuse_after_loss(known);
    end if;
    if pg_current_xact_id_if_assigned() is not null or proposal is not null
       or call_slot <> countersign.slot_of(account, tool, caller_key, print, undoes) or octet_length(print) <> 64 or cardinality(undoes) = 0
    then
        raise exception 'a write begins with its transaction and has the slot of its call, and a proposal is admitted first' using errcode = '42501';
    end if;
    -- Under another isolation level the statement below would not see what was committed before the lock was had.
    if current_setting('transaction_isolation') = 'read committed' and pg_try_advisory_xact_lock(countersign.slot_lock(call_slot)) then
        insert into countersign.claim (slot, correlation_id, account_id, actor, session_id, client_name, client_version, trace_id,
            reason, tool_name, fingerprint, idempotency_key, params, params_summary, undo_of, caller_context, own_transaction, is_begun)
        select call_slot, correlation, account, who, of_session, name_of_client, version_of_client, trace,
            why, tool, print, caller_key, arguments, arguments_summary, undoes, of_caller, true, true
        where not exists (select from countersign.loss l where l.log_no = (select max(i.no) from countersign.identity i))
          and not exists (select from countersign.freeze f where f.unfrozen_at is null
                          and (f.kind, f.name) in (('all', ''), ('account', account), ('actor', who)))
          and not exists (select from countersign.attempt a where a.slot = call_slot)
          and (select r.holds_until > clock_timestamp() from countersign.record r where r.slot = call_slot order by r.id desc limit 1) is not true
        returning ctid into at;
    end if;
    if at is null then
        perform countersign.refuse_after_loss();
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001', detail = case
            when exists (select from countersign.freeze f where f.unfrozen_at is null
                         and (f.kind, f.name) in (('all', ''), ('account', account), ('actor', who))) then 'frozen'
            when (select r.holds_until > clock_timestamp() from countersign.record r where r.slot = call_slot order by r.id desc limit 1) then 'held'
            else 'in_flight' end;
    end if;
    return concat(countersign.enter_write(at, account, timeout_ms), ' ', here);
end $$;
comment on function countersign.begin_write(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, integer, json, countersign.known_history) is
    'Begins the transaction of a write that was not admitted first. Returns what `claim_attempt` returns, a space, and the `incarnation`. CS001 as '
    '`claim_attempt`, or DETAIL in_flight; CS007 after a loss.';

create function countersign.claim_attempt(correlation uuid, call_slot bytea, timeout_ms integer default null, slot_may_be_held boolean default false)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    account  text;
    at       tid;
    refusal  text;
begin
    -- Nobody takes another attempt once a write has begun.
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'a claim is the beginning of a transaction' using errcode = '42501';
    end if;
    perform countersign.refuse_after_loss();
    -- One statement locks the attempt and looks for what holds its slot. Its snapshot is younger than the attempt, so it sees the
    -- record of any identical call that had the slot before.
    select a.account_id,
           case when a.slot <> countersign.slot_of(a.account_id, a.tool_name, a.idempotency_key, a.fingerprint, a.undo_of)
                     or octet_length(a.fingerprint) <> 64 or cardinality(a.undo_of) = 0 then 'forged'
                when not a.by_operator and exists (select from countersign.freeze f where f.unfrozen_at is null
                     and (f.kind, f.name) in (('all', ''), ('account', a.account_id), ('actor', a.actor))) then 'frozen'
                when not slot_may_be_held and (select r.holds_until > clock_timestamp() from countersign.record r
                                           where r.slot = call_slot order by r.id desc limit 1) then 'held' end
    into account, refusal
    from countersign.attempt a where a.slot = call_slot and a.correlation_id = correlation for update of a;
    if refusal = 'forged' then
        raise exception 'mutation % does not have the slot of its call', correlation using errcode = '42501';
    elsif account is null or refusal is not null then
        raise exception 'mutation % is not to be executed here', correlation
            using errcode = 'CS001', detail = coalesce(refusal, 'fenced');
    end if;
    insert into countersign.claim select a.* from countersign.attempt a where a.slot = call_slot returning ctid into at;
    return countersign.enter_write(at, account, timeout_ms);
end $$;
comment on function countersign.claim_attempt(uuid, bytea, integer, boolean) is
    'The transaction of a write that was admitted first begins; the value of the setting countersign.at, for whoever resets it. CS001, DETAIL fenced '
    '(ended by another server), held (an identical call succeeded, or its key is bound) or frozen.';

create function countersign.claim_preview(correlation uuid, account text, who text, tool text, timeout_ms integer default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    at       tid;
    ignored  text;
    print    text := encode(sha256(''), 'hex');
begin
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'a claim is the beginning of a transaction' using errcode = '42501';
    end if;
    insert into countersign.claim (slot, correlation_id, account_id, actor, tool_name, fingerprint, params, params_summary, own_transaction)
    values (countersign.slot_of(account, tool, 'preview:' || correlation, print), correlation, account, who, tool, print, '{}', '{}', true)
    returning ctid into at;
    ignored := countersign.enter_write(at, account, timeout_ms);
    -- Somebody waits for the answer, which names who holds the lock.
    ignored := countersign.limit_lock_wait();
end $$;
comment on function countersign.claim_preview(uuid, text, text, text, integer) is
    'Begins a transaction that is rolled back: its effects are recorded, and can be read in it. `finish` refuses it.';

create type countersign.write_facts as (
    has_effects  boolean,
    is_outdated  boolean,
    needs_trial  boolean,
    reason       text,
    logs         text[],
    assigned     jsonb,
    set_by_triggers jsonb
);
comment on type countersign.write_facts is 'What the effects of a write say of its undo.';
comment on column countersign.write_facts.is_outdated is 'The columns of a table are not those of its images.';
comment on column countersign.write_facts.needs_trial is 'Triggers, policies, rights or constraints may be in the way of its undo.';
comment on column countersign.write_facts.reason is 'The code of the conflict that its undo meets whatever happens; null for none.';
comment on column countersign.write_facts.logs is 'The log tables that it has written.';
comment on column countersign.write_facts.assigned is 'See countersign.record.evidence.';
comment on column countersign.write_facts.set_by_triggers is 'The columns that its undo leaves to triggers, by table, where no trial has to find them.';

-- With the rights of the caller, because it may try the undo of the write, with the triggers and policies that an undo meets. It writes
-- nothing itself: `record_success` does.
create function countersign.finish(
    correlation uuid, answer json, answer_summary text, affected bigint, images_before json default null, images_after json default null,
    undo_call json default null, duplicates_for interval default '5 minutes', path text default pg_catalog.current_setting('search_path')
) returns json language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    promise  record := countersign.promise_of_write(correlation, affected, undo_call, path, null);
begin
    return countersign.record_success(correlation, answer, answer_summary, affected, images_before, images_after, promise.receipt, duplicates_for,
                                      promise.evidence, promise.did_nothing);
end $$;
comment on function countersign.finish(uuid, json, text, bigint, json, json, json, interval, text) is
    'A write ends well; the caller commits. Returns how the write can be undone: what the caller says of it, held against what the write did. CS005: the '
    'columns of a tracked table have changed; `renew_shapes`, and the write is tried again.';

create function countersign.record_success(
    correlation uuid, answer json, answer_summary text, affected bigint, images_before json, images_after json, receipt json,
    duplicates_for interval, evidence jsonb, did_nothing boolean
) returns json language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    a            countersign.attempt;
    decision     json;
    held_until   timestamptz;
    ignored      text := case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end;
begin
    -- The transaction id, and not the hint, says whose write it is.
    delete from countersign.claim c
    where c.ctid = nullif(current_setting('countersign.at', true), '')::tid and c.correlation_id = correlation
      and c.xmin = pg_current_xact_id()::xid
    returning * into a;
    if not a.is_begun then
        -- A preview has none.
        delete from countersign.attempt t where t.slot = a.slot and t.correlation_id = correlation;
        a.correlation_id := case when found then correlation end;
    end if;
    if a.correlation_id is null then
        raise exception 'mutation % is not to be completed here', correlation using errcode = 'CS001', detail = 'fenced';
    end if;
    if a.undo_of is not null then
        perform countersign.prove_undo(a);
        evidence := countersign.evidence_of_undo(evidence, a.undo_of);
    end if;
    if a.proposal_id is not null then
        decision := countersign.execute_proposal(a);
    elsif a.by_operator then
        decision := json_build_object('decided_by', a.actor, 'decided_login', a.login);
    end if;
    held_until := case when a.undo_of is not null or a.idempotency_key is not null then a.admitted_at + interval '24 hours'
                       -- A write without an effect does not stand in the way of the same call.
                       when affected = 0 and did_nothing then null else clock_timestamp() + duplicates_for end;
    insert into countersign.record (correlation_id, account_id, actor, session_id, client_name, client_version, trace_id, reason, tool_name,
        fingerprint, idempotency_key, params, params_summary, status, undo_of, result, result_summary, rows_affected,
        before_image, after_image, rollback, approval, caller_context, evidence, login, slot, holds_until, xid, admitted_at, completed_at)
    select a.correlation_id, a.account_id, a.actor, a.session_id, a.client_name, a.client_version, a.trace_id, a.reason, a.tool_name,
        a.fingerprint, a.idempotency_key, a.params, a.params_summary, 'success', a.undo_of, answer, answer_summary, affected,
        images_before, images_after, receipt, decision, a.caller_context, evidence::json, a.login, case when held_until is not null then a.slot end, held_until,
        pg_current_xact_id(), a.admitted_at, clock_timestamp()
    where a.by_operator or not exists (select from countersign.freeze f where f.unfrozen_at is null
        and (f.kind, f.name) in (('all', ''), ('account', a.account_id), ('actor', a.actor)));
    if not found then
        raise exception 'the account was frozen while the write ran' using errcode = 'CS001', detail = 'frozen';
    end if;
    return receipt;
end $$;
comment on function countersign.record_success(uuid, json, text, bigint, json, json, json, interval, jsonb, boolean) is
    'Records a success, and returns its receipt. For an undo it proves that the rows are what they were, and marks the writes as reversed.';

create function countersign.fail(
    correlation uuid, call_slot bytea, code text, state text, message text, detail json default null, proposal_outcome text default null
) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    a         countersign.attempt;
    decision  json;
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.attempt t where t.slot = call_slot and t.correlation_id = correlation returning * into a;
    if a.correlation_id is null then
        return false;
    end if;
    if a.proposal_id is not null and proposal_outcome in ('failed', 'stale') then
        decision := countersign.refuse_proposal(a.proposal_id, correlation, proposal_outcome, code, message);
    end if;
    perform countersign.end_attempt(a, 'failure', code, state, message, null, detail, decision);
    return true;
end $$;
comment on function countersign.fail(uuid, bytea, text, text, text, json, text) is
    'After ROLLBACK of a write that was admitted first: the record says why. Waits for a transaction that still carries it out. False: the attempt has ended already; the record says how.';

create function countersign.admit(
    call_slot bytea, correlation uuid, account text, who text, of_session text, name_of_client text, version_of_client text, trace text,
    why text, tool text, print text, caller_key text, arguments json, arguments_summary text, undoes uuid[], proposal uuid,
    is_repeatable boolean default false, grace interval default '1 second', of_caller json default null,
    out verdict text, out original uuid, out detail json
) language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    other  countersign.attempt;
    prior  record;
begin
    perform countersign.refuse_within_a_write();
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'writes are admitted in read committed transactions only' using errcode = '25001';
    end if;
    perform countersign.refuse_after_loss();
    if not pg_try_advisory_xact_lock(countersign.slot_lock(call_slot)) then
        verdict := 'in_flight';
        return;
    end if;
    loop
        insert into countersign.attempt (slot, correlation_id, account_id, actor, session_id, client_name, client_version, trace_id,
            reason, tool_name, fingerprint, idempotency_key, params, params_summary, undo_of, proposal_id, caller_context, own_transaction)
        values (call_slot, correlation, account, who, of_session, name_of_client, version_of_client, trace,
            why, tool, print, caller_key, arguments, arguments_summary, undoes, proposal, of_caller, true)
        on conflict (slot) do nothing;
        exit when found;
        select * into other from countersign.attempt a where a.slot = call_slot;
        continue when not found;
        exit when other.correlation_id = correlation;    -- admitted by INSERT, and refused by `claim_attempt`
        -- The claim follows in the same pipeline, so an attempt that is older and that no transaction has locked belongs to a server
        -- that died, or to one that is about to report a failure. Ending it fences both.
        if other.admitted_at < clock_timestamp() - grace then
            delete from countersign.attempt a where a.slot = (
                select b.slot from countersign.attempt b where b.slot = call_slot and b.correlation_id = other.correlation_id
                for update skip locked)
            returning * into other;
            if found then
                perform countersign.end_attempt(other, 'failure', 'in_doubt_aborted', null,
                    'the server went away before the write committed; nothing was written', null, null);
                continue;
            end if;
        end if;
        verdict := 'in_flight';
        original := other.correlation_id;
        return;
    end loop;
    -- Another server has ended this attempt: it is not made again.
    if exists (select from countersign.record r where r.correlation_id = correlation) then
        delete from countersign.attempt a where a.slot = call_slot and a.correlation_id = correlation;
        verdict := 'fenced';
        return;
    end if;
    -- A statement of its own, after the slot is ours: it sees whatever was committed before that.
    select r.correlation_id, r.fingerprint, r.status, r.holds_until > clock_timestamp() as holds into prior
    from countersign.record r where r.slot = call_slot order by r.id desc limit 1;
    if exists (select from countersign.freeze f where f.unfrozen_at is null
               and (f.kind, f.name) in (('all', ''), ('account', account), ('actor', who))) then
        verdict := 'frozen';
    elsif not coalesce(prior.holds, false) or prior.fingerprint = print and prior.status <> 'success' then
        verdict := 'run';
    elsif prior.fingerprint <> print then
        -- The key of an undo is held by another call that undid the write.
        verdict := case when undoes is null then 'key_reused' else 'already_reversed' end;
    else
        detail := countersign.superseded_by(prior.correlation_id);
        verdict := case when detail is null then 'standing' when is_repeatable then 'run'
                        when undoes is null then 'superseded' else 'already_reversed' end;
    end if;
    if verdict not in ('run', 'frozen') then
        original := prior.correlation_id;
    end if;
    if verdict in ('key_reused', 'superseded', 'already_reversed', 'frozen') then
        delete from countersign.attempt a where a.slot = call_slot and a.correlation_id = correlation returning * into other;
        perform countersign.end_attempt(other, 'failure',
            case verdict when 'key_reused' then 'idempotency_key_reused' when 'frozen' then 'account_frozen' else verdict end,
            null, null, null, detail);
    end if;
end $$;
comment on function countersign.admit(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, boolean, interval, json) is
    'Admits a call whose INSERT or claim was refused. Verdicts: run (claim it, slot_may_be_held) | standing (compare the rows, then `answer_duplicate`) | '
    'in_flight (nothing was recorded; ask again) | fenced (the record says how it ended) | superseded | key_reused | already_reversed | frozen '
    '(recorded as failures).';

create function countersign.answer_duplicate(correlation uuid, call_slot bytea, original uuid, detail json default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    a  countersign.attempt;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    delete from countersign.attempt t where t.slot = call_slot and t.correlation_id = correlation returning * into a;
    if a.correlation_id is null then
        raise exception 'mutation % is not to be answered here', correlation using errcode = 'CS001', detail = 'fenced';
    end if;
    if detail is null then
        perform countersign.end_attempt(a, 'duplicate', null, null, null, original, null);
    else
        perform countersign.end_attempt(a, 'failure', 'superseded', null, null, null, detail);
    end if;
end $$;
comment on function countersign.answer_duplicate(uuid, bytea, uuid, json) is
    'Ends an attempt whose verdict was `standing`: a duplicate of `original`, or superseded where `detail` says what changed the rows.';

create function countersign.resolve(correlation uuid, call_slot bytea, wait_ms integer, awaits_slot boolean default true)
returns table (final_status text, final_code text, final_message text, final_result json, final_rows bigint, final_rollback json)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    perform countersign.refuse_within_a_write(), set_config('lock_timeout', greatest(wait_ms / 2, 1)::text, true);
    -- Waits for a transaction that still carries it out. After half of the time it is one of another call, which lasts: there is one
    -- record for each call, so this one is found, or can no longer be.
    if awaits_slot then
        begin
            perform pg_advisory_xact_lock(countersign.slot_lock(call_slot));
        exception when lock_not_available then null;
        end;
    end if;
    perform countersign.fail(correlation, call_slot, 'in_doubt_aborted', null,
        'the connection was lost before the write committed; nothing was written');
    return query
        select r.status, r.error_code, r.error_message, r.result, r.rows_affected, r.rollback
        from countersign.record r where r.correlation_id = correlation;
end $$;
comment on function countersign.resolve(uuid, bytea, integer, boolean) is
    'The outcome. awaits_slot: after a lost connection, a transaction may still carry it out. No row: there is no attempt; call `record_failure`.';

create function countersign.record_failure(
    call_slot bytea, correlation uuid, account text, who text, of_session text, name_of_client text, version_of_client text, trace text,
    why text, tool text, print text, caller_key text, arguments json, arguments_summary text, undoes uuid[], proposal uuid,
    code text, state text, message text, detail json default null, ran_for interval default '0', of_caller json default null
) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    a  countersign.attempt;
begin
    perform countersign.refuse_within_a_write();
    -- The newest record of a slot counts. While an identical call runs, which may have succeeded and not be committed yet, this one does not
    -- get the slot, and binds no key.
    if code <> 'duplicate_in_flight' and pg_try_advisory_xact_lock(countersign.slot_lock(call_slot))
       and not exists (select from countersign.attempt t where t.slot = call_slot) then
        a.slot := call_slot;
    end if;
    a.correlation_id := correlation;
    a.account_id := account;
    a.actor := who;
    a.session_id := of_session;
    a.client_name := name_of_client;
    a.client_version := version_of_client;
    a.trace_id := trace;
    a.reason := why;
    a.tool_name := tool;
    a.fingerprint := print;
    a.idempotency_key := caller_key;
    a.params := arguments;
    a.params_summary := arguments_summary;
    a.undo_of := undoes;
    a.proposal_id := proposal;
    a.caller_context := of_caller;
    a.login := session_user;
    a.admitted_at := clock_timestamp() - ran_for;
    return countersign.end_attempt(a, 'failure', code, state, message, null, detail);
end $$;
comment on function countersign.record_failure(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, text, text, text, json, interval, json) is
    'The record of a call that wrote nothing and has no attempt: after ROLLBACK, or because it never arrived. Should it still arrive, its `finish` finds '
    'the id taken. False: there is a record already.';

create function countersign.sweep(older_than interval, most integer) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    a  countersign.attempt;
begin
    perform countersign.refuse_within_a_write();
    for a in
        with ended as (
            delete from countersign.attempt t where t.slot in (
                -- A write that was reported has the lock of its slot and not this row, which may outlast it.
                select b.slot from countersign.attempt b
                where b.admitted_at < clock_timestamp() - older_than and pg_try_advisory_xact_lock(countersign.slot_lock(
                    countersign.slot_of(b.account_id, b.tool_name, b.idempotency_key, b.fingerprint, b.undo_of)))
                order by b.admitted_at limit most for update skip locked)
            returning t.*
        ), left_behind as (
            -- Its transaction was committed without `finish`: no other leaves a row that others see.
            delete from countersign.claim c returning c.*
        )
        select * from ended union all select * from left_behind
    loop
        if countersign.end_attempt(a, 'failure', 'in_doubt_aborted', null,
            'the server went away before the write committed; nothing was written', null, null) then
            return next a.correlation_id;
        end if;
    end loop;
    perform countersign.keep_table_facts(), countersign.expire_schema_changes();
end $$;
comment on function countersign.sweep(interval, integer) is
    'Ends attempts that nobody carries out: no transaction has locked the row, or the slot of a write that was reported. Notes what migrations have '
    'changed of tracked tables.';

create function countersign.report_write(
    call_slot bytea, correlation uuid, account text, who text, of_session text, name_of_client text, version_of_client text, trace text,
    why text, tool text, print text, caller_key text, arguments json, arguments_summary text, undoes uuid[], proposal uuid, ran_for interval,
    of_caller json default null
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), set_config('synchronous_commit', 'off', true);
    insert into countersign.attempt (slot, correlation_id, account_id, actor, session_id, client_name, client_version, trace_id,
        reason, tool_name, fingerprint, idempotency_key, params, params_summary, undo_of, caller_context, own_transaction, admitted_at)
    values (countersign.report_slot(correlation), correlation, account, who, of_session, name_of_client, version_of_client, trace,
        why, tool, print, caller_key, arguments, arguments_summary, undoes, of_caller, true, clock_timestamp() - ran_for)
    on conflict (slot) do nothing;
end $$;
comment on function countersign.report_write(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, interval, json) is
    'Shows others, over another session, a write that was not admitted first and runs for long. `withdraw_report` removes it when the write has ended.';

create function countersign.report_slot(correlation uuid) returns bytea language sql immutable as
$$ select pg_catalog.sha256(pg_catalog.convert_to('report ' || correlation, 'UTF8')) $$;
comment on function countersign.report_slot(uuid) is 'The slot of a report: no call has it.';

create function countersign.withdraw_report(correlation uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.attempt a where a.slot = countersign.report_slot(correlation) and a.correlation_id = correlation;
end $$;
comment on function countersign.withdraw_report(uuid) is 'Removes the report of a write that has ended.';

create function countersign.existing_write(call_slot bytea, print text)
returns table (verdict text, original uuid, original_result json, detail json)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    return query
    select case when r.fingerprint = print and s.detail is null then 'standing' when r.undo_of is not null then 'already_reversed'
                when r.fingerprint <> print then 'key_reused' else 'superseded' end,
           r.correlation_id, r.result, s.detail
    from (select * from countersign.record q where q.slot = call_slot order by q.id desc limit 1) r
    cross join lateral (select case when r.fingerprint = print then countersign.superseded_by(r.correlation_id) end as detail) s
    where r.holds_until > clock_timestamp() and (r.fingerprint <> print or r.status = 'success');
end $$;
comment on function countersign.existing_write(bytea, text) is
    'The verdict that `admit` would give on a call that succeeded before; no row for none. For the memory of a server, and before a proposal.';
