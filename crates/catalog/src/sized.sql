-- Rows and bytes of the relations in `asked (oid)`, which stands before this; those of a partitioned table are those of
-- its partitions.
, part as (
    select oid as root, oid from asked
    union all
    select part.root, i.inhrelid
    from part
    join pg_catalog.pg_inherits i on i.inhparent = part.oid
    join pg_catalog.pg_class c on c.oid = i.inhrelid and c.relispartition
), locked as (
    -- Looking at a size waits for whoever changes the table. Nobody should wait for a size.
    select coalesce(i.indrelid, l.relation) as oid
    from pg_catalog.pg_locks l left join pg_catalog.pg_index i on i.indexrelid = l.relation
    where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
), sized as (
    select part.root as oid,
           -- Below zero: neither VACUUM nor ANALYZE has seen it yet.
           pg_catalog.sum(case when c.reltuples >= 0 then c.reltuples
                               else nullif(pg_catalog.pg_stat_get_live_tuples(c.oid), 0) end)::bigint as estimated_rows,
           case when not pg_catalog.bool_or(c.oid in (select locked.oid from locked))
                then pg_catalog.sum(case when c.oid not in (select locked.oid from locked)
                                         then pg_catalog.pg_total_relation_size(c.oid) end)::bigint end as size_bytes
    from part join pg_catalog.pg_class c on c.oid = part.oid
    where c.relkind in ('r', 'm')
    group by part.root
)
