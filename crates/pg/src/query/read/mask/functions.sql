-- The functions of the names $1 outside of pg_catalog that may read tables: those in an interpreted language that are not
-- declared IMMUTABLE, and aggregates, whose parts are functions. No name depends on the search path.
select n.nspname, p.proname
from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) p.pronamespace
    join pg_catalog.pg_language l on l.oid operator(pg_catalog.=) p.prolang
where p.proname operator(pg_catalog.=) any ($1::pg_catalog.name[])
    and n.nspname operator(pg_catalog.<>) 'pg_catalog'
    -- Policies of row level security call these. They read nothing of others.
    and not (n.nspname operator(pg_catalog.=) 'countersign' and p.proname operator(pg_catalog.=) any ('{account,claim}'::pg_catalog.name[]))
    and (p.prokind operator(pg_catalog.=) 'a'
         or l.lanname operator(pg_catalog.<>) all ('{c,internal}'::pg_catalog.name[])
            and p.provolatile operator(pg_catalog.<>) 'i')
