-- The definitions that a write depends on. What a reviewer approves holds only while they stay as they are.
--
-- A definition is a relation (its columns, defaults, constraints, triggers, rules, policies and owner), the functions of one
-- name, or everything that a plan and a function's text do not show: operators, casts and domains of the database's own.
-- Its version is a hash over the row versions (xmin) of its catalog rows, so that a definition that was replaced and put back
-- has another version as well.

create function countersign.relation_version(relation regclass) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select encode(sha256(convert_to(string_agg(d.line, E'\n' order by d.line), 'UTF8')), 'hex') from (
        select concat_ws(' ', 'relation', c.oid, c.relkind, c.relowner, c.relrowsecurity, c.relforcerowsecurity) as line
        from pg_class c where c.oid = relation
        union all
        select concat_ws(' ', 'column', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef,
                         a.attgenerated, a.attidentity, a.attisdropped)
        from pg_attribute a where a.attrelid = relation and a.attnum > 0
        union all
        select concat_ws(' ', 'default', f.oid, f.xmin) from pg_attrdef f where f.adrelid = relation
        union all
        select concat_ws(' ', 'constraint', o.oid, o.xmin)
        from pg_constraint o where o.conrelid = relation or o.confrelid = relation
        union all
        select concat_ws(' ', 'trigger', t.oid, t.xmin) from pg_trigger t where t.tgrelid = relation
        union all
        select concat_ws(' ', 'rule', r.oid, r.xmin) from pg_rewrite r where r.ev_class = relation
        union all
        select concat_ws(' ', 'policy', p.oid, p.xmin) from pg_policy p where p.polrelid = relation
        union all
        select concat_ws(' ', 'index', i.indisunique, i.indkey, i.indexprs, i.indpred)
        from pg_index i where i.indrelid = relation and (i.indisunique or i.indexprs is not null)
    ) d
    where exists (select from pg_class c where c.oid = relation)
$$;

create function countersign.definition_version(kind text, name text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case kind
        when 'function' then (
            select encode(sha256(convert_to(string_agg(concat_ws(' ', p.oid, p.xmin), E'\n' order by p.oid), 'UTF8')), 'hex')
            -- Lower oids are what initdb made.
            from pg_proc p where p.proname = definition_version.name::name and p.oid >= 16384)
        when 'operators' then (
            select encode(sha256(convert_to(coalesce(string_agg(d.line, E'\n' order by d.line), ''), 'UTF8')), 'hex') from (
                select concat_ws(' ', 'operator', o.oid, o.xmin) as line from pg_operator o where o.oid >= 16384
                union all
                select concat_ws(' ', 'cast', c.oid, c.xmin) from pg_cast c where c.oid >= 16384
                union all
                select concat_ws(' ', 'domain', o.oid, o.xmin) from pg_constraint o where o.contypid <> 0 and o.oid >= 16384
                union all
                select concat_ws(' ', 'function', p.oid, p.xmin) from pg_proc p
                where p.oid >= 16384 and p.oid in (select o.oprcode from pg_operator o union all select c.castfunc from pg_cast c)
            ) d)
        else (
            select countersign.relation_version(c.oid::regclass)
            from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = (parse_ident(definition_version.name))[1] and c.relname = (parse_ident(definition_version.name))[2])
        end
$$;

-- The definitions that the current transaction depends on, each with its version: the relations that it has locked, the
-- functions that their triggers, views, policies, constraints, defaults and indexes call, those whose name stands in one of
-- `texts` (the statements of the write), and those whose name stands in the text of such a function. A name that a function
-- puts together itself is not found. JIT would compile the query for a second that runs for milliseconds.
create function countersign.current_definitions(texts text[]) returns table (kind text, name text, version text)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    with recursive relation as materialized (
        select distinct c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) as name
        from pg_locks l
        join pg_class c on c.oid = l.relation
        join pg_namespace n on n.oid = c.relnamespace
        where l.pid = pg_backend_pid() and l.locktype = 'relation'
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and c.oid >= 16384 and c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
          and n.nspname not in ('countersign', 'pg_toast')
    ), own_function as materialized (
        select p.oid, p.proname::text as name, lower(p.proname) as word, p.proname !~ '^[a-zA-Z0-9_$]+$' as is_quoted,
               case when l.lanname in ('c', 'internal') then ''
                    when p.prosqlbody is not null then pg_get_function_sqlbody(p.oid)
                    else p.prosrc end as source
        from pg_proc p join pg_language l on l.oid = p.prolang
        where p.oid >= 16384 and p.pronamespace <> 'countersign'::regnamespace
    ), part as (
        select 'pg_class'::regclass::oid as class, r.oid as object from relation r
        union all
        select 'pg_class'::regclass, i.indexrelid from pg_index i join relation r on r.oid = i.indrelid
        union all
        select 'pg_trigger'::regclass, t.oid from pg_trigger t join relation r on r.oid = t.tgrelid
        union all
        select 'pg_rewrite'::regclass, w.oid from pg_rewrite w join relation r on r.oid = w.ev_class
        union all
        select 'pg_policy'::regclass, p.oid from pg_policy p join relation r on r.oid = p.polrelid
        union all
        select 'pg_constraint'::regclass, o.oid from pg_constraint o join relation r on r.oid = o.conrelid
        union all
        select 'pg_attrdef'::regclass, f.oid from pg_attrdef f join relation r on r.oid = f.adrelid
    ), called (name) as (
        select f.name
        from part p
        join pg_depend d on d.classid = p.class and d.objid = p.object and d.refclassid = 'pg_proc'::regclass
        join own_function f on f.oid = d.refobjid
        union
        select f.name
        from unnest(texts) t (source)
        cross join lateral (
            select w.word from regexp_split_to_table(lower(t.source), '[^a-z0-9_$]+') w (word)
            union all
            select q.word from own_function q where q.is_quoted and strpos(lower(t.source), q.word) > 0
        ) mentioned
        join own_function f on f.word = mentioned.word
        union
        select f.name
        from called c
        join own_function s on s.name = c.name
        cross join lateral (
            select w.word from regexp_split_to_table(lower(s.source), '[^a-z0-9_$]+') w (word)
            union all
            select q.word from own_function q where q.is_quoted and strpos(lower(s.source), q.word) > 0
            union all
            select a.word from pg_depend d join own_function a on a.oid = d.refobjid
            where d.classid = 'pg_proc'::regclass and d.objid = s.oid and d.refclassid = 'pg_proc'::regclass
        ) mentioned
        join own_function f on f.word = mentioned.word
    )
    select d.kind, d.name, countersign.definition_version(d.kind, d.name) from (
        select case r.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table'
                              else 'table' end as kind, r.name from relation r
        union all
        select 'function', c.name from called c
        union all
        select 'operators', '(with casts and domains)'
    ) d
    order by d.kind, d.name
$$;

-- Those of the given definitions that have another version now: `table shop.orders`.
create function countersign.changed_definitions(definitions json) returns setof text
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select concat_ws(' ', d.kind, d.name)
    from json_to_recordset(definitions) d (kind text, name text, version text)
    where d.version is distinct from countersign.definition_version(d.kind, d.name)
    order by 1
$$;

comment on function countersign.relation_version(regclass) is 'The version of a relation; null for one that does not exist.';
comment on function countersign.definition_version(text, text) is 'The version of a definition; null for one that does not exist.';
comment on function countersign.current_definitions(text[]) is 'The definitions that the current transaction depends on, with their versions.';
comment on function countersign.changed_definitions(json) is 'Those of the given definitions that have another version now.';
