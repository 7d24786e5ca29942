-- The write protocol (ARCHITECTURE.md, "A write, step by step"). Each function is one step of it and one round trip.
-- SQLSTATE CS001 is ours: the record is not this transaction's to execute (fenced).

-- T1: the intent, and the question whether this is the same call as another one. Commits on its own.
create function countersign.admit(
    correlation uuid, account text, who text, tool text, hash text, caller_key text,
    arguments json, arguments_summary text
) returns table (verdict text, original uuid, original_result json)
language plpgsql as $$
begin
    insert into countersign.mutation_audit
        (correlation_id, account_id, actor, tool_name, params_hash, idempotency_key, params, params_summary)
    values (correlation, account, who, tool, hash, caller_key, arguments, arguments_summary);
    return query select * from countersign.contend(correlation);
end $$;
comment on function countersign.admit is
    'verdict: run | duplicate (original_result has its answer) | in_flight (ask countersign.contend again) | key_reused';

-- The same question again, for a record that waits for another one to finish. Ends the record unless the verdict is
-- run or in_flight. Volatile, so each statement sees what was committed before it.
create function countersign.contend(correlation uuid)
returns table (verdict text, original uuid, original_result json)
language plpgsql as $$
declare
    mine  countersign.mutation_audit;
    held  record;
begin
    -- A record that was swept while it waited is final, and must not take the guard: nobody would ever give it back.
    --     A  runs                                fails, guard free
    --     B  waits   (swept: failure)                               contend -> run: guard held by a failure, for good
    -- The lock keeps the sweep away until the verdict is committed; records are locked before guards, everywhere.
    select * into mine from countersign.mutation_audit a
    where a.correlation_id = correlation and a.status = 'pending' for update;
    if not found then
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
    end if;

    insert into countersign.idempotency_guard as g (account_id, tool_name, key, holder, fingerprint, expires_at, bound_until)
    values (mine.account_id, mine.tool_name, coalesce('key:' || mine.idempotency_key, 'fp:' || mine.params_hash),
            correlation, mine.params_hash, 'infinity', clock_timestamp() + interval '24 hours')
    on conflict (account_id, tool_name, key) do update
        set holder = excluded.holder, fingerprint = excluded.fingerprint,
            expires_at = excluded.expires_at, bound_until = excluded.bound_until
        where g.expires_at <= clock_timestamp()
          and (g.fingerprint = excluded.fingerprint or g.bound_until <= clock_timestamp());
    if found then
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

-- T2 begins: the record is claimed for this transaction, and its row stays locked until the outcome is known.
create function countersign.claim(correlation uuid, timeout_ms integer) returns void
language plpgsql as $$
begin
    -- Whatever the role's default: a success that was acknowledged has to survive a crash of the server.
    perform set_config('synchronous_commit', 'on', true),
            set_config('statement_timeout', timeout_ms::text, true),
            set_config('lock_timeout', timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', timeout_ms::text, true);
    update countersign.mutation_audit a set exec_xid = pg_current_xact_id()
    where a.correlation_id = correlation and a.status = 'pending' and a.exec_xid is null;
    if not found then
        raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
    end if;
end $$;

-- T2 ends well: outcome, guard, undo calls, and the writes that this one reverses. The caller commits.
create function countersign.finish_success(
    correlation uuid, answer json, answer_summary text, affected bigint, images_before json,
    undo json, undo_tools text[], undo_fingerprints text[], time_window interval
) returns void language plpgsql as $$
declare
    mine      countersign.mutation_audit;
    reversed  uuid[];
begin
    update countersign.mutation_audit a
    set status = 'success', result = answer, result_summary = answer_summary, rows_affected = affected,
        before_image = images_before, rollback_action = undo,
        completed_at = clock_timestamp(), elapsed_ms = countersign.age_ms(a.created_at)
    where a.correlation_id = correlation and a.status = 'pending' and a.exec_xid = pg_current_xact_id()
    returning a.* into mine;
    if not found then
        raise exception 'mutation % is not to be completed here', correlation using errcode = 'CS001';
    end if;

    insert into countersign.undo_call (correlation_id, position, account_id, tool_name, fingerprint)
    select correlation, n, mine.account_id, tool, fingerprint
    from unnest(undo_tools, undo_fingerprints) with ordinality as calls (tool, fingerprint, n);

    -- This call is an undo call of earlier writes: those whose calls have now all been made are reversed.
    with made as (
        update countersign.undo_call u set reversed_by = correlation
        where u.account_id = mine.account_id and u.fingerprint = mine.params_hash and u.reversed_by is null
          and u.correlation_id <> correlation
        returning u.correlation_id, u.position
    )
    select array_agg(distinct made.correlation_id) into reversed from made
    where not exists (
        select from countersign.undo_call rest
        where rest.correlation_id = made.correlation_id and rest.reversed_by is null
          and rest.position not in (select m.position from made m where m.correlation_id = rest.correlation_id)
    );

    -- In one order, whoever comes: two writes that reverse each other must not wait for each other.
    perform from countersign.idempotency_guard g
    where g.holder = correlation or g.holder = any (reversed)
    order by g.account_id, g.tool_name, g.key for update;

    -- A caller's own key names one intent and stays bound to it; without one, the window counts.
    update countersign.idempotency_guard g
    set expires_at = case when mine.idempotency_key is null then clock_timestamp() + time_window else g.bound_until end
    where g.holder = correlation;
    -- A write that was reversed no longer counts: the same call may run again.
    update countersign.idempotency_guard g set expires_at = '-infinity'
    where g.holder = any (reversed) and g.key like 'fp:%';
end $$;

-- The end of an attempt that wrote nothing. The guard is free at once; a caller's key stays bound to its arguments.
create function countersign.finish_failure(correlation uuid, code text, state text, reason text) returns void
language plpgsql as $$
begin
    update countersign.mutation_audit a
    set status = 'failure', error_code = code, error_sqlstate = state, error_message = reason,
        completed_at = clock_timestamp(), elapsed_ms = countersign.age_ms(a.created_at)
    where a.correlation_id = correlation and a.status = 'pending';
    if not found then
        raise exception 'mutation % is not to be completed here', correlation using errcode = 'CS001';
    end if;
    update countersign.idempotency_guard g set expires_at = '-infinity' where g.holder = correlation;
end $$;

-- After a lost connection: the truth. T2 holds the record's row lock from its claim to its end, so once the lock is had
-- the record either says what happened, or nothing happened and, from here on, nothing can.
create function countersign.resolve(correlation uuid, wait_ms integer)
returns table (final_status text, final_code text, final_message text, final_result json, final_rows bigint, final_undo json)
language plpgsql as $$
begin
    perform set_config('lock_timeout', wait_ms::text, true);
    perform from countersign.mutation_audit a where a.correlation_id = correlation and a.status = 'pending' for update;
    -- A statement of its own: it sees what the transaction that was waited for has committed.
    if exists (select from countersign.mutation_audit a where a.correlation_id = correlation and a.status = 'pending') then
        perform countersign.finish_failure(correlation, 'in_doubt_aborted', null,
            'the connection was lost before the write committed; nothing was written');
    end if;
    return query
    select a.status, a.error_code, a.error_message, a.result, a.rows_affected, a.rollback_action
    from countersign.mutation_audit a where a.correlation_id = correlation;
end $$;

create function countersign.age_ms(since timestamptz) returns integer language sql volatile as
$$ select least(extract(epoch from clock_timestamp() - since) * 1000, 2147483647)::integer $$;
