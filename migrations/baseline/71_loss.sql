-- Loss: a database that lacks what its ledger had. An asynchronous standby was promoted, or a backup was restored. Each server
-- compares what it knows with what is there where its writes begin, and what one of them misses stops all of them.
-- docs/adr/0108-servers-compare-what-they-acknowledged.md has the reasons, crates/ledger/src/write/history.rs the server's side.
--
-- SQLSTATE CS007: records that were acknowledged, or signed entries of the log, are missing. Nothing is written until `fork`.

-- A failure counts for nothing: a sweep may have ended the attempt of a write that was lost. A record that is gone and is an entry of the
-- log was pruned; only then is the log searched.
create function countersign.is_lost(write uuid) returns boolean language sql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = on set jit = off as $$
select not exists (select from countersign.record r where r.correlation_id = write and r.status <> 'failure')
   and not exists (select from countersign.leaf l where position(concat(E'\ncorrelation_id ', write, E'\nstatus ') in l.entry) > 0
                   and position(concat(E'\ncorrelation_id ', write, E'\nstatus failure\n') in l.entry) = 0)
$$;
comment on function countersign.is_lost(uuid) is 'Whether a write that was acknowledged is neither on record nor pruned.';

-- A write waits for it. Each name is qualified, since SET costs more than the queries. There is one query for each thing to look up: one
-- for all of them costs less with known values, by PostgreSQL's estimate, so it would be planned for each write, in 0.2 ms.
create function countersign.lacks(known countersign.known_history) returns boolean language plpgsql stable as $$
declare
    log    integer := (select i.no from countersign.identity i order by i.no desc limit 1);
    write  uuid;
begin
    if known.log_no operator(pg_catalog.<>) log then
        return known.log_no operator(pg_catalog.>) log;
    end if;
    if known.leaf_index is not null then
        if not exists (select from countersign.leaf l where l.log_no operator(pg_catalog.=) known.log_no
                       and l.leaf_index operator(pg_catalog.=) known.leaf_index and l.hash operator(pg_catalog.=) known.leaf_hash) then
            return true;
        end if;
    end if;
    foreach write in array coalesce(known.records, '{}') loop
        if not exists (select from countersign.record r where r.correlation_id operator(pg_catalog.=) write
                       and r.status operator(pg_catalog.<>) 'failure') then
            -- Only where a record is gone is the log searched for it.
            if countersign.is_lost(write) then
                return true;
            end if;
        end if;
    end loop;
    return false;
end $$;
comment on function countersign.lacks(countersign.known_history) is
    'Whether this database lacks what a server knows. What was known before a fork counts no more.';

-- Records are lost with the server of PostgreSQL, its data folder, or the table. One expression without SET, so that it is inlined.
create function countersign.incarnation() returns text language sql stable as $$
    select pg_catalog.concat(pg_catalog.pg_postmaster_start_time(), ' ', pg_catalog.pg_relation_filepath('countersign.record'::pg_catalog.regclass)) $$;
comment on function countersign.incarnation() is
    'The server of PostgreSQL since its start, and the file that has the records: as long as both stay, what was found there is there.';

create function countersign.refuse_after_loss(known countersign.known_history default null) returns void language plpgsql stable as $$
declare
    is_lost  boolean := exists (select from countersign.loss l where l.log_no operator(pg_catalog.=)
                                (select pg_catalog.max(i.no) from countersign.identity i));
begin
    if not is_lost and known is distinct from null and known.incarnation operator(pg_catalog.<>) countersign.incarnation() is not false then
        is_lost := countersign.lacks(known);
    end if;
    if is_lost then
        raise exception 'records that were acknowledged, or signed entries of the log, are missing in this database: nothing is written until `countersign audit fork --restored`'
            using errcode = 'CS007', hint = '`countersign doctor` says what is missing.';
    end if;
end $$;
comment on function countersign.refuse_after_loss(countersign.known_history) is 'CS007 after a loss, whether it is noted or found now.';

create function countersign.current_timeline() returns integer language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
exception when others then
    -- Not every provider lets a login call these, and a standby has no WAL of its own.
    return null;
end $$;
comment on function countersign.current_timeline() is 'The timeline of the WAL, which a promotion changes; null if it cannot be known.';

create function countersign.note_loss(
    known countersign.known_history default null, acknowledged uuid[] default '{}', acknowledged_at timestamptz[] default '{}',
    signed_entries bigint default null
) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    log      integer := countersign.current_log();
    entries  bigint;
    noted    uuid[];
    missing  uuid[];
    since    timestamptz;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    if not exists (select from countersign.loss l where l.log_no = log)
        and signed_entries is null and (known is not distinct from null or not countersign.lacks(known))
    then
        return false;
    end if;
    -- Sessions that find it at the same moment note it one after the other, each what is not noted by then.
    lock table countersign.loss in share row exclusive mode;
    select l.records into noted from countersign.loss l where l.log_no = log;
    select coalesce(array_agg(a.id order by a.at), '{}'), min(a.at) into missing, since
    from unnest(acknowledged, acknowledged_at) a (id, at)
    where a.id <> all (coalesce(noted, '{}')) and countersign.is_lost(a.id);
    -- Each server adds what it misses to what the first one has noted.
    if noted is not null and missing = '{}' then
        return true;
    end if;
    select coalesce(max(l.leaf_index) + 1, 0) into entries from countersign.leaf l where l.log_no = log;
    if not exists (select from countersign.leaf l
                   where (l.log_no, l.leaf_index, l.hash) = (known.log_no, known.leaf_index, known.leaf_hash)) then
        signed_entries := greatest(signed_entries, known.leaf_index + 1);
    end if;
    insert into countersign.loss as l (log_no, records, since, signed_entries, entries, timeline_before, timeline)
    values (log, missing, since, signed_entries, entries, known.timeline, countersign.current_timeline())
    on conflict (log_no) do update set records = l.records || excluded.records, since = least(l.since, excluded.since);
    perform countersign.note_event('loss', array['records', cardinality(missing)::text,
        'since', to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'entries', entries::text, 'signed_entries', signed_entries::text], nullif(array_to_string(missing, ' '), ''));
    return true;
end $$;
comment on function countersign.note_loss(countersign.known_history, uuid[], timestamptz[], bigint) is
    'Stops the writes of all servers if this database lacks what the caller knows, or the entries that it knows to be signed; whether they are '
    'stopped. The calling server believes what it says of itself.';
