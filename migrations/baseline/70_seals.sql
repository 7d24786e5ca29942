-- The ledger as evidence: a chain of hashes over the final records with their effects, and pruning that announces what it removes.
-- docs/topics/audit.md says what it proves. docs/adr/0026-locks-not-transaction-ids-say-what-is-settled.md says why it is made like this.

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
    'A chain of entries: the records with hashes of what they say, and which of them were pruned. Append-only.';
comment on column countersign.seal.no is '1, 2, 3 and so on, without gaps.';
comment on column countersign.seal.from_id is
    'The entry covers every record.id from here to to_id; the previous entry of records ends just before.';
comment on column countersign.seal.record_ids is 'The records of that range, in order. Ids between them were never committed.';
comment on column countersign.seal.leaves is 'SHA-256 of each record''s canonical text (countersign.record_leaf).';
comment on column countersign.seal.removed is 'For a pruning: the ids of the records that it removed.';
comment on column countersign.seal.removed_before is 'For a pruning: only records made before this were removed.';
comment on column countersign.seal.hash is 'SHA-256 of the previous entry''s hash and this entry''s canonical text.';

create table countersign.seal_state (
    only_row    boolean  primary key default true check (only_row),
    sealable_up_to  bigint   not null default 0,
    seen_id     bigint,
    writers     text[]   not null default '{}'
);
comment on table countersign.seal_state is
    'No id up to sealable_up_to can be committed any more that is not committed by now; the same holds for seen_id once none of `writers` runs. '
    'The row is also the lock between sealing and pruning.';
insert into countersign.seal_state default values;

create function countersign.seal_hash(previous bytea, e countersign.seal) returns bytea language sql stable
set search_path = pg_catalog, pg_temp as $$
select sha256(coalesce(previous, '') || convert_to(json_build_array(
    'countersign seal 1', e.no::text, extract(epoch from e.sealed_at)::text, e.from_id::text, e.to_id::text,
    array_to_string(e.record_ids, ' '),
    (select string_agg(encode(l.leaf, 'hex'), ' ' order by l.n) from unnest(e.leaves) with ordinality as l (leaf, n)),
    e.removed::text, extract(epoch from e.removed_before)::text, e.removed_count::text, e.removed_by
)::text, 'UTF8')) $$;
comment on function countersign.seal_hash(bytea, countersign.seal) is 'SHA-256 of the previous entry''s hash (nothing for the first) and the entry''s canonical text.';

create function countersign.append_seal(e countersign.seal) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    last  countersign.seal;
begin
    select * into last from countersign.seal s order by s.no desc limit 1;
    e.no := coalesce(last.no, 0) + 1;
    e.sealed_at := clock_timestamp();
    e.hash := countersign.seal_hash(last.hash, e);
    insert into countersign.seal select e.*;
end $$;
comment on function countersign.append_seal(countersign.seal) is 'Adds an entry to the chain. The caller holds the lock on seal_state.';

create function countersign.sealed_up_to() returns bigint language sql volatile
set search_path = pg_catalog, pg_temp as
$$ select coalesce((select s.to_id from countersign.seal s where s.to_id is not null order by s.no desc limit 1), 0) $$;
comment on function countersign.sealed_up_to() is 'The newest id that the chain covers.';

-- An id is drawn before its transaction commits, and even before that transaction has a transaction id:
--     A  BEGIN  draws 5                          gets an xid, inserts 5, COMMIT
--     B                  draws 6, COMMIT
--     seal                               6 is the newest: 5 must not be given up
-- So neither the newest id nor a snapshot's xmin tells. What A does hold before it draws is its lock on the table: the newest id is
-- noted together with the transactions that hold that lock, and counts once they are all gone.
create function countersign.sealable_up_to() returns bigint language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    state    countersign.seal_state;
    newest   bigint;
    writing  text[];
begin
    select * into strict state from countersign.seal_state for update;
    writing := countersign.record_writers();
    -- A prepared transaction changes its virtual id when the server restarts: then it is -1/xid.
    if state.writers && writing or exists (select from unnest(writing) w where w like '-1/%') then
        return state.sealable_up_to;
    end if;
    state.sealable_up_to := greatest(state.sealable_up_to, state.seen_id);
    -- In this order: a transaction that drew an id up to the newest one, and is not done, held the lock before the newest was read.
    select coalesce(max(r.id), 0) into newest from countersign.record r;
    writing := countersign.record_writers();
    if writing = '{}' then
        state.sealable_up_to := greatest(state.sealable_up_to, newest);
        newest := null;
    end if;
    update countersign.seal_state s set sealable_up_to = state.sealable_up_to, seen_id = newest, writers = writing
    where (s.sealable_up_to, s.seen_id, s.writers) is distinct from (state.sealable_up_to, newest, writing);
    return state.sealable_up_to;
end $$;
comment on function countersign.sealable_up_to() is 'Up to which id no record can be committed any more that is not committed by now.';

create function countersign.record_writers() returns text[] language sql volatile
set search_path = pg_catalog, pg_temp as $$
select coalesce(array_agg(distinct l.virtualtransaction), '{}') from pg_locks l
where l.locktype = 'relation' and l.relation = 'countersign.record'::regclass and l.mode = 'RowExclusiveLock'
  and l.database = (select d.oid from pg_database d where d.datname = current_database())
  and l.granted and l.pid is distinct from pg_backend_pid() $$;
comment on function countersign.record_writers() is 'The virtual ids of the other transactions that may have inserted records.';

-- crates/ledger/src/audit/verify.sql has the same text once more: a verifier must not trust the database's functions.
create function countersign.record_leaf(r countersign.record) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
    select sha256(convert_to(json_build_array(
        'countersign mutation 1', r.id::text, r.correlation_id::text, r.account_id, r.actor, r.session_id, r.client_name, r.client_version,
        r.trace_id, r.tool_name, r.fingerprint, r.idempotency_key, r.params::text, r.params_summary, r.status, r.duplicate_of::text,
        r.undo_of::text, r.result::text, r.result_summary, r.rows_affected::text, r.before_image::text, r.after_image::text,
        r.rollback::text, r.error_code, r.error_sqlstate, r.error_message, r.error_detail::text, r.approval::text, r.login::text,
        encode(r.slot, 'hex'), extract(epoch from r.holds_until)::text, r.xid::text,
        extract(epoch from r.admitted_at)::text, extract(epoch from r.completed_at)::text,
        (select encode(sha256(convert_to(string_agg(json_build_array(
                    e.position::text, t.name, t.columns::text, e.op::text, e.key, e.key_before, e.before, e.after, e.unchanged::text,
                    encode(e.secret_before, 'hex'), encode(e.secret_after, 'hex'))::text, ',' order by e.position), 'UTF8')), 'hex')
         from countersign.effect e join countersign.tracked t on t.shape = e.shape where e.correlation_id = r.correlation_id)
    )::text, 'UTF8'))
$$;
comment on function countersign.record_leaf(countersign.record) is
    'SHA-256 of a record''s canonical text, a JSON array of strings and nulls: all of the record, and a hash over its effects.';

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
    settled := countersign.sealable_up_to();
    after := countersign.sealed_up_to();
    while sealed < most loop
        select array_agg(l.id order by l.id), array_agg(l.leaf order by l.id) into entry.record_ids, entry.leaves
        from (select r.id, countersign.record_leaf(r) as leaf from countersign.record r
              where r.id > after and r.id <= settled order by r.id limit least(most - sealed, 1000)) l;
        exit when entry.record_ids is null;
        entry.from_id := after + 1;
        entry.to_id := entry.record_ids[cardinality(entry.record_ids)];
        perform countersign.append_seal(entry);
        after := entry.to_id;
        sealed := sealed + cardinality(entry.record_ids);
    end loop;
    return sealed;
end $$;
comment on function countersign.seal_records(integer) is
    'Seals records in the order of their ends, the oldest first, at most `most`; how many. Several servers may call it at once.';

create function countersign.prunable_records(made_before timestamptz, after bigint, most integer) returns table (id bigint, correlation_id uuid)
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select r.id, r.correlation_id from countersign.record r
    where r.id > after and r.id <= (select countersign.sealed_up_to()) and r.completed_at < made_before
      and coalesce(r.holds_until < clock_timestamp(), true)
    order by r.id limit most
$$;
comment on function countersign.prunable_records(timestamptz, bigint, integer) is
    'Sealed records behind `after` that ended before made_before and answer for nothing any more. Newer records may name one that is gone.';

create function countersign.prune_records(made_before timestamptz, who text, after bigint, most integer)
returns table (scanned_up_to bigint, removed_records bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    entry    countersign.seal;
    doomed   uuid[];
    deleted  bigint;
begin
    if made_before is null or made_before > clock_timestamp() - interval '1 day' then
        raise exception 'records of the last day are not pruned' using errcode = '22023';
    end if;
    -- Whatever has hold of a record goes first; meanwhile nobody could seal.
    perform set_config('lock_timeout', '500ms', true);
    perform from countersign.seal_state for update;
    select max(p.id), array_agg(p.correlation_id), range_agg(int8range(p.id, p.id, '[]')), count(*)
    into scanned_up_to, doomed, entry.removed, removed_records
    from countersign.prunable_records(made_before, after, most) p;
    if removed_records > 0 then
        entry.removed_before := made_before;
        entry.removed_count := removed_records;
        entry.removed_by := who || ' @ ' || session_user;
        perform countersign.append_seal(entry);
        delete from countersign.record r where r.correlation_id = any (doomed);
        get diagnostics deleted = row_count;
        if deleted <> removed_records then
            raise exception '% records were to be removed and % were there', removed_records, deleted using errcode = '40001';
        end if;
        delete from countersign.effect e where e.correlation_id = any (doomed);
        delete from countersign.reversal v where v.correlation_id = any (doomed);
        delete from countersign.reversal_part v where v.correlation_id = any (doomed);
    end if;
    delete from countersign.effect e where e.correlation_id is null and e.changed_at < made_before;
    return next;
end $$;
comment on function countersign.prune_records(timestamptz, text, bigint, integer) is
    'One batch: removes the oldest `most` records behind `after` that `prunable_records` has, with their effects, and says so in the chain first. '
    'For members of the owner.';

------------------------------------------------------------------------------------------------------------------ append-only

-- The server's login has no right to change a table of the ledger. These are for its owner, and for superusers.
create function countersign.protect_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if coalesce((select s.removed @> old.id from countersign.seal s order by s.no desc limit 1), false) then
            return old;
        end if;
    end if;
    raise exception 'records are append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_record() is 'A record goes only when the newest entry of the chain announces it.';
create trigger protect_record before update or delete on countersign.record
    for each row execute function countersign.protect_record();
create trigger protect_records before truncate on countersign.record
    for each statement execute function countersign.protect_record();

create function countersign.protect_effect() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if (case when old.correlation_id is null then old.changed_at < clock_timestamp() - interval '1 day'
                else not exists (select from countersign.record r where r.correlation_id = old.correlation_id)
                     and not exists (select from countersign.attempt a where a.correlation_id = old.correlation_id) end) then
            return old;
        end if;
    end if;
    raise exception 'effects are append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_effect() is 'An effect goes only after its record.';
create trigger protect_effect before update or delete on countersign.effect
    for each row execute function countersign.protect_effect();
create trigger protect_effects before truncate on countersign.effect
    for each statement execute function countersign.protect_effect();

create function countersign.protect_reversal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if not exists (select from countersign.record r where r.correlation_id = old.correlation_id) then
            return old;
        end if;
    end if;
    raise exception 'reversals are append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_reversal() is 'A reversal goes only after the write that was reversed.';
create trigger protect_reversal before update or delete on countersign.reversal
    for each row execute function countersign.protect_reversal();
create trigger protect_reversals before truncate on countersign.reversal
    for each statement execute function countersign.protect_reversal();
create trigger protect_reversal before update or delete on countersign.reversal_part
    for each row execute function countersign.protect_reversal();
create trigger protect_reversals before truncate on countersign.reversal_part
    for each statement execute function countersign.protect_reversal();

create function countersign.protect_seal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'the chain of seals is append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_seal() is 'An entry of the chain never changes.';
create trigger protect_seal before update or delete on countersign.seal
    for each row execute function countersign.protect_seal();
create trigger protect_seals before truncate on countersign.seal
    for each statement execute function countersign.protect_seal();
