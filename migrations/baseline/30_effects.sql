-- Recording: what a tracked table's triggers write down, and how they are made.

-- This one and `table_name` are called by each write. PL/pgSQL keeps their plans, where an SQL function that is not inlined is planned anew.
create function countersign.keyed_hash(value text) returns bytea
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (select sha256(k.key || convert_to(value, 'UTF8')) from countersign.secret_key k);
end $$;
comment on function countersign.keyed_hash(text) is 'The keyed hash that stands for sensitive columns.';

-- Where a trigger found no write of this transaction. The login of a server has nothing to do there; others do as they always did.
create function countersign.check_outside_change(relation oid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from countersign.writer_login w where w.role_name = session_user) then
        raise exception 'a server''s login changes % only within a recorded write', relation::regclass using errcode = 'CS003';
    end if;
end $$;
comment on function countersign.check_outside_change(oid) is 'CS003 for the login of a server.';

-- Without `all_writers` the trigger has a condition, so that only servers come here.
create function countersign.at_truncate() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from countersign.writer_login w where w.role_name = session_user) then
        raise exception 'TRUNCATE of %, whose changes are recorded row by row', tg_relid::regclass using errcode = '0A000';
    end if;
    insert into countersign.effect (relation, shape, op, changed_at, origin, xid)
    select t.relation, t.shape, 'T', clock_timestamp(), concat_ws(' ', session_user, current_setting('application_name')), pg_current_xact_id()
    from countersign.tracked t where t.is_current and t.relation = coalesce(pg_partition_root(tg_relid)::oid, tg_relid);
    return null;
end $$;
comment on function countersign.at_truncate() is 'Refuses the TRUNCATE of a server, and notes that of others (op T) where all writers are recorded.';

-- The columns by which a row is found again: of the primary key, or else of the smallest unique index over NOT NULL columns.
create function countersign.key_of(relation oid, out columns text[], out operators text[])
language plpgsql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
begin
    select array_agg(a.attname::text order by k.n), array_agg(format('operator(%I.%s)', n.nspname, o.oprname) order by k.n)
    into columns, operators
    from (select x.indkey, x.indclass, x.indnkeyatts from pg_index x
          where x.indrelid = relation and x.indisunique and x.indisvalid and x.indimmediate and x.indpred is null and x.indexprs is null
            and not exists (select from pg_attribute b where b.attrelid = relation and b.attnum = any (x.indkey) and not b.attnotnull)
          order by x.indisprimary desc, x.indnkeyatts, x.indexrelid limit 1) i
    cross join unnest(i.indkey::int2[], i.indclass::oid[]) with ordinality k (number, class, n)
    join pg_attribute a on a.attrelid = relation and a.attnum = k.number
    join pg_opclass c on c.oid = k.class
    join pg_amop m on m.amopfamily = c.opcfamily and m.amopstrategy = 3 and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype
    join pg_operator o on o.oid = m.amopopr
    join pg_namespace n on n.oid = o.oprnamespace
    where k.n <= i.indnkeyatts;
end $$;
comment on function countersign.key_of(oid) is 'The key of a table, and SQL for the operators that its index compares with. Null for a table without a key.';

create function countersign.key_columns(relation oid) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$ select (countersign.key_of(relation)).columns $$;
comment on function countersign.key_columns(oid) is 'Null for a table without a key: its changes are recorded, and never undone.';

create function countersign.has_current_shape(t countersign.tracked) returns boolean
language plpgsql stable as $$
begin
    return (select t.columns is not distinct from array_agg(a.name) and t.numbers is not distinct from array_agg(a.attnum)
               and t.type_ids is not distinct from array_agg(a.atttypid) and t.type_mods is not distinct from array_agg(a.atttypmod)
            from (select a.attname::text as name, a.attnum, a.atttypid, a.atttypmod
                  from pg_attribute a where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped order by a.attnum) a);
end $$;
comment on function countersign.has_current_shape(countersign.tracked) is 'Whether the columns of the table are what they were.';

create function countersign.has_triggers(relation oid, kind integer) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    -- By the index: PostgreSQL expects a thousand partitions, and would read the triggers of all tables.
    return exists (select from (select has_triggers.relation as oid union all select p.relid from pg_partition_tree(has_triggers.relation) p) r
                   cross join lateral (
                       select from pg_trigger g where g.tgrelid = r.oid and not g.tgisinternal and g.tgenabled <> 'D'
                       and g.tgtype & kind = kind and g.tgname not like '!countersign%' limit 1) g);
end $$;
comment on function countersign.has_triggers(oid, integer) is
    'Whether a table has triggers of its own of this kind, in the bits of pg_trigger.tgtype: 1 for rows, 2 before, 4 INSERT, 8 DELETE, 16 UPDATE.';

create function countersign.table_name(relation oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
begin
    return (select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where c.oid = table_name.relation);
end $$;
comment on function countersign.table_name(oid) is 'Schema and table, quoted; null if there is none.';

create function countersign.columns_now(t countersign.tracked, of_columns text[]) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(a.attname::text order by a.attnum), '{}')
    from unnest(t.columns, t.numbers) u (c, number)
    join pg_attribute a on a.attrelid = t.relation and a.attnum = u.number and not a.attisdropped
    where u.c = any (of_columns)
$$;
comment on function countersign.columns_now(countersign.tracked, text[]) is 'What columns of a shape are called now; without those that were dropped.';

create function countersign.set_shape(
    target regclass, maintained text[], sensitive text[], is_log boolean, all_writers boolean
) returns integer language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning set quote_all_identifiers = off as $$
declare
    new       countersign.tracked;
    old       countersign.tracked;
    is_plain  boolean;
    made      record;
    undoer    name;
begin
    -- Two servers that see a migration at the same time do this one after the other.
    select * into old from countersign.tracked t where t.relation = target and t.is_current for update;
    select array_agg(a.attname::text order by a.attnum), array_agg(a.attnum order by a.attnum),
           array_agg(format_type(a.atttypid, a.atttypmod) order by a.attnum), array_agg(a.atttypid order by a.attnum),
           array_agg(a.atttypmod order by a.attnum),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated <> '' or a.attidentity = 'a'), '{}'),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated <> ''), '{}'),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated = 'v'), '{}'),
           bool_and(a.atttypid = any ('{int2,int4,int8,text,varchar,bpchar,bool,numeric,uuid,json,jsonb}'::regtype[]))
    into new.columns, new.numbers, new.types, new.type_ids, new.type_mods, new.fixed, new.computed, new.unstored, is_plain
    from pg_attribute a where a.attrelid = target and a.attnum > 0 and not a.attisdropped;
    select k.columns, k.operators into new.key_columns, new.key_operators from countersign.key_of(target) k;
    new.name := countersign.table_name(target);
    new.writers := array(select w.role_name from countersign.writer_login w order by 1);

    -- The same shape of rows keeps its number.
    if (old.name, old.columns, old.numbers, old.types, old.type_ids, old.type_mods, old.key_columns, old.fixed, old.computed, old.unstored, old.sensitive)
       is not distinct from (new.name, new.columns, new.numbers, new.types, new.type_ids, new.type_mods, new.key_columns, new.fixed, new.computed, new.unstored,
                               set_shape.sensitive)
    then
        update countersign.tracked t
        set maintained = set_shape.maintained, is_log = coalesce(set_shape.is_log, false), not_log = not coalesce(set_shape.is_log, true), all_writers = set_shape.all_writers, writers = new.writers,
            all_writers_since = case when set_shape.all_writers then t.all_writers_since end
        where t.shape = old.shape;
        new.shape := old.shape;
    else
        update countersign.tracked t set is_current = false where t.shape = old.shape;
        insert into countersign.tracked (relation, name, columns, numbers, types, type_ids, type_mods, key_columns, key_operators, fixed, computed, unstored, maintained, sensitive,
            is_log, not_log, all_writers, writers, unbroken_since, all_writers_since)
        values (target, new.name, new.columns, new.numbers, new.types, new.type_ids, new.type_mods, new.key_columns, new.key_operators, new.fixed, new.computed, new.unstored,
            set_shape.maintained, set_shape.sensitive, coalesce(set_shape.is_log, false), not coalesce(set_shape.is_log, true), set_shape.all_writers, new.writers, old.unbroken_since,
            case when set_shape.all_writers then old.all_writers_since end)
        returning shape into new.shape;
    end if;

    execute countersign.tracking_function(new.shape, is_plain);
    execute countersign.assigning_function(new.shape);
    execute format('drop function if exists countersign.%I(integer, text, text, text)', 'restore_of_' || target::oid);
    if new.key_columns is not null then
        execute countersign.restoring_function(new.shape);
    end if;
    for made in
        select p.oid::regprocedure, p.prorettype = 'trigger'::regtype as is_trigger from pg_proc p
        where p.pronamespace = 'countersign'::regnamespace
          and p.proname in ('effect_of_' || target::oid, 'assigned_of_' || target::oid, 'restore_of_' || target::oid)
    loop
        -- The ledger belongs to the role that ran `init` where that role could not make countersign_owner.
        execute format('alter function %s owner to %I', made.oid,
            (select n.nspowner::regrole::name from pg_namespace n where n.nspname = 'countersign'));
        execute format('revoke all on function %s from public', made.oid);
        -- A login that has no right to it undoes in the way of several rows.
        for undoer in
            select r from unnest(new.writers || name 'countersign_operator') r where not made.is_trigger and to_regrole(quote_ident(r)) is not null
        loop
            execute format('grant execute on function %s to %I', made.oid, undoer);
        end loop;
    end loop;
    return new.shape;
end $$;
comment on function countersign.set_shape(regclass, text[], text[], boolean, boolean) is
    'Notes the columns of a table, and makes the functions that record and restore its rows; the number of the shape.';

-- PostgreSQL makes the triggers of a partitioned table for each of its partitions, and refuses to attach a table that has one of
-- the same name.
create function countersign.trigger_name(relation oid) returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case c.relkind when 'p' then '!countersign_of_root' else '!countersign' end::name from pg_class c where c.oid = relation
$$;
comment on function countersign.trigger_name(oid) is 'The trigger that records the rows of a tracked table, by the kind of the table.';

create function countersign.is_recording(relation oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from pg_trigger g where g.tgrelid = is_recording.relation and g.tgenabled = 'A'
                   and g.tgname = any ('{!countersign,!countersign_of_root}'));
end $$;
comment on function countersign.is_recording(oid) is 'Whether the rows of a table or partition are recorded.';

create function countersign.is_recorded_by_root(relation oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from pg_trigger g where g.tgrelid = is_recorded_by_root.relation and g.tgenabled = 'A'
                   and g.tgname = '!countersign_of_root');
end $$;
comment on function countersign.is_recorded_by_root(oid) is
    'Whether the partitioned table records the rows of a partition. The triggers that the partition has from before are silent then.';

create function countersign.track(
    target regclass, maintained text[] default '{}', sensitive text[] default '{}', is_log boolean default null,
    all_writers boolean default false
) returns integer language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning set quote_all_identifiers = off as $$
declare
    rel        pg_class;
    unknown    text;
    shape      integer;
    leaf       regclass;
    condition  text;
    recorder   name := countersign.trigger_name(target);
    assigner   name := recorder || '_assigned';
    is_broken  boolean := not exists (select from pg_trigger g where g.tgrelid = target and g.tgname = recorder and g.tgenabled = 'A');
begin
    select c.* into strict rel from pg_class c where c.oid = target;
    if rel.relkind not in ('r', 'p') or rel.relpersistence = 't' or rel.relnamespace = 'countersign'::regnamespace then
        raise exception '% is no table of the database''s own', target using errcode = '42809';
    elsif rel.relispartition then
        raise exception '% is a partition: track the partitioned table', target using errcode = '42809';
    end if;
    select c into unknown from unnest(maintained || sensitive) c
    where c = any (countersign.key_columns(target)) or not exists (
        select from pg_attribute a where a.attrelid = target and a.attname = c and a.attnum > 0 and not a.attisdropped) limit 1;
    if unknown is not null then
        raise exception '% has no column "%" outside of its key', target, unknown using errcode = '42703';
    end if;
    shape := countersign.set_shape(target, maintained, sensitive, is_log, all_writers);

    -- Everybody else pays for one comparison. No SQL of a session changes its session_user; people who undo have the setting.
    condition := format('session_user = any (%L::name[])', array(select w.role_name from countersign.writer_login w order by 1));
    -- "!" sorts first: a change that another trigger makes to the same row is recorded later.
    execute format('drop trigger if exists %I on %s', recorder, target);
    execute format('create trigger %I after insert or update or delete on %s for each row %s execute function countersign.%I()',
        recorder, target, case when all_writers then '' else format('when (%s or current_setting(''countersign.at'', true) <> '''')', condition) end,
        'effect_of_' || target::oid);
    execute format('alter table %s enable always trigger %I', target, recorder);
    execute format('drop trigger if exists %I on %s', assigner, target);
    -- Only where triggers can set columns, so that other tables pay nothing.
    if countersign.has_triggers(target, 1 + 2 + 16) then
        execute format('create trigger %I before update on %s for each row when (current_setting(''countersign.at'', true) <> '''') '
                       'execute function countersign.%I()', assigner, target, 'assigned_of_' || target::oid);
        execute format('alter table %s enable always trigger %I', target, assigner);
    end if;
    for leaf in select p.relid from pg_partition_tree(target) p union select target loop
        execute format('drop trigger if exists "!countersign_truncate" on %s', leaf);
        execute format('create trigger "!countersign_truncate" before truncate on %s for each statement %s', leaf,
            case when all_writers then '' else format('when (%s)', condition) end || ' execute function countersign.at_truncate()');
        execute format('alter table %s enable always trigger "!countersign_truncate"', leaf);
    end loop;
    -- By now no other transaction has changes of the table that were not recorded.
    update countersign.tracked t
    set unbroken_since = case when is_broken then clock_timestamp() else coalesce(t.unbroken_since, clock_timestamp()) end,
        all_writers_since = case when track.all_writers then
            case when is_broken then clock_timestamp() else coalesce(t.all_writers_since, clock_timestamp()) end end
    where t.relation = target and t.is_current;
    return shape;
end $$;
comment on function countersign.track(regclass, text[], text[], boolean, boolean) is
    'Starts recording the changes of a table, or renews it after DDL and for a new server login; the number of the shape. '
    'For the owner of the table, who is a member of countersign_owner.';

-- The functions of a table's triggers belong to the ledger, so no right to the table is needed, and its triggers stay as they are.
create function countersign.renew_shapes() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set check_function_bodies = off set quote_all_identifiers = off as $$
declare
    t        countersign.tracked;
    renewed  bigint := 0;
begin
    perform countersign.refuse_within_a_write();
    for t in
        select k.* from countersign.tracked k join pg_class c on c.oid = k.relation
        where k.is_current and (not countersign.has_current_shape(k) or k.key_columns is distinct from countersign.key_columns(k.relation)
                                or k.name <> countersign.table_name(k.relation))
        order by k.relation
    loop
        perform countersign.set_shape(t.relation, countersign.columns_now(t, t.maintained), countersign.columns_now(t, t.sensitive),
                                      case when t.is_log or t.not_log then t.is_log end, t.all_writers);
        renewed := renewed + 1;
    end loop;
    return renewed;
end $$;
comment on function countersign.renew_shapes() is
    'After a migration: notes the columns of the tracked tables that have changed, and renews what records them. How many there were.';

-- A dump has the triggers of a tracked table and the functions that they call, whose names have the oid of the table as it was.
create function countersign.rebind_tables() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning set check_function_bodies = off
set quote_all_identifiers = off as $$
declare
    befores  oid[];
    afters   oid[];
    kept     oid[];
    shapes   integer[];
    made     record;
    t        countersign.tracked;
    newest   bigint := coalesce((select max(r.id) from countersign.record r), 0);
begin
    select array_agg(k.relation) filter (where g.tgrelid <> k.relation), array_agg(g.tgrelid) filter (where g.tgrelid <> k.relation),
           coalesce(array_agg(k.relation) filter (where g.tgrelid = k.relation), '{}')
    into befores, afters, kept
    from countersign.tracked k
    join pg_proc p on p.pronamespace = 'countersign'::regnamespace and p.proname = 'effect_of_' || k.relation
    join pg_trigger g on g.tgfoid = p.oid and g.tgname = any ('{!countersign,!countersign_of_root}') and g.tgparentid = 0
    where k.is_current;
    if befores is null then
        return 0;
    end if;
    -- One table may have the oid that another one had: no two have the same name or oid at any time.
    for made in
        select p.oid, p.oid::regprocedure as name, v.verb || m.after as new_name
        from unnest(befores, afters) m (before, after)
        cross join (values ('effect_of_'), ('assigned_of_'), ('restore_of_')) v (verb)
        join pg_proc p on p.pronamespace = 'countersign'::regnamespace and p.proname = v.verb || m.before
    loop
        execute format('alter function %s rename to %I', made.name, 'rebound_' || made.new_name);
    end loop;
    for made in
        select p.oid::regprocedure as name, substr(p.proname, 9) as new_name from pg_proc p
        where p.pronamespace = 'countersign'::regnamespace and p.proname like 'rebound\_%'
    loop
        execute format('alter function %s rename to %I', made.name, made.new_name);
    end loop;
    insert into countersign.rebound (before, after, numbers, numbers_now, last_id)
    select k.relation, m.after, k.numbers, array(
               select (select a.attnum from pg_attribute a where a.attrelid = m.after and a.attname = c.name)
               from unnest(k.columns) with ordinality c (name, place) order by c.place), newest
    from unnest(befores, afters) m (before, after) join countersign.tracked k on k.relation = m.before and k.is_current;
    with changed as (
        update countersign.tracked k set is_current = false where k.is_current and k.relation <> all (kept) returning k.shape, k.relation
    )
    select array_agg(c.shape) filter (where c.relation = any (befores)) into shapes from changed c;
    -- A dump has no columns that were dropped, and types that are not built in have other oids.
    update countersign.tracked k
    set relation = b.after,
        numbers = array(select coalesce(b.numbers_now[array_position(b.numbers, o.number)], (20000 + o.place)::int2)
                        from unnest(k.numbers) with ordinality o (number, place) order by o.place),
        type_ids = array(select coalesce(to_regtype(o.type)::oid, 0) from unnest(k.types) with ordinality o (type, place) order by o.place)
    from countersign.rebound b
    where b.before = k.relation and b.last_id = newest;
    update countersign.tracked k set is_current = true where k.shape = any (shapes);
    -- Those that are not tracked any more are no table: another one may have their oid.
    update countersign.tracked k set relation = 0 where not k.is_current and k.relation <> all (afters || kept);
    alter table countersign.effect disable trigger protect_effect;
    update countersign.effect e set relation = coalesce(afters[array_position(befores, e.relation)], 0) where e.relation <> all (kept);
    alter table countersign.effect enable trigger protect_effect;
    update countersign.rebound b
    set after = n.after,
        numbers_now = array(select coalesce(n.numbers_now[array_position(n.numbers, o.number)], 0::int2)
                            from unnest(b.numbers_now) with ordinality o (number, place) order by o.place)
    from countersign.rebound n
    where n.before = b.after and n.last_id = newest and b.last_id < n.last_id;
    for t in select k.* from countersign.tracked k where k.shape = any (shapes) loop
        perform countersign.set_shape(t.relation, t.maintained, t.sensitive, case when t.is_log or t.not_log then t.is_log end, t.all_writers);
    end loop;
    return cardinality(befores);
end $$;
comment on function countersign.rebind_tables() is
    'After a dump and its restore: what was recorded of the tracked tables is of those that have their triggers now. How many there are.';

create function countersign.relations_now(evidence jsonb, record_id bigint) returns jsonb
language plpgsql stable as $$
begin
    if not exists (select from countersign.rebound b where b.last_id >= record_id) then
        return evidence;
    end if;
    return (
        select jsonb_object_agg(part.key, (
            select jsonb_object_agg(coalesce(b.after::text, of_table.key), case
                when b.after is null or part.key <> 'assigned' then of_table.value
                else (select coalesce(jsonb_agg(b.numbers_now[array_position(b.numbers, n.number::int2)]), '[]')
                      from jsonb_array_elements_text(of_table.value) n (number)) end)
            from jsonb_each(part.value) of_table
            left join lateral (select * from countersign.rebound r where r.before::text = of_table.key and r.last_id >= record_id
                               order by r.last_id limit 1) b on true))
        from jsonb_each(evidence) part);
end $$;
comment on function countersign.relations_now(jsonb, bigint) is 'The evidence of a record, with the oids of tables and the numbers of columns as they are now.';

create function countersign.assigning_function(of_shape integer) returns text
language sql stable set search_path = pg_catalog, pg_temp as $fn$
    select format($definition$
create or replace function countersign.%I() returns trigger language plpgsql as %L$definition$, 'assigned_of_' || t.relation, format($body$
declare
    assigned  pg_catalog.text := pg_catalog.concat(%1$s);
    noted     pg_catalog.text := pg_catalog.concat(pg_catalog.current_setting(%2$L, true), ';');
begin
    if pg_catalog.strpos(noted, pg_catalog.concat(';', assigned, ';')) operator(pg_catalog.=) 0 then
        -- So many sets of columns that the setting would grow with the rows: all of them.
        perform pg_catalog.set_config(%2$L, case when pg_catalog.length(noted) operator(pg_catalog.>) 4000 then ';*'
            else pg_catalog.concat(noted, assigned) end, true);
    end if;
    return new;
end $body$,
        (select string_agg(format('case when pg_catalog.record_image_ne(row(old.%1$I), row(new.%1$I)) then ''%2$s,'' end', u.c, u.number), ', ' order by u.n)
         -- A generated column is not computed yet.
         from unnest(t.columns, t.numbers) with ordinality u (c, number, n) where u.c <> all (t.computed)),
        'countersign.assigned_' || t.relation))
    from countersign.tracked t where t.shape = of_shape
$fn$;
comment on function countersign.assigning_function(integer) is
    'The text of the trigger function that notes which columns the statement itself set, before any other trigger sees the row: sets of '
    'numbers, `;3,7,;3,`, in a setting of the transaction.';

create function countersign.noted_columns(noted text) returns int2[]
language plpgsql immutable as $$
begin
    if noted like '%*%' then
        return null;
    end if;
    return array(select distinct n::int2 from unnest(string_to_array(translate(noted, ';', ','), ',')) n where n <> '' order by 1);
end $$;
comment on function countersign.noted_columns(text) is 'The numbers in `;3,7,;3,`, which the trigger has noted; null for all columns.';

create function countersign.assigned_columns(relation oid) returns int2[]
language plpgsql stable as $$
begin
    if not exists (select from pg_trigger g
                   where g.tgrelid = assigned_columns.relation and g.tgname like '!countersign%\_assigned' and g.tgenabled = 'A') then
        return null;
    end if;
    return coalesce(
        countersign.noted_columns(current_setting('countersign.assigned_' || relation, true)),
        array(select a.attnum from pg_attribute a
              where a.attrelid = assigned_columns.relation and a.attnum > 0 and not a.attisdropped order by a.attnum));
end $$;
comment on function countersign.assigned_columns(oid) is
    'The numbers of the columns that the statements of this transaction have set in rows of the table; null without the trigger that notes them.';

create function countersign.tracking_function(of_shape integer, is_plain boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $fn$
declare
    t          countersign.tracked;
    is_parted  boolean;
    large      text[];
    hides      text;
    image      text;
    key_of     text;
    key_moved  text;
    declared   text := '';
    prepare    text := '';
    parts      text;
    row_before text;
    changed    text;
begin
    select k.* into strict t from countersign.tracked k where k.shape = of_shape;
    select c.relkind = 'p' into is_parted from pg_class c where c.oid = t.relation;
    -- record_out and not a cast: a cast to text can be a function of the table's owner, and would run with the ledger's rights. The
    -- row of a partition may have another order of columns.
    image := case when is_parted or t.unstored <> '{}'
        then (select 'pg_catalog.textin(pg_catalog.record_out(row(' || string_agg(
                         case when c = any (t.unstored) then 'null' else '%1$s.' || replace(quote_ident(c), '%', '%%') end, ', ' order by n) || ')))'
              from unnest(t.columns) with ordinality u (c, n))
        else 'pg_catalog.textin(pg_catalog.record_out(%1$s))' end;
    -- format() has the type's own output as well; jsonb_build_object would call a cast to json.
    select 'pg_catalog.jsonb_build_object(' || string_agg(
               replace(quote_literal(k), '%', '%%') || ', ' || case when a.atttypid < 16384 then '%1$s.' || replace(quote_ident(k), '%', '%%')
                   else 'pg_catalog.format(''%%s'', %1$s.' || replace(quote_ident(k), '%', '%%') || ')' end,
               ', ' order by n) || ')::pg_catalog.text',
           format('pg_catalog.record_image_ne(row(%s), row(%s))', string_agg(format('new.%I', k), ', ' order by n),
                  string_agg(format('old.%I', k), ', ' order by n))
    into key_of, key_moved
    from unnest(t.key_columns) with ordinality u (k, n)
    join pg_attribute a on a.attrelid = t.relation and a.attname = u.k;
    key_of := coalesce(key_of, 'null::pg_catalog.text');

    -- Sensitive columns: null in the image, and a keyed hash beside it.
    select string_agg('%1$s.' || replace(quote_ident(c), '%', '%%') || ' := null;', ' ') into hides from unnest(t.sensitive) c;
    if hides is not null then
        declared := declared || ' o record; w record; secret_b pg_catalog.bytea; secret_a pg_catalog.bytea;';
        select string_agg('%1$s.' || replace(quote_ident(c), '%', '%%'), ', ') into parts from unnest(t.sensitive) c;
        parts := 'countersign.keyed_hash(pg_catalog.textin(pg_catalog.record_out(row(' || parts || '))))';
        prepare := 'if tg_op operator(pg_catalog.<>) ''INSERT'' then o := old; secret_b := ' || format(parts, 'old') || '; ' || format(hides, 'o') || ' end if;'
            || ' if tg_op operator(pg_catalog.<>) ''DELETE'' then w := new; secret_a := ' || format(parts, 'new') || '; ' || format(hides, 'w') || ' end if;';
    end if;
    row_before := case when hides is null then 'old' else 'o' end;
    -- Large columns that an UPDATE leaves alone are kept once. pg_column_size does not fetch the value.
    select array_agg(u.c order by u.n) into large
    from unnest(t.columns) with ordinality u (c, n)
    join pg_attribute a on a.attrelid = t.relation and a.attname = u.c
    where a.attlen = -1 and a.attstorage <> 'p' and (a.atttypmod = -1 or a.atttypmod > 1024 or a.atttypid = 'numeric'::regtype)
      and a.atttypid <> 'numeric'::regtype and u.c <> all (t.sensitive) and u.c <> all (coalesce(t.key_columns, '{}'));
    if large is not null then
        declared := declared || ' same pg_catalog.int2[]; shown record;';
    end if;

    changed := format('%s, %s, op, pg_catalog.pg_trigger_depth() operator(pg_catalog.>) 1, k, k_before, b, n, %s', t.relation, t.shape,
        concat_ws(', ', case when large is null then 'null' else 'same' end,
                  case when hides is null then 'null, null' else 'secret_b, secret_a' end));

    -- A literal, and not a text between dollar signs, which the name of a column could end.
    return format(E'\ncreate or replace function countersign.%I() returns trigger language plpgsql security definer%s as %L',
        'effect_of_' || t.relation,
        -- Each setting costs on every row: every name is qualified instead of a search_path, and what the text of a value depends on is
        -- fixed where the table has such types.
        case when is_plain then '' else ' set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres'
            ' set extra_float_digits = 1 set bytea_output = hex set lc_monetary = ''C'' set xmlbinary = base64' end,
        -- What PL/pgSQL assigns is made ready once in a transaction, and the INSERT for each row.
        format($body$
declare
    op pg_catalog."char" := 'U'; k pg_catalog.text; k_before pg_catalog.text; b pg_catalog.text; n pg_catalog.text;%1$s
begin
    %12$s%2$s
    if tg_op operator(pg_catalog.=) 'DELETE' then
        op := 'D';
        k := %3$s;
        b := %4$s;
    else
        k := %5$s;
        n := %6$s;
        if tg_op operator(pg_catalog.=) 'INSERT' then
            op := 'I';
        -- The write found the row as it wanted it: its undo has nothing to do, and a duplicate of it stands as long as the row does.
        elsif old operator(pg_catalog.*=) new then
            op := 'N';%7$s
        else
            %8$s
            if %11$s then k_before := %3$s; end if;
        end if;
    end if;
    insert into countersign.effect (correlation_id, relation, shape, op, by_trigger, key, key_before, before, after, unchanged,
        secret_before, secret_after)
    select a.correlation_id, %9$s
    from countersign.claim a
    where a.ctid operator(pg_catalog.=) case when pg_catalog.current_setting('countersign.at', true) operator(pg_catalog.<>) ''
                                        then pg_catalog.current_setting('countersign.at', true)::pg_catalog.tid end
      and a.xmin operator(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.xid;
    if not found and op operator(pg_catalog.<>) 'N' then
        perform countersign.check_outside_change(tg_relid);%10$s
    end if;
    return null;
end $body$,
        declared, prepare, format(key_of, 'old'), format(image, row_before), format(key_of, 'new'),
        format(image, case when hides is null then 'new' else 'w' end), case when hides is not null then ' secret_b := null;' end,
        case when large is null then format('b := %s;', format(image, row_before))
             else format(E'%sif %s then\n                shown := %s; %s\n                b := %s;\n            else\n                b := %s;\n            end if;',
                 -- Other programs go on writing after a migration has dropped or renamed one.
                 case when t.all_writers then format(E'if (select pg_catalog.count(*) from pg_catalog.pg_attribute a where a.attrelid operator(pg_catalog.=) %s and a.attname operator(pg_catalog.=) any (%L::pg_catalog.name[])) operator(pg_catalog.<>) %s then\n                b := %s;\n            els',
                                                     t.relation, large, cardinality(large), format(image, row_before)) else '' end,
                 (select string_agg(format('pg_catalog.pg_column_size(old.%I) operator(pg_catalog.>) 500', c), ' or ') from unnest(large) c),
                 row_before,
                 (select string_agg(format(E'\n                if pg_catalog.pg_column_size(old.%1$I) operator(pg_catalog.>) 500 and pg_catalog.record_image_eq(row(old.%1$I), row(new.%1$I)) then shown.%1$I := null; same := same operator(pg_catalog.||) %2$s::pg_catalog.int2; end if;',
                                           c, array_position(t.columns, c)), '') from unnest(large) c),
                 format(image, 'shown'), format(image, row_before))
             end,
        changed,
        case when t.all_writers then format($outside$
        insert into countersign.effect (relation, shape, op, by_trigger, key, key_before, before, after, unchanged,
            secret_before, secret_after, changed_at, origin, xid, is_misshapen)
        values (%s, pg_catalog.clock_timestamp(),
            pg_catalog.concat_ws(' ', session_user, pg_catalog.current_setting('application_name')), pg_catalog.pg_current_xact_id(),
            case when (select c.relnatts from pg_catalog.pg_class c where c.oid operator(pg_catalog.=) %s) operator(pg_catalog.<>) %s then true end);$outside$,
            changed, t.relation, (select case when countersign.has_current_shape(t) then c.relnatts else 0 end from pg_class c where c.oid = t.relation)) end,
        key_moved,
        -- An ordinary table may have become a partition of a tracked one. Of a constant, the immutable function would be called when
        -- the session plans it.
        case when is_parted then '' else
            E'if pg_catalog.pg_partition_root(tg_relid) is not null and countersign.is_recorded_by_root(tg_relid) then return null; end if;\n    '
        end));
end $fn$;
comment on function countersign.tracking_function(integer, boolean) is
    'The text of the trigger function of a tracked table, with its key and its columns as constants.';

create function countersign.untrack(target regclass) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
    leaf  regclass;
begin
    if exists (select from pg_class c where c.oid = target) then
        execute format('drop trigger if exists %I on %s', countersign.trigger_name(target), target);
        execute format('drop trigger if exists %I on %s', countersign.trigger_name(target) || '_assigned', target);
        for leaf in select p.relid from pg_partition_tree(target) p union select target loop
            execute format('drop trigger if exists "!countersign_truncate" on %s', leaf);
        end loop;
    end if;
    execute format('drop function if exists countersign.%I()', 'effect_of_' || target::oid);
    execute format('drop function if exists countersign.%I()', 'assigned_of_' || target::oid);
    execute format('drop function if exists countersign.%I(integer, text, text, text)', 'restore_of_' || target::oid);
    update countersign.tracked t set is_current = false where t.relation = target and t.is_current;
    return found;
end $$;
comment on function countersign.untrack(regclass) is 'Stops recording, also of a table that was dropped. What was recorded stays, and can no longer be undone.';

create function countersign.renew_tracking() returns setof regclass
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    t  countersign.tracked;
begin
    for t in select k.* from countersign.tracked k
        where k.is_current and k.writers <> array(select w.role_name from countersign.writer_login w order by 1)
          and exists (select from pg_class c where c.oid = k.relation and not c.relispartition)
        order by k.name
    loop
        perform countersign.track(t.relation, t.maintained, t.sensitive, case when t.is_log or t.not_log then t.is_log end, t.all_writers);
        return next t.relation;
    end loop;
end $$;
comment on function countersign.renew_tracking() is
    'Tells the triggers of all tracked tables which logins servers have now. For `init`, after it added one.';

create function countersign.tracking_problems() returns table (name text, problem text, is_limit boolean)
language sql stable set search_path = pg_catalog, pg_temp set jit = off as $$
    with named as (
        -- Not to_regclass, which asks for rights on the schema.
        select t.*, c.relname, c.relkind, c.relpersistence, c.relowner, c.relrowsecurity,
               case when c.relname is not null then format('%I.%I', n.nspname, c.relname) end as name_now,
               coalesce(c.relispartition and countersign.is_recorded_by_root(c.oid), false) as is_attached
        from countersign.tracked t
        left join pg_class c on c.oid = t.relation left join pg_namespace n on n.oid = c.relnamespace
        where t.is_current
    ), current as (
        select n.* from named n where not n.is_attached
    ), part as (
        select c.relation, c.name, p.relid from current c
        cross join lateral (select relid from pg_partition_tree(c.relation) union select c.relation::regclass) p
        where c.relname is not null
    )
    select c.name, 'the table does not exist', false from current c where c.relname is null
    union all
    select c.name, 'the table has another name now: run `countersign track` again', false from current c
    where c.relname is not null and c.name <> c.name_now
    union all
    select c.name, 'columns have changed: run `countersign track` again', false from current c
    join countersign.tracked t on t.shape = c.shape
    where c.relname is not null and not countersign.has_current_shape(t)
    union all
    select c.name, 'the key has changed: run `countersign track` again', false from current c
    where c.relname is not null and c.key_columns is distinct from countersign.key_columns(c.relation)
    union all
    select c.name, 'no key: changes are recorded, and cannot be undone', false from current c where c.key_columns is null and not c.is_log
    union all
    select p.name, format('%s has no enabled trigger %I: run `countersign track` again', p.relid::regclass, w.trigger), false
    from part p cross join lateral (values (countersign.trigger_name(p.relation)), ('!countersign_truncate')) w (trigger)
    where not exists (select from pg_trigger g where g.tgrelid = p.relid and g.tgname = w.trigger and g.tgenabled = 'A')
    union all
    select c.name, format('it is a partition of %s, whose triggers record it: its own earlier writes can be undone while it is detached',
                          pg_partition_root(c.relation)::regclass), true
    from named c where c.is_attached
    union all
    select c.name, 'a BEFORE trigger was made since: run `countersign track` again, so that an undo knows the columns that it sets', false
    from current c
    where c.relname is not null and countersign.has_triggers(c.relation, 1 + 2 + 16)
      and not exists (select from pg_trigger g where g.tgrelid = c.relation and g.tgname like '!countersign%\_assigned' and g.tgenabled = 'A')
    union all
    select c.name, format('the triggers do not know the login %I: run `countersign track` again', w.role_name), false
    from current c cross join countersign.writer_login w where w.role_name <> all (c.writers)
    union all
    select c.name, format('the login %I owns the table, and can disable its triggers', w.role_name), false
    from current c join countersign.writer_login w on to_regrole(quote_ident(w.role_name)) is not null
    where c.relname is not null and pg_has_role(w.role_name, c.relowner, 'member')
    union all
    select c.name, 'row level security: an undo sees and changes the rows that policies leave to its login', true
    from current c where c.relrowsecurity
    union all
    select distinct c.name, format('the foreign key %I of %s is switched off: neither a write nor an undo checks it', f.conname, f.conrelid::regclass), false
    from current c join pg_trigger g on g.tgrelid = c.relation and g.tgisinternal and g.tgenabled in ('D', 'R')
    join pg_constraint f on f.oid = g.tgconstraint and f.contype = 'f'
    union all
    select c.name, 'the table is UNLOGGED: a crash empties it, and no record says so', false from current c where c.relpersistence = 'u'
    union all
    select c.name, format('%s inherits from it and is not tracked', i.inhrelid::regclass), false
    from current c join pg_inherits i on i.inhparent = c.relation
    where c.relkind = 'r' and not exists (select from current o where o.relation = i.inhrelid)
    union all
    select c.name, format('foreign key %I of %s, which is not tracked, follows its changes', f.conname, f.conrelid::regclass), false
    from current c join pg_constraint f on f.contype = 'f' and f.confrelid = c.relation and f.conparentid = 0
    where (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd'))
      and not exists (select from current o where o.relation = f.conrelid)
$$;
comment on function countersign.tracking_problems() is
    'What keeps the changes of tracked tables from being recorded or undone. For `doctor`, `track` and `check`. is_limit: it is meant to be so.';
