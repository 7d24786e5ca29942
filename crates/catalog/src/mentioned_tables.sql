-- $1: words, in lower case.
select oid::bigint as oid, schema_name, name, pg_catalog.format('%I.%I', schema_name, name) as shown,
       not pg_catalog.has_table_privilege(oid, 'select') as partly
from relation
where pg_catalog.lower(name) = any ($1::text[])
order by relispartition, schema_name, name limit 20
