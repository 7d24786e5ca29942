-- Images of rows: their fields, how they are compared, and what writes did to each row, taken together.

create type countersign.net_change as (
    relation       oid,
    shape          integer,
    key            text,
    before         text,
    after          text,
    secret_before  bytea,
    secret_after   bytea,
    obstacle       text,
    last_position  bigint,
    writer         uuid
);
comment on type countersign.net_change is 'What one or several writes did to a row, taken together. A changed key is one row less and one row more.';
comment on column countersign.net_change.obstacle is
    'The code of a conflict: changed_since (something else changed the row between two of the writes), schema_changed or erased; null as a rule.';
comment on column countersign.net_change.writer is 'The last of the writes.';

create function countersign.fields(image text) returns text[]
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    -- Where no value has a comma or a quote of its own, which is most often so, the commas alone separate the fields: a fifth of the time.
    if image ~ '^\((?:[^",]*|"[^",]*")(?:,(?:[^",]*|"[^",]*"))*\)$' and image <> '()' then
        return string_to_array(substr(image, 2, length(image) - 2), ',');
    end if;
    return (select array_agg(m[1] order by n)
            from regexp_matches(substr(image, 1, length(image) - 1), '[(,]("(?:[^"\\]|""|\\\\)*"|[^,"]*)', 'g') with ordinality f (m, n));
end $$;
comment on function countersign.fields(text) is 'The fields of a row image, quoted as they stand there; an empty one is NULL.';

create function countersign.field_value(field text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when field = '' then null
                when left(field, 1) = '"' then replace(replace(substr(field, 2, length(field) - 2), '""', '"'), '\\', '\')
                else field end
$$;
comment on function countersign.field_value(text) is 'The text of a value, as countersign.fields has it.';

create function countersign.full_before_image(before text, after text, unchanged int2[]) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select '(' || string_agg(case when f.n = any (unchanged) then f.a else f.b end, ',' order by f.n) || ')'
    from unnest(countersign.fields(before), countersign.fields(after)) with ordinality f (b, a, n)
$$;
comment on function countersign.full_before_image(text, text, int2[]) is 'The image of a row before its change, with the large columns that were left alone.';

-- In PL/pgSQL, like `fields`, because it is called for each row, and an SQL function with a search_path is planned at each call.
create function countersign.same_image(t countersign.tracked, a text, b text, leaving_out text[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return case when a is not distinct from b then true
                when a is null or b is null or leaving_out = '{}' then false
                else not exists (
                    select from unnest(t.columns, countersign.fields(a), countersign.fields(b)) c (name, x, y)
                    where c.x is distinct from c.y and c.name <> all (leaving_out)) end;
end $$;
comment on function countersign.same_image(countersign.tracked, text, text, text[]) is 'Whether two row images are the same, but for some columns.';

-- A table may have other columns than when a row was recorded. Columns are found again by their number, so that a renamed one is the same
-- and one that was dropped and made again is another.
create function countersign.tracked_now(t countersign.tracked) returns countersign.tracked
language plpgsql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
declare
    now      countersign.tracked;
    missing  text[];
begin
    if t.is_current and countersign.has_current_shape(t) then
        t.name := countersign.table_name(t.relation);
        return t;
    end if;
    select k.* into now from countersign.tracked k where k.relation = t.relation and k.is_current;
    now.name := countersign.table_name(t.relation);
    select k.columns, k.operators into now.key_columns, now.key_operators from countersign.key_of(t.relation) k;
    if now.shape is null or now.name is null or now.key_columns is distinct from t.key_columns
       or now.key_columns is distinct from (select array_agg(a.attname::text order by k.n) from unnest(t.key_columns) with ordinality k (name, n)
              join pg_attribute a on a.attrelid = t.relation and a.attnum = t.numbers[array_position(t.columns, k.name)] and not a.attisdropped)
       or countersign.columns_now(t, t.sensitive) is distinct from countersign.columns_now(now, now.sensitive)
    then
        return null;
    end if;
    now.maintained := countersign.columns_now(now, now.maintained);
    now.sensitive := countersign.columns_now(now, now.sensitive);
    select array_agg(a.attname::text order by a.attnum), array_agg(a.attnum order by a.attnum),
           array_agg(format_type(a.atttypid, a.atttypmod) order by a.attnum), array_agg(a.atttypid order by a.attnum),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated <> '' or a.attidentity = 'a'), '{}'),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated <> ''), '{}'),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attgenerated = 'v'), '{}'),
           coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attnum <> all (t.numbers)), '{}')
    into now.columns, now.numbers, now.types, now.type_ids, now.fixed, now.computed, now.unstored, missing
    from pg_attribute a where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped;
    now.fixed := now.fixed || missing;
    now.computed := now.computed || missing;
    now.unstored := now.unstored || missing;
    return now;
end $$;
comment on function countersign.tracked_now(countersign.tracked) is
    'The table as it is now, for images of an earlier shape: a column that they do not have is neither compared nor set. Null if its rows '
    'cannot be found again, or are not recorded any more.';

create function countersign.image_now(
    t countersign.tracked, now countersign.tracked, image text, out image_now text, out is_lost boolean
) language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 set xmloption = content as $$
declare
    field  text[] := countersign.fields(image);
    parts  text[] := '{}';
    place  integer;
    value  text;
    back   text;
begin
    is_lost := false;
    if image is null then
        return;
    end if;
    for n in 1 .. cardinality(now.columns) loop
        place := array_position(t.numbers, now.numbers[n]);
        if place is null or now.columns[n] = any (now.unstored) or field[place] = '' then
            parts := parts || ''::text;
        elsif t.types[place] = now.types[n] or t.type_ids[place] = now.type_ids[n] and now.type_ids[n] >= 16384 then
            parts := parts || field[place];
        elsif t.type_ids[place] >= 16384 or now.type_ids[n] >= 16384 then
            is_lost := true;      -- A cast could be a function of somebody else.
            return;
        else
            begin
                execute format('select ($1::%s)::text, ($1::%1$s)::%s::text', now.types[n], t.types[place])
                into value, back using countersign.field_value(field[place]);
            exception when others then
                back := null;
            end;
            if back is distinct from countersign.field_value(field[place]) then
                is_lost := true;
                return;
            end if;
            parts := parts || rtrim(ltrim(textin(record_out(row(value))), '('), ')');
        end if;
    end loop;
    image_now := '(' || array_to_string(parts, ',') || ')';
end $$;
comment on function countersign.image_now(countersign.tracked, countersign.tracked, text) is
    'An image with the columns that the table has now. is_lost: a value cannot be of the type that its column has now.';

create function countersign.loses_change(t countersign.tracked, now countersign.tracked, before text, after text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select before is not null and after is not null and exists (
        select from unnest(t.numbers, countersign.fields(before), countersign.fields(after)) c (number, b, a)
        where c.b is distinct from c.a and c.number <> all (now.numbers))
$$;
comment on function countersign.loses_change(countersign.tracked, countersign.tracked, text, text) is 'Whether the change was of a column that was dropped since.';

-- In PL/pgSQL, like what else an undo of one row calls, because its plans are kept; and generic, because PostgreSQL takes an array for
-- a hundred rows then, and would plan for the one that it has each time anew.
create function countersign.net_changes(writes uuid[], after_position bigint default 0, until_position bigint default 9223372036854775807)
returns setof countersign.net_change
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return query
    with shape as materialized (
        select t.shape, t, case when not (t.is_current and countersign.has_current_shape(t)) then countersign.tracked_now(t) end as now
        from countersign.tracked t
        where not t.is_log and t.shape in (select e.shape from countersign.effect e where e.correlation_id = any (writes))
    ), recorded as (
        select e.relation, e.shape, e.key, e.key_before, e.op, e.after, e.secret_before, e.secret_after, e.position, e.correlation_id,
               case when e.unchanged is null then e.before else countersign.full_before_image(e.before, e.after, e.unchanged) end as before,
               s.t, s.now, case when e.erased is not null then 'erased' end as lost
        from countersign.effect e join shape s on s.shape = e.shape
        where e.correlation_id = any (writes) and e.op <> 'N' and e.position > after_position and e.position <= until_position
    ), change as (
        select r.relation, r.shape, r.key, r.key_before, r.before, r.after, r.secret_before, r.secret_after, r.position, r.correlation_id,
               r.lost as obstacle
        from recorded r where (r.now).shape is null or r.lost is not null
        union all
        select r.relation, r.shape, r.key, r.key_before, b.image_now, a.image_now, r.secret_before, r.secret_after, r.position, r.correlation_id,
               case when b.is_lost or a.is_lost or countersign.loses_change(r.t, r.now, r.before, r.after) then 'schema_changed' end
        from recorded r
        cross join lateral countersign.image_now(r.t, r.now, r.before) b
        cross join lateral countersign.image_now(r.t, r.now, r.after) a
        where (r.now).shape is not null and r.lost is null
    ), touched as (
        select c.relation, min(c.shape) as shape, k.key, count(*) as times, max(c.position) as last_position,
               case when min(c.shape) <> max(c.shape) then 'schema_changed' else max(c.obstacle) end as obstacle,
               (array_agg(c.correlation_id order by c.position desc))[1] as writer,
               array_agg(case when k.is_old then c.before end) as befores, array_agg(case when k.is_new then c.after end) as afters,
               array_agg(case when k.is_old then c.secret_before end) as secrets_before,
               array_agg(case when k.is_new then c.secret_after end) as secrets_after
        from change c
        cross join lateral (select c.key, c.key_before is null as is_old, true as is_new
                            union all select c.key_before, true, false where c.key_before is not null) k
        group by c.relation, k.key
    )
    select h.relation, h.shape, h.key, h.befores[1], h.afters[1], h.secrets_before[1], h.secrets_after[1], h.obstacle, h.last_position, h.writer
    from touched h where h.times = 1
    union all
    -- Triggers fire in the order of statements, and a nested one ends first, so positions do not order the changes that one write made
    -- to a row. Each image but the first and the last is once found and once left: what remains are these two.
    select h.relation, h.shape, h.key, n.before, n.after, n.secret_before, n.secret_after,
           coalesce(h.obstacle, case when n.is_broken then 'changed_since' end), h.last_position, h.writer
    from touched h
    cross join lateral (
        select max(i.image) filter (where i.times > 0) as before, max(i.image) filter (where i.times < 0) as after,
               (array_agg(i.secret) filter (where i.times > 0))[1] as secret_before,
               (array_agg(i.secret) filter (where i.times < 0))[1] as secret_after,
               coalesce(sum(i.times) filter (where i.times > 0), 0) > 1 or coalesce(sum(i.times) filter (where i.times < 0), 0) < -1 as is_broken
        from (select v.image, v.secret, sum(v.weight) as times
              from (select b.image, b.secret, 1 as weight from unnest(h.befores, h.secrets_before) b (image, secret)
                    union all select a.image, a.secret, -1 from unnest(h.afters, h.secrets_after) a (image, secret)) v
              where v.image is not null
              group by v.image, v.secret having sum(v.weight) <> 0) i
    ) n
    where h.times > 1 and (n.before is not null or n.after is not null or h.obstacle = 'erased');
end $$;
comment on function countersign.net_changes(uuid[], bigint, bigint) is
    'The net effect of writes, by table and key, in the columns that the tables have now; rows that are as they were are left out, and so are log tables. '
    'Of one write also the part between two positions.';

create function countersign.shapes_of_net_changes(writes uuid[]) returns setof countersign.tracked
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    recorded  countersign.tracked;
    now       countersign.tracked;
begin
    for recorded in
        select k.* from countersign.tracked k
        where k.shape in (select e.shape from countersign.effect e where e.correlation_id = any (writes))
    loop
        now := countersign.tracked_now(recorded);
        if now.shape is null then
            return next recorded;
        else
            now.shape := recorded.shape;
            return next now;
        end if;
    end loop;
end $$;
comment on function countersign.shapes_of_net_changes(uuid[]) is
    'The shapes of writes, each with the columns that its images have in `net_changes`: those of now, where the table has others since.';

create function countersign.net_effects(write uuid) returns setof countersign.effect
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    repeated  oid[];
    keys      text[];
    net       countersign.net_change[];
begin
    -- A row whose key the write altered is shown step by step: an UPDATE of many keys may pass them from row to row.
    with shape as materialized (
        select t.shape from countersign.tracked t
        where t.is_current and not t.is_log and t.shape in (select e.shape from countersign.effect e where e.correlation_id = write)
          and countersign.has_current_shape(t)
    )
    select array_agg(k.relation), array_agg(k.key) into repeated, keys
    from (select e.relation, k.key
          from countersign.effect e
          left join shape s on s.shape = e.shape
          cross join lateral (select e.key union all select e.key_before where e.key_before is not null) k (key)
          where e.correlation_id = write and e.key is not null
          group by e.relation, k.key
          having count(*) > 1 and bool_and(e.key_before is null and s.shape is not null) and min(e.shape) = max(e.shape)) k;
    if repeated is null then
        return query select e.* from countersign.effect e where e.correlation_id = write;
        return;
    end if;
    net := array(select n from countersign.net_changes(array[write]) n);
    return query
    with again as materialized (
        select r.relation, r.key, n.before, n.after, n.secret_before, n.secret_after
        from unnest(repeated, keys) r (relation, key)
        left join unnest(net) n on n.relation = r.relation and n.key = r.key
        where n.obstacle is null
    ), taken_together as (
        select e.relation, e.key, min(e.position) as position, min(e.shape) as shape, bool_and(e.by_trigger) as by_trigger,
               a.before, a.after, a.secret_before, a.secret_after, (array_agg(e.after order by e.position desc))[1] as last_image
        from again a
        join countersign.effect e on e.correlation_id = write and e.relation = a.relation and e.key = a.key
        group by e.relation, e.key, a.before, a.after, a.secret_before, a.secret_after
    )
    select e.* from countersign.effect e
    where e.correlation_id = write and not exists (select from again a where a.relation = e.relation and a.key = e.key)
    union all
    select write, t.position, t.relation, t.shape,
           (case when coalesce(t.before, t.after) is null then 'N' when t.before is null then 'I' when t.after is null then 'D' else 'U' end)::"char",
           t.by_trigger, t.key, null, t.before, case when coalesce(t.before, t.after) is null then t.last_image else t.after end, null,
           t.secret_before, t.secret_after, null, null, null, null, null
    from taken_together t
    where coalesce(t.before, t.after, t.last_image) is not null;
end $$;
comment on function countersign.net_effects(uuid) is
    'The rows that a write changed, for people and agents: a row that it changed several times has one effect, which a trigger made only if triggers made '
    'them all, and of kind N if it is as it was.';

create function countersign.single_change(writes uuid[]) returns countersign.net_change
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    change  countersign.net_change;
begin
    if cardinality(writes) = 1 then
        select e.relation, e.shape, e.key, e.before, e.after, e.secret_before, e.secret_after, null, e.position, e.correlation_id
        into change
        from countersign.effect e
        where e.correlation_id = writes[1] and e.op <> 'N' and e.key_before is null and e.unchanged is null and e.erased is null
          and (select count(*) from (select from countersign.effect o where o.correlation_id = writes[1] limit 2) o) = 1
          and (select not t.is_log from countersign.tracked t where t.shape = e.shape)
          and (select r.status from countersign.record r where r.correlation_id = writes[1]) = 'success'
          and not exists (select from countersign.reversal v where v.correlation_id = writes[1]);
    end if;
    return change;
end $$;
comment on function countersign.single_change(uuid[]) is
    'The net effect of one success that was not undone and that changed one row once, and not its key; null for any other.';
