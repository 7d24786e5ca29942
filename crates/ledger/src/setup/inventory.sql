-- What there is in the schema `countersign`, one line an object, in a form that every version of PostgreSQL writes alike. What a
-- constraint, a default or an index computes is not in it: `foreign.sql` looks at what these depend on.
with objects (line) as (
    select concat_ws(' ', 'relation', c.relname, c.relkind,
                     case when c.relrowsecurity then 'row_security' end, case when c.relforcerowsecurity then 'forced' end)
    from pg_class c where c.relnamespace = 'countersign'::regnamespace and c.relkind not in ('i', 'S', 't', 'I')
    union all
    select concat_ws(' ', 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod),
                     case when a.attnotnull then 'not_null' end, nullif(a.attidentity, ''), nullif(a.attgenerated, ''))
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'countersign'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
    union all
    select concat_ws(' ', 'index', c.relname, t.relname, case when i.indisunique then 'unique' end)
    from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
    where t.relnamespace = 'countersign'::regnamespace and t.relkind = 'r'
    union all
    select concat_ws(' ', 'constraint', o.conname, c.relname, o.contype)
    from pg_constraint o join pg_class c on c.oid = o.conrelid
    where c.relnamespace = 'countersign'::regnamespace and o.contype in ('c', 'f', 'p', 'u', 'x')
    union all
    select concat_ws(' ', 'trigger', t.tgname, c.relname, t.tgfoid::regprocedure, t.tgtype, t.tgenabled,
                     case when t.tgqual is not null then 'when' end)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = 'countersign'::regnamespace and not t.tgisinternal
    union all
    select concat_ws(' ', 'function', p.proname || '(' || oidvectortypes(p.proargtypes) || ')', l.lanname, p.provolatile,
                     case when p.prosecdef then 'security_definer' end, case when p.proleakproof then 'leakproof' end,
                     case when p.proisstrict then 'strict' end,
                     nullif(array_to_string(p.proconfig, ';'), ''), encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'))
    from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'countersign'::regnamespace
)
select o.line from objects o order by o.line collate "C"
