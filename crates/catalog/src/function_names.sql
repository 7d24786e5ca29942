-- $1: what was called; null: all. Functions, or those with a name of about that length.
select p.proname::text as name,
       case when n.nspname = 'pg_catalog' then pg_catalog.quote_ident(p.proname)
            else pg_catalog.format('%I.%I', n.nspname, p.proname) end as shown
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname <> 'countersign' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_(toast|temp)'
  and pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_function_privilege(p.oid, 'execute')
  and p.prokind <> 'p'
  and ($1::text is null or pg_catalog.abs(pg_catalog.length(p.proname::text) - pg_catalog.length($1::text)) <= 12)
group by n.nspname, p.proname
order by n.nspname = 'pg_catalog', n.nspname, p.proname
