-- Undo of many writes: which they are, and what undoing them together would mean. What runs is `undo` and `finish` over the writes of
-- the plan, in one transaction.

create function countersign.selected_writes(
    of_account text, of_actor text, of_session text, of_client text, of_tool text, of_table text, from_time timestamptz, to_time timestamptz
) returns table (correlation_id uuid, tool_name text, account_id text, actor text, session_id text, admitted_at timestamptz,
                 completed_at timestamptz, is_inside boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select r.correlation_id, r.tool_name, r.account_id, r.actor, r.session_id, r.admitted_at, r.completed_at,
           r.completed_at >= from_time and r.completed_at < to_time
    from countersign.record r
    where r.status = 'success' and r.completed_at >= from_time and r.admitted_at < to_time
      and (of_account is null or r.account_id = of_account) and (of_actor is null or r.actor = of_actor)
      and (of_session is null or r.session_id = of_session) and (of_client is null or r.client_name = of_client)
      and (of_tool is null or r.tool_name = of_tool)
      and (of_table is null or exists (
           select from countersign.effect e join countersign.tracked t on t.shape = e.shape
           where e.correlation_id = r.correlation_id and t.name = of_table))
      and not exists (select from countersign.reversal v where v.correlation_id = r.correlation_id)
      -- An undo whose write is selected as well is taken back with it only if it is asked for by its own receipt.
      and r.undo_of is null
    order by r.id
$$;
comment on function countersign.selected_writes(text, text, text, text, text, text, timestamptz, timestamptz) is
    'Successes that still count, in the order of their commits, completed from from_time until before to_time. is_inside is false for '
    'those that began inside the window and committed after it.';

-- The later changes of rows that writes changed: what another recorded write, that still counts, did after them.
create function countersign.later_changes(writes uuid[])
returns table (write uuid, relation oid, shape integer, key text, by uuid, origin text)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
    select distinct on (e.correlation_id, e.relation, k.key, l.correlation_id)
           e.correlation_id, e.relation, e.shape, k.key, l.correlation_id, l.origin
    from countersign.effect e
    join countersign.tracked t on t.shape = e.shape and not t.is_log
    cross join lateral (select e.key union all select e.key_before where e.key_before is not null) k (key)
    cross join lateral countersign.effects_of_row(e.relation, k.key) l
    where e.correlation_id = any (writes) and e.op <> 'N' and l.op <> 'N' and l.position > e.position
      and (l.correlation_id is null or l.correlation_id <> all (writes)
           and not exists (select from countersign.reversal v where l.correlation_id in (v.correlation_id, v.reversed_by)))
    order by e.correlation_id, e.relation, k.key, l.correlation_id, l.position
$$;
comment on function countersign.later_changes(uuid[]) is
    'Changes by others that came after one of the writes on the same row. A write and its undo cancel each other.';

create function countersign.undo_plan(
    writes uuid[], mode text default 'strict', of_account text default null,
    path text default pg_catalog.current_setting('search_path')
) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    chosen     uuid[] := writes;
    added      uuid[] := '{}';
    left_out   uuid[] := '{}';
    net        countersign.net_change[];
    live       json[];
    later      json[];
    bad        uuid[];
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
        live := countersign.undo_conflicts(chosen, net, false, path);
        select array_agg(json_build_object('code', 'needed_by', 'table', t.name, 'key', c.key::json,
                   'write', countersign.describe_write(c.write),
                   'changed_by', coalesce(countersign.describe_write(c.by), json_build_object('outside', c.origin)))),
               array_agg(c.write)
        into later, bad
        from countersign.later_changes(chosen) c join countersign.tracked t on t.shape = c.shape;
        bad := coalesce(bad, '{}') || array(select (c -> 'write' ->> 'correlation_id')::uuid from unnest(live) c
                                            where c -> 'write' ->> 'correlation_id' is not null);
        exit when mode <> 'skip' or bad = '{}' or chosen = '{}';
        -- Without them, and without the selected writes on whose rows they came later.
        select array_agg(distinct s.correlation_id) into more
        from countersign.effect b
        cross join lateral countersign.effects_of_row(b.relation, b.key) s
        where b.correlation_id = any (bad) and s.correlation_id = any (chosen) and s.position <= b.position;
        more := array(select distinct w from unnest(bad || coalesce(more, '{}')) w where w = any (chosen));
        left_out := left_out || more;
        chosen := array(select w from unnest(chosen) w where w <> all (more));
    end loop;
    return json_build_object(
        'mode', mode, 'writes', chosen, 'added', added, 'left_out', left_out, 'rows', cardinality(net),
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

create function countersign.trial_conflicts(writes uuid[]) returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    trial      uuid;
    conflicts  text;
begin
    select a.correlation_id into trial from countersign.attempt a
    where a.ctid = nullif(current_setting('countersign.at', true), '')::tid and a.xmax = pg_current_xact_id()::xid;
    perform countersign.prove_inverse(writes, array[trial]);
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
