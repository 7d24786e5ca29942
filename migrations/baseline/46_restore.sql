-- How the rows of writes are put back: what that reaches beyond them, in which order, and what has to come out of it.

create function countersign.is_guarded(relation oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return countersign.has_triggers(relation, 0)
        or exists (select from pg_class c where c.oid = relation and (c.relhassubclass and c.relkind = 'r' or c.relhasrules))
        or exists (select from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
                   where g.tgrelid = is_guarded.relation and g.tgisinternal and f.confrelid = g.tgrelid
                     and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd')));
end $$;
comment on function countersign.is_guarded(oid) is
    'Whether a change of its rows can change others: it has triggers, rules, children, or foreign keys with an action.';

create function countersign.untracked_counts(is_exact boolean, also oid[] default '{}') returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    relations  oid[];
begin
    -- Of 5,000 tables a write has locked a few.
    if is_exact then
        relations := array(select c.oid from pg_class c where c.relkind = 'r' and c.oid >= 16384);
    else
        relations := also || array(select l.relation from pg_locks l
                                   where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = 'RowExclusiveLock');
    end if;
    return (
        select coalesce(jsonb_object_agg(c.oid::text, json_build_array(n.inserted, n.updated, n.deleted)), '{}')
        from pg_class c
        cross join lateral (select pg_stat_get_xact_tuples_inserted(c.oid) as inserted, pg_stat_get_xact_tuples_updated(c.oid) as updated,
                                   pg_stat_get_xact_tuples_deleted(c.oid) as deleted) n
        where c.oid = any (relations) and c.relkind = 'r' and c.oid >= 16384 and c.relpersistence <> 't'
          and c.relnamespace <> 'countersign'::regnamespace
          and n.inserted + n.updated + n.deleted > 0
          and not exists (select from countersign.tracked t where t.is_current
                          and t.relation = case when c.relispartition then pg_partition_root(c.oid)::oid else c.oid end));
end $$;
comment on function countersign.untracked_counts(boolean, oid[]) is
    'The rows that this transaction has inserted, updated and deleted in tables that are not tracked, under their oid; with is_exact every table, '
    'otherwise those that this transaction has locked, and others that are named. In PostgreSQL 14, earlier transactions of the session may still be in the counts, but not '
    'in their difference.';

create function countersign.untracked_damage(before jsonb, after jsonb, allowed jsonb, touched oid[]) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_agg(json_build_object(
               'code', case when f.is_reached then 'referenced' else 'side_effects' end, 'table', countersign.table_name(d.relation),
               'message', format('the undo would change %s and delete %s rows of %s, which is not tracked', d.updated, d.deleted,
                                 countersign.table_name(d.relation))) order by d.relation)
    from (select a.key::oid as relation,
                 (a.value ->> 1)::bigint - coalesce((before -> a.key ->> 1)::bigint, 0) as updated,
                 (a.value ->> 2)::bigint - coalesce((before -> a.key ->> 2)::bigint, 0) as deleted,
                 coalesce((allowed -> a.key ->> 0)::bigint, 0) as inserted_then,
                 coalesce((allowed -> a.key ->> 1)::bigint, 0) as updated_then,
                 coalesce((allowed -> a.key ->> 2)::bigint, 0) as deleted_then
          from jsonb_each(after) a) d
    cross join lateral (select exists (
        select from pg_constraint f where f.conrelid = d.relation and f.contype = 'f' and f.confrelid = any (touched)
        and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd'))) as is_reached) f
    where case when f.is_reached then d.updated > 0 or d.deleted > 0
               -- A trigger that keeps a total, or a row beside each row: as many as the write itself has touched.
               else d.updated > d.updated_then + d.inserted_then or d.deleted > d.inserted_then end
$$;
comment on function countersign.untracked_damage(jsonb, jsonb, jsonb, oid[]) is
    'What an undo did to rows of tables that are not tracked, as conflicts, beyond what the triggers of the write did to them; null for nothing.';

create function countersign.evidence_of(writes uuid[]) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    evidence  jsonb;
begin
    -- One write as a rule, whose evidence it is.
    if cardinality(writes) = 1 then
        select countersign.relations_now(r.evidence::jsonb, r.id) into evidence from countersign.record r where r.correlation_id = writes[1];
        return coalesce(evidence, '{}');
    end if;
    return jsonb_build_object(
        'assigned', (
            select coalesce(jsonb_object_agg(u.relation::text, u.columns), '{}')
            from (select e.relation, jsonb_agg(distinct c.number) filter (where c.number is not null) as columns,
                         bool_and(countersign.relations_now(r.evidence::jsonb, r.id) -> 'assigned' ? e.relation::text) as is_known
                  from (select distinct f.correlation_id, f.relation from countersign.effect f
                        where f.correlation_id = any (writes) and f.op = 'U') e
                  join countersign.record r on r.correlation_id = e.correlation_id
                  left join lateral jsonb_array_elements(countersign.relations_now(r.evidence::jsonb, r.id) -> 'assigned' -> e.relation::text) c (number) on true
                  group by e.relation) u
            where u.is_known),
        'untracked', (
            select coalesce(jsonb_object_agg(u.relation, jsonb_build_array(u.inserted, u.updated, u.deleted)), '{}')
            from (select c.key as relation, sum((c.value ->> 0)::bigint) as inserted, sum((c.value ->> 1)::bigint) as updated,
                         sum((c.value ->> 2)::bigint) as deleted
                  from countersign.record r cross join lateral jsonb_each(countersign.relations_now(r.evidence::jsonb, r.id) -> 'untracked') c
                  where r.correlation_id = any (writes) group by c.key) u));
end $$;
comment on function countersign.evidence_of(uuid[]) is 'What writes have noted beside their effects, taken together.';

create function countersign.clocks_of(relation oid) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        select a.attname::text from pg_attribute a join pg_type y on y.oid = a.atttypid
        where a.attrelid = clocks_of.relation and a.attnum > 0 and (y.typcategory = 'D' or y.oid = 'uuid'::regtype)
        union
        select unnest(countersign.clock_columns(p.prosrc)) from pg_trigger g join pg_proc p on p.oid = g.tgfoid
        where g.tgrelid = clocks_of.relation and not g.tgisinternal);
end $$;
comment on function countersign.clocks_of(oid) is
    'Columns whose value before a write nobody wants back where a trigger sets them: times, uuids, and what its triggers set to the time or count up.';

create function countersign.deviations(
    writes uuid[], undos uuid[], after_position bigint, evidence jsonb, out wrong json, out set_again json, out grown oid[], out kept json
) language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    last_position  bigint := case when after_position > 0 then after_position else 9223372036854775807 end;
    left_alone     oid[];
begin
    -- Perhaps a history: the write, and its undo, have only added rows, and only by triggers. A person may take it for one.
    grown := array(
        select distinct u.relation from countersign.effect u
        join countersign.tracked k on k.relation = u.relation and k.is_current and not k.is_log and not k.not_log
        where u.correlation_id = any (undos) and u.position > after_position and u.op = 'I' and u.by_trigger
          and exists (select from countersign.effect e where e.correlation_id = any (writes) and e.relation = u.relation and e.position <= last_position)
          and not exists (select from countersign.effect e
                          where e.correlation_id = any (writes) and e.relation = u.relation and e.position <= last_position
                            and not (e.op in ('I', 'N') and e.by_trigger)));
    -- Those to which the undo has only added rows as well.
    left_alone := array(
        select g from unnest(grown) g
        where not exists (select from countersign.effect e where e.correlation_id = any (undos) and e.relation = g and e.position > after_position
                          and not (e.op in ('I', 'N') and e.by_trigger)));
    if left_alone <> '{}' then
        select json_agg(json_build_object('table', countersign.table_name(n.relation), 'left', n.left_there, 'added', n.added) order by n.relation)
        into kept
        from (select e.relation, count(*) filter (where e.correlation_id = any (writes) and e.position <= last_position) as left_there,
                     count(*) filter (where e.correlation_id = any (undos) and e.position > after_position) as added
              from countersign.effect e
              where e.correlation_id = any (writes || undos) and e.relation = any (left_alone) and e.op = 'I' group by e.relation) n;
    end if;
    with compared as materialized (
        select coalesce(d.relation, u.relation) as relation, coalesce(d.shape, u.shape) as shape, coalesce(d.key, u.key) as key,
               d.before as d_before, d.after as d_after, u.before as u_before, u.after as u_after,
               d.relation is null as is_extra, u.relation is null as is_left,
               d.secret_before is not distinct from u.secret_after and d.secret_after is not distinct from u.secret_before as has_secrets
        from countersign.net_changes(writes, 0, last_position) d
        full join countersign.net_changes(undos, after_position) u on u.relation = d.relation and coalesce(u.key, '') = coalesce(d.key, '')
        -- The images themselves first: most rows need no look at their columns.
        where (u.before is distinct from d.after or u.after is distinct from d.before
               or u.secret_before is distinct from d.secret_after or u.secret_after is distinct from d.secret_before)
          and coalesce(d.relation, u.relation) <> all (left_alone)
    ), shape as materialized (
        select k.shape, n as t, n.name, n.columns, n.sensitive, n.unstored, n.maintained || n.unstored as ignored, countersign.clocks_of(n.relation) as clocks,
               -- The columns that triggers may set again: those that no statement of the write has set, and of a row that
               -- comes back those that triggers of the table insist on.
               case when evidence -> 'assigned' ? n.relation::text then array(
                   select c from unnest(n.columns, n.numbers) u (c, number)
                   where c <> all (n.key_columns) and not (evidence -> 'assigned' -> n.relation::text @> to_jsonb(number))) else '{}' end as unassigned,
               case when countersign.has_triggers(n.relation, 1 + 2 + 4) then array(select c from unnest(n.columns) c where c <> all (n.key_columns))
                    else '{}' end as insisted,
               countersign.has_triggers(n.relation, 1 + 2 + 16) and countersign.assigned_columns(n.relation) is null as has_newer_trigger
        from countersign.tracked k cross join lateral countersign.tracked_now(k) n
        where k.shape in (select c.shape from compared c)
    ), looked_at as materialized (
        select c.*, f.free, d.differing,
               s.name is not null and d.differing <@ (s.ignored || f.free)
               and (c.is_extra or c.is_left or c.has_secrets and (c.u_before = c.d_after or countersign.same_image(s.t, c.u_before, c.d_after, s.unstored))) as is_right
        from compared c join shape s on s.shape = c.shape
        cross join lateral (select case when c.d_before is null or c.is_extra then '{}'::text[] when c.d_after is null then s.insisted else s.unassigned end as free,
                                   case when c.is_extra then c.u_before else c.d_before end as wanted,
                                   case when c.is_left then c.d_after else c.u_after end as present) f
        -- The columns in which the row is not what it was; null if it is there only before or after. Images are read once: that costs most.
        cross join lateral (select case when f.wanted is not distinct from f.present then '{}'
                                        when f.wanted is not null and f.present is not null then array(
            select i.name from unnest(s.columns, countersign.fields(f.wanted), countersign.fields(f.present)) i (name, b, n)
            where i.b is distinct from i.n) end as differing offset 0) d
    ), again as materialized (
        select l.*, s.name, s.columns, s.sensitive, s.clocks from looked_at l join shape s on s.shape = l.shape
        where l.is_right and l.free <> '{}' and not (l.differing <@ s.ignored)
    ), set_by_triggers as materialized (
        select a.name, c.name as column_name, bool_or(c.name <> all (a.clocks)) as is_otherwise
        from again a cross join lateral unnest(a.differing) c (name) where c.name = any (a.free) group by 1, 2
    )
    select (select json_agg(json_build_object('code', 'side_effects', 'table', coalesce(s.name, countersign.table_name(j.relation)), 'key', j.key::json,
                'columns', (select json_agg(json_build_object('name', c.name, 'to_restore', countersign.field_value(c.b), 'now', countersign.field_value(c.n)))
                            from unnest(s.columns, countersign.fields(j.d_before), countersign.fields(j.u_after)) c (name, b, n)
                            where c.b is distinct from c.n and c.name <> all (s.sensitive || s.unstored)),
                'message', case when j.is_extra then 'the undo changed a row that the write did not change'
                                when j.is_left then 'the undo left the row as it was'
                                when s.has_newer_trigger then 'a BEFORE trigger that was made after the table was tracked changed the row again: '
                                                              'run `countersign track` for the table'
                                else 'something changed the row after it was restored' end))
            from looked_at j join shape s on s.shape = j.shape where j.is_right is not true),
           case when exists (select from again) then json_build_object(
               'rows', (select count(*) from again),
               'columns', (select json_object_agg(t.name, t.columns)
                           from (select c.name, json_agg(c.column_name order by c.column_name) as columns from set_by_triggers c group by 1) t),
               'otherwise', (select json_object_agg(t.name, t.columns)
                             from (select c.name, json_agg(c.column_name order by c.column_name) as columns
                                   from set_by_triggers c where c.is_otherwise group by 1) t),
               'first', (select json_agg(json_build_object('table', a.name, 'key', a.key::json, 'columns', (
                             select json_object_agg(c.name, countersign.field_value(c.n))
                             from unnest(a.columns, countersign.fields(a.d_before), countersign.fields(a.u_after)) c (name, b, n)
                             where c.b is distinct from c.n and c.name = any (a.free) and c.name <> all (a.sensitive))))
                         from (select * from again o order by o.name, o.key limit 20) a)) end
    into wrong, set_again;
end $$;
comment on function countersign.deviations(uuid[], uuid[], bigint, jsonb) is
    'Where the recorded effects of undos are not the exact inverse of what they undo: wrong has the conflicts, set_again the columns that triggers set '
    'and that no statement of the writes had set (otherwise: those that are no clocks), grown what may be histories, and kept '
    'how many rows of these are left and added. With a position: the undo is what came after it in the same write.';

-- How an undo is carried out. The last argument is evaluated where `undo` is called: the search_path of the session, for the triggers and
-- policies of the tables.
create function countersign.undo(
    writes uuid[], is_executing boolean default true, path text default pg_catalog.current_setting('search_path')
) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    single     countersign.net_change := case when is_executing then countersign.single_change(writes) end;
    net        countersign.net_change[];
    conflicts  json[];
begin
    if single.relation is not null and not countersign.is_guarded(single.relation) and countersign.restore_row(single, path) then
        return json_build_object('status', 'ok', 'rows', 1);
    end if;
    net := array(select w from countersign.net_changes(writes) w);
    conflicts := countersign.refused_writes(writes);
    if conflicts is null then
        conflicts := countersign.undo_conflicts(writes, net, is_executing, path);
    end if;
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts), 'rows', cardinality(net));
    end if;
    if is_executing and exists (select from countersign.tracked k where k.is_current and k.relation in (select w.relation from unnest(net) w)
                                and not countersign.has_current_shape(k)) then
        raise exception 'the columns of a tracked table have changed' using errcode = 'CS005';
    end if;
    if not is_executing or cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', cardinality(net));
    end if;
    return countersign.restore_rows(writes, net, (countersign.claimed_attempt()).correlation_id, 0, countersign.evidence_of(writes), path);
end $$;
comment on function countersign.undo(uuid[], boolean, text) is
    'Undoes writes, all rows or none. {status: ok, rows, set_again, written, not_restored} or {status: conflict, conflicts}; then nothing was changed. Without is_executing it '
    'only looks, and locks nothing.';

create function countersign.claimed_attempt() returns countersign.attempt
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (select row(c.*)::countersign.attempt from countersign.claim c
            where c.ctid = nullif(current_setting('countersign.at', true), '')::tid and c.xmin = pg_current_xact_id()::xid);
end $$;
comment on function countersign.claimed_attempt() is 'The attempt that this transaction carries out; null for none.';

create function countersign.is_remade(t countersign.tracked, before text, after text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return cardinality(t.fixed) > cardinality(t.computed) and before is not null and after is not null and exists (
        select from unnest(t.columns, countersign.fields(before), countersign.fields(after)) c (name, b, a)
        where c.b is distinct from c.a and c.name = any (t.fixed) and c.name <> all (t.computed || t.key_columns));
end $$;
comment on function countersign.is_remade(countersign.tracked, text, text) is
    'Whether a column GENERATED ALWAYS AS IDENTITY changed: no UPDATE sets it back, so the row is deleted and inserted.';

create function countersign.settle(path text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    of_login   text := current_setting('role');
    of_caller  text := nullif(current_setting('countersign.role', true), '');
begin
    -- Until the end of the function, for the triggers that were deferred.
    perform set_config('search_path', path, true);
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_caller, true);
    end if;
    set constraints all immediate;
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_login, true);
    end if;
end $$;
comment on function countersign.settle(text) is 'Runs what was deferred, with the search_path of the session, as the role of the caller.';

create function countersign.restore_rows(
    writes uuid[], net countersign.net_change[], undo uuid, after_position bigint, evidence jsonb, path text
) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    sources      integer[] := array(select distinct w.shape from unnest(net) w order by 1);
    tables       countersign.tracked[] := array(select countersign.tracked_now(k) from unnest(sources) with ordinality s (shape, n)
                                                join countersign.tracked k on k.shape = s.shape order by s.n);
    relations    oid[] := array(select distinct (t).relation from unnest(tables) t);
    is_guarded   boolean := exists (select from unnest(relations) r where countersign.is_guarded(r));
    -- Those that foreign keys reach are known beforehand; for others, a look at every table where these are few, or where it is no trial.
    reached      oid[] := array(select f.conrelid from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
                                where g.tgrelid = any (relations) and g.tgisinternal and f.confrelid = g.tgrelid);
    is_exact     boolean := after_position = 0 or (select c.reltuples < 2000 from pg_class c where c.oid = 'pg_class'::regclass);
    counts       jsonb;
    counts_now   jsonb;
    written      json;
    moves        jsonb;
    depth        jsonb := '{}';
    level        record;
    kinds        text;
    total        bigint;
    wrong        json;
    set_again    json;
    histories    oid[];
    grown        oid[] := '{}';
    kept         json;
    conflict     json;
    refusal      json;
    broken_name  text;
    broken_in    text;
    kind         text;
begin
    -- Tables in the order of their foreign keys: parents are put back first and removed last.
    for pass in 1 .. least(cardinality(relations), 20) loop
        for level in
            select f.conrelid as child, max(coalesce((depth ->> f.confrelid::text)::int, 0)) + 1 as depth
            from pg_constraint f
            where f.contype = 'f' and f.conrelid <> f.confrelid and f.conrelid = any (relations) and f.confrelid = any (relations)
            group by f.conrelid
        loop
            depth := depth || jsonb_build_object(level.child::text, level.depth);
        end loop;
    end loop;
    if exists (select from unnest(net) w where w.before is null) and exists (select from unnest(net) w where w.after is null) then
        select jsonb_object_agg(m.relation || ' ' || m.key_now, m.relation || ' ' || m.key_before) into moves
        from countersign.moved_rows(writes, net) m;
    end if;

    -- Foreign keys want a row back before what refers to it, and unique values want to be free first: one order or another. M puts the
    -- key of a row back, and without it the row is deleted and inserted. The last order is that of the writes, backwards: they went
    -- through these states, so no constraint that held is in the way.
    kinds := 'MIUD';
    if exists (select from unnest(tables) t where cardinality(t.fixed) > cardinality(t.computed))
       and exists (select from unnest(net) w where countersign.is_remade(tables[array_position(sources, w.shape)], w.before, w.after)) then
        kinds := 'DIU';
    end if;
    while kinds is not null loop
        begin
            set constraints all deferred;
            total := 0;
            if is_guarded then
                counts := countersign.untracked_counts(is_exact, reached);
            end if;
            if kinds = 'R' then
                total := countersign.restore_backwards(writes, after_position, grown, path);
            else
                foreach kind in array string_to_array(kinds, null) loop
                    total := total + countersign.restore_kind(kind, net, sources, tables, depth, case when kinds <> 'DIU' then moves end, grown, path, is_guarded);
                end loop;
            end if;
            if is_guarded or kinds = 'R' then
                perform countersign.restore_disturbed(net, sources, tables, evidence, grown, path);
            end if;
            perform countersign.settle(path);
            if is_guarded or kinds = 'R' then
                select d.wrong, d.set_again, d.grown, d.kept into wrong, set_again, histories, kept
                from countersign.deviations(writes, array[undo], after_position, evidence) d;
                if wrong is not null then
                    conflict := wrong;
                    raise exception 'the rows are not what they were before the write' using errcode = 'CS002';
                end if;
            end if;
            if is_guarded then
                counts_now := countersign.untracked_counts(false, reached);
                conflict := case when counts_now <> counts
                            then countersign.untracked_damage(counts, counts_now, evidence -> 'untracked', relations) end;
                if conflict is not null then
                    raise exception 'the undo reaches other rows' using errcode = 'CS002';
                end if;
                written := (select json_agg(countersign.table_name(n.key::oid)) from jsonb_each(counts_now) n
                            where n.value is distinct from counts -> n.key);
            end if;
            return json_strip_nulls(json_build_object('status', 'ok', 'rows', total, 'set_again', set_again, 'written', written, 'not_restored', kept));
        exception
            -- A column got another type, and a trigger's function has plans of this session that are older: another session has none.
            when transaction_rollback or lock_not_available or insufficient_resources or operator_intervention or system_error or datatype_mismatch then
                raise;
            when sqlstate 'CS002' then
                refusal := case when kinds = 'R' then coalesce(refusal, conflict) else conflict end;
                if histories <> '{}' and not (grown @> histories) then
                    grown := grown || histories;
                    continue;
                end if;
                kinds := case when kinds <> 'R' then 'R' end;
            when insufficient_privilege then
                refusal := json_build_array(json_build_object('code', 'not_permitted', 'table', (tables[1]).name, 'message', sqlerrm));
                kinds := null;
            when integrity_constraint_violation then
                get stacked diagnostics broken_name = constraint_name;
                conflict := json_build_array(json_build_object(
                    'code', case when sqlstate <> '23503' then 'constraint' when kind in ('D', 'M') then 'referenced' else 'parent_missing' end,
                    'constraint', broken_name, 'message', sqlerrm));
                refusal := case when kinds = 'R' then coalesce(refusal, conflict) else conflict end;
                kinds := case kinds when 'MIUD' then 'MDUI' when 'MDUI' then 'DMUI' when 'DMUI' then 'UMDI' when 'UMDI' then 'DIU' when 'DIU' then 'R' end;
            -- A trigger that refuses.
            when others then
                get stacked diagnostics broken_in = pg_exception_context;
                -- In the transaction of the write, PostgreSQL checks foreign keys also of rows that keep them, and an undo does not.
                if undo = any (writes) and broken_in ~ 'SELECT 1 FROM ONLY .* FOR KEY SHARE OF x' then
                    raise exception 'not known' using errcode = 'CS006';
                end if;
                refusal := coalesce(refusal, json_build_array(json_build_object('code', 'side_effects', 'message', sqlerrm)));
                kinds := case when kinds <> 'R' then 'R' end;
        end;
    end loop;
    return json_build_object('status', 'conflict', 'rows', cardinality(net), 'conflicts', refusal);
end $$;
comment on function countersign.restore_rows(uuid[], countersign.net_change[], uuid, bigint, jsonb, text) is
    'Puts rows back that are as the writes left them, in one order or another, and compares what happened. `undo` is the write that does it.';

create function countersign.restore_kind(
    kind text, net countersign.net_change[], sources integer[], tables countersign.tracked[], depth jsonb, moves jsonb, grown oid[], path text,
    may_exist boolean
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    place    integer;
    t        countersign.tracked;
    images   text[];
    matched  text[];
    total    bigint := 0;
begin
    if kind = 'M' and moves is null then
        return 0;
    end if;
    for place in
        select n from generate_subscripts(tables, 1) n
        where (tables[n]).relation <> all (grown)
        order by coalesce((depth ->> (tables[n]).relation::text)::int, 0) * case when kind = 'D' then -1 else 1 end, (tables[n]).relation, n
    loop
        t := tables[place];
        if kind = 'M' then
            select array_agg(b.before order by b.key), array_agg(w.after order by b.key) into images, matched
            from unnest(net) w
            join unnest(net) b on b.relation = w.relation and moves ->> (w.relation || ' ' || w.key) = b.relation || ' ' || b.key
            where w.shape = sources[place];
        else
            select array_agg(coalesce(w.before, w.after) order by w.key), array_agg(coalesce(w.after, w.before) order by w.key)
            into images, matched
            from unnest(net) w
            where w.shape = sources[place] and case when w.before is null then kind = 'D' when w.after is null then kind = 'I'
                                                      when cardinality(t.fixed) > cardinality(t.computed) and countersign.is_remade(t, w.before, w.after) then kind in ('D', 'I') else kind = 'U' end
              and (moves is null or not (moves ? (w.relation || ' ' || w.key) or exists (
                   select from jsonb_each_text(moves) m where m.value = w.relation || ' ' || w.key)));
        end if;
        if images is not null then
            total := total + countersign.apply_images(t, kind, images, matched, path, may_exist);
        end if;
    end loop;
    return total;
end $$;
comment on function countersign.restore_kind(text, countersign.net_change[], integer[], countersign.tracked[], jsonb, jsonb, oid[], text, boolean) is
    'One step of an order: the rows that come back (I), go (D), change (U), or get their key back (M).';

create function countersign.recorded_steps(writes uuid[], until_position bigint)
returns table (shape integer, op "char", before text, after text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    return query
    select e.shape, e.op, case when e.unchanged is null then e.before else countersign.full_before_image(e.before, e.after, e.unchanged) end, e.after
    from countersign.effect e join countersign.tracked t on t.shape = e.shape and not t.is_log
    where e.correlation_id = any (writes) and e.op <> 'N' and (until_position = 0 or e.position <= until_position)
    order by e.position desc;
end $$;
comment on function countersign.recorded_steps(uuid[], bigint) is 'The changes of writes, the last one first.';

create function countersign.restore_backwards(writes uuid[], until_position bigint, grown oid[], path text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    step   record;
    t      countersign.tracked;
    total  bigint := 0;
begin
    for step in select s.* from countersign.recorded_steps(writes, until_position) s loop
        if t.shape is distinct from step.shape then
            select n.* into t from countersign.tracked k cross join lateral countersign.tracked_now(k) n where k.shape = step.shape;
        end if;
        continue when t.relation = any (grown);
        if countersign.is_remade(t, step.before, step.after) then
            perform countersign.apply_images(t, 'D', array[step.before], array[step.after], path);
        end if;
        total := total + countersign.apply_images(t, case when step.op = 'I' then 'D'
            when step.op = 'D' or countersign.is_remade(t, step.before, step.after) then 'I' else 'U' end,
            array[coalesce(step.before, step.after)], array[coalesce(step.after, step.before)], path, true);
    end loop;
    return total;
end $$;
comment on function countersign.restore_backwards(uuid[], bigint, oid[], text) is 'Puts the recorded changes back one by one, the last one first.';

create function countersign.restore_disturbed(
    net countersign.net_change[], sources integer[], tables countersign.tracked[], evidence jsonb, grown oid[], path text
) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    t          countersign.tracked;
    images     text[];
    matched    text[];
    free       text[];
    ignored    text[];
    disturbed  bigint;
begin
    for pass in 1 .. 2 loop
        disturbed := 0;
        for place in 1 .. cardinality(tables) loop
            t := tables[place];
            continue when t.relation = any (grown);
            free := case when evidence -> 'assigned' ? t.relation::text then array(
                select c from unnest(t.columns, t.numbers) u (c, number)
                where not (evidence -> 'assigned' -> t.relation::text @> to_jsonb(number))) else '{}' end;
            ignored := t.sensitive || t.maintained || t.unstored;
            with w as materialized (
                select x.before, x.after is null as is_back, row_number() over () as n from unnest(net) x
                where x.shape = sources[place] and x.before is not null and (pass = 1 or x.after is not null)
            )
            select array_agg(w.before), array_agg(r.image) into images, matched
            from countersign.current_rows(t, array(select w.before from w order by w.n), false, path) r
            join w on w.n = r.n
            where r.image is distinct from w.before and exists (
                select from unnest(t.columns, countersign.fields(r.image), countersign.fields(w.before)) c (name, x, y)
                where c.x is distinct from c.y and c.name <> all (ignored) and (w.is_back or c.name <> all (free)));
            if images is not null then
                disturbed := disturbed + countersign.apply_images(t, 'U', images, matched, path);
            end if;
        end loop;
        exit when disturbed = 0;
    end loop;
end $$;
comment on function countersign.restore_disturbed(countersign.net_change[], integer[], countersign.tracked[], jsonb, oid[], text) is
    'Triggers may have changed a row after it was put back, such as a total that one keeps: these rows once more. Not for a column that only triggers set.';
