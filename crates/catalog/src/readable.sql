-- What the reader's login may read, without the system's schemas and the ledger. It stands in front of every question
-- about tables, and has no parameters, so that those of the question begin with $1.
with recursive space as (
    select n.oid, n.nspname::text as name, pg_catalog.obj_description(n.oid, 'pg_namespace') as comment
    from pg_catalog.pg_namespace n
    where n.nspname <> 'countersign' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
      and pg_catalog.has_schema_privilege(n.oid, 'usage')
), relation as (
    select c.oid, space.name as schema_name, c.relname::text as name, c.relkind, c.relispartition,
           pg_catalog.obj_description(c.oid, 'pg_class') as comment,
           case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'f' then 'foreign table'
                          when 'v' then 'view' else 'materialized view' end as kind
    from pg_catalog.pg_class c join space on space.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'f', 'v', 'm')
      -- True for a right on the whole table as well.
      and pg_catalog.has_any_column_privilege(c.oid, 'select')
), field as not materialized (
    select a.attrelid, a.attnum, a.attname::text as name, a.atttypid, a.atttypmod, a.attnotnull, a.attidentity,
           a.attgenerated, pg_catalog.col_description(a.attrelid, a.attnum) as comment
    from pg_catalog.pg_attribute a
    where a.attnum > 0 and not a.attisdropped and pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'select')
)
