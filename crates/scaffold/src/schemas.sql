select n.nspname::text as name from pg_namespace n
where n.nspname not in ('countersign', 'information_schema') and n.nspname !~ '^pg_' order by 1
