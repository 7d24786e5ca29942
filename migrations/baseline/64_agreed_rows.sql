-- The rows that a proposal is about, as digests: of two trials, of the preview, and of the write itself. A digest does not depend on the
-- order of the rows, and covers all of them, however many there are.

create type countersign.changed_row as (
    name     text,
    columns  text[],
    change   text,
    key      text,
    image    text,
    secret   bytea
);
comment on type countersign.changed_row is 'A row that a write changes: what of it has to be the same when an approved write runs.';
comment on column countersign.changed_row.change is 'insert, update or delete, for the whole write: a changed key is a delete and an insert.';
comment on column countersign.changed_row.key is 'The key before the write; null for an inserted row, and in tables without a key.';
comment on column countersign.changed_row.image is
    'The whole row: as it was if it is deleted or has no key, and as it will be if it is inserted. Null for other updated rows.';
comment on column countersign.changed_row.secret is 'The keyed hash of its sensitive columns, which the image lacks.';

create function countersign.changed_rows(write uuid) returns setof countersign.changed_row
language sql stable set search_path = pg_catalog, pg_temp as $$
    select t.name, t.columns,
           case when c.before is null then 'insert' when c.after is null then 'delete' else 'update' end,
           case when c.before is not null then c.key end,
           case when c.before is null then c.after when c.after is null then c.before end,
           case when c.before is null then c.secret_after when c.after is null then c.secret_before end
    from countersign.net_changes(array[write]) c
    join countersign.tracked t on t.shape = c.shape
    where t.key_columns is not null
    union all
    -- `net_changes` takes the rows of a table without a key for one row, and leaves out logs. Of a log only the number counts: what
    -- triggers note there differs each time.
    select t.name, t.columns, case e.op when 'I' then 'insert' when 'D' then 'delete' else 'update' end, null,
           case when t.is_log then null
                when e.op = 'I' then e.after
                when e.unchanged is null then e.before
                else countersign.full_before_image(e.before, e.after, e.unchanged) end,
           case when not t.is_log then case when e.op = 'I' then e.secret_after else e.secret_before end end
    from countersign.effect e
    join countersign.tracked t on t.shape = e.shape
    where e.correlation_id = write and e.op <> 'N' and (t.is_log or t.key_columns is null)
$$;
comment on function countersign.changed_rows(uuid) is 'The rows of tracked tables that a write changes, all in all.';

create function countersign.digest_rows(write uuid, generated jsonb) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
    with hashed as (
        select r.name, r.change, sha256(convert_to(json_build_array(
                   r.key,
                   case when g.names is null then r.image
                        else (select string_agg(case when g.names ? c.name then '' else c.field end, ',' order by c.n)
                              from unnest(r.columns, countersign.fields(r.image)) with ordinality c (name, field, n)) end,
                   case when not coalesce(g.names ? '', false) then encode(r.secret, 'hex') end)::text, 'UTF8')) as hash
        from countersign.changed_rows(write) r
        cross join lateral (select case when r.change = 'insert' then generated -> r.name end as names) g
    ), digested as (
        -- Sorted, and not combined by XOR: two equal rows would be as none.
        select h.name, h.change, count(*) as number, encode(sha256(string_agg(h.hash, '' order by h.hash)), 'hex') as digest
        from hashed h group by h.name, h.change
    )
    select coalesce(json_agg(json_build_object('table', d.name, 'change', d.change, 'number', d.number, 'digest', d.digest)::jsonb
               || case when d.change = 'insert' and generated ? d.name then jsonb_build_object('generated', generated -> d.name) else '{}' end
               order by d.name, d.change), '[]')
    from digested d
$$;
comment on function countersign.digest_rows(uuid, jsonb) is
    'By table and change: the number of rows, and a digest of them without the columns of inserted rows that are generated, {table: [column]}. '
    'The column '''' stands for the sensitive ones.';

create function countersign.digest_inserted_columns(write uuid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    with digested as (
        select r.name, c.name as column_name,
               encode(sha256(string_agg(sha256(convert_to(c.field, 'UTF8')), '' order by sha256(convert_to(c.field, 'UTF8')))), 'hex') as digest
        from countersign.changed_rows(write) r
        cross join lateral (select u.name, u.field from unnest(r.columns, countersign.fields(r.image)) u (name, field)
                            union all select '', coalesce(encode(r.secret, 'hex'), '')) c
        where r.change = 'insert' and r.image is not null
        group by r.name, c.name
    ), tables as (
        select d.name, jsonb_object_agg(d.column_name, d.digest) as columns from digested d group by d.name
    )
    select coalesce(jsonb_object_agg(t.name, t.columns), '{}') from tables t
$$;
comment on function countersign.digest_inserted_columns(uuid) is 'By table and column: a digest of the values of all inserted rows.';

create function countersign.first_other_rows(
    shown json, found json, without_inserted boolean, out name text, out change text, out number_shown bigint, out number_found bigint
) language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce(s."table", f."table"), coalesce(s.change, f.change), coalesce(s.number, 0), coalesce(f.number, 0)
    from json_to_recordset(shown) s ("table" text, change text, number bigint, digest text)
    full join json_to_recordset(found) f ("table" text, change text, number bigint, digest text)
        on f."table" = s."table" and f.change = s.change
    where s.number is distinct from f.number or s.digest <> f.digest and not (without_inserted and s.change = 'insert')
    order by 1, 2 limit 1
$$;
comment on function countersign.first_other_rows(json, json, boolean) is
    'The first table and change in which two results of `digest_rows` differ; of inserted rows on demand only the numbers count.';

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

create function countersign.agree_on_rows(write uuid, affected bigint, first jsonb default null) returns json
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    columns    jsonb := countersign.digest_inserted_columns(write);
    generated  jsonb;
    rows       json;
    other      record;
begin
    if first is null then
        return json_build_object('columns', columns, 'rows', countersign.digest_rows(write, '{}'));
    end if;
    select coalesce(jsonb_object_agg(g.name, g.names), '{}') into generated
    from (select t.key as name, jsonb_agg(c.key order by c.key) as names
          from jsonb_each(columns) t
          cross join lateral jsonb_each(t.value) c
          where c.value is distinct from first #> array['columns', t.key, c.key]
          group by t.key) g;
    rows := countersign.digest_rows(write, generated);
    select * into other from countersign.first_other_rows((first -> 'rows')::json, rows, true);
    return case when other.name is null then json_build_object('rows', rows, 'changes_nothing', countersign.changes_nothing(write, affected))
                else json_build_object('unstable', json_build_object('table', other.name, 'change', other.change)) end;
end $$;
comment on function countersign.agree_on_rows(uuid, bigint, jsonb) is
    'Of two trials of a write over one snapshot. The first one returns what the second is called with. The second one returns {rows, changes_nothing}, which '
    'the write has to match, or {unstable: {table, change}} if it changes other rows than the first. Columns of inserted rows that differ '
    'between both are generated.';

create function countersign.difference_of_rows(write uuid, agreed json) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    generated  jsonb := (select coalesce(jsonb_object_agg(a.value ->> 'table', a.value -> 'generated'), '{}')
                         from jsonb_array_elements(agreed::jsonb) a where a.value ? 'generated');
    other      record;
    place      text;
begin
    select * into other from countersign.first_other_rows(agreed, countersign.digest_rows(write, generated), false);
    place := case other.change when 'insert' then 'into' when 'delete' then 'from' else 'of' end || ' ' || other.name;
    return case
        when other.name is null then null
        when other.number_found <> other.number_shown then
            format('it would %s %s row(s) %s now, and %s were shown', other.change, other.number_found, place, other.number_shown)
        else format('it would %s other rows %s than those that were shown', other.change, place) end;
end $$;
comment on function countersign.difference_of_rows(uuid, json) is
    'What a write changes other than was agreed on with `agree_on_rows`, in words; null if it changes the same rows.';
