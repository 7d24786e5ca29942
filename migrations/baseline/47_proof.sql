-- What marks a write as undone: the proof that an undo is its inverse. And whether what a write left is still so.
--
-- A comparison before the undo would prove nothing, because triggers and policies run in between. So `finish` reads
-- the recorded effects of the undo itself, with the rights of the ledger. The proof does not depend on a manifest:
-- `track --maintained` declares columns in the ledger. No code of a table's owner runs with these rights.

create function countersign.is_declared_undo(a countersign.attempt, part integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(a.tool_name = c.tool and a.params::jsonb @> c.params - 'idempotency_key', false)
    from countersign.record r
    cross join lateral (
        select coalesce(r.rollback -> 'undo_calls' -> (part - 1) ->> 'tool', case when part is null then r.rollback ->> 'undo_tool' end) as tool,
               coalesce(r.rollback -> 'undo_calls' -> (part - 1) -> 'params', case when part is null then r.rollback -> 'undo_params' end)::jsonb
               as params
    ) c
    where r.correlation_id = a.undo_of[1]
$$;
comment on function countersign.is_declared_undo(countersign.attempt, integer) is
    'Whether the call is the one by which the write said that it is undone, or that part of it.';

create function countersign.prove_inverse(writes uuid[], undos uuid[], is_agreed boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    wrong  json;
    kept   json;
begin
    select d.wrong, d.kept into wrong, kept from countersign.deviations(writes, undos, 0, countersign.evidence_of(writes)) d;
    if wrong is null and not is_agreed and kept is not null then
        wrong := (select json_agg(json_build_object('code', 'side_effects', 'table', k ->> 'table', 'message', format(
                      'its rows that triggers added would stay (%s), and others come (%s): a person may agree to that. If it is a log, declare it '
                      'with --is-log, or else with --not-log (countersign track)', k ->> 'left', k ->> 'added'))) from json_array_elements(kept) k);
    end if;
    if wrong is not null then
        raise exception 'the rows are not what they were before the write' using errcode = 'CS002', detail = wrong::text;
    end if;
end $$;
comment on function countersign.prove_inverse(uuid[], uuid[], boolean) is
    'CS002 unless the recorded effects of undos are the exact inverse of what they undo, but for maintained columns, log tables, and what `deviations` '
    'lets pass: what may be a history only if a person agrees.';

create function countersign.is_single_inverse(undone uuid[], undo uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return cardinality(undone) = 1
       and (select count(*) from (select from countersign.effect e where e.correlation_id = any (undone || undo) limit 3) e) = 2
       and exists (select from countersign.effect d join countersign.effect u on u.correlation_id = undo
                   where d.correlation_id = undone[1] and d.relation = u.relation and d.key = u.key
                     and d.key_before is null and u.key_before is null and d.unchanged is null and u.unchanged is null
                     and (d.before, d.after, d.secret_before, d.secret_after)
                         is not distinct from (u.after, u.before, u.secret_after, u.secret_before));
end $$;
comment on function countersign.is_single_inverse(uuid[], uuid) is
    'Whether a write made one change, and its undo the exact inverse and nothing else: the most frequent case of `prove_inverse`.';

create function countersign.prove_undo(a countersign.attempt) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    part     integer := substring(a.idempotency_key from '/([0-9]{1,4})$');
    undos    uuid[] := array[a.correlation_id];
    undone   json;
begin
    if (select count(*) from countersign.record r
        where r.correlation_id = any (a.undo_of) and r.status = 'success'
          and (a.by_operator or r.account_id = a.account_id
               -- A decision without a proposal: an operator's undo, which only people reverse.
               and not (r.undo_of is not null and r.approval is not null and r.approval -> 'proposal_id' is null)))
       <> cardinality(a.undo_of)
    then
        raise exception 'only successes of the same account that no person made can be undone' using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
    end if;
    select json_agg(countersign.undone_before(v.correlation_id)) into undone from countersign.reversal v where v.correlation_id = any (a.undo_of);
    if undone is not null then
        raise exception 'the write was undone before' using errcode = 'CS002', detail = undone::text;
    end if;
    if part is not null then
        if not countersign.is_declared_undo(a, part) then
            raise exception 'the call is not part % of the undo that the write declares', part
                using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
        end if;
        -- The calls that end together see each other: whichever is the last one marks the write.
        perform from countersign.record r where r.correlation_id = a.undo_of[1] for no key update;
        insert into countersign.reversal_part (correlation_id, part, reversed_by) values (a.undo_of[1], part, a.correlation_id);
        if (select count(*) from countersign.reversal_part p where p.correlation_id = a.undo_of[1])
           < (select json_array_length(r.rollback -> 'undo_calls') from countersign.record r where r.correlation_id = a.undo_of[1])
        then
            return;
        end if;
        undos := array(select p.reversed_by from countersign.reversal_part p where p.correlation_id = a.undo_of[1]);
    end if;
    if part is not null or not countersign.is_single_inverse(a.undo_of, a.correlation_id) then
        if exists (select from countersign.effect e where e.correlation_id = any (a.undo_of)) then
            perform countersign.prove_inverse(a.undo_of, undos, a.by_operator or a.proposal_id is not null);
        end if;
        if part is null and not (cardinality(a.undo_of) = 1 and countersign.is_declared_undo(a, null))
           and exists (select from countersign.record r where r.correlation_id = any (a.undo_of) and r.rows_affected is distinct from 0
                       and not exists (select from countersign.effect e where e.correlation_id = r.correlation_id))
        then
            raise exception 'no effects of the write are on record, and the call is not the undo that it declares'
                using errcode = 'CS002', detail = '[{"code": "image_missing"}]';
        end if;
    end if;
    -- 23505 of reversal_pkey: it was undone meanwhile.
    insert into countersign.reversal (correlation_id, reversed_by) select w, a.correlation_id from unnest(a.undo_of) w;
end $$;
comment on function countersign.prove_undo(countersign.attempt) is
    'Marks the writes of an undo as reversed. CS002 unless its recorded effects are their exact inverse; without effects, unless it is the '
    'call that the write declares.';

create function countersign.seen_rows(write uuid) returns setof countersign.net_change
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    select e.relation, e.shape, e.key, e.after, e.after, e.secret_after, e.secret_after, case when e.erased is not null then 'erased' end, e.position, e.correlation_id
    from countersign.effect e join countersign.tracked t on t.shape = e.shape and not t.is_log
    where e.correlation_id = write and e.op = 'N'
      and not exists (select from countersign.effect o where o.correlation_id = write and o.relation = e.relation and o.key = e.key and o.op <> 'N')
$$;
comment on function countersign.seen_rows(uuid) is 'The rows that a write found as it wanted them, and did not change.';

create function countersign.changed_since(write uuid, path text default pg_catalog.current_setting('search_path')) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    effective_as  uuid := (countersign.reversal_state(write)).effective_as;
begin
    if not exists (select from countersign.effect e where e.correlation_id = effective_as) then
        return null;
    end if;
    return (select c from unnest(countersign.undo_conflicts(array[effective_as], array(
                select w from countersign.net_changes(array[effective_as]) w union all select w from countersign.seen_rows(effective_as) w), false, path)) c
            where c ->> 'code' in ('changed_since', 'deleted_since', 'key_taken') limit 1);
end $$;
comment on function countersign.changed_since(uuid, text) is
    'Compares the rows of a write with what it left, with the rights of the caller: the first that is another now. Null: all are the same, or '
    'no effects are on record.';
