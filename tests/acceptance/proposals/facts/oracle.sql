create schema oracle;
create table oracle.seen (n int generated always as identity, relation oid, change text, nested boolean, columns text[], key text, key_before text);
-- Each row with a key, before the statement and after it.
create table oracle.state (relation oid, key text, is_new boolean, image jsonb);
create function oracle.key(rel oid, image jsonb) returns text language sql stable as $$
    select string_agg(image ->> k, chr(10) order by k) from countersign.tracked t cross join unnest(t.key_columns) k
    where t.relation = rel and t.is_current and not t.is_log $$;
create function oracle.different(one jsonb, other jsonb) returns text[] language sql immutable as $$
    select coalesce(array_agg(o.key), '{}') from jsonb_each(one) o where o.value::text is distinct from (other -> o.key)::text $$;
create function oracle.see() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    change   text := lower(tg_op);
    columns  text[];
    rel      oid := coalesce(pg_partition_root(tg_relid), tg_relid);
begin
    if tg_op = 'UPDATE' then
        columns := oracle.different(to_jsonb(old), to_jsonb(new));
        change := case when old *= new then 'none' else change end;
    end if;
    insert into oracle.seen (relation, change, nested, columns, key, key_before)
    values (rel, change, pg_trigger_depth() > 1, columns, oracle.key(rel, coalesce(to_jsonb(new), to_jsonb(old))), oracle.key(rel, to_jsonb(old)));
    return null;
end $$;
create function oracle.look(of_new boolean) returns void language plpgsql as $$
declare
    rel  regclass;
begin
    for rel in select t.relation from countersign.tracked t where t.is_current and not t.is_log and t.key_columns is not null loop
        begin
            execute format('insert into oracle.state select %L::oid, oracle.key(%1$L::oid, to_jsonb(r)), $1, to_jsonb(r) from %s r', rel::oid, rel)
                using of_new;
        exception when invalid_text_representation or untranslatable_character then
            -- Documents that jsonb does not take: the trigger refuses each statement that changes a row.
            null;
        end;
    end loop;
end $$;
-- The name sorts right behind that of the ledger's trigger, so that the rows have the order in which the ledger lists them.
create function oracle.watch(space text) returns void language plpgsql as $$
declare
    leaf  regclass;
begin
    perform oracle.look(false);
    for leaf in select c.oid from pg_class c where c.relnamespace = space::regnamespace and c.relkind = 'r' loop
        execute format('create trigger "!countersign~" after insert or update or delete on %s for each row execute function oracle.see()', leaf);
    end loop;
end $$;
-- Of a row that was changed several times, the states before and after count; but of a row that got another key, each step.
create view oracle.row_changes as
    with repeated as (
        select s.relation, s.key, min(s.n) as n, bool_and(s.nested) as nested from oracle.seen s
        where s.key is not null and not exists (
            select from oracle.seen m where m.relation = s.relation and m.key <> m.key_before and s.key in (m.key, m.key_before))
        group by s.relation, s.key having count(*) > 1
    )
    select s.n, s.relation, s.change, s.nested, s.columns from oracle.seen s
    where not exists (select from repeated r where r.relation = s.relation and r.key = s.key)
    union all
    select r.n, r.relation,
           case when b.image is null and a.image is null then 'gone' when b.image is null then 'insert' when a.image is null then 'delete'
                when cardinality(oracle.different(b.image, a.image)) = 0 then 'none' else 'update' end,
           r.nested, oracle.different(b.image, a.image)
    from repeated r
    left join oracle.state b on b.relation = r.relation and b.key = r.key and not b.is_new
    left join oracle.state a on a.relation = r.relation and a.key = r.key and a.is_new;
create view oracle.changes as
    select format('%I.%I', n.nspname, c.relname) as name, s.change, count(distinct s.n) as rows,
           count(distinct s.n) filter (where not is_listed) as unlisted,
           coalesce(array_agg(distinct k) filter (where k is not null and k <> all (s.sensitive)), '{}') as columns,
           coalesce(bool_or(k = any (s.sensitive)), false) as is_sensitive
    from (select e.*, t.sensitive, row_number() over (order by e.n) <= 10000 as is_listed
          from oracle.row_changes e join countersign.tracked t on t.relation = e.relation and t.is_current where e.change <> 'gone') s
    join pg_class c on c.oid = s.relation join pg_namespace n on n.oid = c.relnamespace
    left join unnest(case when s.is_listed and s.change = 'update' then s.columns end) k on true
    where s.change <> 'none'
    group by s.relation, n.nspname, c.relname, s.change, s.nested;
