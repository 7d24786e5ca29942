-- $1: a LIKE pattern; $2: one for names that begin like it; $3: how many; $4: the schema, or null for any.
select name from relation
where not relispartition and ($4::text is null or schema_name = $4) and name ilike $1 collate "default"
group by name
order by name not ilike $2 collate "default", name limit $3::int
