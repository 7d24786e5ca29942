-- The masked columns of the arrays $1 (schemas), $2 (tables) and $3 (columns), with those of partitions and child tables:
-- for each its place in the arrays, from 1, the relation, the number of the column, and whether its type is text. The
-- number is null if there is no such column. And the rules (of views) that use one of these relations, with their
-- versions. No name depends on the search path.
with recursive
    masked as (
        select m.place, m.column_name, c.oid as relation
        from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
                        pg_catalog.unnest($3::pg_catalog.text[]))
                with ordinality as m (schema_name, table_name, column_name, place)
            left join pg_catalog.pg_namespace n
                on n.nspname operator(pg_catalog.=) m.schema_name::pg_catalog.name
            left join pg_catalog.pg_class c
                on c.relnamespace operator(pg_catalog.=) n.oid
                and c.relname operator(pg_catalog.=) m.table_name::pg_catalog.name
    ),
    reached as (
        select place, column_name, relation from masked
        union
        select r.place, r.column_name, i.inhrelid
        from reached r join pg_catalog.pg_inherits i on i.inhparent operator(pg_catalog.=) r.relation
    )
select pg_catalog.json_build_object(
    'server_version', pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
    'rules', (
        select pg_catalog.json_agg(distinct pg_catalog.concat(w.oid, ':', w.xmin))
        from reached r
            join pg_catalog.pg_depend d
                on d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                and d.refobjid operator(pg_catalog.=) r.relation
                and d.classid operator(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass
            join pg_catalog.pg_rewrite w on w.oid operator(pg_catalog.=) d.objid),
    'columns', (
        select pg_catalog.json_agg(pg_catalog.json_build_object(
            'place', r.place, 'oid', c.oid::pg_catalog.int8, 'schema', n.nspname, 'table', c.relname, 'kind', c.relkind,
            'number', a.attnum, 'is_text', t.typcategory operator(pg_catalog.=) 'S'))
        from reached r
            left join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) r.relation
            left join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
            left join pg_catalog.pg_attribute a
                on a.attrelid operator(pg_catalog.=) c.oid
                and a.attname operator(pg_catalog.=) r.column_name::pg_catalog.name
                and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped
            left join pg_catalog.pg_type t on t.oid operator(pg_catalog.=) a.atttypid))
