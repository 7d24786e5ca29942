-- Which client made a write: name, version, session and trace. And which fingerprint keys the servers have.

alter table countersign.mutation_audit add column client json;
comment on column countersign.mutation_audit.client is
    'The client of the call, in its own words: name, version, session_id, trace_id. Absent where nothing is known.';
alter table countersign.proposal add column client json;
comment on column countersign.proposal.client is 'The client that proposed, as in mutation_audit. Not part of the digest.';

-- As before, and: the client is part of the intent.
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
        new.params_summary, new.account_id, new.actor, new.client::text, new.created_at)
       is distinct from
       (old.id, old.correlation_id, old.idempotency_key, old.tool_name, old.params_hash, old.params::text,
        old.params_summary, old.account_id, old.actor, old.client::text, old.created_at)
    then
        raise exception 'the intent of audit record % cannot change', old.correlation_id using errcode = '55000';
    end if;
    return new;
end $$;

drop function countersign.admit(uuid, text, text, text, text, text, json, text, boolean);
create function countersign.admit(
    correlation uuid, account text, who text, tool text, hash text, caller_key text,
    arguments json, arguments_summary text, caller_client json, durable boolean
) returns table (verdict text, original uuid, original_result json)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    insert into countersign.mutation_audit
        (correlation_id, account_id, actor, tool_name, params_hash, idempotency_key, params, params_summary, client)
    values (correlation, account, who, tool, hash, caller_key, arguments, arguments_summary, caller_client);
    if countersign.take_guard(account, tool, caller_key, hash, correlation) then
        verdict := 'run';
        original := correlation;
        if durable then
            perform countersign.commit_durably();
        else
            perform set_config('synchronous_commit', 'off', true);
        end if;
        return next;
    else
        return query select * from countersign.contend(correlation);
    end if;
end $$;
comment on function countersign.admit is
    'verdict: run | duplicate (original_result has its answer) | in_flight (ask countersign.contend again) | key_reused';

drop function countersign.record_aborted(uuid, text, text, text, text, text, json, text);
create function countersign.record_aborted(
    correlation uuid, account text, who text, tool text, hash text, caller_key text,
    arguments json, arguments_summary text, caller_client json
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into countersign.mutation_audit
        (correlation_id, account_id, actor, tool_name, params_hash, idempotency_key, params, params_summary, client)
    values (correlation, account, who, tool, hash, caller_key, arguments, arguments_summary, caller_client)
    on conflict (correlation_id) do nothing;
    if found then
        perform countersign.finish_failure(correlation, 'in_doubt_aborted', null,
            'the connection was lost before the intent was recorded; nothing was written');
    end if;
end $$;

-- As before, and: the client is part of what is sealed. A record without one has the text that it always had.
create or replace function countersign.seal_records(most integer) returns integer
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
                case when a.client is null then coalesce('countersign record 2 ' || a.approval::text, 'countersign record 1')
                     else 'countersign record 3 ' || json_build_array(a.approval::text, a.client::text)::text end,
                a.id::text, a.correlation_id::text, a.idempotency_key, a.tool_name, a.params_hash,
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

-- As before, and: the client of a proposal cannot change.
create or replace function countersign.protect_proposal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        raise exception 'proposals are kept' using errcode = '42501';
    end if;
    if tg_op = 'DELETE' then
        if countersign.proposal_is_disposable(old) then
            return old;
        end if;
        raise exception 'proposal % is kept (%)', old.proposal_id, old.status using errcode = '42501';
    end if;
    -- One that was altered past this trigger can still be ended.
    if countersign.proposal_digest(new) <> countersign.proposal_digest(old) or new.digest <> old.digest or new.id <> old.id
       or new.client::text is distinct from old.client::text
    then
        raise exception 'what proposal % says cannot change', old.proposal_id using errcode = '55000';
    end if;
    if not (case old.status
        when 'pending' then new.status in ('confirmed', 'rejected', 'expired')
        when 'confirmed' then new.status in ('confirmed', 'executed', 'failed', 'stale', 'expired')
        else false end)
    then
        raise exception 'proposal % is %, and cannot become %', old.proposal_id, old.status, new.status using errcode = '55000';
    end if;
    if old.status = 'confirmed'
       and (new.decision, new.decided_by, new.decided_login, new.decided_via, new.decided_at, new.reason)
           is distinct from (old.decision, old.decided_by, old.decided_login, old.decided_via, old.decided_at, old.reason)
    then
        raise exception 'the decision on proposal % cannot change', old.proposal_id using errcode = '55000';
    end if;
    return new;
end $$;

drop function countersign.propose(uuid, text, text, text, text, text, text, text, json, text, text, json, interval, integer);
create function countersign.propose(
    proposal uuid, account text, who text, tool text, version text, definition_hash text, wanted_tier text, words text,
    arguments json, hash text, caller_key text, shown json, lifetime interval, most integer, caller_client json
) returns table (verdict text, stored uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    perform countersign.refuse_within_a_write();
    p.proposal_id := proposal;
    p.account_id := account;
    p.actor := who;
    p.tool_name := tool;
    p.tool_version := version;
    p.definition := definition_hash;
    p.tier := wanted_tier;
    p.description := words;
    p.params := arguments;
    p.params_hash := hash;
    p.idempotency_key := caller_key;
    p.preview := shown;
    p.preview_hash := encode(sha256(convert_to(shown::text, 'UTF8')), 'hex');
    p.created_at := clock_timestamp();
    p.expires_at := p.created_at + lifetime;
    p.client := caller_client;
    p.digest := countersign.proposal_digest(p);
    -- Those that have expired no longer stand in the way.
    update countersign.proposal o set status = 'expired', completed_at = clock_timestamp() where o.id in (
        select e.id from countersign.proposal e
        where e.account_id = account and e.status = 'pending' and e.expires_at <= clock_timestamp()
        order by e.id for update skip locked);
    if (select count(*) from countersign.proposal o where o.account_id = account and o.status = 'pending'
          and o.expires_at > clock_timestamp()) >= most then
        stored := countersign.same_pending(p);
        verdict := case when stored is null then 'crowded' else 'found' end;
        return next;
        return;
    end if;
    for round in 1 .. 10 loop
        insert into countersign.proposal (proposal_id, account_id, actor, tool_name, tool_version, definition, tier,
            description, params, params_hash, idempotency_key, preview, preview_hash, created_at, expires_at, digest, client)
        values (p.proposal_id, p.account_id, p.actor, p.tool_name, p.tool_version, p.definition, p.tier, p.description,
            p.params, p.params_hash, p.idempotency_key, p.preview, p.preview_hash, p.created_at, p.expires_at, p.digest, p.client)
        on conflict (account_id, tool_name, params_hash, coalesce(idempotency_key, ''), definition, preview_hash)
            where status = 'pending' do nothing;
        if found then
            return query select 'stored', proposal;
            return;
        end if;
        stored := countersign.same_pending(p);
        if stored is not null then
            verdict := 'found';
            return next;
            return;
        end if;
        -- That one was decided on in between: so this one may be stored after all.
    end loop;
end $$;
comment on function countersign.propose is 'verdict: stored | found (the same proposal waits already) | crowded';

create table countersign.fingerprint_key (
    key_id   text         primary key check (octet_length(key_id) between 1 and 64),
    used_at  timestamptz  not null
);
comment on table countersign.fingerprint_key is
    'The keys that servers make fingerprints with: each server says every minute which one it has. No key can be read here.';

-- Every server says this every minute.
create function countersign.note_fingerprint_key(id text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.fingerprint_key k where k.used_at < clock_timestamp() - interval '1 day';
    insert into countersign.fingerprint_key values (id, clock_timestamp())
    on conflict (key_id) do update set used_at = excluded.used_at;
end $$;

-- PostgreSQL lets everybody call a new function.
revoke all on function countersign.admit(uuid, text, text, text, text, text, json, text, json, boolean) from public;
revoke all on function countersign.record_aborted(uuid, text, text, text, text, text, json, text, json) from public;
revoke all on function countersign.propose(
    uuid, text, text, text, text, text, text, text, json, text, text, json, interval, integer, json) from public;
revoke all on function countersign.note_fingerprint_key(text) from public;
