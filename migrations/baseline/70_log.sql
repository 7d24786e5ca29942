-- The ledger as a transparency log: records and events become leaves of a Merkle tree, whose checkpoints are signed outside of the
-- database. docs/reference/log-format.md has the format, docs/topics/audit.md what it proves.
-- When a record may be sealed: a session that inserts into `record` holds ROW EXCLUSIVE before it draws the id. Sealing notes the newest id
-- and then the holders of that lock; once these are gone, everything up to that id is settled. The newest id alone, or
-- `pg_snapshot_xmin`, does not show that no older record can still appear. A stale holder only delays sealing.
--
--   event       what is logged beside records: decisions, freezes, prunings, keys, exports
--   leaf        the entries of the tree in the order of sealing
--   tree_node   the roots of its full tiles
--   log_key     the keys whose signatures count
--   witness     the servers that are asked to cosign
--   checkpoint  what was signed

create table countersign.event (
    id         bigint       generated always as identity primary key,
    kind       text         not null,
    at         timestamptz  not null default clock_timestamp(),
    login      name         not null default session_user,
    fields     text[]       not null,
    reason     text,
    removed    int8multirange,
    part_salt  uuid         not null default gen_random_uuid(),
    sealed     boolean      not null default false
);
comment on table countersign.event is 'What is logged beside records. Rows never change but for `sealed`, and for a reason that is erased.';
comment on column countersign.event.fields is 'The keys and values of the entry behind kind, id, at and login: key, value, key, value.';
comment on column countersign.event.removed is 'For a pruning: the ids of the records that it removed.';
comment on column countersign.event.part_salt is 'The salt of the part `details` is derived from it, which has reason and removed.';
create index event_unsealed on countersign.event (id) where not sealed;
create index event_pruning on countersign.event (id) where removed is not null;
create index event_erasure on countersign.event ((fields[3]), (fields[4]), id) where kind = 'erase';

create table countersign.leaf (
    log_no      integer  not null,
    leaf_index  bigint   not null check (leaf_index >= 0),
    record_id   bigint,
    event_id    bigint,
    entry       text     not null,
    hash        bytea    not null,
    primary key (log_no, leaf_index),
    constraint record_or_event check (num_nonnulls(record_id, event_id) = 1)
);
comment on table countersign.leaf is 'The leaves of the log, in the order of sealing. Append-only, also when a record is pruned.';
comment on column countersign.leaf.log_no is 'identity.no: a copied database goes on with a log of its own.';
comment on column countersign.leaf.leaf_index is '0, 1, 2 and so on in each log, without gaps.';
comment on column countersign.leaf.entry is 'The text of the entry.';
comment on column countersign.leaf.hash is 'SHA-256 of 0x00 and the entry (RFC 6962).';
create unique index leaf_record on countersign.leaf (record_id) where record_id is not null;
create unique index leaf_event on countersign.leaf (event_id) where event_id is not null;

create table countersign.tree_node (
    log_no      integer  not null,
    level       integer  not null check (level >= 1),
    node_index  bigint   not null,
    hash        bytea    not null,
    primary key (log_no, level, node_index)
);
comment on table countersign.tree_node is 'The root of each 256^level leaves that are full, as tiles of that level have it (c2sp.org/tlog-tiles).';

create table countersign.log_key (
    log_no      integer      not null,
    vkey        text         not null,
    added_at    timestamptz  not null default clock_timestamp(),
    added_by    text         not null,
    retired_at  timestamptz,
    primary key (log_no, vkey)
);
comment on table countersign.log_key is 'The public keys that sign checkpoints (verifier keys of c2sp.org/signed-note), whose name is the origin of the log.';

create table countersign.witness (
    log_no      integer      not null,
    vkey        text         not null,
    url         text         not null,
    added_at    timestamptz  not null default clock_timestamp(),
    added_by    text         not null,
    removed_at  timestamptz,
    primary key (log_no, vkey)
);
comment on table countersign.witness is 'The witnesses (c2sp.org/tlog-witness) that servers ask to cosign each checkpoint.';
comment on column countersign.witness.vkey is 'The public key of its cosignatures (c2sp.org/tlog-cosignature).';
comment on column countersign.witness.url is 'The URL below which it has add-checkpoint.';

create table countersign.checkpoint (
    log_no     integer      not null,
    size       bigint       not null,
    note       text         not null,
    signed_at  timestamptz  not null default clock_timestamp(),
    login      name         not null default session_user
);
comment on table countersign.checkpoint is
    'What servers gave as signed checkpoints. Only a note with the signature of a key of the log counts: PostgreSQL cannot verify one.';
comment on column countersign.checkpoint.note is 'The signed note (c2sp.org/tlog-checkpoint).';
create unique index checkpoint_note on countersign.checkpoint (log_no, size, md5(note));

create table countersign.seal_state (
    only_row        boolean  primary key default true check (only_row),
    sealable_up_to  bigint   not null default 0,
    seen_id         bigint,
    writers         text[]   not null default '{}'
);
comment on table countersign.seal_state is
    'No id up to sealable_up_to can be committed any more that is not committed by now; the same holds for seen_id once none of `writers` runs. '
    'The row is also the lock between sealing and pruning.';
insert into countersign.seal_state default values;

create function countersign.note_event(
    of_kind text, of_fields text[], of_reason text default null, of_removed int8multirange default null
) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
insert into countersign.event (kind, fields, reason, removed) values (of_kind, of_fields, of_reason, of_removed)
$$;
comment on function countersign.note_event(text, text[], text, int8multirange) is 'Logs an event in the transaction of what it says.';

create function countersign.current_log() returns integer language sql stable
set search_path = pg_catalog, pg_temp as $$ select max(i.no) from countersign.identity i $$;
comment on function countersign.current_log() is 'The log that goes on in this database.';

create function countersign.sealed_up_to() returns bigint language sql volatile
set search_path = pg_catalog, pg_temp as
$$ select coalesce(max(l.record_id), 0) from countersign.leaf l $$;
comment on function countersign.sealed_up_to() is 'The newest record.id in the log.';

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

create function countersign.tile_root(hashes bytea[]) returns bytea language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
begin
    while cardinality(hashes) > 1 loop
        hashes := array(select sha256('\x01'::bytea || hashes[2 * i - 1] || hashes[2 * i])
                        from generate_series(1, cardinality(hashes) / 2) i order by i);
    end loop;
    return hashes[1];
end $$;
comment on function countersign.tile_root(bytea[]) is 'The Merkle Tree Hash (RFC 6962) over 256 hashes.';

create function countersign.add_tree_nodes(log integer, old_size bigint, new_size bigint) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    of_level  integer := 1;
begin
    while old_size / 256 < new_size / 256 loop
        insert into countersign.tree_node (log_no, level, node_index, hash)
        select log, of_level, n, countersign.tile_root(case of_level
            when 1 then array(select l.hash from countersign.leaf l
                              where l.log_no = log and l.leaf_index >= n * 256 and l.leaf_index < n * 256 + 256 order by l.leaf_index)
            else array(select b.hash from countersign.tree_node b
                       where b.log_no = log and b.level = of_level - 1 and b.node_index >= n * 256 and b.node_index < n * 256 + 256
                       order by b.node_index) end)
        from generate_series(old_size / 256, new_size / 256 - 1) n;
        old_size := old_size / 256;
        new_size := new_size / 256;
        of_level := of_level + 1;
    end loop;
end $$;
comment on function countersign.add_tree_nodes(integer, bigint, bigint) is 'Adds the nodes that a growth of the tree from old_size completes.';

create function countersign.append_leaves(of_records bigint[], of_events bigint[]) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    log       integer := countersign.current_log();
    old_size  bigint := (select coalesce(max(l.leaf_index) + 1, 0) from countersign.leaf l where l.log_no = log);
begin
    insert into countersign.leaf (log_no, leaf_index, record_id, event_id, entry, hash)
    select log, old_size + row_number() over (order by n.event_id, n.record_id) - 1, n.record_id, n.event_id, n.entry,
           sha256('\x00'::bytea || convert_to(n.entry, 'UTF8'))
    from (
        select v.id, null, x.entry from countersign.event v, countersign.event_entry(v) x where v.id = any (of_events)
        union all
        select null, x.id, x.entry from countersign.record_entries(of_records) x
    ) n (event_id, record_id, entry);
    perform countersign.add_tree_nodes(log, old_size, old_size + cardinality(of_records) + cardinality(of_events));
    update countersign.event v set sealed = true where v.id = any (of_events);
end $$;
comment on function countersign.append_leaves(bigint[], bigint[]) is
    'Adds events, and behind them records, to the log. The caller holds the lock on seal_state.';

create function countersign.refuse_copy() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if not (select i.is_here from countersign.current_identity() i) then
        raise exception 'the ledger was made for another database: its log does not go on in a copy' using errcode = '55000';
    end if;
end $$;
comment on function countersign.refuse_copy() is 'Fails in a copied database until `countersign audit fork` was run.';

create function countersign.seal(most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    settled  bigint;
    records  bigint[];
    events   bigint[];
    total    integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the log is sealed in read committed transactions only' using errcode = '25001';
    end if;
    perform countersign.commit_durably(), countersign.refuse_copy(), countersign.refuse_after_loss();
    settled := countersign.sealable_up_to();
    while total < most loop
        events := array(select v.id from countersign.event v where not v.sealed order by v.id limit least(most - total, 1000));
        records := array(select r.id from countersign.record r where r.id > (select countersign.sealed_up_to()) and r.id <= settled
                         order by r.id limit least(most - total, 1000) - cardinality(events));
        exit when cardinality(events) + cardinality(records) = 0;
        perform countersign.append_leaves(records, events);
        total := total + cardinality(events) + cardinality(records);
    end loop;
    return total;
end $$;
comment on function countersign.seal(integer) is
    'Seals events, and records in the order of their ends, the oldest first, at most `most`; how many. Several servers may call it at once.';

create function countersign.store_checkpoint(of_size bigint, of_note text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably(), countersign.refuse_copy(), countersign.refuse_after_loss();
    -- So one that a server's login stores without the key is not the newest any more once the log has grown and is signed.
    if of_size > (select coalesce(max(l.leaf_index) + 1, 0) from countersign.leaf l where l.log_no = countersign.current_log()) then
        raise exception 'a checkpoint covers no more entries than the log has' using errcode = '22023';
    end if;
    insert into countersign.checkpoint (log_no, size, note) values (countersign.current_log(), of_size, of_note) on conflict do nothing;
end $$;
comment on function countersign.store_checkpoint(bigint, text) is 'Stores what a server has signed.';

create function countersign.add_log_key(new_vkey text, who text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    log  integer := countersign.current_log();
begin
    if exists (select from countersign.log_key k where k.log_no = log and split_part(k.vkey, '+', 1) <> split_part(new_vkey, '+', 1)) then
        raise exception 'the keys of a log have one name, which is its origin' using errcode = '22023';
    elsif exists (select from countersign.log_key k where k.log_no <> log and split_part(k.vkey, '+', 1) = split_part(new_vkey, '+', 1)) then
        raise exception 'the key is of the log before the fork, and two logs of one origin contradict each other: another key is needed'
            using errcode = '22023';
    end if;
    if exists (select from countersign.log_key k where k.log_no = log and k.vkey = new_vkey and k.retired_at is not null) then
        raise exception 'the key was retired: another one is needed' using errcode = '22023';
    end if;
    insert into countersign.log_key (log_no, vkey, added_by) values (log, new_vkey, who) on conflict do nothing;
    if not found then
        return;
    end if;
    perform countersign.note_event('key', array['person', who, 'action', 'add', 'vkey', new_vkey]);
end $$;
comment on function countersign.add_log_key(text, text) is 'Lets a key sign checkpoints, if it is not there yet. For members of the owner.';

create function countersign.retire_log_key(old_vkey text, who text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    update countersign.log_key k set retired_at = clock_timestamp()
    where k.log_no = countersign.current_log() and k.vkey = old_vkey and k.retired_at is null;
    if not found then
        raise exception 'no such key signs this log' using errcode = '22023';
    end if;
    perform countersign.note_event('key', array['person', who, 'action', 'retire', 'vkey', old_vkey]);
end $$;
comment on function countersign.retire_log_key(text, text) is 'Ends the use of a key. For members of the owner.';

create function countersign.add_witness(new_vkey text, new_url text, who text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from countersign.log_key k where split_part(k.vkey, '+', 1) = split_part(new_vkey, '+', 1)) then
        raise exception 'a witness has another name than the log' using errcode = '22023';
    end if;
    insert into countersign.witness (log_no, vkey, url, added_by) values (countersign.current_log(), new_vkey, new_url, who)
    on conflict (log_no, vkey) do update
        set url = excluded.url, added_at = excluded.added_at, added_by = excluded.added_by, removed_at = null
        where witness.removed_at is not null or witness.url <> excluded.url;
    if found then
        perform countersign.note_event('key', array['person', who, 'action', 'add', 'vkey', new_vkey]);
    end if;
end $$;
comment on function countersign.add_witness(text, text, text) is
    'Lets servers ask a witness, or ask it at another URL. For members of the owner.';

create function countersign.remove_witness(old_vkey text, who text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    update countersign.witness w set removed_at = clock_timestamp()
    where w.log_no = countersign.current_log() and w.vkey = old_vkey and w.removed_at is null;
    if not found then
        raise exception 'the log has no such witness' using errcode = '22023';
    end if;
    perform countersign.note_event('key', array['person', who, 'action', 'retire', 'vkey', old_vkey]);
end $$;
comment on function countersign.remove_witness(text, text) is 'Ends the use of a witness. For members of the owner.';

create function countersign.note_export(of_size bigint, parts text, who text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    perform countersign.note_event('export', array['person', who, 'size', of_size::text, 'parts', parts]);
end $$;
comment on function countersign.note_export(bigint, text, text) is 'Logs that a bundle was exported, with parts or without.';

create function countersign.prunable_records(made_before timestamptz, after bigint, most integer) returns table (id bigint, correlation_id uuid)
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select r.id, r.correlation_id from countersign.record r
    where r.id > after and r.id <= (select countersign.sealed_up_to()) and r.completed_at < made_before
      and coalesce(r.holds_until < clock_timestamp(), true)
    order by r.id limit most
$$;
comment on function countersign.prunable_records(timestamptz, bigint, integer) is
    'Sealed records behind `after` that ended before made_before and answer for nothing any more. Newer records may name one that is gone.';

-- Whatever has hold of a row goes first; meanwhile nobody could seal.
create function countersign.lock_for_removal() returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('lock_timeout', '500ms', true);
    perform from countersign.seal_state for update;
end $$;
comment on function countersign.lock_for_removal() is 'For a batch of a pruning or an erasure: they and sealing come one after the other, and wait for no writer.';

create function countersign.prune_records(made_before timestamptz, who text, after bigint, most integer)
returns table (scanned_up_to bigint, removed_records bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ids      int8multirange;
    doomed   uuid[];
    deleted  bigint;
begin
    if made_before is null or made_before > clock_timestamp() - interval '1 day' then
        raise exception 'records of the last day are not pruned' using errcode = '22023';
    end if;
    perform countersign.lock_for_removal();
    select max(p.id), array_agg(p.correlation_id), range_agg(int8range(p.id, p.id, '[]')), count(*)
    into scanned_up_to, doomed, ids, removed_records
    from countersign.prunable_records(made_before, after, most) p;
    if removed_records > 0 then
        perform countersign.note_event('prune', array['person', who, 'records', removed_records::text,
            'made_before', to_char(made_before at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')], null, ids);
        delete from countersign.record r where r.correlation_id = any (doomed);
        get diagnostics deleted = row_count;
        if deleted <> removed_records then
            raise exception '% records were to be removed and % were there', removed_records, deleted using errcode = '40001';
        end if;
        delete from countersign.effect e where e.correlation_id = any (doomed);
        delete from countersign.reversal v where v.correlation_id = any (doomed);
        delete from countersign.reversal_part v where v.correlation_id = any (doomed);
    end if;
    -- Whole transactions, by their last change.
    delete from countersign.effect e
    where e.correlation_id is null and e.changed_at < made_before
      and not exists (select from countersign.effect o where o.correlation_id is null and o.xid = e.xid and o.changed_at >= made_before
                         and countersign.ledger_era(o.changed_at) = countersign.ledger_era(e.changed_at));
    get diagnostics deleted = row_count;
    if removed_records > 0 or deleted > 0 then
        insert into countersign.pruned_changes (until) values (made_before)
        on conflict (only_row) do update set until = greatest(pruned_changes.until, excluded.until);
    end if;
    return next;
end $$;
comment on function countersign.prune_records(timestamptz, text, bigint, integer) is
    'One batch: removes the oldest `most` records behind `after` that `prunable_records` has, with their effects, and logs that first. '
    'For members of the owner.';

------------------------------------------------------------------------------------------------------------------ append-only

-- The server's login has no right to change a table of the ledger. These are for its owner, and for superusers.
create function countersign.protect_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if coalesce((select v.removed @> old.id from countersign.event v where v.removed is not null order by v.id desc limit 1), false) then
            return old;
        end if;
    elsif tg_op = 'UPDATE' and countersign.is_erasure(to_jsonb(old), to_jsonb(new),
              '{params,params_summary,reason,idempotency_key,fingerprint,result,result_summary,before_image,after_image,rollback,error_message,error_detail,approval,caller_context,slot,part_salt}') then
        return new;
    end if;
    raise exception 'records are append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_record() is 'A record goes only when the newest pruning in the log names it, and loses values to an erasure only.';
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
    elsif tg_op = 'UPDATE' and countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{key,key_before,before,after,secret_before,secret_after,erased}') then
        return new;
    end if;
    raise exception 'effects are append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_effect() is 'An effect goes only after its record, and loses values to an erasure only.';
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

create function countersign.protect_log() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'UPDATE' and tg_relid = 'countersign.event'::regclass then
        if old.kind <> 'erase' and countersign.is_erasure(to_jsonb(old), to_jsonb(new), '{reason,part_salt}') then
            return new;
        end if;
        old.sealed := true;
        if old is not distinct from new then
            return new;
        end if;
    elsif tg_op = 'UPDATE' and tg_relid = 'countersign.log_key'::regclass then
        if old.retired_at is null and (new.log_no, new.vkey, new.added_at, new.added_by) = (old.log_no, old.vkey, old.added_at, old.added_by) then
            return new;
        end if;
    end if;
    raise exception 'the log is append-only' using errcode = '42501';
end $$;
comment on function countersign.protect_log() is 'Of the log, only `event.sealed` and `log_key.retired_at` change, and only once; and the reason of an event, when it is erased.';
create trigger protect_event before update or delete on countersign.event
    for each row execute function countersign.protect_log();
create trigger protect_events before truncate on countersign.event
    for each statement execute function countersign.protect_log();
create trigger protect_leaf before update or delete on countersign.leaf
    for each row execute function countersign.protect_log();
create trigger protect_leaves before truncate on countersign.leaf
    for each statement execute function countersign.protect_log();
create trigger protect_tree_node before update or delete on countersign.tree_node
    for each row execute function countersign.protect_log();
create trigger protect_tree_nodes before truncate on countersign.tree_node
    for each statement execute function countersign.protect_log();
create trigger protect_log_key before update or delete on countersign.log_key
    for each row execute function countersign.protect_log();
create trigger protect_log_keys before truncate on countersign.log_key
    for each statement execute function countersign.protect_log();
create trigger protect_checkpoint before update or delete on countersign.checkpoint
    for each row execute function countersign.protect_log();
create trigger protect_checkpoints before truncate on countersign.checkpoint
    for each statement execute function countersign.protect_log();
