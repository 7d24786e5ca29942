-- Images of rows: their fields, how they are compared, and what writes did to each row, taken together.

create type countersign.net_change as (
    relation       oid,
    shape          integer,
    key            text,
    before         text,
    after          text,
    secret_before  bytea,
    secret_after   bytea,
    is_broken      boolean,
    last_position  bigint,
    writer         uuid
);
comment on type countersign.net_change is 'What one or several writes did to a row, taken together. A changed key is one row less and one row more.';
comment on column countersign.net_change.is_broken is 'Something else changed the row between two of the writes.';
comment on column countersign.net_change.writer is 'The last of the writes.';

create function countersign.fields(image text) returns text[]
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
    select array_agg(m[1] order by n)
    from regexp_matches(substr(image, 1, length(image) - 1), '[(,]("(?:[^"\\]|""|\\\\)*"|[^,"]*)', 'g') with ordinality f (m, n)
$$;
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

create function countersign.same_image(of_shape integer, a text, b text, leaving_out text[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when a is not distinct from b then true
                when a is null or b is null or leaving_out = '{}' then false
                else not exists (
                    select from countersign.tracked t, unnest(t.columns, countersign.fields(a), countersign.fields(b)) c (name, x, y)
                    where t.shape = of_shape and c.x is distinct from c.y and c.name <> all (leaving_out)) end
$$;
comment on function countersign.same_image(integer, text, text, text[]) is 'Whether two row images are the same, but for some columns.';

-- In PL/pgSQL, like what else an undo of one row calls, because its plans are kept; and generic, because PostgreSQL takes an array for
-- a hundred rows then, and would plan for the one that it has each time anew.
create function countersign.net_changes(writes uuid[]) returns setof countersign.net_change
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return query
    with change as (
        select e.relation, e.shape, e.key, e.key_before, e.after, e.secret_before, e.secret_after, e.position, e.correlation_id,
               case when e.unchanged is null then e.before else countersign.full_before_image(e.before, e.after, e.unchanged) end as before
        from countersign.effect e
        where e.correlation_id = any (writes) and not (select t.is_log from countersign.tracked t where t.shape = e.shape)
    ), touched as (
        select c.relation, min(c.shape) as shape, k.key, count(*) as times, max(c.position) as last_position,
               (array_agg(c.correlation_id order by c.position desc))[1] as writer,
               array_agg(case when k.is_old then c.before end) as befores, array_agg(case when k.is_new then c.after end) as afters,
               array_agg(case when k.is_old then c.secret_before end) as secrets_before,
               array_agg(case when k.is_new then c.secret_after end) as secrets_after
        from change c
        cross join lateral (select c.key, c.key_before is null as is_old, true as is_new
                            union all select c.key_before, true, false where c.key_before is not null) k
        group by c.relation, k.key
    )
    select h.relation, h.shape, h.key, h.befores[1], h.afters[1], h.secrets_before[1], h.secrets_after[1], false, h.last_position, h.writer
    from touched h where h.times = 1
    union all
    -- Triggers fire in the order of statements, and a nested one ends first, so positions do not order the changes that one write made
    -- to a row. Each image but the first and the last is once found and once left: what remains are these two.
    select h.relation, h.shape, h.key, n.before, n.after, n.secret_before, n.secret_after, n.is_broken, h.last_position, h.writer
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
    where h.times > 1 and (n.before is not null or n.after is not null);
end $$;
comment on function countersign.net_changes(uuid[]) is 'The net effect of writes, by table and key; rows that are as they were are left out, and so are log tables.';

create function countersign.single_change(writes uuid[]) returns countersign.net_change
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    change  countersign.net_change;
begin
    if cardinality(writes) = 1 then
        select e.relation, e.shape, e.key, e.before, e.after, e.secret_before, e.secret_after, false, e.position, e.correlation_id
        into change
        from countersign.effect e
        where e.correlation_id = writes[1] and e.key_before is null and e.unchanged is null
          and (select count(*) from (select from countersign.effect o where o.correlation_id = writes[1] limit 2) o) = 1
          and (select not t.is_log from countersign.tracked t where t.shape = e.shape)
          and (select r.status from countersign.record r where r.correlation_id = writes[1]) = 'success'
          and not exists (select from countersign.reversal v where v.correlation_id = writes[1]);
    end if;
    return change;
end $$;
comment on function countersign.single_change(uuid[]) is
    'The net effect of one success that was not undone and that changed one row once, and not its key; null for any other.';
