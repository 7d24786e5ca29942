-- What there is in the schema `countersign`, one line an object, in a form that every version of PostgreSQL writes alike. The texts of
-- views, defaults and CHECKs are hashed without white space, parentheses and the names of tables before columns, which some versions
-- write and some do not. What an index computes is not in it: `foreign.sql` looks at what these depend on. The functions made
-- for tracked tables differ from database to database: they are passed over, where `tracked` has the table. So are the days of the
-- log of reads, except for what is attached to them beyond what the log itself has.
with days (oid) as (
    select c.oid from pg_class c join pg_inherits i on i.inhrelid = c.oid
    where c.relnamespace = 'countersign'::regnamespace and i.inhparent = to_regclass('countersign.read_log')
      and c.relkind = 'r' and c.relispartition and c.relname ~ '^read_log_[0-9]{8}$'
), texts (class, object, text) as (
    select 'pg_class'::regclass, c.oid, pg_get_viewdef(c.oid)
    from pg_class c where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'v'
    union all
    select 'pg_attrdef'::regclass, d.oid, pg_get_expr(d.adbin, d.adrelid)
    from pg_attrdef d join pg_class c on c.oid = d.adrelid where c.relnamespace = 'countersign'::regnamespace
    union all
    select 'pg_constraint'::regclass, o.oid, pg_get_constraintdef(o.oid)
    from pg_constraint o where o.connamespace = 'countersign'::regnamespace and o.contype = 'c'
), hashes (class, object, hash) as (
    select t.class, t.object,
           encode(sha256(convert_to(regexp_replace(t.text, '[[:space:]()]|\m[a-z]+\.', '', 'g'), 'UTF8')), 'hex')
    from texts t
), objects (line) as (
    select concat_ws(' ', 'relation', c.relname, c.relkind,
                     case when c.relrowsecurity then 'row_security' end, case when c.relforcerowsecurity then 'forced' end,
                     array_to_string(c.reloptions, ';'), h.hash)
    from pg_class c left join hashes h on h.class = 'pg_class'::regclass and h.object = c.oid
    where c.relnamespace = 'countersign'::regnamespace and c.relkind not in ('i', 't', 'I')
      and not (c.relkind = 'S' and exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i'))
      and c.oid not in (select d.oid from days d)
    union all
    select concat_ws(' ', 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod),
                     case when a.attnotnull then 'not_null' end, nullif(a.attidentity, ''), nullif(a.attgenerated, ''), h.hash)
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    left join hashes h on h.class = 'pg_attrdef'::regclass and h.object = d.oid
    where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
      and c.oid not in (select d.oid from days d)
    union all
    select concat_ws(' ', 'index', c.relname, t.relname, case when i.indisunique then 'unique' end)
    from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
    where t.relnamespace = 'countersign'::regnamespace and t.relkind in ('r', 'p')
      and not (c.relispartition and t.oid in (select d.oid from days d))
    union all
    select concat_ws(' ', 'constraint', o.conname, c.relname, o.contype, h.hash)
    from pg_constraint o join pg_class c on c.oid = o.conrelid
    left join hashes h on h.class = 'pg_constraint'::regclass and h.object = o.oid
    where c.relnamespace = 'countersign'::regnamespace and o.contype in ('c', 'f', 'p', 'u', 'x')
    union all
    select concat_ws(' ', 'trigger', t.tgname, c.relname, t.tgfoid::regprocedure, t.tgtype, t.tgenabled,
                     case when t.tgqual is not null then 'when' end)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = 'countersign'::regnamespace and not t.tgisinternal and t.tgparentid = 0
    union all
    select concat_ws(' ', 'function', p.proname || '(' || oidvectortypes(p.proargtypes) || ')', l.lanname, p.provolatile,
                     case when p.prosecdef then 'security_definer' end, case when p.proleakproof then 'leakproof' end,
                     case when p.proisstrict then 'strict' end,
                     nullif(array_to_string(p.proconfig, ';'), ''), encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'))
    from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'countersign'::regnamespace
      and not (p.prorettype = 'trigger'::regtype and p.proname in (
          select n from countersign.tracked t cross join unnest(array['effect_of_' || t.relation, 'assigned_of_' || t.relation]) n))
      and not (not p.prosecdef and oidvectortypes(p.proargtypes) = 'integer, text, text, text'
               and p.proname in (select 'restore_of_' || t.relation from countersign.tracked t))
)
select o.line from objects o order by o.line collate "C"
