-- $1: the tables.
select field.name, pg_catalog.quote_ident(field.name) as shown,
       pg_catalog.format('%I.%I', relation.schema_name, relation.name) as table
from field join relation on relation.oid = field.attrelid
where relation.oid = any ($1::pg_catalog.oid[])
order by pg_catalog.array_position($1::pg_catalog.oid[], relation.oid), field.attnum
