-- $1: the name to look for; null: all. Names of about that length, the most likely ones first, since very many are cut off.
select oid::bigint as oid, schema_name, name, pg_catalog.format('%I.%I', schema_name, name) as shown,
       not pg_catalog.has_table_privilege(oid, 'select') as partly
from relation, lateral (select pg_catalog.abs(pg_catalog.length(name) - pg_catalog.length($1::text)) as difference) at
where difference is null or difference <= 32
order by relispartition, difference, schema_name, name
