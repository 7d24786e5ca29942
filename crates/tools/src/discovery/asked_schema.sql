-- $1: one schema, or null for all; $2: how many tables to list at the most. Partitions are left out: their table is here.
, listed as (
    select relation.*, pg_catalog.row_number() over (order by schema_name, name) as place
    from relation where not relispartition and ($1::text is null or schema_name = $1)
), asked as (
    select oid from listed where place <= $2::int
)
