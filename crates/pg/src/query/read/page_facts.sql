-- What the catalog has about the tables $1, of which the columns $2 (at the same places) are sorted by: one row for each
-- table with rows of its own or partitions.
--
-- * The unique keys: indexes of all rows over columns, none of which is NULL, that tell apart what ORDER BY does. So
--   their operator classes and collations are those of the columns by default.
-- * The partitions that have rows, with their schemas.
-- * The columns: whether each is NOT NULL, and its collation as EXPLAIN shows it in a sort key.
with sorted as (
    select * from unnest($1::oid[], $2::int2[]) s (relation, number)
)
select c.oid, pg_catalog.json_build_array(n.nspname, c.relname),
    (select coalesce(json_agg(to_json((i.indkey::int2[])[0:i.indnkeyatts - 1])), '[]')
     from pg_index i
     where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate and not i.indisexclusion
        and i.indpred is null and i.indexprs is null
        and not exists (
            select from generate_series(0, i.indnkeyatts - 1) k
                join pg_opclass o on o.oid = i.indclass[k]
                left join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[k]
            where not o.opcdefault or a.attnum is null or not a.attnotnull or a.attcollation <> i.indcollation[k]
                or exists (select from pg_constraint v
                           where v.conrelid = c.oid and v.contype = 'n' and not v.convalidated
                               and v.conkey = array[a.attnum]))),
    (select coalesce(json_agg(json_build_array(ln.nspname, l.relname)), '[]')
     from pg_partition_tree(case when c.relkind = 'p' then c.oid end) t
        join pg_class l on l.oid = t.relid
        join pg_namespace ln on ln.oid = l.relnamespace
     where t.isleaf),
    (select json_agg(json_build_array(a.attnum, a.attnotnull,
                case when a.attcollation in (0, t.typcollation) then '' else ' COLLATE ' || a.attcollation::regcollation end))
     from pg_attribute a
        join pg_type t on t.oid = a.atttypid
     where a.attrelid = c.oid and a.attnum in (select s.number from sorted s where s.relation = c.oid))
from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
where c.oid in (select s.relation from sorted s) and c.relkind in ('r', 'p', 'm')
