-- What comes behind ($1, $2, $3): 0 and a schema, or 1, a schema and a table in it; $4: how many.
select entry.schema, nullif(entry.name, '') as table, entry.kind
from (select 0 as place, name as schema, '' as name, 'schema' as kind from space
      union all
      select 1, schema_name, name, kind from relation where not relispartition) entry
where entry.place > $1::int
   or (entry.place = $1::int and (entry.schema collate "C", entry.name collate "C") > ($2::text, $3::text))
order by entry.place, entry.schema collate "C", entry.name collate "C"
limit $4::int
