-- What a write can promise of its undo when it ends.
--
-- A SET of a function costs more than some of these do: those without one are called with the search_path of the functions here. And so
-- does each subquery of a statement, even if it does not run: those that are rarely needed are statements of their own.

create function countersign.clock_columns(body text) returns text[]
language plpgsql immutable as $$
declare
    source   text := regexp_replace(body, '--[^\n]*', '', 'g');
    columns  text[] := '{}';
    part     text[] := array[null, null, source];
begin
    -- One pattern for the whole body: whatever else a function does, it is not one of these.
    if source !~* ('^\s*begin\s+(new\.("[^"]+"|[a-z_]\w*)\s*:?=\s*('
                   '((pg_catalog\.)?(now|clock_timestamp|statement_timestamp|transaction_timestamp)\(\s*\)|current_timestamp|localtimestamp)'
                   '(\s+at\s+time\s+zone\s+''[\w/+-]+'')?|'
                   '(old|new)\.("[^"]+"|[a-z_]\w*)\s*\+\s*1|'
                   'coalesce\(\s*(old|new)\.("[^"]+"|[a-z_]\w*)\s*,\s*0\s*\)\s*\+\s*1'
                   ')\s*;\s*)+return\s+new\s*;\s*end\s*;?\s*$')
    then
        return null;
    end if;
    loop
        part := regexp_match(part[3], 'new\.(?:"([^"]+)"|([a-z_]\w*))\s*:?=(.*)', 'i');
        exit when part is null;
        columns := columns || coalesce(part[1], lower(part[2]));
    end loop;
    return columns;
end $$;
comment on function countersign.clock_columns(text) is
    'The columns that the body of a trigger function in PL/pgSQL sets to the time or counts up, if it does nothing else. Null for any other body.';

create function countersign.is_free_to_change(relation oid, numbers smallint[]) returns boolean
language plpgsql stable as $$
begin
    return not exists (
        select from pg_depend d
        left join pg_index i on d.classid = 'pg_class'::regclass and i.indexrelid = d.objid
        left join pg_attrdef f on d.classid = 'pg_attrdef'::regclass and f.oid = d.objid
        left join pg_constraint n on d.classid = 'pg_constraint'::regclass and n.oid = d.objid
        where d.refclassid = 'pg_class'::regclass and d.refobjid = relation and d.refobjsubid = any (0 || numbers::int4[])
          and (i.indisunique or i.indisexclusion or f.adnum <> d.refobjsubid
               -- Before PostgreSQL 15, a generated column itself depends on the column; from then on, its expression.
               or d.classid = 'pg_class'::regclass and d.objid = relation and d.objsubid <> 0
               or d.classid = 'pg_policy'::regclass
               -- From PostgreSQL 18 on, NOT NULL is one, too. The values of before were not null.
               or n.contype <> 'n'
               or d.classid = 'pg_trigger'::regclass and d.refobjsubid <> 0));
end $$;
comment on function countersign.is_free_to_change(oid, smallint[]) is
    'Whether no constraint, unique index, policy, trigger or generated column depends on these columns.';

create function countersign.free_numbers(t countersign.tracked, of_columns text[]) returns int2[]
language plpgsql stable as $$
declare
    -- A domain has constraints of its own.
    found  int2[] := array(select u.number from unnest(t.columns, t.numbers, t.type_ids) u (c, number, of_type)
                           where u.c = any (of_columns) and u.of_type < 16384);
begin
    return case when cardinality(found) = cardinality(of_columns) and countersign.is_free_to_change(t.relation, found) then found end;
end $$;
comment on function countersign.free_numbers(countersign.tracked, text[]) is
    'The numbers of these columns, if nothing depends on their values; null if something may.';

create function countersign.set_by_clocks(relation oid, op text) returns text[]
language plpgsql stable as $$
declare
    made     record;
    clocks   text[];
    columns  text[] := '{}';
begin
    for made in
        select g.tgtype, g.tgattr, g.tgenabled, p.prosrc, l.lanname = 'plpgsql' and p.proconfig is null as is_readable,
               g.tgqual is null or pg_get_triggerdef(g.oid) ~* 'when \(\(old\.\* is distinct from new\.\*\)\)' as is_always
        from pg_trigger g join pg_proc p on p.oid = g.tgfoid join pg_language l on l.oid = p.prolang
        where g.tgrelid = set_by_clocks.relation and not g.tgisinternal and g.tgenabled <> 'D' and g.tgname not like '!countersign%'
          -- Those of the write itself, and those that its undo meets.
          and (g.tgtype & 1 = 0 or g.tgtype & case when op in ('I', 'D') then 4 + 8 else 16 end <> 0)
    loop
        -- 1 for rows, 2 before, 8 DELETE, 64 instead of. An undo of a deletion inserts: the row that comes back is tried.
        clocks := case when made.tgtype & (1 + 2 + 8 + 64) = 1 + 2 and made.tgattr = '' and made.tgenabled <> 'R' and made.is_readable and made.is_always
                            and op <> 'D' then countersign.clock_columns(made.prosrc) end;
        if clocks is null then
            return null;
        end if;
        columns := columns || clocks;
    end loop;
    return columns;
end $$;
comment on function countersign.set_by_clocks(oid, text) is
    'The columns that triggers of a table set in the undo of such a change, if all of them only set the time or count up. Null: there are other triggers.';

create function countersign.may_take_back(relation oid, op text) returns boolean language sql stable as $$
    select not row_security_active(relation) and coalesce(current_setting('countersign.role', true), '') = ''
       and has_table_privilege(relation, case op when 'I' then 'DELETE' when 'D' then 'INSERT' else 'UPDATE' end)
$$;
comment on function countersign.may_take_back(oid, text) is 'Whether the login has the right to the undo of such a change, and no policy examines its rows. Only a trial tells it of the role of a caller.';

create function countersign.calls_others(expression text) returns boolean
language plpgsql stable as $$
begin
    return expression ~ 'SQLVALUEFUNCTION' or exists (
        select from regexp_matches(expression, ':(?:op)?funcid (\d+)', 'g') f join pg_proc p on p.oid = f[1]::oid
        where p.provolatile <> 'i' or p.pronamespace <> 'pg_catalog'::regnamespace);
end $$;
comment on function countersign.calls_others(text) is
    'Whether an expression, as the catalog stores it, may give another answer than before or fail: it calls more than immutable functions of PostgreSQL.';

create function countersign.refuses_old_rows(relation oid, is_kept boolean) returns boolean
language plpgsql stable as $$
declare
    -- A foreign key makes PostgreSQL plan a look at the table on its other side.
    others   oid[] := array(select distinct g.tgconstrrelid from pg_trigger g where g.tgrelid = refuses_old_rows.relation and g.tgconstrrelid <> 0);
    parts    oid[] := relation || array(select p.relid::oid from pg_partition_tree(relation) p);
    -- Of the columns, and of what they consist of.
    domains  oid[] := array(
        with recursive part (id) as (
            select a.atttypid from pg_attribute a
            where a.attrelid = any (relation || others) and a.attnum > 0 and not a.attisdropped and a.atttypid >= 16384
              and (a.attrelid = refuses_old_rows.relation or exists (
                   select from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
                   where g.tgrelid = refuses_old_rows.relation and g.tgconstrrelid = a.attrelid
                     and a.attnum = any (case when f.conrelid = a.attrelid then f.conkey else f.confkey end)))
            union
            select m.id from part p join pg_type y on y.oid = p.id
            cross join lateral (
                select y.typbasetype union all select y.typelem
                union all select a.atttypid from pg_attribute a where a.attrelid = y.typrelid and a.attnum > 0 and not a.attisdropped
                union all select r.rngsubtype from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid)) m (id)
            where m.id >= 16384
        )
        select p.id from part p join pg_type y on y.oid = p.id where y.typtype = 'd');
begin
    -- What a domain checks changes without a trace in the rows of the catalog that the table has.
    return is_kept and domains <> '{}'
        or exists (select from pg_constraint n where n.contypid = any (domains) and (not n.convalidated or countersign.calls_others(n.conbin::text)))
        or exists (select from pg_constraint n where n.conrelid = any (parts) and n.contype = 'c' and countersign.calls_others(n.conbin::text))
        or exists (select from pg_index i where i.indrelid = any (parts || others) and countersign.calls_others(concat(i.indexprs, i.indpred)));
end $$;
comment on function countersign.refuses_old_rows(oid, boolean) is
    'Whether a check or an index may refuse a row that is there, or was a moment ago: NOT VALID constraints of domains, and functions that are not '
    'PostgreSQL''s own or not immutable. With is_kept also where that may become so without a change of the table itself.';

create function countersign.has_obstacles(t countersign.tracked, op text, is_moved boolean, is_kept boolean) returns boolean
language plpgsql stable as $$
declare
    is_parted       boolean;
    is_in_the_way   boolean;
    is_referred_to  boolean;
    -- PostgreSQL's functions of the triggers for the actions of foreign keys, whose oids never change: RI_FKey_cascade_del, _setnull_del,
    -- _setdefault_del, and the same for _upd.
    actions         oid[] := '{1646, 1650, 1652, 1647, 1651, 1653}';
begin
    if cardinality(t.fixed) > cardinality(t.computed) or cardinality(t.columns) > 832 then
        return true;
    end if;
    select c.relhassubclass and c.relkind = 'p', c.relhassubclass and c.relkind = 'r' or c.relhasrules
               or exists (select from pg_constraint n where n.conrelid = c.oid and not n.convalidated),
           exists (select from pg_trigger g where g.tgrelid = c.oid and g.tgisinternal and g.tgenabled <> 'D' and g.tgfoid = any (actions)
                   and (op <> 'U' or is_moved or g.tgfoid = any (actions[4:])))
    into is_parted, is_in_the_way, is_referred_to from pg_class c where c.oid = t.relation;
    is_in_the_way := is_in_the_way or countersign.refuses_old_rows(t.relation, is_kept);
    if is_kept then
        return is_in_the_way or is_parted or is_referred_to;
    end if;
    if is_parted then
        is_in_the_way := is_in_the_way or exists (
            select from pg_partition_tree(t.relation) p where p.level > 0 and (
                exists (select from pg_trigger g where g.tgrelid = p.relid and not g.tgisinternal and g.tgparentid = 0 and g.tgname not like '!countersign%')
                or exists (select from pg_constraint n where n.conrelid = p.relid and not n.convalidated)));
    end if;
    -- The actions change rows of tables that are not tracked, and run triggers for statements even where no row refers to this one.
    if is_referred_to and not is_in_the_way then
        is_in_the_way := exists (
            select from pg_trigger g
            where g.tgrelid = t.relation and g.tgisinternal and g.tgenabled <> 'D' and g.tgfoid = any (actions)
              and ((op <> 'U' or is_moved) and not exists (select from countersign.tracked k where k.is_current and k.relation = g.tgconstrrelid)
                   or (op <> 'U' or g.tgfoid = any (actions[4:]))
                      and exists (select from pg_trigger s where s.tgrelid = g.tgconstrrelid and not s.tgisinternal and s.tgtype & 1 = 0
                                                             and s.tgenabled <> 'D' and s.tgname not like '!countersign%')));
    end if;
    -- A key that is set back takes along what refers to it: not so where that is another key, or where the row moves to another partition.
    if is_moved and is_referred_to and not is_in_the_way then
        is_in_the_way := exists (
            select from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
            where g.tgrelid = t.relation and g.tgisinternal and g.tgenabled <> 'D' and g.tgfoid = any (actions[4:])
              and (is_parted or exists (select from pg_attribute a where a.attrelid = f.conrelid and a.attnum = any (f.conkey)
                                          and a.attname = any (countersign.key_columns(f.conrelid)))));
    end if;
    return is_in_the_way;
end $$;
comment on function countersign.has_obstacles(countersign.tracked, text, boolean, boolean) is
    'Whether rules, constraints or other tables may be in the way of the undo of such a change; is_kept: as long as the versions of the table''s '
    'catalog rows stay as they are, whatever becomes of its partitions and of the tables that refer to it.';

-- A write has no time to find out what the triggers and constraints of its tables mean for its undo. That changes with the catalog alone,
-- so the sweep finds it once, and keeps it with the versions of the rows of the catalog that it was read from.
create function countersign.catalog_versions(relation oid, has_clocks boolean) returns xid[]
language plpgsql stable as $$
begin
    -- A constraint or a rule changes pg_class or has triggers. One that was NOT VALID makes nothing plain when it is validated.
    if not has_clocks then
        return array(
            select c.xmin from pg_class c where c.oid = catalog_versions.relation
            union all select a.xmin from pg_attribute a where a.attrelid = catalog_versions.relation and a.attnum > 0
            union all select g.xmin from pg_trigger g where g.tgrelid = catalog_versions.relation
            union all select i.xmin from pg_index i where i.indrelid = catalog_versions.relation);
    end if;
    return array(
        select c.xmin from pg_class c where c.oid = catalog_versions.relation
        union all select a.xmin from pg_attribute a where a.attrelid = catalog_versions.relation and a.attnum > 0
        union all select v.xmin from pg_trigger g left join pg_proc p on p.oid = g.tgfoid and not g.tgisinternal and g.tgname not like '!countersign%'
                  cross join lateral (values (g.xmin), (p.xmin)) v (xmin) where g.tgrelid = catalog_versions.relation
        union all select i.xmin from pg_index i where i.indrelid = catalog_versions.relation);
end $$;
comment on function countersign.catalog_versions(oid, boolean) is
    'The transactions that made what the catalog says now of a table, its columns, triggers and indexes; with has_clocks of the functions of its triggers, too.';

create function countersign.keep_table_facts() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
declare
    t                countersign.tracked;
    plain            text;
    clocks           text[];
    insert_clocks    text[];
    stamped          int2[];
    versions         xid[];
    clock_versions   xid[];
begin
    for t in
        select k.* from countersign.tracked k join pg_class c on c.oid = k.relation
        where k.is_current and (
              k.catalog_versions is distinct from countersign.catalog_versions(k.relation, k.clock_numbers <> '{}')
              -- An index of the table on the other side of a foreign key: a write has no time to look for it.
              or k.plain_changes <> '' and exists (
                 select from pg_trigger g join pg_index i on i.indrelid = g.tgconstrrelid
                 where g.tgrelid = k.relation and num_nonnulls(i.indexprs, i.indpred) > 0 and countersign.calls_others(concat(i.indexprs, i.indpred))))
        for no key update of k skip locked
    loop
        -- Before the rest: what is found may be newer than the versions, and never older.
        versions := countersign.catalog_versions(t.relation, false);
        clock_versions := countersign.catalog_versions(t.relation, true);
        plain := '';
        stamped := '{}';
        clocks := countersign.set_by_clocks(t.relation, 'U');
        if clocks <> '{}' then
            stamped := coalesce(countersign.free_numbers(t, clocks), '{}');
            clocks := case when stamped <> '{}' then clocks end;
        end if;
        if countersign.has_current_shape(t) and t.key_columns is not null then
            insert_clocks := countersign.set_by_clocks(t.relation, 'I');
            plain := concat(
                -- Which columns the statements set is evidence of the write, where it is noted.
                case when clocks is not null and (stamped <> '{}') = (countersign.assigned_columns(t.relation) is not null)
                          and not countersign.has_obstacles(t, 'U', false, true) then 'U' end,
                -- Without clocks the versions say nothing of the functions of triggers.
                case when insert_clocks is not null and (stamped <> '{}' or insert_clocks = '{}')
                          and not countersign.has_obstacles(t, 'I', false, true) then 'I' end,
                case when countersign.set_by_clocks(t.relation, 'D') is not null and not countersign.has_obstacles(t, 'D', false, true) then 'D' end);
        end if;
        update countersign.tracked k
        set catalog_versions = case when stamped <> '{}' then clock_versions else versions end,
            plain_changes = plain, clock_columns = coalesce(clocks, '{}'), clock_numbers = stamped
        where k.shape = t.shape;
    end loop;
end $$;
comment on function countersign.keep_table_facts() is
    'Finds which changes of tracked tables an undo takes back without a trial, of all that have changed since. Not for a transaction that changes a '
    'table: a second change in it has the same version as the first.';

create function countersign.kinds_of_change(write uuid)
returns table (relation oid, shape integer, op text, is_moved boolean, has_secret_change boolean) language sql stable as $$
    select e.relation, e.shape, e.op::text, bool_or(e.key_before is not null),
           bool_or(e.op in ('U', 'D') and (e.secret_before is distinct from e.secret_after or e.key_before is not null and e.secret_before is not null))
    from countersign.effect e where e.correlation_id = write group by 1, 2, 3
$$;
comment on function countersign.kinds_of_change(uuid) is 'What a write did to which tables, a row for each.';

create function countersign.assigned_first(assigned int2[], before jsonb) returns int2[] language sql immutable as $$
    select case when before is null then assigned else array(select a from unnest(assigned) a where before @> to_jsonb(a)) end
$$;
comment on function countersign.assigned_first(smallint[], jsonb) is
    'The columns that an undo assigned, without those that only triggers set in what it undoes (before has the others): it sets them back, and they are still theirs.';

create function countersign.examine_write(write uuid, undone uuid[]) returns countersign.write_facts
language plpgsql stable set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    facts        countersign.write_facts;
    t            countersign.tracked;
    w            record;
    assigned     int2[];
    columns      text[];
    stamped      int2[];
    before       jsonb;
    has_rows     boolean := false;
begin
    facts := (false, false, false, null, null, null, null);
    for w in
        select k.* from countersign.kinds_of_change(write) k order by k.shape
    loop
        facts.has_effects := true;
        if t.shape is distinct from w.shape then
            select k.* into t from countersign.tracked k where k.shape = w.shape;
            -- The snapshot of a trial may be older than the shape.
            facts.is_outdated := facts.is_outdated or coalesce(not t.is_current or not countersign.has_current_shape(t), true);
        end if;
        assigned := case when w.op = 'U' then countersign.assigned_columns(w.relation) end;
        if assigned is not null then
            facts.assigned := coalesce(facts.assigned, '{}') || jsonb_build_object(w.relation::text, to_jsonb(assigned));
        end if;
        if t.is_log then
            facts.logs := facts.logs || countersign.table_name(w.relation);
            continue;
        end if;
        has_rows := true;
        if t.key_columns is null and w.op <> 'N' then
            facts.reason := 'irreversible';
        elsif w.has_secret_change then
            facts.reason := coalesce(facts.reason, 'image_missing');
        end if;
        continue when facts.needs_trial;
        columns := countersign.set_by_clocks(w.relation, w.op);
        facts.needs_trial := columns is null or not countersign.may_take_back(w.relation, w.op)
                             -- A row that moves to another partition is deleted and inserted.
                             or countersign.has_obstacles(t, w.op, w.is_moved or w.op in ('I', 'D') and exists (
                                    select from countersign.kinds_of_change(write) o
                                    where o.relation = w.relation and o.op in ('I', 'D') and o.op <> w.op), false);
        if not facts.needs_trial and columns <> '{}' and w.op = 'U' then
            stamped := countersign.free_numbers(t, columns);
            facts.needs_trial := w.is_moved or assigned is null or stamped is null or assigned && stamped;
            if assigned && stamped and not w.is_moved then
                undone := coalesce(undone, (countersign.claimed_attempt()).undo_of);
                before := coalesce(before, case when undone is not null then countersign.evidence_of(undone) -> 'assigned' end);
                facts.needs_trial := stamped && countersign.assigned_first(assigned, before -> w.relation::text);
            end if;
            facts.set_by_triggers := coalesce(facts.set_by_triggers, '{}') || jsonb_build_object(countersign.table_name(w.relation), to_jsonb(columns));
        end if;
    end loop;
    if facts.has_effects and not has_rows then
        facts.reason := 'irreversible';
    end if;
    return facts;
end $$;
comment on function countersign.examine_write(uuid, uuid[]) is 'What `facts_of_write` answers, found in the catalog as it is now.';

create function countersign.facts_of_write(write uuid, undone uuid[]) returns countersign.write_facts
language plpgsql stable set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    facts     countersign.write_facts := (false, false, false, null, null, null, null);
    t         countersign.tracked;
    w         record;
    assigned  int2[];
begin
    for w in
        select k.* from countersign.kinds_of_change(write) k
    loop
        facts.has_effects := true;
        if w.shape is distinct from t.shape then
            select k.* into t from countersign.tracked k where k.shape = w.shape;
        end if;
        assigned := case when w.op = 'U' and t.clock_numbers <> '{}'
                         then countersign.noted_columns(current_setting('countersign.assigned_' || w.relation, true)) end;
        -- What found a row as it wanted it (N) updated it.
        if (t.is_current and not t.is_log and not w.is_moved and not w.has_secret_change
            and strpos(t.plain_changes, translate(w.op, 'N', 'U')) > 0
            and (w.op <> 'U' or t.clock_numbers = '{}' or not assigned && t.clock_numbers)
            and countersign.may_take_back(w.relation, w.op)
            and t.catalog_versions = countersign.catalog_versions(w.relation, t.clock_numbers <> '{}')) is not true
        then
            return countersign.examine_write(write, undone);
        elsif assigned is not null then
            facts.assigned := coalesce(facts.assigned, '{}') || jsonb_build_object(w.relation::text, to_jsonb(assigned));
            facts.set_by_triggers := coalesce(facts.set_by_triggers, '{}') || jsonb_build_object(
                case when to_regclass(t.name) = w.relation then t.name else countersign.table_name(w.relation) end, to_jsonb(t.clock_columns));
        end if;
    end loop;
    return facts;
end $$;
comment on function countersign.facts_of_write(uuid, uuid[]) is 'Of a write in its own transaction, with the rights of the caller. undone: what it undoes.';

create function countersign.try_undo(write uuid, evidence jsonb, path text) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    net        countersign.net_change[] := array(select w from countersign.net_changes(array[write]) w);
    last       bigint;
    conflicts  json[];
    outcome    json;
begin
    if cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', 0);
    elsif cardinality(net) > 10000 then
        return null;
    end if;
    conflicts := countersign.undo_conflicts(array[write], net, false, path);
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts));
    end if;
    select max(e.position) into last from countersign.effect e where e.correlation_id = write;
    begin
        outcome := countersign.restore_rows(array[write], net, write, last, evidence, path);
        raise exception 'it was a trial' using errcode = 'CS006';
    exception
        when sqlstate 'CS006' then
            return outcome;
        -- Others are in the way for now, or the plans of this session are older than a column's type.
        when lock_not_available or transaction_rollback or datatype_mismatch then
            return null;
    end;
end $$;
comment on function countersign.try_undo(uuid, jsonb, text) is
    'Undoes a write within its own transaction, and takes that back: what `undo` would answer now. Null: it was not tried.';

create function countersign.receipt(
    said json, facts countersign.write_facts, affected bigint, untracked jsonb, trial json, is_long boolean
) returns json
language plpgsql stable as $$
declare
    is_declared  boolean := coalesce(said ->> 'undo_tool' <> 'undo_mutation', false);
    is_seen      boolean := facts.has_effects or affected = 0 and untracked is null;
    reason       text := coalesce(facts.reason, case when not is_seen then 'image_missing' end, trial -> 'conflicts' -> 0 ->> 'code');
    others       text[];
    otherwise    text;
    stays        text;
    receipt      jsonb;
begin
    if said is null then
        return said;
    elsif said ->> 'reversible' <> 'true' then
        -- The manifest says so, and agents keep to it.
        return case when facts.has_effects and facts.reason is null
                    then (said::jsonb || jsonb_build_object('note', concat_ws(' ', said ->> 'note', 'Its rows are on record: a person may restore them (countersign undo).')))::json
                    else said end;
    end if;
    if said ->> 'undo_tool' is null then
        return said;
    elsif reason is not null and not is_declared then
        return json_build_object('reversible', false, 'checked', true, 'reason', reason, 'note',
            case reason
                when 'image_missing' then case when is_seen then 'It cannot be undone: it changed a sensitive column, whose values are not on record.'
                                               else 'It cannot be undone: its tables are not tracked (countersign track).' end
                when 'irreversible' then 'It cannot be undone: it wrote a table without a key, or only log tables.'
                when 'not_permitted' then 'It cannot be undone with the rights of this login: one is missing, or a policy hides the rows.'
                else concat('It cannot be undone as its tables are: ', coalesce(trial -> 'conflicts' -> 0 ->> 'message', reason), '.') end);
    end if;
    if untracked is not null or facts.logs <> '{}' or trial is not null then
        others := array(select n from (select countersign.table_name(u.key::oid) as n from jsonb_each(untracked) u
                                       union select unnest(facts.logs)
                                       union select json_array_elements_text(trial -> 'written')
                                       union select k ->> 'table' from json_array_elements(trial -> 'not_restored') k) o where n is not null order by 1);
    end if;
    receipt := said::jsonb || jsonb_build_object('checked', facts.has_effects and reason is null or affected = 0 and is_seen);
    if json_typeof(trial -> 'set_again' -> 'otherwise') = 'object' then
        otherwise := (select format('Its undo leaves %s otherwise than before it: triggers set that again, and it is no clock.',
                                    string_agg(concat_ws(' ', t.key, (select string_agg(c, ', ' order by c) from json_array_elements_text(t.value) c)), '; '
                                               order by t.key))
                      from json_each(trial -> 'set_again' -> 'otherwise') t);
    end if;
    if trial -> 'not_restored' is not null then
        stays := (select format('Its undo leaves %s: triggers fill that, and only a person agrees to it, unless it is a log (countersign track --is-log).',
                                string_agg(format('%s of %s and adds %s', sentence.rows, k ->> 'table', k ->> 'added'), '; ' order by k ->> 'table'))
                  from json_array_elements(trial -> 'not_restored') k
                  cross join lateral (select concat(k ->> 'left', case when k ->> 'left' = '1' then ' row' else ' rows' end) as rows) sentence);
    end if;
    -- Triggers changed or deleted rows that nobody has recorded, or the write was too large to be tried.
    if facts.needs_trial and trial is null and reason is null or is_long or otherwise is not null or stays is not null
       or untracked @? 'strict $.* ? (@[1] > 0 || @[2] > 0)'
    then
        receipt := receipt || '{"checked": false}';
    end if;
    return json_strip_nulls(json_build_object(
        'reversible', true, 'undo_tool', receipt -> 'undo_tool', 'undo_params', receipt -> 'undo_params', 'undo_calls', receipt -> 'undo_calls',
        'checked', receipt -> 'checked', 'reason', reason, 'not_restored', case when others <> '{}' then to_json(others) end,
        'set_by_triggers', coalesce(trial -> 'set_again' -> 'columns', case when trial is null then facts.set_by_triggers::json end),
        'note', nullif(concat_ws(' ', receipt ->> 'note', stays, otherwise, case when is_long then
            'It took long, and its undo takes longer: if that is more than a call may take, a person can undo it (countersign undo).' end), '')));
end $$;
comment on function countersign.receipt(json, countersign.write_facts, bigint, jsonb, json, boolean) is
    'How a write can be undone: what its tool says, as far as it is so.';

create function countersign.evidence_of_undo(evidence jsonb, undone uuid[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    before  jsonb := case when undone is not null then countersign.evidence_of(undone) -> 'assigned' end;
begin
    if evidence -> 'assigned' is null or before is null then
        return evidence;
    end if;
    return jsonb_set(evidence, '{assigned}', (
        select jsonb_object_agg(n.key, countersign.assigned_first(array(select c::int2 from jsonb_array_elements_text(n.value) c), before -> n.key))
        from jsonb_each(evidence -> 'assigned') n));
end $$;
comment on function countersign.evidence_of_undo(jsonb, uuid[]) is 'The evidence of a write; if it is an undo: a column that only triggers set in the write is none that the undo set.';

create function countersign.promise_of_write(
    write uuid, affected bigint, said json, path text, undone uuid[], out receipt json, out evidence jsonb, out did_nothing boolean
) language plpgsql as $$
declare
    facts      countersign.write_facts;
    untracked  jsonb;
    trial      json;
    -- An undo takes up to four times as long as its write, and has as much time.
    is_long    boolean := coalesce(clock_timestamp() - now() > nullif(current_setting('statement_timeout')::interval, '0') / 4, false);
begin
    -- Without this look, a write of tables that are not tracked costs twice as much here.
    facts := case when exists (select from countersign.effect e where e.correlation_id = write)
                  then countersign.facts_of_write(write, undone) else (false, false, false, null, null, null, null)::countersign.write_facts end;
    if facts.is_outdated then
        raise exception 'the columns of a tracked table have changed' using errcode = 'CS005';
    elsif facts.assigned is not null then
        evidence := jsonb_build_object('assigned', facts.assigned);
    end if;
    -- Most writes are as their tools say. What the server knows of the tool's tables is enough where it knows that all of them are tracked,
    -- and no trigger adds others. A write that the ledger has nothing of is not undone by it.
    if facts.has_effects and not facts.needs_trial and (facts.reason, facts.logs, facts.set_by_triggers) is null
       and said ->> 'checked' = 'true' and not is_long
       or not facts.has_effects and affected <> 0 and said ->> 'reversible' = 'false' then
        receipt := said;
        return;
    end if;
    if facts.needs_trial or facts.has_effects and coalesce(said ->> 'checked', 'false') <> 'true'
       or not facts.has_effects and (affected = 0 or said ->> 'reversible' = 'true') then
        untracked := nullif(countersign.untracked_counts(false), '{}');
    end if;
    did_nothing := not facts.has_effects and untracked is null;
    if untracked is not null then
        evidence := coalesce(evidence, '{}') || jsonb_build_object('untracked', untracked);
    end if;
    if (facts.needs_trial or facts.has_effects and untracked is not null) and facts.reason is null and said ->> 'reversible' = 'true' then
        trial := countersign.try_undo(write, coalesce(countersign.evidence_of_undo(evidence, coalesce(undone, (countersign.claimed_attempt()).undo_of)), '{}'), path);
    end if;
    receipt := countersign.receipt(said, facts, affected, untracked, trial, is_long);
end $$;
comment on function countersign.promise_of_write(uuid, bigint, json, text, uuid[]) is
    'How a write can be undone: what its tool says of it, held against what the write did. undone: what it undoes, if its attempt does not say so. '
    'CS005: the columns of a tracked table have changed.';

create function countersign.promise_of_preview(
    preview uuid, affected bigint, said json, undone uuid[], path text default pg_catalog.current_setting('search_path')
) returns json language sql volatile set search_path = pg_catalog, pg_temp as $$
    select p.receipt from countersign.promise_of_write(preview, affected, said, path, undone) p
$$;
comment on function countersign.promise_of_preview(uuid, bigint, json, uuid[], text) is
    'What `finish` would say of a write that is rolled back, and that undoes others.';
