, changed (start, action, oid, updates, deletes) as (
    -- As the ledger's coverage: an UPDATE counts as one of the key.
    select r.oid, action.name, r.oid, action.name = 'update', action.name = 'delete'
    from relation r cross join (values ('update'), ('delete')) action (name)
    where r.relkind in ('r', 'p') and not r.relispartition
    union
    select t.start, t.action, coalesce(pg_partition_root(f.conrelid)::oid, f.conrelid),
           t.updates and f.confupdtype in ('c', 'n', 'd') or t.deletes and f.confdeltype in ('n', 'd'),
           t.deletes and f.confdeltype = 'c'
    from changed t join pg_constraint f on f.confrelid = t.oid and f.contype = 'f' and f.conparentid = 0
    where t.updates and f.confupdtype in ('c', 'n', 'd') or t.deletes and f.confdeltype in ('c', 'n', 'd')
)
select distinct r.relname::text as name, t.action, format('%I.%I', n.nspname, c.relname) as follower,
       exists (select from key_index i where i.indrelid = t.oid) as has_key
from changed t join relation r on r.oid = t.start
join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
where t.oid <> t.start
order by 1, 2, 3
