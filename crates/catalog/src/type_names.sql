-- $1: the name to look for. Types by both of their names (int4, integer), of about that length; no arrays, no rows of tables.
select named.name, case when n.nspname = 'pg_catalog' then pg_catalog.format_type(t.oid, null)
                        else pg_catalog.format('%I.%I', n.nspname, t.typname) end as shown
from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace
left join pg_catalog.pg_class c on c.oid = t.typrelid
cross join lateral (select t.typname::text as name union select pg_catalog.format_type(t.oid, null)
                    where n.nspname = 'pg_catalog') named
where n.nspname <> 'countersign' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_(toast|temp)'
  and t.typtype <> 'p' and t.typelem = 0 and (c.relkind is null or c.relkind = 'c') and t.typisdefined
  and pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_type_privilege(t.oid, 'usage')
  and pg_catalog.abs(pg_catalog.length(named.name) - pg_catalog.length($1::text)) <= 12
order by n.nspname = 'pg_catalog', n.nspname, t.typname, named.name
