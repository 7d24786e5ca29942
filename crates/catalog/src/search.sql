-- $1: a LIKE pattern; $2: one schema, or null for all; $3: how many tables and how many columns at the most; $4, $5 and $6:
-- schema, table and (null for the table itself) column of the notes that the word stands in.
, noted as (
    select * from unnest($4::text[], $5::text[], $6::text[]) note (schema_name, table_name, column_name)
), scope as (
    select * from relation where not relispartition and ($2::text is null or schema_name = $2)
), found_table as (
    select scope.schema_name as schema, scope.name, scope.kind, pg_catalog.left(scope.comment, 200) as comment,
           pg_catalog.row_number() over (order by not in_name, schema_name, name) as place
    from scope, lateral (select scope.name ilike $1 collate "default" as in_name) named
    where in_name or scope.comment ilike $1 collate "default"
       or exists (select from noted where (schema_name, table_name) = (scope.schema_name, scope.name) and column_name is null)
), found_column as (
    select scope.schema_name as schema, scope.name as table, field.name,
           pg_catalog.format_type(field.atttypid, field.atttypmod) as type,
           pg_catalog.left(field.comment, 200) as comment,
           pg_catalog.row_number() over (order by not in_name, schema_name, scope.name, attnum) as place
    from scope join field on field.attrelid = scope.oid,
         lateral (select field.name ilike $1 collate "default" as in_name) named
    where in_name or field.comment ilike $1 collate "default"
       -- A value of an enum, of a domain over one, or of an array of one.
       or exists (select from pg_catalog.pg_type t join pg_catalog.pg_enum e on e.enumtypid in (t.oid, t.typbasetype, t.typelem)
                  where t.oid = field.atttypid and e.enumlabel::text ilike $1 collate "default")
       or (scope.schema_name, scope.name, field.name) in (select schema_name, table_name, column_name from noted)
)
select (select coalesce(pg_catalog.json_agg(found_table order by place), '[]') from found_table where place <= $3::int) as tables,
       (select coalesce(pg_catalog.json_agg(found_column order by place), '[]') from found_column where place <= $3::int) as columns,
       exists (select from found_table where place > $3::int) or exists (select from found_column where place > $3::int) as truncated
