select oid::bigint as oid, schema_name, name, pg_catalog.format('%I.%I', schema_name, name) as shown
from relation order by relispartition, schema_name, name
