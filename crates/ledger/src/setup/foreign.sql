-- What in the schema `countersign` could run, or belongs to, another user: a line of text for each such thing. $1: the roles that
-- may own it.
with trusted as (
    select r.oid from pg_roles r where r.rolname = any ($1::name[])
), space as (
    select n.oid, n.nspowner, n.nspacl from pg_namespace n where n.nspname = 'countersign'
), owned (class, object, owner) as (
    select 'pg_class'::regclass, c.oid, c.relowner from pg_class c join space s on s.oid = c.relnamespace
    union all select 'pg_proc'::regclass, p.oid, p.proowner from pg_proc p join space s on s.oid = p.pronamespace
    union all select 'pg_type'::regclass, t.oid, t.typowner from pg_type t join space s on s.oid = t.typnamespace
    union all select 'pg_operator'::regclass, o.oid, o.oprowner from pg_operator o join space s on s.oid = o.oprnamespace
    union all select 'pg_collation'::regclass, c.oid, c.collowner from pg_collation c join space s on s.oid = c.collnamespace
    union all select 'pg_conversion'::regclass, c.oid, c.conowner from pg_conversion c join space s on s.oid = c.connamespace
    union all select 'pg_opclass'::regclass, o.oid, o.opcowner from pg_opclass o join space s on s.oid = o.opcnamespace
    union all select 'pg_opfamily'::regclass, o.oid, o.opfowner from pg_opfamily o join space s on s.oid = o.opfnamespace
    union all select 'pg_ts_config'::regclass, t.oid, t.cfgowner from pg_ts_config t join space s on s.oid = t.cfgnamespace
    union all select 'pg_ts_dict'::regclass, t.oid, t.dictowner from pg_ts_dict t join space s on s.oid = t.dictnamespace
    union all select 'pg_statistic_ext'::regclass, e.oid, e.stxowner from pg_statistic_ext e join space s on s.oid = e.stxnamespace
), tables as (
    select c.oid, c.relname from pg_class c join space s on s.oid = c.relnamespace where c.relkind in ('r', 'v', 'm', 'p', 'f')
), parts (class, object, name) as (
    -- What PostgreSQL evaluates when a table of ours is read or written.
    select 'pg_constraint'::regclass, o.oid, format('constraint %I of countersign.%I', o.conname, t.relname)
    from pg_constraint o join tables t on t.oid = o.conrelid
    union all
    select 'pg_attrdef'::regclass, d.oid, format('default of countersign.%I', t.relname)
    from pg_attrdef d join tables t on t.oid = d.adrelid
    union all
    select 'pg_class'::regclass, i.indexrelid, format('index %s', i.indexrelid::regclass)
    from pg_index i join tables t on t.oid = i.indrelid
), problems (line) as (
    select format('the schema belongs to the role %I', pg_get_userbyid(s.nspowner))
    from space s where s.nspowner not in (select oid from trusted)
    union all
    select format('%s %s belongs to the role %I', what.type, what.identity, pg_get_userbyid(o.owner))
    from owned o cross join lateral pg_identify_object(o.class, o.object, 0) what
    where o.owner not in (select oid from trusted) and what.type not in ('index', 'toast table')
      -- The row type of a table, and the array of a type.
      and not exists (select from pg_type t where o.class = 'pg_type'::regclass and t.oid = o.object
                      and (t.typrelid <> 0 or t.typelem <> 0))
    union all
    select format('the role %s may create objects in the schema',
                  case a.grantee when 0 then 'PUBLIC' else quote_ident(pg_get_userbyid(a.grantee)) end)
    from space s cross join aclexplode(s.nspacl) a
    where a.privilege_type = 'CREATE' and a.grantee not in (select oid from trusted) and a.grantee <> s.nspowner
    union all
    select format('trigger %I of countersign.%I calls %s', g.tgname, t.relname, g.tgfoid::regprocedure)
    from pg_trigger g join tables t on t.oid = g.tgrelid join pg_proc p on p.oid = g.tgfoid
    where not g.tgisinternal and (p.pronamespace <> (select oid from space)
        or p.proname not in ('protect_record', 'protect_effect', 'protect_reversal', 'protect_log', 'protect_proposal', 'protect_approval', 'protect_schema_change',
                              'protect_read_log', 'enqueue_notice', 'check_stale'))
    union all
    select format('rule %I of countersign.%I', r.rulename, t.relname)
    from pg_rewrite r join tables t on t.oid = r.ev_class where r.rulename <> '_RETURN'
    union all
    select format('policy %I of countersign.%I', p.polname, t.relname) from pg_policy p join tables t on t.oid = p.polrelid
    union all
    select format('table %s inherits from countersign.%I', i.inhrelid::regclass, t.relname)
    from pg_inherits i join tables t on t.oid = i.inhparent
    -- The days of the log of reads, whose owner is looked at like that of any table here.
    where not (t.relname = 'read_log' and exists (
        select from pg_class c join space s on s.oid = c.relnamespace
        where c.oid = i.inhrelid and c.relispartition and c.relkind = 'r' and c.relname ~ '^read_log_[0-9]{8}$'))
    union all
    -- What PostgreSQL itself provides is pinned, and has no row here.
    select format('%s uses %s %s', p.name, used.type, used.identity)
    from parts p join pg_depend d on d.classid = p.class and d.objid = p.object
    cross join lateral pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) used
    where d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_opfamily'::regclass,
                           'pg_cast'::regclass, 'pg_collation'::regclass)
       or d.refclassid = 'pg_type'::regclass
          and (select t.typnamespace from pg_type t where t.oid = d.refobjid) <> (select oid from space)
       or d.refclassid = 'pg_class'::regclass and d.refobjid not in (select t.oid from tables t)
          and not exists (select from pg_class c join space s on s.oid = c.relnamespace where c.oid = d.refobjid)
)
select p.line from problems p order by p.line
