-- What a write can promise of its undo when it ends.

create function countersign.facts_of_write(write uuid) returns countersign.write_facts
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    facts  countersign.write_facts;
begin
    select coalesce(bool_or(true), false),
           coalesce(bool_or(not (t.is_current and countersign.has_current_shape(t))), false),
           coalesce(bool_or(not t.is_log and (
               row_security_active(w.relation)
               or not has_table_privilege(w.relation, case w.op when 'I' then 'DELETE' when 'D' then 'INSERT' else 'UPDATE' end)
               or cardinality(t.fixed) > cardinality(t.computed) or cardinality(t.columns) > 832
               or exists (select from pg_constraint n where n.conrelid = w.relation and not n.convalidated)
               or exists (select from pg_class c where c.oid = w.relation and (c.relhassubclass or c.relhasrules))
               or exists (select from pg_trigger g left join pg_constraint f on f.oid = g.tgconstraint and g.tgisinternal
                          where g.tgrelid = w.relation and g.tgenabled <> 'D' and case
                              when g.tgisinternal then (w.op in ('I', 'D') or w.is_moved) and f.confrelid = w.relation
                                   and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd'))
                                   and not exists (select from countersign.tracked k where k.is_current and k.relation = f.conrelid)
                              -- Those of the write itself, and those that its undo meets.
                              else g.tgname not like '!countersign%' and (g.tgtype & 1 = 0 or g.tgtype & case when w.op in ('I', 'D') then 4 + 8 else 16 end <> 0) end))), false),
           case when bool_and(t.is_log) or bool_or(not t.is_log and t.key_columns is null and w.op <> 'N') then 'irreversible'
                when bool_or(not t.is_log and w.has_secret_change) then 'image_missing' end,
           array_agg(distinct t.name) filter (where t.is_log),
           coalesce(jsonb_object_agg(w.relation::text, a.columns) filter (where a.columns is not null), '{}')
    into facts
    from (select e.relation, e.shape, e.op, bool_or(e.key_before is not null) as is_moved,
                 bool_or(e.op in ('U', 'D') and e.secret_before is distinct from e.secret_after) as has_secret_change
          from countersign.effect e where e.correlation_id = write group by 1, 2, 3) w
    join countersign.tracked t on t.shape = w.shape
    cross join lateral (select case when w.op = 'U' then countersign.assigned_columns(w.relation)::jsonb end as columns) a;
    return facts;
end $$;
comment on function countersign.facts_of_write(uuid) is 'Of a write in its own transaction, with the rights of the caller.';

create function countersign.try_undo(write uuid, evidence jsonb, path text) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    net        countersign.net_change[] := array(select w from countersign.net_changes(array[write]) w);
    last       bigint;
    conflicts  json[];
    outcome    json;
begin
    if cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', 0);
    elsif cardinality(net) > 10000 then
        return null;
    end if;
    conflicts := countersign.undo_conflicts(array[write], net, false, path);
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts));
    end if;
    select max(e.position) into last from countersign.effect e where e.correlation_id = write;
    begin
        outcome := countersign.restore_rows(array[write], net, write, last, evidence, path);
        raise exception 'it was a trial' using errcode = 'CS006';
    exception
        when sqlstate 'CS006' then
            return outcome;
        -- Others are in the way for now.
        when lock_not_available or transaction_rollback then
            return null;
    end;
end $$;
comment on function countersign.try_undo(uuid, jsonb, text) is
    'Undoes a write within its own transaction, and takes that back: what `undo` would answer now. Null: it was not tried.';

create function countersign.receipt(said json, facts countersign.write_facts, affected bigint, untracked jsonb, trial json) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    is_declared  boolean := coalesce(said ->> 'undo_tool' <> 'undo_mutation', false);
    is_seen      boolean := facts.has_effects or affected = 0 and untracked is null;
    reason       text := coalesce(facts.reason, case when not is_seen then 'image_missing' end, trial -> 'conflicts' -> 0 ->> 'code');
    others       text[];
    receipt      jsonb;
begin
    if said is null or said ->> 'reversible' <> 'true' then
        return said;
    end if;
    others := array(select n from (select countersign.table_name(u.key::oid) as n from jsonb_each(untracked) u
                                   union select unnest(facts.logs)
                                   union select json_array_elements_text(trial -> 'written')) o where n is not null order by 1);
    if said ->> 'undo_tool' is null then
        return said;
    elsif reason is not null and not is_declared then
        return json_build_object('reversible', false, 'checked', true, 'reason', reason, 'note',
            case reason
                when 'image_missing' then case when is_seen then 'It cannot be undone: it changed a sensitive column, whose values are not on record.'
                                               else 'It cannot be undone: its tables are not tracked (countersign track).' end
                when 'irreversible' then 'It cannot be undone: it wrote a table without a key, or only log tables.'
                else concat('It cannot be undone as its tables are: ', coalesce(trial -> 'conflicts' -> 0 ->> 'message', reason), '.') end);
    end if;
    receipt := said::jsonb || jsonb_build_object('checked', facts.has_effects and reason is null or affected = 0 and is_seen);
    -- Triggers changed or deleted rows that nobody has recorded, or the write was too large to be tried.
    if exists (select from jsonb_each(untracked) u where u.value ->> 1 <> '0' or u.value ->> 2 <> '0') or facts.needs_trial and trial is null and reason is null then
        receipt := receipt || '{"checked": false}';
    end if;
    return json_strip_nulls(json_build_object(
        'reversible', true, 'undo_tool', receipt -> 'undo_tool', 'undo_params', receipt -> 'undo_params', 'undo_calls', receipt -> 'undo_calls',
        'checked', receipt -> 'checked', 'reason', reason, 'not_restored', case when others <> '{}' then to_json(others) end,
        'set_by_triggers', trial -> 'set_again' -> 'columns', 'note', receipt -> 'note'));
end $$;
comment on function countersign.receipt(json, countersign.write_facts, bigint, jsonb, json) is
    'How a write can be undone: what its tool says, as far as it is so.';

create function countersign.evidence_of_undo(evidence jsonb, undone uuid[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    before  jsonb := countersign.evidence_of(undone) -> 'assigned';
begin
    if undone is null or evidence -> 'assigned' is null or before is null then
        return evidence;
    end if;
    -- The undo has set the columns of triggers as well; they are still theirs.
    return jsonb_set(evidence, '{assigned}', (
        select jsonb_object_agg(n.key, case when before ? n.key then (
                   select coalesce(jsonb_agg(c), '[]') from jsonb_array_elements(n.value) c where before -> n.key @> c) else n.value end)
        from jsonb_each(evidence -> 'assigned') n));
end $$;
comment on function countersign.evidence_of_undo(jsonb, uuid[]) is 'The evidence of a write; if it is an undo: a column that only triggers set in the write is none that the undo set.';
