-- The log of reads. Servers write it in batches, beside the reads themselves, so it may have gaps, and it is not sealed
-- (docs/adr/0077). A gap that a server notices is a row of its own.

create sequence countersign.read_log_id cache 50;
create table countersign.read_log (
    id              bigint       not null default nextval('countersign.read_log_id'),
    read_at         timestamptz  not null,
    login           name         not null,
    account_id      text,
    actor           text,
    session_id      text,
    client_name     text,
    client_version  text,
    trace_id        text,
    tool_name       text,
    outcome         text         not null,
    tables          text[],
    row_count       bigint,
    row_bytes       bigint,
    duration_us     bigint,
    is_truncated    boolean,
    fingerprint     bytea,
    query           text,
    entries         bigint,
    first_at        timestamptz,
    last_at         timestamptz
) partition by range (read_at);
comment on table countersign.read_log is
    'One row for each read of an MCP client, in partitions of one day (UTC) that `log_reads` makes. Rows never change; retention drops whole '
    'partitions. Rows without a tool say what is missing: reads that were not logged (outcome lost), and removed days (outcome pruned).';
comment on column countersign.read_log.read_at is 'The start of the call, by the database''s clock; for lost and pruned: when the row was written.';
comment on column countersign.read_log.login is 'The database login that wrote the row.';
comment on column countersign.read_log.outcome is 'ok, the code of the error, cancelled; or lost or pruned.';
comment on column countersign.read_log.tables is
    'The tables that the plan of the statement reads, views resolved, as schema.table; null if the statement was refused before it had a plan.';
comment on column countersign.read_log.row_bytes is 'The length of the rows as JSON.';
comment on column countersign.read_log.fingerprint is 'SHA-256 of the text of the statement.';
comment on column countersign.read_log.query is 'The beginning of the text, where servers are told to store it; never a value of a parameter.';
comment on column countersign.read_log.entries is 'For lost: how many reads are missing. For pruned: how many rows were removed.';
comment on column countersign.read_log.first_at is 'For lost and pruned: the beginning of the time that this is about.';
comment on column countersign.read_log.last_at is 'For lost and pruned: the end of that time.';
create index read_log_read_at on countersign.read_log (read_at);

create table countersign.read_log_writer (
    writer   uuid         not null primary key,
    login    name         not null,
    batch    bigint       not null,
    seen_at  timestamptz  not null
);
comment on table countersign.read_log_writer is
    'The newest batch of each server. A server that does not know whether a batch was committed sends it again, and it counts once.';

create function countersign.read_partition(day date) returns text language sql stable set search_path = pg_catalog, pg_temp as
$$ select 'read_log_' || to_char(day, 'YYYYMMDD') $$;
comment on function countersign.read_partition(date) is 'The name of the partition of a day.';

create function countersign.read_partitions() returns table (day date, relation oid, is_last_day boolean)
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select d.day, c.oid, (d.day + 1)::timestamp at time zone 'UTC' > clock_timestamp() - interval '1 day'
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    cross join lateral to_date(substring(c.relname from '^read_log_([0-9]{8})$'), 'YYYYMMDD') d (day)
    where i.inhparent = 'countersign.read_log'::regclass and d.day is not null order by d.day
$$;
comment on function countersign.read_partitions() is 'The days of the log. A day of which the last 24 hours are a part is never pruned.';

-- CREATE TABLE .. PARTITION OF would lock out readers of the whole log. ATTACH locks out only other changes of the same kind.
create function countersign.make_read_partitions(first_day date, last_day date) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    missing  date;
begin
    if (select count(*) from countersign.read_partitions() p where p.day between first_day and last_day) > last_day - first_day then
        return;
    end if;
    -- The other servers of the ledger make the same ones. 1668641650 is the lock of `init`.
    perform pg_advisory_xact_lock(1668641651);
    for missing in
        select d::date from generate_series(first_day::timestamp, last_day::timestamp, interval '1 day') d
        where d::date not in (select p.day from countersign.read_partitions() p)
    loop
        execute format('create table countersign.%I (like countersign.read_log)', countersign.read_partition(missing));
        execute format(
            'alter table countersign.read_log attach partition countersign.%I for values from (%L) to (%L)',
            countersign.read_partition(missing), missing::timestamp at time zone 'UTC', (missing + 1)::timestamp at time zone 'UTC');
    end loop;
    delete from countersign.read_log_writer w where w.seen_at < clock_timestamp() - interval '8 days';
end $$;
comment on function countersign.make_read_partitions(date, date) is 'Makes the partitions of these days that are missing. Several servers may call it at once.';

create function countersign.log_reads(sender uuid, batch_no bigint, sent_at bigint, oldest_at bigint, batch text[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    now_at  timestamptz := clock_timestamp();
    -- A server gives times by its own clock, in microseconds since 1970.
    start   timestamptz := now_at - sent_at * interval '1 microsecond';
    oldest  timestamptz := start + oldest_at * interval '1 microsecond';
begin
    perform countersign.refuse_within_a_write();
    perform countersign.commit_durably();
    if oldest is null or oldest < now_at - interval '7 days' then
        raise exception 'reads are logged within 7 days' using errcode = '22023';
    end if;
    insert into countersign.read_log_writer as w (writer, login, batch, seen_at) values (sender, session_user, batch_no, now_at)
    on conflict (writer) do update set batch = excluded.batch, login = excluded.login, seen_at = excluded.seen_at
    where w.batch < excluded.batch;
    if not found then
        return false;
    end if;
    perform countersign.make_read_partitions((least(oldest, now_at) at time zone 'UTC')::date, (now_at at time zone 'UTC')::date + 1);
    insert into countersign.read_log (read_at, login, account_id, actor, session_id, client_name, client_version, trace_id, tool_name, outcome,
        tables, row_count, row_bytes, duration_us, is_truncated, fingerprint, query, entries, first_at, last_at)
    select least(start + e.read_at * interval '1 microsecond', now_at), session_user, e.account_id, e.actor, e.session_id, e.client_name,
           e.client_version, e.trace_id, e.tool_name, e.outcome, e.tables::text[], e.row_count, e.row_bytes, e.duration_us, e.is_truncated,
           e.fingerprint, e.query, e.entries, start + e.first_at * interval '1 microsecond', start + e.last_at * interval '1 microsecond'
    from unnest(
        batch[1]::bigint[], batch[2]::text[], batch[3]::text[], batch[4]::text[], batch[5]::text[], batch[6]::text[], batch[7]::text[],
        batch[8]::text[], batch[9]::text[], batch[10]::text[], batch[11]::bigint[], batch[12]::bigint[], batch[13]::bigint[],
        batch[14]::boolean[], batch[15]::bytea[], batch[16]::text[], batch[17]::bigint[], batch[18]::bigint[], batch[19]::bigint[]) as e (
        read_at, account_id, actor, session_id, client_name, client_version, trace_id, tool_name, outcome, tables, row_count, row_bytes,
        duration_us, is_truncated, fingerprint, query, entries, first_at, last_at);
    return true;
end $$;
comment on function countersign.log_reads(uuid, bigint, bigint, bigint, text[]) is
    'Writes a batch of a server, given as one array for each column; false if it was written before. Times are microseconds by the clock of the server, which says when it sent them.';

create function countersign.drop_reads(doomed date, who text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    removed  bigint;
    now_at   timestamptz := clock_timestamp();
    today    date := (now_at at time zone 'UTC')::date;
begin
    if not exists (select from countersign.read_partitions() p where p.day = doomed and not p.is_last_day) then
        raise exception 'the log of % is not there, or it is of the last day', doomed using errcode = '22023';
    end if;
    execute format('select count(*) from countersign.%I', countersign.read_partition(doomed)) into removed;
    -- DROP waits for readers of the log, and servers would wait behind it.
    perform set_config('lock_timeout', '500ms', true);
    execute format('drop table countersign.%I', countersign.read_partition(doomed));
    perform countersign.make_read_partitions(today, today + 1);
    insert into countersign.read_log (read_at, login, actor, outcome, entries, first_at, last_at)
    values (now_at, session_user, who, 'pruned', removed, doomed::timestamp at time zone 'UTC', (doomed + 1)::timestamp at time zone 'UTC');
    return removed;
end $$;
comment on function countersign.drop_reads(date, text) is
    'Removes the log of one day, and says so in the log; the number of its rows. For members of the owner.';

create function countersign.protect_read_log() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'UPDATE' and countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{query,fingerprint}') then
        return new;
    end if;
    raise exception 'the log of reads is append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_read_log() is 'A row of the log changes only by an erasure. `drop_reads` removes whole days.';
create trigger protect_read_log before update or delete on countersign.read_log
    for each row execute function countersign.protect_read_log();
