-- What marks writes as undone is in no entry of the log; the record of each undo is, with what it undoes. The first mark that is
-- missing, or that no record or entry of the log accounts for.
with undo as materialized (
    select r.correlation_id, r.undo_of, substring(r.idempotency_key from '/([0-9]{1,4})$')::integer as part
    from countersign.record r where r.status = 'success' and r.undo_of is not null
), unaccounted as (
    select v.correlation_id, v.reversed_by from countersign.reversal v
    where not exists (select from undo u where u.correlation_id = v.reversed_by and v.correlation_id = any (u.undo_of))
    union all
    select p.correlation_id, p.reversed_by from countersign.reversal_part p
    where not exists (select from undo u where u.correlation_id = p.reversed_by and p.correlation_id = any (u.undo_of) and p.part = u.part)
), incomplete as (
    select r.correlation_id, v.reversed_by, count(p.part) as parts, json_array_length(r.rollback -> 'undo_calls') as calls
    from countersign.record r
    join countersign.reversal_part p on p.correlation_id = r.correlation_id
    left join countersign.reversal v on v.correlation_id = r.correlation_id
    group by r.correlation_id, v.reversed_by, r.rollback -> 'undo_calls' ->> 0, json_array_length(r.rollback -> 'undo_calls')
)
select f.wrong, f.write::text, f.undo::text from (
    select 'missing' as wrong, w.write, u.correlation_id as undo
    from undo u cross join lateral unnest(u.undo_of) w (write)
    -- With a write that was pruned its marks go as well.
    where exists (select from countersign.record r where r.correlation_id = w.write)
      and case when u.part is null
          then not exists (select from countersign.reversal v where v.correlation_id = w.write and v.reversed_by = u.correlation_id)
          else not exists (select from countersign.reversal_part p
                           where p.correlation_id = w.write and p.part = u.part and p.reversed_by = u.correlation_id) end
    union all
    select 'missing', i.correlation_id, null from incomplete i where i.reversed_by is null and i.parts >= i.calls
    union all
    select 'forged', i.correlation_id, i.reversed_by from incomplete i where i.reversed_by is not null and i.parts < i.calls
    union all
    -- The undo may have been pruned before its write: then the log has its entry.
    select 'forged', a.correlation_id, a.reversed_by from unaccounted a
    where exists (select from countersign.record r where r.correlation_id = a.reversed_by)
       or not exists (select from countersign.leaf l where l.record_id is not null
                      and l.entry like E'%\ncorrelation_id ' || a.reversed_by || E'\nstatus success\n%')
) f order by f.write, f.undo limit 1
