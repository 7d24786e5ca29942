select space.name, pg_catalog.left(space.comment, 300) as comment,
       (select pg_catalog.count(*) from listed where schema_name = space.name) as table_count,
       (select coalesce(pg_catalog.json_agg(one order by one.place), '[]')
        from (select listed.place, listed.name, listed.kind, sized.estimated_rows, sized.size_bytes,
                     pg_catalog.left(listed.comment, 300) as comment
              from listed left join sized using (oid)
              where listed.schema_name = space.name and listed.place <= $2::int) one) as tables,
       (select coalesce(pg_catalog.array_agg(listed.name order by listed.place), '{}')
        from listed where listed.schema_name = space.name and listed.place <= $3::int) as table_names
from space
where $1::text is null or space.name = $1
order by space.name
