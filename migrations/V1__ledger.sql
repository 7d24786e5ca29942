-- The ledger: what was intended, what came of it, and which calls are the same call.
-- The schema `countersign` exists by now: whoever applies the migrations makes it, since it holds their history too.

create table countersign.mutation_audit (
    id               bigint generated always as identity primary key,
    correlation_id   uuid        not null unique,
    idempotency_key  text,
    tool_name        text        not null,
    params_hash      text        not null check (params_hash ~ '^[0-9a-f]{64}$'),
    params           json        not null,
    params_summary   text        not null,
    status           text        not null default 'pending' check (status in ('pending', 'success', 'failure', 'duplicate')),
    duplicate_of     uuid        references countersign.mutation_audit (correlation_id),
    result           json,
    result_summary   text,
    rows_affected    bigint,
    before_image     json,
    rollback_action  json,
    error_code       text,
    error_sqlstate   text,
    error_message    text,
    elapsed_ms       integer,
    account_id       text        not null default 'default',
    actor            text,
    exec_xid         xid8,
    created_at       timestamptz not null default clock_timestamp(),
    completed_at     timestamptz,
    constraint pending_is_not_completed    check ((status = 'pending') = (completed_at is null)),
    constraint duplicate_names_its_original check ((status = 'duplicate') = (duplicate_of is not null)),
    constraint success_was_executed        check (status <> 'success' or (exec_xid is not null and result is not null)),
    constraint failure_says_why            check ((status = 'failure') = (error_code is not null)),
    constraint only_failure_has_a_message  check (status = 'failure' or error_message is null)
);
comment on table countersign.mutation_audit is
    'One row for every attempt of a write that passed validation and policy. Final rows never change.';
comment on column countersign.mutation_audit.params is 'The effective parameters by name, server-filled ones included.';
comment on column countersign.mutation_audit.result is 'The whole data that the caller was answered with.';
comment on column countersign.mutation_audit.exec_xid is 'The transaction that claimed the record: only that one can complete it.';

create index mutation_audit_idempotency_key on countersign.mutation_audit (idempotency_key) where idempotency_key is not null;
create index mutation_audit_tool_time       on countersign.mutation_audit (tool_name, created_at);
create index mutation_audit_time            on countersign.mutation_audit (created_at);
create index mutation_audit_fingerprint     on countersign.mutation_audit (tool_name, params_hash, status, created_at);
create index mutation_audit_account         on countersign.mutation_audit (account_id, id);
create index mutation_audit_pending         on countersign.mutation_audit (created_at) where status = 'pending';

create table countersign.idempotency_guard (
    account_id   text        not null,
    tool_name    text        not null,
    key          text        not null,
    holder       uuid        not null references countersign.mutation_audit (correlation_id),
    fingerprint  text        not null,
    expires_at   timestamptz not null,
    bound_until  timestamptz not null,
    primary key (account_id, tool_name, key)
);
comment on table countersign.idempotency_guard is
    'One row for every call that counts as the same call for now: its holder is the attempt that runs or ran it.';
comment on column countersign.idempotency_guard.key is
    'key: and what the caller sent, or fp: and the fingerprint.';
comment on column countersign.idempotency_guard.expires_at is
    'infinity while the holder runs, -infinity once it failed or was reversed, else the end of the window.';
comment on column countersign.idempotency_guard.bound_until is
    'Until then the key belongs to this fingerprint, also after a failure.';
create index idempotency_guard_holder on countersign.idempotency_guard (holder);

create table countersign.undo_call (
    correlation_id  uuid    not null references countersign.mutation_audit (correlation_id),
    position        integer not null,
    account_id      text    not null,
    tool_name       text    not null,
    fingerprint     text    not null,
    reversed_by     uuid    references countersign.mutation_audit (correlation_id),
    primary key (correlation_id, position)
);
comment on table countersign.undo_call is
    'The calls that undo a write, and which mutation made each of them: a write is reversed when all of its calls were made.';
create index undo_call_open on countersign.undo_call (account_id, fingerprint) where reversed_by is null;

-- Legal changes only, whoever makes them.
create function countersign.protect_record() returns trigger language plpgsql as $$
begin
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
create trigger protect_record before update or delete on countersign.mutation_audit
    for each row execute function countersign.protect_record();
create trigger protect_records before truncate on countersign.mutation_audit
    for each statement execute function countersign.protect_record();
