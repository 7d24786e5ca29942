-- The ledger as evidence: a chain of hashes over the final records, and pruning that says what it removed.
-- docs/auditors.md says what it proves. Decision 18 in ARCHITECTURE.md says why it is made like this.

create table countersign.seal (
    no              bigint       primary key check (no >= 1),
    sealed_at       timestamptz  not null,
    from_id         bigint,
    to_id           bigint,
    record_ids      bigint[],
    leaves          bytea[],
    removed         int8multirange,
    removed_before  timestamptz,
    removed_count   bigint,
    removed_by      text,
    hash            bytea        not null check (length(hash) = 32),
    constraint records_or_a_pruning check (
        (num_nulls(from_id, to_id, record_ids, leaves) = 0
            and num_nonnulls(removed, removed_before, removed_count, removed_by) = 0)
        or (num_nonnulls(from_id, to_id, record_ids, leaves) = 0
            and num_nulls(removed, removed_before, removed_count, removed_by) = 0)),
    constraint records_have_leaves   check (cardinality(record_ids) >= 1 and cardinality(leaves) = cardinality(record_ids)),
    constraint records_are_in_range  check (from_id <= record_ids[1] and record_ids[cardinality(record_ids)] = to_id),
    constraint a_pruning_removes     check (removed_count >= 1)
);
comment on table countersign.seal is
    'A chain of entries: which final records there were and what they said, and which of them were pruned. Append-only.';
comment on column countersign.seal.no is '1, 2, 3 and so on, without gaps.';
comment on column countersign.seal.from_id is
    'The entry covers every mutation_audit.id from here to to_id; the previous entry of records ends just before.';
comment on column countersign.seal.record_ids is 'The records of that range, in order. Ids between them were never committed.';
comment on column countersign.seal.leaves is 'SHA-256 of each record''s canonical text (countersign.seal_records).';
comment on column countersign.seal.removed is 'For a pruning: the ids of the records that it removed.';
comment on column countersign.seal.removed_before is 'For a pruning: only records made before this were removed.';
comment on column countersign.seal.hash is 'SHA-256 of the previous entry''s hash and this entry''s canonical text.';

-- What sealing knows: no id up to settled_id can be committed any more that is not committed by now; and the same holds for
-- seen_id once none of `writers` is under way. Its row is also the lock that sealing and pruning take turns with.
create table countersign.seal_state (
    only_row    boolean  primary key default true check (only_row),
    settled_id  bigint   not null default 0,
    seen_id     bigint,
    writers     text[]   not null default '{}'
);
comment on table countersign.seal_state is 'Up to which record sealing has looked, and whose transactions it waits for.';
insert into countersign.seal_state default values;
revoke all on countersign.seal, countersign.seal_state from public;

-- Pruning deletes records, and each foreign key to them looks for rows that still point there. Partial: a write that is
-- no duplicate and reverses nothing has no entry in either.
create index mutation_audit_duplicate_of on countersign.mutation_audit (duplicate_of) where duplicate_of is not null;
create index undo_call_reversed_by on countersign.undo_call (reversed_by) where reversed_by is not null;

-- The hash of an entry: SHA-256 of the previous one's hash (nothing for the first) and the entry's canonical text.
create function countersign.seal_hash(previous bytea, e countersign.seal) returns bytea language sql stable as $$
select sha256(coalesce(previous, '') || convert_to(json_build_array(
    'countersign seal 1', e.no::text, extract(epoch from e.sealed_at)::text, e.from_id::text, e.to_id::text,
    array_to_string(e.record_ids, ' '),
    (select string_agg(encode(l.leaf, 'hex'), ' ' order by l.n) from unnest(e.leaves) with ordinality as l (leaf, n)),
    e.removed::text, extract(epoch from e.removed_before)::text, e.removed_count::text, e.removed_by
)::text, 'UTF8')) $$;

-- Adds an entry to the chain. The caller holds the lock on seal_state.
create function countersign.append_seal(e countersign.seal) returns void language plpgsql as $$
declare
    last  countersign.seal;
begin
    select * into last from countersign.seal s order by s.no desc limit 1;
    e.no := coalesce(last.no, 0) + 1;
    e.sealed_at := clock_timestamp();
    e.hash := countersign.seal_hash(last.hash, e);
    insert into countersign.seal select e.*;
end $$;
revoke all on function countersign.append_seal from public;

create function countersign.sealed_to() returns bigint language sql volatile as
$$ select coalesce((select s.to_id from countersign.seal s where s.to_id is not null order by s.no desc limit 1), 0) $$;

-- Up to which id nothing can be committed any more that is not committed by now. An id is drawn before its transaction
-- commits, and even before that transaction has a transaction id:
--     A  BEGIN  draws 5                          gets an xid, inserts 5, COMMIT
--     B                  draws 6, COMMIT
--     seal                               6 is the newest: 5 must not be given up
-- So neither the newest id nor a snapshot's xmin tells. What A does hold before it draws is its lock on the table: the
-- newest id is noted together with everybody who holds that lock, and counts once they are all gone.
create function countersign.settled_id() returns bigint language plpgsql as $$
declare
    state    countersign.seal_state;
    newest   bigint;
    writing  text[];
begin
    select * into strict state from countersign.seal_state for update;
    writing := countersign.record_writers();
    -- A prepared transaction changes its virtual id when the server restarts: then it is -1/xid.
    if state.writers && writing or exists (select from unnest(writing) w where w like '-1/%') then
        return state.settled_id;
    end if;
    state.settled_id := greatest(state.settled_id, state.seen_id);
    -- In this order: whoever drew an id up to the newest one, and is not done, held the lock before the newest was read.
    select coalesce(max(a.id), 0) into newest from countersign.mutation_audit a;
    writing := countersign.record_writers();
    if writing = '{}' then
        state.settled_id := greatest(state.settled_id, newest);
        newest := null;
    end if;
    update countersign.seal_state s set settled_id = state.settled_id, seen_id = newest, writers = writing
    where (s.settled_id, s.seen_id, s.writers) is distinct from (state.settled_id, newest, writing);
    return state.settled_id;
end $$;

-- The virtual ids of the other transactions that may have inserted records.
create function countersign.record_writers() returns text[] language sql volatile as $$
select coalesce(array_agg(distinct l.virtualtransaction), '{}') from pg_locks l
where l.locktype = 'relation' and l.relation = 'countersign.mutation_audit'::regclass and l.mode = 'RowExclusiveLock'
  and l.database = (select d.oid from pg_database d where d.datname = current_database())
  and l.granted and l.pid is distinct from pg_backend_pid() $$;

-- Seals what is settled and final, the oldest first, at most `most` records; returns how many. Many may call it at once.
-- A record that is pending holds up those behind it: an entry never has to be reopened.
-- A leaf is the SHA-256 of a record's canonical text, a JSON array of strings and nulls: all that is fixed once the record is
-- final, and nothing that depends on a session's settings. undo_call.reversed_by is filled in later, so it is left out.
-- crates/ledger/src/audit/verify.sql has the same text once more: a verifier must not trust the database's functions.
create function countersign.seal_records(most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    settled  bigint;
    after    bigint;
    sealed   integer := 0;
    entry    countersign.seal;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'records are sealed in read committed transactions only' using errcode = '25001';
    end if;
    perform countersign.commit_durably();
    settled := countersign.settled_id();
    after := countersign.sealed_to();
    while sealed < most loop
        select array_agg(r.id order by r.id), array_agg(r.leaf order by r.id)
        into entry.record_ids, entry.leaves
        from (
            select a.id, sha256(convert_to(json_build_array(
                'countersign record 1', a.id::text, a.correlation_id::text, a.idempotency_key, a.tool_name, a.params_hash,
                a.params::text, a.params_summary, a.status, a.duplicate_of::text, a.result::text, a.result_summary,
                a.rows_affected::text, a.before_image::text, a.after_image::text, a.rollback_action::text, a.error_code, a.error_sqlstate,
                a.error_message, a.elapsed_ms::text, a.account_id, a.actor, a.exec_xid::text,
                extract(epoch from a.created_at)::text, extract(epoch from a.completed_at)::text,
                (select string_agg(json_build_array(u.position::text, u.account_id, u.tool_name, u.fingerprint)::text, ','
                                   order by u.position)
                 from countersign.undo_call u where u.correlation_id = a.correlation_id)
            )::text, 'UTF8')) as leaf
            from countersign.mutation_audit a
            where a.id > after and a.id <= settled
              -- OFFSET 0: by the index of pending records, not along the primary key.
              and a.id < coalesce((select min(p.id) from (select w.id from countersign.mutation_audit w
                                                          where w.status = 'pending' offset 0) p), 9223372036854775807)
            order by a.id limit least(most - sealed, 1000)
        ) r;
        exit when entry.record_ids is null;
        entry.from_id := after + 1;
        entry.to_id := entry.record_ids[cardinality(entry.record_ids)];
        perform countersign.append_seal(entry);
        after := entry.to_id;
        sealed := sealed + cardinality(entry.record_ids);
    end loop;
    return sealed;
end $$;
revoke all on function countersign.seal_records from public;

-- An hour of grace: a call that is just being admitted still sees the guard that it met.
create function countersign.is_dead(g countersign.idempotency_guard) returns boolean language sql volatile as
$$ select greatest(g.expires_at, g.bound_until) < clock_timestamp() - interval '1 hour' $$;

-- The oldest `most` sealed records behind `after` that were made before `made_before`, and whether each is still needed. Needed
-- is what a row that stays points to, and what something needed points to in turn:
--     idempotency_guard.holder    while the guard is alive
--     mutation_audit.duplicate_of by a duplicate that stays
--     undo_call.reversed_by       by a reversed write that stays
-- undo_call.correlation_id does not count: these rows go with their record.
create function countersign.prunable(made_before timestamptz, after bigint, most integer)
returns table (id bigint, correlation_id uuid, is_needed boolean) language sql volatile as $$
with recursive candidate as materialized (
    select a.id, a.correlation_id, a.duplicate_of from countersign.mutation_audit a
    where a.id > after and a.id <= (select countersign.sealed_to()) and a.created_at < made_before and a.status <> 'pending'
    order by a.id limit most
), needed as (
    select c.correlation_id, c.duplicate_of from candidate c
    where exists (select from countersign.idempotency_guard g
                  where g.holder = c.correlation_id and not countersign.is_dead(g))
       -- Stays: what is no candidate. Put in terms of the record itself, so that no long list is searched for it.
       or exists (select from countersign.mutation_audit d
                  where d.duplicate_of = c.correlation_id
                    and not (d.id > after and d.id <= (select max(o.id) from candidate o)
                             and d.created_at < made_before and d.status <> 'pending'))
       or exists (select from countersign.undo_call u
                  join countersign.mutation_audit w on w.correlation_id = u.correlation_id
                  where u.reversed_by = c.correlation_id
                    and not (w.id > after and w.id <= (select max(o.id) from candidate o)
                             and w.created_at < made_before and w.status <> 'pending'))
    union
    select a.correlation_id, a.duplicate_of
    from needed n
    cross join lateral (
        select n.duplicate_of as target
        union all select u.reversed_by from countersign.undo_call u where u.correlation_id = n.correlation_id
    ) points
    join countersign.mutation_audit a on a.correlation_id = points.target
)
select c.id, c.correlation_id, n.correlation_id is not null
from candidate c left join needed n on n.correlation_id = c.correlation_id $$;
revoke all on function countersign.prunable from public;

-- One batch of pruning: looks at the oldest `most` candidates behind `after`, and removes those that nobody needs with
-- their undo calls and dead guards. Says so in the chain first: the trigger lets go of nothing else.
create function countersign.prune_records(made_before timestamptz, who text, after bigint, most integer)
returns table (looked_to bigint, removed_records bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    entry    countersign.seal;
    doomed   uuid[];
    deleted  bigint;
begin
    if made_before is null or made_before > clock_timestamp() - interval '1 day' then
        raise exception 'records of the last day are not pruned' using errcode = '22023';
    end if;
    perform from countersign.seal_state for update;
    -- Before a deadlock with a write is noticed, which might cost the write: pruning gives way, and can be run again.
    perform set_config('lock_timeout', '500ms', true);
    select max(p.id), array_agg(p.correlation_id) filter (where not p.is_needed),
           range_agg(int8range(p.id, p.id, '[]')) filter (where not p.is_needed),
           count(*) filter (where not p.is_needed)
    into looked_to, doomed, entry.removed, removed_records
    from countersign.prunable(made_before, after, most) p;
    if removed_records > 0 then
        entry.removed_before := made_before;
        entry.removed_count := removed_records;
        entry.removed_by := who || ' @ ' || session_user;
        perform countersign.append_seal(entry);
        -- In the order in which a write locks them.
        delete from countersign.undo_call u where u.correlation_id = any (doomed);
        delete from countersign.idempotency_guard g where g.holder = any (doomed) and countersign.is_dead(g);
        delete from countersign.mutation_audit a where a.correlation_id = any (doomed);
        get diagnostics deleted = row_count;
        if deleted <> removed_records then
            raise exception '% records were to be removed and % were there', removed_records, deleted using errcode = '40001';
        end if;
    end if;
    return next;
end $$;
revoke all on function countersign.prune_records from public;

-- As before, but a record whose removal the newest entry of the chain announces may go.
create or replace function countersign.protect_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if old.status <> 'pending' and coalesce(
            (select s.removed @> old.id from countersign.seal s order by s.no desc limit 1), false)
        then
            return old;
        end if;
    end if;
    if tg_op in ('DELETE', 'TRUNCATE') then
        raise exception 'audit records are append-only' using errcode = '42501';
    end if;
    if old.status <> 'pending' then
        raise exception 'audit record % is final (%)', old.correlation_id, old.status using errcode = '55000';
    end if;
    if (new.id, new.correlation_id, new.idempotency_key, new.tool_name, new.params_hash, new.params::text,
        new.params_summary, new.account_id, new.actor, new.created_at)
       is distinct from
       (old.id, old.correlation_id, old.idempotency_key, old.tool_name, old.params_hash, old.params::text,
        old.params_summary, old.account_id, old.actor, old.created_at)
    then
        raise exception 'the intent of audit record % cannot change', old.correlation_id using errcode = '55000';
    end if;
    return new;
end $$;

create function countersign.protect_seal() returns trigger language plpgsql as $$
begin
    raise exception 'the chain of seals is append-only' using errcode = '42501';
end $$;
create trigger protect_seal before update or delete on countersign.seal
    for each row execute function countersign.protect_seal();
create trigger protect_seals before truncate on countersign.seal
    for each statement execute function countersign.protect_seal();
