-- The generated columns that are computed from a column of the arrays $1 (schemas), $2 (tables) and $3 (columns), as
-- schema, table, generated column and that column.
select n.nspname, c.relname, g.attname, a.attname
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
                pg_catalog.unnest($3::pg_catalog.text[])) as m (schema_name, table_name, column_name)
    join pg_catalog.pg_namespace n on n.nspname operator(pg_catalog.=) m.schema_name::pg_catalog.name
    join pg_catalog.pg_class c
        on c.relnamespace operator(pg_catalog.=) n.oid
        and c.relname operator(pg_catalog.=) m.table_name::pg_catalog.name
    join pg_catalog.pg_attribute a
        on a.attrelid operator(pg_catalog.=) c.oid
        and a.attname operator(pg_catalog.=) m.column_name::pg_catalog.name
    -- The dependency is of the column itself before PostgreSQL 15, and of its expression from then on.
    join pg_catalog.pg_depend d
        on d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
        and d.refobjid operator(pg_catalog.=) c.oid
        and d.refobjsubid operator(pg_catalog.=) a.attnum::pg_catalog.int4
    left join pg_catalog.pg_attrdef e
        on d.classid operator(pg_catalog.=) 'pg_catalog.pg_attrdef'::pg_catalog.regclass
        and e.oid operator(pg_catalog.=) d.objid and e.adrelid operator(pg_catalog.=) c.oid
    join pg_catalog.pg_attribute g
        on g.attrelid operator(pg_catalog.=) c.oid
        and g.attnum operator(pg_catalog.<>) a.attnum
        and g.attgenerated operator(pg_catalog.<>) ''
        and (g.attnum operator(pg_catalog.=) e.adnum
             or d.classid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                and d.objid operator(pg_catalog.=) c.oid and g.attnum::pg_catalog.int4 operator(pg_catalog.=) d.objsubid)
