-- $1: what was called. The functions of this name, with their arguments.
select case when n.nspname = 'pg_catalog' then pg_catalog.quote_ident(p.proname)
            else pg_catalog.format('%I.%I', n.nspname, p.proname) end
       || '(' || pg_catalog.pg_get_function_identity_arguments(p.oid) || ')' as shown
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where p.proname = $1::text and n.nspname <> 'countersign' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_(toast|temp)'
  and pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_function_privilege(p.oid, 'execute')
  and p.prokind <> 'p'
order by n.nspname = 'pg_catalog', n.nspname, p.oid
