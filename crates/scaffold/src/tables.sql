, chain (start, oid, typmod, depth) as (
    -- The types below each domain.
    select distinct a.atttypid, a.atttypid, -1, 0
    from relation r join pg_attribute a on a.attrelid = r.oid where a.attnum > 0 and not a.attisdropped
    union all
    select chain.start, t.typbasetype, t.typtypmod, chain.depth + 1
    from chain join pg_type t on t.oid = chain.oid where t.typtype = 'd'
), base as (
    select distinct on (start) start, oid, typmod from chain order by start, depth desc
), field as (
    select a.attrelid, a.attnum, a.attname::text as name, quote_ident(a.attname) as sql_name,
           format_type(base.oid, -1) as type,
           case when b.typtype = 'e' then 'enum'
                when b.typname = 'citext' then 'text'
                when b.typnamespace <> 'pg_catalog'::regnamespace then 'other'
                when b.typname in ('text', 'varchar') then 'text'
                when b.typname in ('int2', 'int4', 'int8') then 'integer'
                when b.typname in ('float4', 'float8', 'numeric') then 'number'
                when b.typname = 'bool' then 'boolean'
                when b.typname = 'bytea' then 'bytes'
                else 'other' end as kind,
           case when b.typname in ('varchar', 'bpchar') and length.typmod > 4 then length.typmod - 4 end as max_length,
           case when b.typname = 'numeric' and length.typmod >= 4
                then greatest((((length.typmod - 4) & 2047) # 1024) - 1024, 0) end as scale,
           a.attnotnull or exists (select from chain join pg_type d on d.oid = chain.oid
                                   where chain.start = a.atttypid and d.typtype = 'd' and d.typnotnull) as not_null,
           case when a.attgenerated = '' then coalesce(
               (select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d
                where d.adrelid = a.attrelid and d.adnum = a.attnum),
               (select pg_get_expr(t.typdefaultbin, 0) from chain join pg_type t on t.oid = chain.oid
                where chain.start = a.atttypid and t.typtype = 'd' and t.typdefaultbin is not null
                order by chain.depth limit 1)) end as default,
           exists (select from pg_type d where d.oid = a.atttypid and d.typtype = 'd') as is_domain,
           a.attidentity <> '' as is_identity, a.attgenerated <> '' as is_generated,
           has_column_privilege(a.attrelid, a.attnum, 'select') as is_readable,
           col_description(a.attrelid, a.attnum) as comment,
           array(select pg_get_expr(con.conbin, 0) from pg_constraint con join chain on chain.oid = con.contypid
                 where chain.start = a.atttypid and con.contype = 'c' order by chain.depth desc, con.conname) as checks
    from pg_attribute a join relation r on r.oid = a.attrelid
    join base on base.start = a.atttypid join pg_type b on b.oid = base.oid
    cross join lateral (select case when base.oid = a.atttypid then a.atttypmod else base.typmod end as typmod) length
    where a.attnum > 0 and not a.attisdropped
)
select r.relname::text as name, quote_ident(r.relname) as quoted, r.sql_name,
       case when r.relkind in ('v', 'm') then 'view' when r.relkind = 'f' then 'foreign' when r.relispartition then 'partition'
            else 'table' end as kind,
       -- The rows of a table that inherits are others, although a statement on its parent finds them.
       exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
               where i.inhparent = r.oid and not c.relispartition) as is_inherited,
       (select e.extname::text from pg_depend d join pg_extension e on e.oid = d.refobjid
        where d.classid = 'pg_class'::regclass and d.objid = r.oid and d.deptype = 'e'
          and d.refclassid = 'pg_extension'::regclass limit 1) as extension,
       obj_description(r.oid, 'pg_class') as comment,
       (select coalesce(json_agg(field order by field.attnum), '[]') from field where field.attrelid = r.oid) as columns,
       (select coalesce(json_agg(json_build_object('name', a.attname, 'operator', equal.operator) order by k.n), '[]')
        from key_index i cross join unnest(i.attnums, i.classes) with ordinality k (attnum, class, n)
        join pg_attribute a on a.attrelid = r.oid and a.attnum = k.attnum
        -- The session finds only PostgreSQL's own operators by their name alone.
        left join lateral (
            select case when o.oprnamespace = 'pg_catalog'::regnamespace then o.oprname
                        else format('operator(%I.%s)', n.nspname, o.oprname) end as operator
            from pg_opclass oc join pg_am m on m.oid = oc.opcmethod and m.amname = 'btree'
            join pg_amop ao on ao.amopfamily = oc.opcfamily and ao.amopstrategy = 3
              and ao.amoplefttype = oc.opcintype and ao.amoprighttype = oc.opcintype
            join pg_operator o on o.oid = ao.amopopr join pg_namespace n on n.oid = o.oprnamespace
            where oc.oid = k.class) equal on true
        where i.indrelid = r.oid and k.n <= i.indnkeyatts) as key,
       (select coalesce(json_agg(one order by one.name), '[]')
        from (select con.conname as name, pg_get_expr(con.conbin, con.conrelid) as expression,
                     array(select a.attname::text from unnest(con.conkey) k (attnum)
                           join pg_attribute a on a.attrelid = r.oid and a.attnum = k.attnum) as columns
              from pg_constraint con where con.conrelid = r.oid and con.contype = 'c'
                and to_jsonb(con) -> 'conenforced' is distinct from 'false') one) as checks,
       (select coalesce(json_agg(one order by one.name), '[]')
        from (select con.conname as name, con.confrelid::regclass::text as table,
                     array(select a.attname::text from unnest(con.conkey) with ordinality k (attnum, n)
                           join pg_attribute a on a.attrelid = r.oid and a.attnum = k.attnum order by k.n) as columns,
                     array(select quote_ident(a.attname) from unnest(con.confkey) with ordinality k (attnum, n)
                           join pg_attribute a on a.attrelid = con.confrelid and a.attnum = k.attnum order by k.n) as target
              from pg_constraint con where con.conrelid = r.oid and con.contype = 'f'
                and not exists (select from pg_constraint parent
                                where parent.oid = con.conparentid and parent.conrelid = con.conrelid)) one) as foreign_keys
from relation r
order by r.relname collate "C"
