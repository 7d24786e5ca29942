-- The rows that a proposal is about, as digests: of two trials, of the preview, and of the write itself. A digest does not depend on the
-- order of the rows, and covers all of them, however many there are. The values of updated rows have a digest of their own: two trials may
-- differ in them, and a tool that reads the rows says itself which values matter.

create type countersign.changed_row as (
    name        text,
    columns     text[],
    change      text,
    key         text,
    image       text,
    secret      bytea,
    old         text,
    new         text,
    old_secret  bytea,
    new_secret  bytea
);
comment on type countersign.changed_row is 'A row that a write changes: what of it has to be the same when an approved write runs.';
comment on column countersign.changed_row.change is 'insert, update or delete, for the whole write: a changed key is a delete and an insert.';
comment on column countersign.changed_row.key is 'The key before the write; null for an inserted row, and in tables without a key.';
comment on column countersign.changed_row.image is
    'The whole row: as it was if it is deleted or has no key, and as it will be if it is inserted. Null for other updated rows.';
comment on column countersign.changed_row.secret is 'The keyed hash of its sensitive columns, which the image lacks.';
comment on column countersign.changed_row.old is
    'The whole row before an update; null if only triggers update it, such as a total, which others may change in between.';
comment on column countersign.changed_row.new is 'The same row after the update.';

create function countersign.changed_rows(write uuid) returns setof countersign.changed_row
language sql stable set search_path = pg_catalog, pg_temp as $$
    select t.name, t.columns,
           case when c.before is null then 'insert' when c.after is null then 'delete' else 'update' end,
           case when c.before is not null then c.key end,
           case when c.before is null then c.after when c.after is null then c.before end,
           case when c.before is null then c.secret_after when c.after is null then c.secret_before end,
           u.before, u.after, u.secret_before, u.secret_after
    from countersign.net_changes(array[write]) c
    join countersign.tracked t on t.shape = c.shape
    left join (select e.relation, e.key, bool_and(e.by_trigger) as by_trigger
               from countersign.effect e where e.correlation_id = write group by e.relation, e.key) w
        on w.relation = c.relation and w.key = c.key
    left join lateral (select c.before, c.after, c.secret_before, c.secret_after
                       where c.before is not null and c.after is not null and not coalesce(w.by_trigger, false)) u on true
    where t.key_columns is not null
    union all
    -- `net_changes` takes the rows of a table without a key for one row, and leaves out logs. Of a log only the number counts: what
    -- triggers note there differs each time.
    select t.name, t.columns, case e.op when 'I' then 'insert' when 'D' then 'delete' else 'update' end, null,
           case when t.is_log then null when e.op = 'I' then e.after else i.before end,
           case when not t.is_log then case when e.op = 'I' then e.secret_after else e.secret_before end end,
           u.before, u.after, u.secret_before, u.secret_after
    from countersign.effect e
    join countersign.tracked t on t.shape = e.shape
    cross join lateral (select case when e.unchanged is null then e.before
                                    else countersign.full_before_image(e.before, e.after, e.unchanged) end as before) i
    left join lateral (select i.before, e.after, e.secret_before, e.secret_after
                       where e.op = 'U' and not t.is_log and not e.by_trigger) u on true
    where e.correlation_id = write and e.op <> 'N' and (t.is_log or t.key_columns is null)
$$;
comment on function countersign.changed_rows(uuid) is 'The rows of tracked tables that a write changes, all in all.';

create function countersign.changed_values(r countersign.changed_row, out name text, out value text) returns setof record
language sql stable set search_path = pg_catalog, pg_temp as $$
    select u.name, u.field from unnest(r.columns, countersign.fields(r.image)) u (name, field)
    where r.change = 'insert' and r.image is not null
    union all select '', coalesce(encode(r.secret, 'hex'), '') where r.change = 'insert' and r.image is not null
    union all
    select u.name, json_build_array(r.key, u.old, u.new)::text
    from unnest(r.columns, countersign.fields(r.old), countersign.fields(r.new)) u (name, old, new)
    where r.change = 'update' and u.old is distinct from u.new
    union all
    select '', json_build_array(r.key, encode(r.old_secret, 'hex'), encode(r.new_secret, 'hex'))::text
    where r.change = 'update' and r.old_secret is distinct from r.new_secret
$$;
comment on function countersign.changed_values(countersign.changed_row) is
    'The values of an inserted row, and those that an update changes, with the key. The column '''' stands for the sensitive ones.';

create function countersign.digest_rows(write uuid, generated jsonb, with_values boolean) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
    with hashed as (
        select r.name, r.change, sha256(convert_to(json_build_array(
                   r.key,
                   case when g.names is null or r.change <> 'insert' then r.image
                        else (select string_agg(case when g.names ? c.name then '' else c.field end, ',' order by c.n)
                              from unnest(r.columns, countersign.fields(r.image)) with ordinality c (name, field, n)) end,
                   case when r.change <> 'insert' or not coalesce(g.names ? '', false) then encode(r.secret, 'hex') end)::text, 'UTF8')) as hash,
               case when with_values and r.change = 'update' then sha256(convert_to((
                   select coalesce(json_agg(json_build_array(v.name, v.value) order by v.name)
                                   filter (where not coalesce(g.names ? v.name, false)), '[]')::text
                   from countersign.changed_values(r) v), 'UTF8')) end as value_hash
        from countersign.changed_rows(write) r
        cross join lateral (select generated -> r.change -> r.name as names) g
    ), digested as (
        -- Sorted, and not combined by XOR: two equal rows would be as none.
        select h.name, h.change, count(*) as number, encode(sha256(string_agg(h.hash, '' order by h.hash)), 'hex') as digest,
               encode(sha256(string_agg(h.value_hash, '' order by h.value_hash)), 'hex') as "values"
        from hashed h group by h.name, h.change
    )
    select coalesce(json_agg(jsonb_strip_nulls(jsonb_build_object('table', d.name, 'change', d.change, 'number', d.number,
               'digest', d.digest, 'values', d."values", 'generated', generated -> d.change -> d.name)) order by d.name, d.change), '[]')
    from digested d
$$;
comment on function countersign.digest_rows(uuid, jsonb, boolean) is
    'By table and change: the number of rows, a digest of them, and on demand one of the values that updates change. Both are without the '
    'columns that are generated, {change: {table: [column]}}.';

create function countersign.digest_columns(write uuid, with_values boolean) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    with digested as (
        select r.change, r.name, v.name as column_name,
               encode(sha256(string_agg(sha256(convert_to(v.value, 'UTF8')), '' order by sha256(convert_to(v.value, 'UTF8')))), 'hex') as digest
        from countersign.changed_rows(write) r
        cross join lateral countersign.changed_values(r) v
        where r.change = 'insert' or with_values and r.change = 'update'
        group by r.change, r.name, v.name
    ), tables as (
        select d.change, d.name, jsonb_object_agg(d.column_name, d.digest) as columns from digested d group by d.change, d.name
    ), changes as (
        select t.change, jsonb_object_agg(t.name, t.columns) as tables from tables t group by t.change
    )
    select coalesce(jsonb_object_agg(c.change, c.tables), '{}') from changes c
$$;
comment on function countersign.digest_columns(uuid, boolean) is
    'By change, table and column: a digest of the values of all inserted rows, and on demand of those that updates change.';

create function countersign.column_digests(digests jsonb, out change text, out name text, out column_name text, out digest text)
returns setof record language sql immutable set search_path = pg_catalog, pg_temp as $$
    select c.key, t.key, d.key, d.value
    from jsonb_each(digests) c cross join lateral jsonb_each(c.value) t cross join lateral jsonb_each_text(t.value) d
$$;
comment on function countersign.column_digests(jsonb) is 'The result of `digest_columns` as rows.';

create function countersign.first_other_rows(
    shown json, found json, of_two_trials boolean, out name text, out change text, out number_shown bigint, out number_found bigint,
    out only_values boolean
) language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce(s."table", f."table"), coalesce(s.change, f.change), coalesce(s.number, 0), coalesce(f.number, 0),
           coalesce(s.digest = f.digest, false)
    from json_to_recordset(shown) s ("table" text, change text, number bigint, digest text, "values" text)
    full join json_to_recordset(found) f ("table" text, change text, number bigint, digest text, "values" text)
        on f."table" = s."table" and f.change = s.change
    where s.number is distinct from f.number
       or s.digest <> f.digest and not (of_two_trials and s.change = 'insert')
       or s."values" <> f."values" and not of_two_trials
    order by 1, 2 limit 1
$$;
comment on function countersign.first_other_rows(json, json, boolean) is
    'The first table and change in which two results of `digest_rows` differ. Two trials of one write may differ in values, and of inserted '
    'rows only the numbers count. only_values: they are the same rows.';

create function countersign.changes_nothing(write uuid, affected bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    -- A row that was found as it should be is recorded, too. What the statements count beyond those was written where nobody looks.
    return not exists (select from countersign.changed_rows(write)) and countersign.untracked_counts(false) = '{}'
        and affected <= (select count(*) from countersign.effect e where e.correlation_id = write);
end $$;
comment on function countersign.changes_nothing(uuid, bigint) is
    'Whether a write, whose statements count this many rows, leaves all rows of tracked tables as they were and writes none of other tables. '
    'Within its transaction.';

create function countersign.agree_on_rows(write uuid, affected bigint, with_values boolean, first jsonb default null) returns json
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    columns    jsonb := countersign.digest_columns(write, with_values);
    generated  jsonb;
    rows       json;
    other      record;
begin
    if first is null then
        return json_build_object('columns', columns, 'rows', countersign.digest_rows(write, '{}', false));
    end if;
    with generated_column as (
        select coalesce(b.change, f.change) as change, coalesce(b.name, f.name) as name, coalesce(b.column_name, f.column_name) as column_name
        from countersign.column_digests(columns) b
        full join countersign.column_digests(first -> 'columns') f
            on (f.change, f.name, f.column_name) = (b.change, b.name, b.column_name)
        where b.digest is distinct from f.digest
    ), tables as (
        select c.change, c.name, jsonb_agg(c.column_name order by c.column_name) as names from generated_column c group by c.change, c.name
    ), changes as (
        select t.change, jsonb_object_agg(t.name, t.names) as tables from tables t group by t.change
    )
    select coalesce(jsonb_object_agg(c.change, c.tables), '{}') into generated from changes c;
    rows := countersign.digest_rows(write, generated, with_values);
    select * into other from countersign.first_other_rows((first -> 'rows')::json, rows, true);
    return case when other.name is null then json_build_object('rows', rows, 'changes_nothing', countersign.changes_nothing(write, affected))
                else json_build_object('unstable', json_build_object('table', other.name, 'change', other.change)) end;
end $$;
comment on function countersign.agree_on_rows(uuid, bigint, boolean, jsonb) is
    'Of two trials of a write over one snapshot. The first one returns what the second is called with. The second one returns {rows, changes_nothing}, which '
    'the write has to match, or {unstable: {table, change}} if it changes other rows than the first. Columns that differ between both are generated. '
    'with_values: also the values of updated rows.';

create function countersign.difference_of_rows(write uuid, agreed json) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    generated    jsonb;
    with_values  boolean := agreed::jsonb @? '$[*].values';
    other        record;
    place        text;
begin
    with tables as (
        select a.value ->> 'change' as change, jsonb_object_agg(a.value ->> 'table', a.value -> 'generated') as tables
        from jsonb_array_elements(agreed::jsonb) a where a.value ? 'generated' group by 1
    )
    select coalesce(jsonb_object_agg(t.change, t.tables), '{}') into generated from tables t;
    select * into other from countersign.first_other_rows(agreed, countersign.digest_rows(write, generated, with_values), false);
    place := case other.change when 'insert' then 'into' when 'delete' then 'from' else 'of' end || ' ' || other.name;
    return case
        when other.name is null then null
        when other.number_found <> other.number_shown then
            format('it would %s %s row(s) %s now, and %s were shown', other.change, other.number_found, place, other.number_shown)
        when other.only_values then
            format('it would change values of %s row(s) %s other than was shown', other.number_found, place)
        else format('it would %s other rows %s than those that were shown', other.change, place) end;
end $$;
comment on function countersign.difference_of_rows(uuid, json) is
    'What a write changes other than was agreed on with `agree_on_rows`, in words; null if it changes the same rows in the same way.';
