-- A record that was swept while it waited for another one is final: it must not take the guard any more, because nobody
-- would ever give it back. Timeline without the lock and the question:
--
--     A  runs                                fails, guard free
--     B  waits   (swept: failure)                               contend -> run: guard held by a failure, for good
create or replace function countersign.contend(correlation uuid)
returns table (verdict text, original uuid, original_result json)
language plpgsql as $$
declare
    mine  countersign.mutation_audit;
    held  record;
begin
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
