, key as (
    -- Constraints and foreign keys to here, with the names of their columns: only those whose columns may all be read.
    select con.oid, con.conname::text as name, con.contype, con.conrelid, con.confrelid, con.confupdtype,
           con.confdeltype, own.names as columns, other.names as other_columns
    from pg_catalog.pg_constraint con
    cross join lateral (
        select coalesce(pg_catalog.array_agg(field.name order by k.place), '{}') as names
        from pg_catalog.unnest(con.conkey) with ordinality k (attnum, place)
        join field on field.attrelid = con.conrelid and field.attnum = k.attnum) own
    cross join lateral (
        select coalesce(pg_catalog.array_agg(field.name order by k.place), '{}') as names
        from pg_catalog.unnest(con.confkey) with ordinality k (attnum, place)
        join field on field.attrelid = con.confrelid and field.attnum = k.attnum) other
    where (con.conrelid in (select oid from asked) or con.confrelid in (select oid from asked))
      and (pg_catalog.has_table_privilege(con.conrelid, 'select')
           or pg_catalog.cardinality(own.names) = coalesce(pg_catalog.cardinality(con.conkey), 0))
      and pg_catalog.cardinality(other.names) = coalesce(pg_catalog.cardinality(con.confkey), 0)
      -- A foreign key to a partitioned table has a copy for each partition.
      and not exists (select from pg_catalog.pg_constraint parent
                      where parent.oid = con.conparentid
                        and (parent.conrelid = con.conrelid or con.confrelid in (select oid from asked)))
), action (code, name) as (
    values ('c'::"char", 'cascade'), ('n', 'set null'), ('d', 'set default'), ('r', 'restrict')
)
select asked.schema_name as schema, asked.name, asked.kind, asked.comment,
       sized.estimated_rows, sized.size_bytes,
       (select pg_catalog.format('%I.%I', parent.schema_name, parent.name) from pg_catalog.pg_inherits i
        join relation parent on parent.oid = i.inhparent
        where i.inhrelid = asked.oid and asked.relispartition) as partition_of,
       case when asked.relkind = 'p' then pg_catalog.pg_get_partkeydef(asked.oid) end as partitioned_by,
       (select coalesce(pg_catalog.json_agg(one order by one.attnum), '[]')
        from (select field.attnum, field.name, pg_catalog.format_type(field.atttypid, field.atttypmod) as type,
                     not (field.attnotnull or t.typnotnull) as nullable,
                     case when field.attgenerated = '' then pg_catalog.pg_get_expr(d.adbin, d.adrelid) end as default,
                     case when field.attgenerated <> '' then pg_catalog.pg_get_expr(d.adbin, d.adrelid) end as generated,
                     case field.attidentity when 'a' then 'always' when 'd' then 'by default' end as identity,
                     -- Of the enum itself, of a domain over it, of an array of it.
                     (select pg_catalog.array_agg(label.name order by label.place)
                      from (select e.enumlabel::text as name, e.enumsortorder as place from pg_catalog.pg_enum e
                            where e.enumtypid in (t.oid, t.typbasetype, t.typelem)
                            order by e.enumsortorder limit 100) label) as enum_labels,
                     stats.most_common_values, stats.range,
                     pg_catalog.left(field.comment, 1000) as comment
              from field
              -- pg_stats has the columns that may be read, and none of a table with row level security.
              left join lateral (
                  select (select pg_catalog.array_agg(pg_catalog.left(common.value, 100) order by common.place)
                          from pg_catalog.unnest(s.most_common_vals::text::text[]) with ordinality common (value, place)
                          where common.place <= 10) as most_common_values,
                         (select array[pg_catalog.left(bound.all_of[1], 100),
                                       pg_catalog.left(bound.all_of[pg_catalog.cardinality(bound.all_of)], 100)]
                          from (select s.histogram_bounds::text::text[] as all_of) bound
                          where pg_catalog.cardinality(bound.all_of) > 0) as range
                  from pg_catalog.pg_stats s
                  where s.schemaname = asked.schema_name and s.tablename = asked.name and s.attname = field.name
                  order by s.inherited desc limit 1) stats on true
              join pg_catalog.pg_type t on t.oid = field.atttypid
              left join pg_catalog.pg_attrdef d on d.adrelid = field.attrelid and d.adnum = field.attnum
              where field.attrelid = asked.oid) one) as columns,
       case when asked.relkind in ('v', 'm')
            then pg_catalog.left(pg_catalog.pg_get_viewdef(asked.oid, true), 10000) end as view_sql,
       pg_catalog.row_security_active(asked.oid) as row_security,
       (select coalesce(pg_catalog.json_agg(one order by one.name), '[]')
        from (select p.polname::text as name, p.polpermissive as permissive,
                     -- Conditions may name columns that may not be read.
                     case when pg_catalog.has_table_privilege(asked.oid, 'select')
                          then pg_catalog.pg_get_expr(p.polqual, p.polrelid) end as condition
              from pg_catalog.pg_policy p
              where p.polrelid = asked.oid and p.polcmd in ('r', '*') and pg_catalog.row_security_active(asked.oid)
                and exists (select from pg_catalog.unnest(p.polroles) role (oid)
                            where role.oid = 0 or pg_catalog.pg_has_role(role.oid, 'usage'))) one) as policies,
       (select pg_catalog.row_to_json(one)
        from (select key.name, key.columns from key
              where key.conrelid = asked.oid and key.contype = 'p') one) as primary_key,
       (select coalesce(pg_catalog.json_agg(one order by one.name), '[]')
        from (select key.name, key.columns from key
              where key.conrelid = asked.oid and key.contype = 'u') one) as unique_keys,
       (select coalesce(pg_catalog.json_agg(one order by one.name), '[]')
        from (select key.name, key.columns, pg_catalog.format('%I.%I', other.schema_name, other.name) as table,
                     key.other_columns, on_update.name as on_update, on_delete.name as on_delete
              from key join relation other on other.oid = key.confrelid
              left join action on_update on on_update.code = key.confupdtype
              left join action on_delete on on_delete.code = key.confdeltype
              where key.conrelid = asked.oid and key.contype = 'f') one) as foreign_keys,
       (select coalesce(pg_catalog.json_agg(one order by one.table, one.name), '[]')
        from (select key.name, key.other_columns as columns, pg_catalog.format('%I.%I', other.schema_name, other.name) as table,
                     key.columns as other_columns, on_update.name as on_update, on_delete.name as on_delete
              from key join relation other on other.oid = key.conrelid
              left join action on_update on on_update.code = key.confupdtype
              left join action on_delete on on_delete.code = key.confdeltype
              where key.confrelid = asked.oid and key.contype = 'f'
              order by 3, 1 limit 100) one) as referenced_by,
       (select coalesce(pg_catalog.json_agg(one order by one.name), '[]')
        from (select key.name, pg_catalog.pg_get_constraintdef(key.oid) as definition from key
              where key.conrelid = asked.oid and key.contype in ('c', 'x')) one) as checks,
       (select coalesce(pg_catalog.json_agg(one order by one.name), '[]')
        from (select c.relname::text as name, i.indisunique as unique, pg_catalog.pg_get_indexdef(c.oid) as definition
              from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
              where i.indrelid = asked.oid
                and not exists (select from pg_catalog.pg_constraint con
                                where con.conindid = i.indexrelid and con.contype in ('p', 'u', 'x'))
                and (pg_catalog.has_table_privilege(i.indrelid, 'select')
                     -- Expressions and conditions may name columns that may not be read.
                     or (i.indexprs is null and i.indpred is null
                         and not exists (select from pg_catalog.unnest(i.indkey) k (attnum)
                                         where pg_catalog.has_column_privilege(i.indrelid, k.attnum, 'select')
                                               is not true)))) one) as indexes,
       (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(n.nspname, c.relname)), '[]')
        from part join pg_catalog.pg_class c on c.oid = part.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        join unnest($3::text[], $4::text[]) tool (schema_name, name)
          on tool.schema_name = n.nspname and tool.name = c.relname
        where part.root = asked.oid) as touched,
       (select pg_catalog.count(*) > 100 from key join relation other on other.oid = key.conrelid
        where key.confrelid = asked.oid and key.contype = 'f')
       or exists (select from field join pg_catalog.pg_type t on t.oid = field.atttypid
                  join pg_catalog.pg_enum e on e.enumtypid in (t.oid, t.typbasetype, t.typelem)
                  where field.attrelid = asked.oid group by field.attnum having pg_catalog.count(*) > 100) as truncated
from asked left join sized using (oid)
order by asked.name <> $2, asked.schema_name
