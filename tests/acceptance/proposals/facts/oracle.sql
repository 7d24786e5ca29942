create schema oracle;
create table oracle.seen (n int generated always as identity, relation oid, change text, nested boolean, columns text[]);
create function oracle.see() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    change   text := lower(tg_op);
    columns  text[];
begin
    if tg_op = 'UPDATE' then
        columns := array(select o.key from jsonb_each(to_jsonb(old)) o where o.value is distinct from to_jsonb(new) -> o.key);
        change := case when old *= new then 'none' else change end;
    end if;
    insert into oracle.seen (relation, change, nested, columns)
    values (coalesce(pg_partition_root(tg_relid), tg_relid), change, pg_trigger_depth() > 1, columns);
    return null;
end $$;
-- The name sorts right behind that of the ledger's trigger, so that the rows have the order in which the ledger lists them.
create function oracle.watch(space text) returns void language plpgsql as $$
declare
    leaf  regclass;
begin
    for leaf in select c.oid from pg_class c where c.relnamespace = space::regnamespace and c.relkind = 'r' loop
        execute format('create trigger "!countersign~" after insert or update or delete on %s for each row execute function oracle.see()', leaf);
    end loop;
end $$;
create view oracle.changes as
    select format('%I.%I', n.nspname, c.relname) as name, s.change, count(distinct s.n) as rows,
           count(distinct s.n) filter (where not is_listed) as unlisted,
           coalesce(array_agg(distinct k) filter (where k is not null and k <> all (s.sensitive)), '{}') as columns,
           coalesce(bool_or(k = any (s.sensitive)), false) as is_sensitive
    from (select e.*, t.sensitive, row_number() over (order by e.n) <= 10000 as is_listed
          from oracle.seen e join countersign.tracked t on t.relation = e.relation and t.is_current) s
    join pg_class c on c.oid = s.relation join pg_namespace n on n.oid = c.relnamespace
    left join unnest(case when s.is_listed and s.change = 'update' then s.columns end) k on true
    where s.change <> 'none'
    group by s.relation, n.nspname, c.relname, s.change, s.nested;
