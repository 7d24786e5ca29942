-- Since when the recorded changes of a tracked table are all there are.

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

create function countersign.ledger_era(at timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (select count(*) from countersign.identity i where i.since <= at);
end $$;
comment on function countersign.ledger_era(timestamptz) is 'A copied or restored database counts its transactions anew.';

create function countersign.history_extent(of_relation oid, out known_from timestamptz, out gaps text[])
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    t          countersign.tracked;
    other_key  timestamptz;
    truncated  timestamptz;
begin
    select k.* into t from countersign.tracked k where k.relation = of_relation and k.is_current;
    gaps := array(
        select g.code from (values
            ('outside_not_recorded', t.all_writers_since is null),
            ('partitions', exists (select from pg_class c where c.oid = of_relation and c.relkind = 'p')),
            ('not_recording', exists (
                select from pg_partition_tree(of_relation) p full join (select of_relation as relid) o on o.relid = p.relid
                where not countersign.is_recording(coalesce(p.relid, o.relid))))) g (code, applies)
        where g.applies);
    if t.unbroken_since is null or t.key_columns is null or t.key_columns is distinct from countersign.key_columns(of_relation) then
        return;
    end if;
    -- A key is found again by the names, the numbers and the types of its columns.
    select min(n.since) into other_key from countersign.tracked n
    where n.relation = of_relation and n.since > (
        select max(o.since) from countersign.tracked o
        where o.relation = of_relation and array(select (k, o.numbers[array_position(o.columns, k)], o.type_ids[array_position(o.columns, k)])::text
                                                 from unnest(o.key_columns) k)
              <> array(select (k, t.numbers[array_position(t.columns, k)], t.type_ids[array_position(t.columns, k)])::text from unnest(t.key_columns) k));
    -- Two transactions cannot truncate a table at the same time, so the last one counts. Its hash is null, as its key: `effect_row` has it.
    select max(o.changed_at) into truncated
    from (select l.* from countersign.effect l
          where l.relation = of_relation and hashtextextended(l.key, 0) is null and l.key is null and l.op = 'T'
          order by l.position desc limit 1) e
    join countersign.effect o on o.correlation_id is null and o.xid = e.xid and o.changed_at >= e.changed_at
         and countersign.ledger_era(o.changed_at) = countersign.ledger_era(e.changed_at);
    known_from := greatest(t.unbroken_since, (select p.until from countersign.pruned_changes p), truncated, other_key);
end $$;
comment on function countersign.history_extent(oid) is
    'The earliest time of which something is known of the rows of a tracked table, and what is not recorded since: HistoryGap of the program. '
    'No time: its rows cannot be told apart.';
