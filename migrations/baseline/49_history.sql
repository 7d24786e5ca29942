-- The rows of a tracked table as they were: from the current rows, back through the recorded changes. ADR 0109 says what "at a time" means.

alter table countersign.effect add column xid xid8, add column is_misshapen boolean;
comment on column countersign.effect.xid is 'For a change from outside: its transaction.';
comment on column countersign.effect.is_misshapen is 'For a change from outside: the table had columns by then that its shape does not have.';
alter table countersign.tracked add column unbroken_since timestamptz, add column all_writers_since timestamptz;
comment on column countersign.tracked.unbroken_since is 'Since when every change by a server is recorded.';
comment on column countersign.tracked.all_writers_since is 'Since when every change by any login is recorded; null if it is not.';

create table countersign.pruned_changes (
    only_row  boolean      primary key default true check (only_row),
    until     timestamptz  not null
);
comment on table countersign.pruned_changes is 'Before which time recorded changes may be missing, because they were pruned.';

create type countersign.history_scope as (
    relation         oid,
    name             text,
    known_from       timestamptz,
    unknown_because  text,
    shapes           integer[],
    columns          text[],
    numbers          int2[],
    is_whole         boolean,
    key_columns      text[],
    unknown_columns  json,
    gaps             text[]
);
comment on type countersign.history_scope is 'What is known of a tracked table at a time.';
comment on column countersign.history_scope.known_from is 'The earliest time of which something is known.';
comment on column countersign.history_scope.unknown_because is 'Why nothing is known from before: tracked, pruned, truncated or key_changed.';
comment on column countersign.history_scope.shapes is 'The shapes that rows have had since then.';
comment on column countersign.history_scope.columns is 'The columns of the images, by the names that they have now.';
comment on column countersign.history_scope.is_whole is 'The shape of rows is what it was: recorded images are compared as they are.';
comment on column countersign.history_scope.unknown_columns is 'Columns whose values are not known, and why: added, dropped, type_changed, sensitive or virtual.';
comment on column countersign.history_scope.gaps is 'What is not recorded, or not seen by this login: GapCode of the crate types.';

create function countersign.ledger_era(at timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (select count(*) from countersign.identity i where i.since <= at);
end $$;
comment on function countersign.ledger_era(timestamptz) is 'A copied or restored database counts its transactions anew.';

create function countersign.history_scope(of_relation oid, at timestamptz) returns countersign.history_scope
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    scope      countersign.history_scope;
    t          countersign.tracked;
    other_key  timestamptz;
    truncated  timestamptz;
    pruned     timestamptz := (select p.until from countersign.pruned_changes p);
begin
    select k.* into t from countersign.tracked k where k.relation = of_relation and k.is_current;
    scope.relation := of_relation;
    scope.name := countersign.table_name(of_relation);
    scope.key_columns := t.key_columns;
    if scope.name is null or t.unbroken_since is null or t.key_columns is null or t.key_columns is distinct from countersign.key_columns(of_relation) then
        return scope;
    end if;
    -- A key is found again by the names, the numbers and the types of its columns.
    select min(n.since) into other_key from countersign.tracked n
    where n.relation = of_relation and n.since > (
        select max(o.since) from countersign.tracked o
        where o.relation = of_relation and array(select (k, o.numbers[array_position(o.columns, k)], o.type_ids[array_position(o.columns, k)])::text
                                                 from unnest(o.key_columns) k)
              <> array(select (k, t.numbers[array_position(t.columns, k)], t.type_ids[array_position(t.columns, k)])::text from unnest(t.key_columns) k));
    select max(o.changed_at) into truncated from countersign.effect e
    join countersign.effect o on o.correlation_id is null and o.xid = e.xid and o.changed_at >= e.changed_at
         and countersign.ledger_era(o.changed_at) = countersign.ledger_era(e.changed_at)
    where e.relation = of_relation and e.key is null and e.op = 'T';
    select f.at, f.reason into scope.known_from, scope.unknown_because
    from (values (t.unbroken_since, 'tracked'), (pruned, 'pruned'), (truncated, 'truncated'), (other_key, 'key_changed')) f (at, reason)
    where f.at is not null order by f.at desc limit 1;

    -- The shapes that the rows have had since then, and that of the catalog.
    select array_agg(k.shape) into scope.shapes from countersign.tracked k
    where k.relation = of_relation
      and k.since >= coalesce((select max(o.since) from countersign.tracked o where o.relation = of_relation and o.since <= at), '-infinity');
    scope.is_whole := countersign.has_current_shape(t) and scope.shapes = array[t.shape];
    with shape as (
        select k.columns, k.numbers, k.type_ids, k.type_mods, k.sensitive, k.unstored from countersign.tracked k where k.shape = any (scope.shapes)
    ), live as (
        select a.attname::text as name, a.attnum, a.atttypid, a.atttypmod, a.attgenerated from pg_attribute a
        where a.attrelid = of_relation and a.attnum > 0 and not a.attisdropped
    ), judged as (
        select l.name, l.attnum, case
            when exists (select from shape s where s.columns[array_position(s.numbers, l.attnum)] = any (s.sensitive)) then 'sensitive'
            when l.attgenerated = 'v' or exists (select from shape s where s.columns[array_position(s.numbers, l.attnum)] = any (s.unstored)) then 'virtual'
            when exists (select from shape s where array_position(s.numbers, l.attnum) is null) then 'added'
            when exists (select from shape s where s.type_ids[array_position(s.numbers, l.attnum)] <> l.atttypid
                                                or s.type_mods[array_position(s.numbers, l.attnum)] <> l.atttypmod) then 'type_changed' end as reason
        from live l
        union all
        select distinct on (u.number) u.name, u.number, 'dropped'
        from shape s cross join unnest(s.columns, s.numbers) u (name, number)
        where not exists (select from live l where l.attnum = u.number)
    )
    select array_agg(j.name order by j.attnum) filter (where j.reason is null), array_agg(j.attnum order by j.attnum) filter (where j.reason is null),
           coalesce(json_agg(json_build_object('column', j.name, 'reason', j.reason) order by j.attnum) filter (where j.reason is not null), '[]')
    into scope.columns, scope.numbers, scope.unknown_columns
    from judged j;
    if scope.is_whole then
        scope.columns := t.columns;
        scope.numbers := t.numbers;
    end if;
    scope.gaps := array(
        select g.code from (values
            ('outside_not_recorded', t.all_writers_since is null or at < t.all_writers_since),
            ('partitions', exists (select from pg_class c where c.oid = of_relation and c.relkind = 'p')),
            ('not_recording', exists (
                select from pg_partition_tree(of_relation) p full join (select of_relation as relid) o on o.relid = p.relid
                where not countersign.is_recording(coalesce(p.relid, o.relid)))),
            ('row_security', row_security_active(of_relation)),
            ('not_compared', not countersign.may_read(of_relation, scope.columns))) g (code, applies)
        where g.applies);
    return scope;
end $$;
comment on function countersign.history_scope(oid, timestamptz) is 'What is known of a tracked table at a time, and why no more is.';

create function countersign.may_read(of_relation oid, of_columns text[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return has_schema_privilege((select c.relnamespace from pg_class c where c.oid = of_relation), 'usage')
        and not exists (select from unnest(of_columns) c where not has_column_privilege(of_relation, c, 'select'));
end $$;
comment on function countersign.may_read(oid, text[]) is 'Whether the caller may select these columns.';

create function countersign.history_image(image text, places integer[], fields_recorded integer) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    field  text[] := countersign.fields(image);
begin
    if image is null then
        return null;
    elsif places is null or cardinality(field) <> fields_recorded then
        return '';
    end if;
    return (select '(' || string_agg(field[p.place], ',' order by p.n) || ')' from unnest(places) with ordinality p (place, n));
end $$;
comment on function countersign.history_image(text, integer[], integer) is
    'The columns of an image at these places. Empty: they cannot be told, as where columns had been dropped when it was recorded.';

create function countersign.rows_at(scope countersign.history_scope, at timestamptz, of_key text, in_columns text[], with_values text[], most integer)
returns table (key text, image text, state text)
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 set jit = off as $$
declare
    t            countersign.tracked;
    is_compared  boolean := not 'not_compared' = any (scope.gaps);
    key_of       text;
    key_match    text;
    typed        text;
    image_of     text;
    live         text;
    wanted_live  text := '';
    wanted       text := '';
begin
    if scope.known_from is null or at < scope.known_from then
        return;
    end if;
    select k.* into t from countersign.tracked k where k.relation = scope.relation and k.is_current;
    -- As `tracking_function` makes the key. Where JSON has no text that the type reads, keys are compared as they are recorded.
    select 'jsonb_build_object(' || string_agg(format('%L, %s', k, format(case when a.atttypid < 16384 then '"!t".%I' else 'format(''%%s'', "!t".%I)' end, k)), ', ' order by n)
               || ')::text',
           case when bool_and(y.typtype in ('b', 'e') and y.typcategory <> 'A') then string_agg(format('"!t".%I %s l.k%s', k, o, n), ' and ' order by n) end,
           string_agg(format('(k.key::jsonb ->> %L)::%s as k%s', k, format_type(a.atttypid, a.atttypmod), n), ', ' order by n)
    into key_of, key_match, typed
    from unnest(t.key_columns, t.key_operators) with ordinality u (k, o, n)
    join pg_attribute a on a.attrelid = scope.relation and a.attname = u.k
    join pg_type y on y.oid = a.atttypid;
    if key_match is null then
        key_match := key_of || ' = l.key';
        typed := 'null as k1';
    end if;
    image_of := case when scope.is_whole then countersign.row_image_expression(t)
        else (select 'row(' || string_agg(format('"!t".%I', c), ', ' order by n) || ')' from unnest(scope.columns) with ordinality u (c, n)) end;
    live := countersign.only(t) || ' "!t"';
    -- A condition is a column and a value: there is no SQL of the caller.
    select coalesce(string_agg(format(' and "!t".%I = $6[%s]::%s', c, n, format_type(a.atttypid, a.atttypmod)), ''), ''),
           coalesce(string_agg(format(' and countersign.field_value(d.fields[%s])::%s = $6[%s]::%2$s', array_position(scope.columns, c),
                                      format_type(a.atttypid, a.atttypmod), n), ''), '')
    into wanted_live, wanted
    from unnest(in_columns) with ordinality u (c, n)
    join pg_attribute a on a.attrelid = scope.relation and a.attname = u.c;

    return query execute format($query$
        with shape as materialized (
            select k.shape, cardinality(k.columns) as columns,
                   case when k.shape = any ($1.shapes)
                       then array(select array_position(k.numbers, n) from unnest($1.numbers) with ordinality u (n, o) order by o) end as places
            from countersign.tracked k where k.relation = $1.relation
        ), change as materialized (
            select e.*, coalesce(e.correlation_id::text, concat(e.xid, ' ', countersign.ledger_era(e.changed_at))) as transaction,
                   case when e.correlation_id is not null then coalesce(r.completed_at > $2, true)
                        -- A transaction counts by its last change, so that it counts as a whole.
                        else e.changed_at > $2 or (e.xid, countersign.ledger_era(e.changed_at)) in (
                            select o.xid, countersign.ledger_era(o.changed_at) from countersign.effect o where o.correlation_id is null and o.changed_at > $2)
                   end as is_after
            from %1$s e left join countersign.record r on r.correlation_id = e.correlation_id where e.op not in ('N', 'T')
        ), recorded as (
            select c.key, c.key_before, c.position, c.transaction, c.is_after,
                   case when $1.is_whole and c.shape = any ($1.shapes) then i.before
                        else countersign.history_image(i.before, case when c.is_misshapen is null then s.places end, s.columns) end as before,
                   case when $1.is_whole and c.shape = any ($1.shapes) then c.after
                        else countersign.history_image(c.after, case when c.is_misshapen is null then s.places end, s.columns) end as after
            from change c join shape s on s.shape = c.shape
            cross join lateral (select case when c.unchanged is null then c.before else countersign.full_before_image(c.before, c.after, c.unchanged) end as before) i
        ), side as materialized (
            select s.* from (
                select r.key, r.after as image, -1 as weight, r.position, r.transaction, r.is_after from recorded r
                union all select coalesce(r.key_before, r.key), r.before, 1, r.position, r.transaction, r.is_after from recorded r) s
            where $3 is null or s.key = $3
        ), touched as materialized (
            select k.key, %2$s from (select distinct s.key from side s union select $3 where $3 is not null) k
        ), now as materialized (
            %3$s
        -- Each image but two is once found and once left. So the images that the later changes found, less those that they left, and the
        -- row as it is now, are the row as it was: one image, or none. Anything else is a change that was not recorded.
        ), net as (
            select p.key, p.image, sum(p.weight) as weight
            from (select s.key, s.image, s.weight from side s where s.is_after and s.image is not null
                  union all select n.key, n.image, 1 from now n) p
            group by p.key, p.image having sum(p.weight) <> 0 or p.image = ''
        ), backward as (
            select k.key, max(n.image) as image,
                   not $5 or count(n.image) > 1 or min(n.weight) <> 1 or bool_or(n.image = '') as is_unknown
            from touched k left join net n on n.key = k.key group by k.key
        -- Positions order the changes of a row by different transactions, and not those of one.
        ), neighbour as (
            (select distinct on (s.key) s.key, s.transaction, false as is_after from side s where not s.is_after order by s.key, s.position desc)
            union all
            (select distinct on (s.key) s.key, s.transaction, true from side s where s.is_after and not $5 order by s.key, s.position)
        ), seen as (
            select i.key, i.is_after, max(i.image) filter (where i.weight > 0) as image,
                   bool_or(i.image = '') or count(*) filter (where i.weight > 0) > 1 or bool_and(i.weight is null) as is_unknown
            from (select n.key, n.is_after, s.image, case when s.image is null then 0
                         else nullif(sum(case when n.is_after then s.weight else -s.weight end), 0) end as weight
                  from neighbour n join side s on s.key = n.key and s.transaction = n.transaction
                  group by n.key, n.is_after, s.image) i
            group by i.key, i.is_after
        ), derived as (
            select k.key, case when $5 then b.image when a.key is not null then a.image else e.image end as image,
                   case when $5 and b.is_unknown or not $5 and a.key is null and e.key is null
                             or coalesce(a.is_unknown, not $5 and coalesce(e.is_unknown, false)) then 'unknown'
                        when e.key is not null and not e.is_unknown
                             and e.image is distinct from case when $5 then b.image when a.key is not null then a.image else e.image end then 'unknown'
                        when case when $5 then b.image when a.key is not null then a.image else e.image end is null then 'absent'
                        else 'row' end as state
            from touched k
            join backward b on b.key = k.key
            left join seen a on a.key = k.key and a.is_after
            left join seen e on e.key = k.key and not e.is_after
        ), found as (
            (select d.key, d.image, d.state
             from (select d.*, countersign.fields(d.image) as fields from derived d where d.state = 'row') d
             where true%4$s limit $4 + 1)
            union all
            (select d.key, null, d.state from derived d where d.state = 'unknown' or $3 is not null and d.state = 'absent' limit 101)
            %5$s
        )
        select f.key, f.image, f.state from found f order by f.state, f.key::jsonb
    $query$,
        case when of_key is null then '(select e.* from countersign.effect e where e.relation = $1.relation)'
             else 'countersign.effects_of_row($1.relation, $3)' end,
        typed,
        case when is_compared then format('select l.key, textin(record_out(%s)) as image from touched l join %s on %s', image_of, live, key_match)
             else 'select null::text as key, null::text as image where false' end,
        wanted,
        case when of_key is null and is_compared then format(
            'union all (select %s, textin(record_out(%s)), ''row'' from %s where not exists (select from touched l where %s)%s limit $4 + 1)',
            key_of, image_of, live, key_match, wanted_live) else '' end)
    using scope, at, of_key, most, is_compared, with_values;
end $$;
comment on function countersign.rows_at(countersign.history_scope, timestamptz, text, text[], text[], integer) is
    'Rows as they were after the transactions whose last recorded change was not after the time: row, absent (of one key), or unknown, if '
    'the recorded changes do not fit together or not to the row as it is now. Up to one more row than `most`.';
