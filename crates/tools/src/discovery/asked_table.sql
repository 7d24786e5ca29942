-- $1: the schema, or null for any; $2: the table, alone or behind its schema, quoted or not. More than one is too many
-- already; the limit also tells the planner that what follows is cheap, or it would compile it first (JIT) for seconds.
, asked as (
    select * from relation
    where ($1::text is null or schema_name = $1)
      and $2 in (name, pg_catalog.quote_ident(name), schema_name || '.' || name, pg_catalog.format('%I.%I', schema_name, name))
    order by schema_name limit 8
)
