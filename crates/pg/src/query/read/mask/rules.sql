-- A view, as schema and name, whose rule is one of $1 and gives other names to the columns of a table: its `FROM` has
-- `customers as c (a, b)`. A plan shows these names. The text is that of a range table entry of kind 0, a relation.
select n.nspname, c.relname
from pg_catalog.pg_rewrite w
    join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) w.ev_class
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where w.oid operator(pg_catalog.=) any ($1::pg_catalog.oid[])
    and w.ev_action::pg_catalog.text operator(pg_catalog.~)
        ':alias \{ALIAS :aliasname (\\.|[^}\\])* :colnames \((\\.|[^}\\])*\} :eref \{ALIAS (\\.|[^}\\])*\} :rtekind 0 '
limit 1
