-- The rows as a write left them, beside the rows as it found them (`before_image`).

drop function countersign.finish_success(uuid, json, text, bigint, json, json, text[], text[], interval);

-- T2 ends well: outcome, guard, undo calls, and the writes that this one reverses. The caller commits.
create function countersign.finish_success(
    correlation uuid, answer json, answer_summary text, affected bigint, images_before json, images_after json,
    undo json, undo_tools text[], undo_fingerprints text[], time_window interval
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    mine      countersign.mutation_audit;
    touched   uuid[];
    reversed  uuid[];
begin
    -- A function that the statements called may have switched it off since the claim.
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    update countersign.mutation_audit a
    set status = 'success', result = answer, result_summary = answer_summary, rows_affected = affected,
        before_image = images_before, after_image = images_after, rollback_action = undo, exec_xid = pg_current_xact_id(),
        completed_at = clock_timestamp(), elapsed_ms = countersign.age_ms(a.created_at)
    where a.correlation_id = correlation and a.status = 'pending'
      and current_setting('countersign.claimed', true) = correlation::text
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
        returning u.correlation_id
    )
    select array_agg(distinct made.correlation_id) into touched from made;
    if touched is not null then
        -- In one order, whoever comes: two writes that reverse each other must not wait for each other. And two undo calls
        -- of one write that finish together take turns here, so that the later one sees the mark of the earlier one.
        perform from countersign.idempotency_guard g
        where g.holder = correlation or g.holder = any (touched)
        order by g.account_id, g.tool_name, g.key for update;
        select array_agg(t.id) into reversed from unnest(touched) as t (id)
        where not exists (select from countersign.undo_call u where u.correlation_id = t.id and u.reversed_by is null);
        -- A write that was reversed no longer counts: the same call may run again.
        update countersign.idempotency_guard g set expires_at = '-infinity'
        where g.holder = any (reversed) and g.key like 'fp:%';
    end if;
    -- A caller's own key names one intent and stays bound to it; without one, the window counts.
    update countersign.idempotency_guard g
    set expires_at = case when mine.idempotency_key is null then clock_timestamp() + time_window else g.bound_until end
    where g.holder = correlation;
end $$;
