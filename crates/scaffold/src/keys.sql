with recursive space as (
    -- $1: the schema.
    select n.oid, n.nspname from pg_namespace n where n.nspname = $1
), relation as (
    select c.oid, c.relname, c.relkind, c.relispartition, c.relpersistence, format('%I.%I', n.nspname, c.relname) as sql_name
    from pg_class c join space n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'f', 'v', 'm')
), key_index as (
    -- The key by which the ledger finds a row again: as countersign.key_columns.
    select distinct on (x.indrelid) x.indrelid, x.indexrelid, x.indkey::int2[] as attnums, x.indclass::oid[] as classes,
           x.indnkeyatts
    from pg_index x
    where x.indisunique and x.indisvalid and x.indimmediate and x.indpred is null and x.indexprs is null
      and not exists (select from pg_attribute b
                      where b.attrelid = x.indrelid and b.attnum = any (x.indkey) and not b.attnotnull)
    order by x.indrelid, x.indisprimary desc, x.indnkeyatts, x.indexrelid
)
