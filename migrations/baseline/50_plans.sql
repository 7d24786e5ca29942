-- Undo of many writes: which they are, and what undoing them together would mean. What runs is `undo` and `finish` over the writes of
-- the plan, in one transaction.

-- A conflict of which it is known what it says of a write, as a reason to leave that out.
create function countersign.left_out_by(write uuid, reason json) returns json
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_strip_nulls(json_build_object('code', reason -> 'code', 'table', reason -> 'table', 'key', reason -> 'key',
               'constraint', reason -> 'constraint', 'message', reason -> 'message',
               'write', countersign.describe_write(write), 'changed_by', reason -> 'changed_by'))
$$;
comment on function countersign.left_out_by(uuid, json) is 'A write that a plan leaves out, as a conflict without values: why, and what is in the way.';

create function countersign.is_redo(write uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (select from countersign.reversal u join countersign.reversal w on w.reversed_by = u.correlation_id where u.reversed_by = write)
$$;
comment on function countersign.is_redo(uuid) is 'Whether it is the undo of an undo, so that writes are in force again by it.';

create function countersign.made_again(write uuid) returns setof uuid
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    with recursive step (id) as (
        select write
        union
        select w.correlation_id from step s
        join countersign.reversal u on u.reversed_by = s.id join countersign.reversal w on w.reversed_by = u.correlation_id
    )
    select s.id from step s where not countersign.is_redo(s.id)
$$;
comment on function countersign.made_again(uuid) is 'The writes that are in force by a redo; the write itself if it is none.';

create function countersign.selected_writes(
    of_account text, of_actor text, of_session text, of_client text, of_tool text, of_table text, from_time timestamptz, to_time timestamptz,
    of_context text default null, for_account text default null
) returns table (correlation_id uuid, tool_name text, account_id text, actor text, session_id text, admitted_at timestamptz,
                 completed_at timestamptz, is_inside boolean, makes_again uuid[], left_out json)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    with matched as materialized (
        select r.correlation_id as write, r.completed_at >= from_time and r.completed_at < to_time as is_inside,
               r.undo_of is not null as is_undo, exists (select from countersign.reversal v where v.correlation_id = r.correlation_id) as is_reversed
        from countersign.record r
        where r.status = 'success' and r.completed_at >= from_time and r.admitted_at < to_time
          and (of_account is null or r.account_id = of_account) and (of_actor is null or r.actor = of_actor)
          and (of_session is null or r.session_id = of_session) and (of_client is null or r.client_name = of_client)
          and (of_tool is null or r.tool_name = of_tool)
          and (of_context is null or r.caller_context is null or r.caller_context::text = of_context)
          and (of_table is null or exists (
               select from countersign.effect e join countersign.tracked t on t.shape = e.shape
               where e.correlation_id = r.correlation_id and t.name = of_table))
    ), standing as materialized (
        -- What counts is the difference that the selection has made. An undo is none of its own; a redo is, unless its undo is selected too.
        select case when m.is_reversed then (countersign.reversal_state(m.write)).effective_as else m.write end as write,
               bool_or(m.is_inside) as is_inside, bool_or(m.is_reversed) as was_undone, array_agg(m.write) as selected
        from matched m
        where not m.is_undo or countersign.is_redo(m.write) and not exists (
              select from countersign.reversal u join matched o on o.write = u.correlation_id where u.reversed_by = m.write)
        group by 1
    )
    select r.correlation_id, r.tool_name, r.account_id, r.actor, r.session_id, r.admitted_at, r.completed_at, s.is_inside,
           case when s.was_undone then s.selected end,
           case when s.was_undone then (
               select countersign.left_out_by(r.correlation_id, json_build_object('code', case when w.is_foreign then 'not_permitted' else 'needed_by' end, 'message',
                          case when w.is_foreign then 'another account or a person has made it again' else 'it makes other writes again as well' end))
               from (select for_account is not null and (r.account_id <> for_account or r.approval is not null and r.approval -> 'proposal_id' is null
                            or coalesce(of_context <> r.caller_context::text, false)) as is_foreign) w
               where w.is_foreign or exists (
                     select a.write from countersign.made_again(r.correlation_id) a (write)
                     except select a.write from unnest(s.selected) c (write) cross join lateral countersign.made_again(c.write) a (write)))
           end
    from standing s join countersign.record r on r.correlation_id = s.write
    order by r.id
$$;
comment on function countersign.selected_writes(text, text, text, text, text, text, timestamptz, timestamptz, text, text) is
    'Successes that still count, in the order of their commits, completed from from_time until before to_time. is_inside is false for '
    'those that began inside the window and committed after it. A write that was undone and made again counts as its redo (makes_again); left_out says '
    'why a plan, of an account if one is given, leaves that out.';

-- What the ledger has seen, for a person or an account that names something else. An account learns of its own newest records only.
create function countersign.known_names(kind text, of_account text default null) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if kind = 'table' and of_account is null then
        return query select distinct t.name from countersign.tracked t;
    elsif kind = 'table' then
        return query select distinct t.name
                     from (select r.correlation_id from countersign.record r where r.account_id = of_account order by r.id desc limit 10000) n
                     join countersign.effect e on e.correlation_id = n.correlation_id join countersign.tracked t on t.shape = e.shape;
    elsif of_account is null then
        return query select distinct n.name
                     from (select case kind when 'account' then r.account_id when 'actor' then r.actor when 'session' then r.session_id
                                            when 'client' then r.client_name when 'tool' then r.tool_name end as name from countersign.record r) n
                     where n.name is not null;
    else
        return query select distinct n.name
                     from (select case kind when 'actor' then r.actor when 'session' then r.session_id
                                            when 'client' then r.client_name when 'tool' then r.tool_name end as name
                           from countersign.record r where r.account_id = of_account order by r.id desc limit 10000) n
                     where n.name is not null;
    end if;
end $$;
comment on function countersign.known_names(text, text) is
    'Accounts, actors, sessions, clients, tools or tracked tables that records name; with an account, those of its newest records.';

-- The rows that writes touched, each once: by it alone is looked up what else touched them, so that the cost is linear however often a
-- row was written.
create function countersign.touched_rows(writes uuid[]) returns table (relation oid, key text, first_position bigint, last_position bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
    select e.relation, k.key, min(e.position), max(e.position)
    from countersign.effect e
    join countersign.tracked t on t.shape = e.shape and not t.is_log
    cross join lateral (select e.key union all select e.key_before where e.key_before is not null) k (key)
    where e.correlation_id = any (writes) and e.op <> 'N'
    group by e.relation, k.key
$$;
comment on function countersign.touched_rows(uuid[]) is 'The rows that writes changed, without those of log tables, and where the first and the last change is.';

-- The later changes of rows that writes changed: what another recorded write, that still counts, did after them. Each is named once,
-- with the last of the writes before it: those before that one stand below it.
create function countersign.later_changes(writes uuid[])
returns table (write uuid, relation oid, shape integer, key text, by uuid, origin text)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
    with own as materialized (
        select distinct w.write from unnest(writes) w (write)
    ), change as (
        select r.relation, l.shape, r.key, l.position, l.correlation_id, l.origin, o.write
        from countersign.touched_rows(writes) r
        cross join lateral countersign.effects_of_row(r.relation, r.key) l
        left join own o on o.write = l.correlation_id
        where l.position >= r.first_position and l.op <> 'N'
    ), placed as materialized (
        select c.*, max(c.position) filter (where c.write is not null) over (partition by c.relation, c.key order by c.position) as under
        from change c
    ), later as materialized (
        select distinct on (p.relation, p.key, p.correlation_id, p.under) p.*
        from placed p where p.write is null
        order by p.relation, p.key, p.correlation_id, p.under, p.position
    ), undone as materialized (
        select v.correlation_id, v.reversed_by
        from (select distinct l.correlation_id from later l where l.correlation_id is not null) l
        cross join lateral (select v.correlation_id, v.reversed_by from countersign.reversal v where v.correlation_id = l.correlation_id
                            union all
                            select v.correlation_id, v.reversed_by from countersign.reversal v where v.reversed_by = l.correlation_id) v
    ), counted as (
        select l.* from later l
        where l.correlation_id is null
           or not exists (select from undone u where u.correlation_id = l.correlation_id)
          and (countersign.is_redo(l.correlation_id) or not exists (select from undone u where u.reversed_by = l.correlation_id))
    )
    select (select e.correlation_id from placed e where e.relation = c.relation and e.key = c.key and e.position = c.under limit 1),
           c.relation, c.shape, c.key, c.correlation_id, c.origin
    from counted c order by c.position
$$;
comment on function countersign.later_changes(uuid[]) is
    'Changes by others that came after one of the writes on the same row. A write and its undo cancel each other; a redo counts.';

create function countersign.undo_obstacles(write uuid) returns json
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    obstacles  json[];
begin
    if not exists (select from countersign.record r where r.correlation_id = write and r.status = 'success' and r.rollback ->> 'undo_tool' = 'undo_mutation')
       or exists (select from countersign.reversal v where v.correlation_id = write)
    then
        return null;
    end if;
    obstacles := coalesce(countersign.refused_writes(array[write]), '{}') || array(
        select json_build_object('code', 'schema_changed', 'table', coalesce(countersign.table_name(t.relation), t.name))
        from countersign.tracked t
        where t.shape in (select e.shape from countersign.effect e where e.correlation_id = write) and not t.is_log
          and not (t.is_current and countersign.has_current_shape(t))
          and ((countersign.tracked_now(t)).shape is null
               or exists (select from countersign.net_changes(array[write]) w where w.relation = t.relation and w.obstacle is not null))
        order by t.shape);
    return array_to_json(obstacles || array(
        select json_build_object('code', 'needed_by', 'table', coalesce(countersign.table_name(c.relation), c.relation::text),
                   'changed_by', coalesce(countersign.describe_write(c.by), json_build_object('outside', c.origin)))
        from (select distinct l.relation, l.by, l.origin from countersign.later_changes(array[write]) l limit 20) c
        order by c.relation, c.by));
end $$;
comment on function countersign.undo_obstacles(uuid) is
    'What is in the way of the undo of a write by its recorded changes, as far as the ledger and the catalog know, as conflicts without rows; '
    'null for a write that was undone, or is undone otherwise or never.';

-- The writes on whose account conflicts arose: the one that a conflict names; or those that changed the row, or some row of the table
-- or of a table of the constraint.
create function countersign.writes_in_conflict(writes uuid[], conflicts json) returns table (write uuid, reason json)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
    with own as materialized (
        select w.write from unnest(writes) w (write)
    ), conflict as materialized (
        select c.reason, c.n, (c.reason -> 'write' ->> 'correlation_id')::uuid as write, c.reason ->> 'table' as table_name,
               case when c.reason -> 'write' is null then (c.reason -> 'key')::text end as key
        from json_array_elements(conflicts) with ordinality c (reason, n)
    ), found as (
        select c.write, c.reason, c.n from conflict c where c.write is not null
        union all
        select e.correlation_id, c.reason, c.n
        from conflict c
        join countersign.tracked t on c.table_name in (t.name, countersign.table_name(t.relation))
        join countersign.effect e on e.relation = t.relation and e.correlation_id = any (writes)
        where c.write is null and (c.key is null or c.key = 'null' or e.key::jsonb = c.key::jsonb)
        union all
        select e.correlation_id, c.reason, c.n
        from conflict c
        join (select k.conname as name, k.conrelid as relation from pg_constraint k
              union all select k.conname, k.confrelid from pg_constraint k where k.contype = 'f'
              union all select i.relname, x.indrelid from pg_index x join pg_class i on i.oid = x.indexrelid) b
          on b.name = c.reason ->> 'constraint'
        join countersign.effect e on e.relation = b.relation and e.correlation_id = any (writes)
        where c.write is null and c.table_name is null
    )
    select distinct on (f.write) f.write, f.reason from found f join own o on o.write = f.write order by f.write, f.n
$$;
comment on function countersign.writes_in_conflict(uuid[], json) is 'Which of the writes conflicts are about, with the first reason of each.';

create function countersign.undo_plan(
    writes uuid[], mode text default 'strict', of_account text default null,
    path text default pg_catalog.current_setting('search_path')
) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    chosen     uuid[] := writes;
    added      uuid[] := '{}';
    left_out   json[] := '{}';
    net        countersign.net_change[];
    live       json[];
    later      json[];
    bad        uuid[];
    reasons    json[];
    more       uuid[];
begin
    if mode not in ('strict', 'skip', 'cascade') then
        raise exception 'no mode % of undo: strict, skip or cascade', mode using errcode = '22023';
    end if;
    loop
        if mode = 'cascade' then
            more := array(select distinct r.correlation_id from countersign.later_changes(chosen) c
                          join countersign.record r on r.correlation_id = c.by
                          where of_account is null or r.account_id = of_account);
            if more <> '{}' then
                chosen := chosen || more;
                added := added || more;
                continue;
            end if;
        end if;
        net := array(select w from countersign.net_changes(chosen) w);
        live := coalesce(countersign.refused_writes(chosen), '{}') || countersign.undo_conflicts(chosen, net, false, path);
        select array_agg(json_build_object('code', 'needed_by', 'table', t.name, 'key', c.key::json,
                   'write', countersign.describe_write(c.write),
                   'changed_by', coalesce(countersign.describe_write(c.by), json_build_object('outside', c.origin))))
        into later
        from countersign.later_changes(chosen) c join countersign.tracked t on t.shape = c.shape;
        exit when mode <> 'skip' or chosen = '{}' or cardinality(live) = 0 and later is null;
        select array_agg(b.write), array_agg(countersign.left_out_by(b.write, b.reason)) into bad, reasons
        from countersign.writes_in_conflict(chosen, array_to_json(live || coalesce(later, '{}'))) b;
        -- No write is known to be in the way of this: it stays, and the plan cannot run.
        exit when bad is null;
        left_out := left_out || reasons;
        -- Without them, and without the selected writes on whose rows they came later.
        select array_agg(s.write), array_agg(countersign.left_out_by(s.write, s.reason)) into more, reasons
        from (select distinct on (l.correlation_id) l.correlation_id as write,
                     json_build_object('code', 'needed_by', 'table', t.name, 'key', r.key::json, 'changed_by',
                         countersign.describe_write((select e.correlation_id from countersign.effects_of_row(r.relation, r.key) e
                                                     where e.position = r.last_position limit 1))) as reason
              from countersign.touched_rows(bad) r
              cross join lateral countersign.effects_of_row(r.relation, r.key) l
              join unnest(chosen) o (write) on o.write = l.correlation_id
              join countersign.tracked t on t.shape = l.shape
              where l.position < r.last_position and not exists (select from unnest(bad) b (write) where b.write = l.correlation_id)
              order by l.correlation_id, l.position) s;
        left_out := left_out || coalesce(reasons, '{}');
        bad := bad || coalesce(more, '{}');
        chosen := array(select o.write from unnest(chosen) with ordinality o (write, n)
                        where not exists (select from unnest(bad) b (write) where b.write = o.write) order by o.n);
    end loop;
    return json_build_object(
        'mode', mode, 'writes', chosen, 'added', added, 'left_out', array_to_json(left_out), 'rows', cardinality(net),
        'conflicts', array_to_json(live || coalesce(later, '{}')),
        'is_ready', chosen <> '{}' and cardinality(live) = 0 and later is null,
        'digest', encode(sha256(convert_to(json_build_array('countersign undo plan 1', chosen,
                      (select json_agg(json_build_array(t.name, w.key, w.before, w.after) order by t.name, w.key)
                       from unnest(net) w join countersign.tracked t on t.shape = w.shape))::text, 'UTF8')), 'hex'));
end $$;
comment on function countersign.undo_plan(uuid[], text, text, text) is
    'What undoing these writes would mean. strict: each conflict is reported. skip: whole writes that conflict are left out, with the selected '
    'writes that they stand on. cascade: recorded later writes on the same rows are undone as well, of this account only if one is given. '
    'Changes from outside are never undone.';

create function countersign.try_part(writes uuid[], path text default pg_catalog.current_setting('search_path')) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    trial      uuid := (countersign.claimed_attempt()).correlation_id;
    net        countersign.net_change[] := array(select w from countersign.net_changes(writes) w);
    conflicts  json[] := countersign.undo_conflicts(writes, net, true, path);
begin
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts), 'rows', cardinality(net));
    elsif cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', 0);
    end if;
    -- What this part does comes after what the trial has done so far.
    return countersign.restore_rows(writes, net, trial, coalesce((select max(e.position) from countersign.effect e where e.correlation_id = trial), 0),
                                    countersign.evidence_of(writes), path);
end $$;
comment on function countersign.try_part(uuid[], text) is 'The undo of one part of a plan, after that of other parts in the same trial.';

create function countersign.trial_conflicts(writes uuid[]) returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    conflicts  text;
begin
    perform countersign.prove_inverse(writes, array[(countersign.claimed_attempt()).correlation_id], true);
    return '[]'::json;
exception
    when sqlstate 'CS002' then
        get stacked diagnostics conflicts = pg_exception_detail;
        return conflicts::json;
end $$;
comment on function countersign.trial_conflicts(uuid[]) is
    'After an undo that will be rolled back, and what it deferred: what `finish` would refuse of it.';

create table countersign.stored_plan (
    plan_id     uuid         primary key default gen_random_uuid(),
    account_id  text,
    selection   json         not null,
    parts       json         not null,
    report      json         not null,
    digest      text         not null,
    made_by     text         not null,
    made_login  name         not null default session_user,
    made_at     timestamptz  not null default clock_timestamp()
);
comment on table countersign.stored_plan is
    'Plans as they were shown: of people (`countersign undo plan`), which are kept, and of accounts (the tool undo_plan), kept for a day.';
comment on column countersign.stored_plan.account_id is 'The account whose plan it is, over its own writes; null for a plan of a person.';
comment on column countersign.stored_plan.selection is 'Which writes were asked for, with both ends of the time.';
comment on column countersign.stored_plan.parts is
    'What is undone in one transaction each: [{writes, digest, rows}]. Parts share no rows, so each can be undone without the others.';
comment on column countersign.stored_plan.report is 'What countersign.undo_plan said, with the conflicts of the trial.';
comment on column countersign.stored_plan.made_by is 'The user of the operating system; for the plan of an account, its actor or else the account.';
create index stored_plan_of_accounts on countersign.stored_plan (made_at) where account_id is not null;

create function countersign.store_plan(
    of_account text, chosen json, plan_parts json, plan_report json, plan_digest text, who text
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made  uuid;
begin
    perform countersign.refuse_within_a_write();
    -- A server must not put a plan among those of people.
    if of_account is null and exists (select from countersign.writer_login w where w.role_name = session_user) then
        raise exception 'a server stores plans of accounts only' using errcode = '42501';
    end if;
    delete from countersign.stored_plan p where p.account_id is not null and p.made_at < clock_timestamp() - interval '1 day';
    insert into countersign.stored_plan (account_id, selection, parts, report, digest, made_by)
    values (of_account, chosen, plan_parts, plan_report, plan_digest, who) returning plan_id into made;
    return made;
end $$;
comment on function countersign.store_plan(text, json, json, json, text, text) is
    'Keeps a plan for `countersign undo run`, or for the tool undo_run of the account.';
