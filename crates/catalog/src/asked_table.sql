-- $1: the schema, or null for any; $2: the table, alone or behind its schema, quoted or not; $3 and $4: schemas and names
-- of the tables that tools touch. A table of that very name goes before one that is only written like it. More than one is too many
-- already; the limit also tells the planner that what follows is cheap, or it would compile it first (JIT) for seconds.
, asked as (
    select * from relation
    where ($1::text is null or schema_name = $1)
      and ($2 in (name, pg_catalog.quote_ident(name), schema_name || '.' || name, pg_catalog.format('%I.%I', schema_name, name))
           -- Quoted where it need not be.
           or pg_catalog.replace(pg_catalog.btrim($2), '"', '') in (name, schema_name || '.' || name))
    order by name <> $2, schema_name limit 8
)
