-- $1: the message of PostgreSQL that a value is none of an enum, which quotes the enum's name as it is written here.
select e.name, (select pg_catalog.array_agg(label.name order by label.place)
                from (select l.enumlabel::text as name, l.enumsortorder as place from pg_catalog.pg_enum l
                      where l.enumtypid = e.oid order by l.enumsortorder limit 100) label) as labels
from (select t.oid, pg_catalog.format_type(t.oid, null) as name from pg_catalog.pg_type t
      where t.typtype = 'e' and pg_catalog.has_type_privilege(t.oid, 'usage')
        and pg_catalog.has_schema_privilege(t.typnamespace, 'usage')) e
where pg_catalog.strpos($1::text, ' ' || e.name || ': "') > 0
order by pg_catalog.length(e.name) desc
limit 1
