-- $1: one schema, or null for all; $2: of how many tables to say more than the name; $3: how many to name. The smallest
-- schemas come first, so that most schemas are complete. Partitions are left out: their table is here.
, counted as (
    select relation.*, pg_catalog.count(*) over (partition by schema_name) as total
    from relation where not relispartition and ($1::text is null or schema_name = $1)
), listed as (
    select counted.*, pg_catalog.row_number() over (order by total, schema_name, name) as place from counted
), asked as (
    select oid from listed where place <= $2::int
)
