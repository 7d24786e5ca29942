-- The tables of the ledger. The files of this folder, in the order of their names, make version 1 of the schema; the schema
-- `countersign` itself exists by now. docs/internals/ledger.md is the guide to them.
--
--   attempt    writes that were admitted first: a row lives as long as its call
--   claim      what a transaction writes for: a row lives as long as the transaction
--   record     the outcome of each attempt: inserted once, never updated
--   effect     each row that a recorded write changed
--   reversal   which write was undone by which, and reversal_part for an undo of several calls
--   tracked    the tables whose changes are recorded, and the shape of their rows
--   freeze     accounts and actors that may not write
--   loss       acknowledged records that the database lacks: nothing is written
--
-- SQLSTATE CS001: the write is not this transaction's to carry out (DETAIL: fenced, held or frozen).
--          CS002: an undo that is no exact inverse of what it undoes.
--          CS003: a server's login changes a tracked table outside of a recorded write.
--          CS004: the policy of the tool does not let the call run (DETAIL: the decision).
--          CS005: the columns of a tracked table have changed since its triggers were made (`renew_shapes`, and the write is tried again).
--          CS008: the write of a proposal changes other rows than were agreed on.

-- VACUUM leaves the pages of `attempt` (vacuum_truncate): a session that plans for a table of one page reads it as a whole, and keeps that
-- plan while the table grows.
create table countersign.attempt (
    slot             bytea        not null primary key,
    correlation_id   uuid         not null,
    account_id       text         not null,
    actor            text,
    session_id       text,
    client_name      text,
    client_version   text,
    trace_id         text,
    reason           text,
    tool_name        text         not null,
    fingerprint      text         not null,
    idempotency_key  text,
    params           json         not null,
    params_summary   text         not null,
    undo_of          uuid[],
    proposal_id      uuid,
    caller_context   json,
    login            name         not null default session_user,
    by_operator      boolean      not null default false,
    own_transaction  boolean      not null default nullif(pg_current_xact_id_if_assigned() is null, false),
    is_begun         boolean      not null default false,
    admitted_at      timestamptz  not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);
comment on table countersign.attempt is
    'Writes that were admitted first, or that run for long. The transaction that executes one holds the lock of its row (FOR UPDATE). There is no CHECK: '
    'PostgreSQL plans each one anew for each INSERT. VACUUM leaves the pages: a table of few pages is read whole, and this one soon has more.';
comment on column countersign.attempt.slot is
    'SHA-256 of what counts as the same call: account, tool, and the caller''s key or else the fingerprint. For an undo: the writes that it undoes, '
    'and which part of the undo it is, if the write declares several calls.';
comment on column countersign.attempt.fingerprint is 'SHA-256 (or HMAC-SHA-256) of the tool and its effective parameters, in hex.';
comment on column countersign.attempt.idempotency_key is 'The key that the caller sent.';
comment on column countersign.attempt.params is 'The effective parameters by name, those that the server fills in included.';
comment on column countersign.attempt.undo_of is 'The writes that this one undoes.';
comment on column countersign.attempt.proposal_id is 'The confirmed proposal that this write carries out.';
comment on column countersign.attempt.caller_context is
    'The role and the claims that the statements of the write run with, as {role, claims}; null for the rights of the login.';
comment on column countersign.attempt.by_operator is 'Admitted by a member of countersign_operator, who may undo the writes of any account.';
comment on column countersign.attempt.own_transaction is
    'Always true: an INSERT in a transaction that has written before fails, so no statement of a write can admit another one.';
comment on column countersign.attempt.is_begun is 'Of a claim: the write was not admitted first, so no row of `attempt` goes with it.';

-- It is read by ctid alone. A transaction that ends in whatever way leaves nothing here, so it needs neither WAL nor an index; one that
-- commits without `finish` leaves its row, which the sweep records.
create unlogged table countersign.claim (like countersign.attempt including defaults)
    with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
comment on table countersign.claim is
    'The call that a transaction executes, which has inserted its row: its id in xmin says whose it is. No other transaction sees the row.';

-- Writes are admitted first by INSERT: no more authority than a function with these arguments, and a third cheaper.
create view countersign.admission with (security_barrier) as
    select slot, correlation_id, account_id, actor, session_id, client_name, client_version, trace_id, reason, tool_name,
           fingerprint, idempotency_key, params, params_summary, undo_of, proposal_id, caller_context
    from countersign.attempt;
comment on view countersign.admission is 'Servers insert an attempt here, and do nothing else.';

create table countersign.record (
    id               bigint       generated always as identity,
    correlation_id   uuid         not null primary key,
    account_id       text         not null,
    actor            text,
    session_id       text,
    client_name      text,
    client_version   text,
    trace_id         text,
    reason           text,
    tool_name        text         not null,
    fingerprint      text         not null,
    idempotency_key  text,
    params           json         not null,
    params_summary   text         not null,
    status           text         not null check (status in ('success', 'failure', 'duplicate')),
    duplicate_of     uuid,
    undo_of          uuid[],
    -- json and not jsonb: a repeated answer equals the first one, with its keys in order.
    result           json,
    result_summary   text,
    rows_affected    bigint,
    before_image     json,
    after_image      json,
    rollback         json,
    error_code       text,
    error_sqlstate   text,
    error_message    text,
    error_detail     json,
    -- In the record and in the log, because the proposal itself is removed one day.
    approval         json,
    caller_context   json,
    evidence         json,
    login            name         not null,
    slot             bytea,
    holds_until      timestamptz,
    xid              xid8         not null,
    admitted_at      timestamptz  not null,
    completed_at     timestamptz  not null,
    part_salt        uuid         not null default gen_random_uuid()
);
comment on table countersign.record is
    'One row for each attempt that ended. Rows never change; retention removes the oldest. Only `finish` and `end_attempt` insert them, '
    'and there is no CHECK, as for `attempt`, but one: it tells PostgreSQL that no pending write is here.';
comment on column countersign.record.status is 'success (then there is a result), failure (an error_code) or duplicate (a duplicate_of).';
comment on column countersign.record.reason is 'Why the agent wrote, in its words.';
comment on column countersign.record.id is 'Drawn when the attempt ended; sealing counts on that.';
comment on column countersign.record.duplicate_of is 'The write whose result answered this call. It may have been pruned.';
comment on column countersign.record.undo_of is 'The writes that this one undid.';
comment on column countersign.record.result is 'The whole data that the caller was answered with.';
comment on column countersign.record.before_image is 'For tables that are not tracked: the rows that the write was about to change.';
comment on column countersign.record.after_image is 'The same rows after the write.';
comment on column countersign.record.rollback is 'How the write is undone, as the caller was told.';
comment on column countersign.record.error_detail is 'For an undo that was refused: its conflicts. For a superseded call: what changed the rows.';
comment on column countersign.record.approval is 'For a write that was proposed: the proposal, its digest, and the decision. For an operator''s undo: the person.';
comment on column countersign.record.caller_context is 'The role and the claims that the statements of the write ran with, as {role, claims}.';
comment on column countersign.record.evidence is
    'What the effects do not show, under the oid of the table. assigned, for tables with BEFORE triggers: the numbers of the columns that the statements of the '
    'write set; others were set by triggers. untracked, for tables that are not tracked, of a write that an undo could take back: the rows that were '
    'inserted, updated and deleted.';
comment on column countersign.record.login is 'The database login that admitted the write.';
comment on column countersign.record.slot is 'The slot that this record still answers for; null for none.';
comment on column countersign.record.holds_until is 'The end of the time in which an identical call is answered from this record, or a key stays bound.';
comment on column countersign.record.part_salt is 'The salts of its parts in the log are derived from it; it goes with the record.';
comment on column countersign.record.xid is 'The transaction that inserted the record: for a success, the one that wrote.';
create unique index record_id     on countersign.record (id);
create index record_slot          on countersign.record (slot, id) where slot is not null;
create index record_account       on countersign.record (account_id, id);
create index record_completed     on countersign.record using brin (completed_at) with (autosummarize = on);
-- A success has no entry in these two.
create index record_unsuccessful  on countersign.record (id) where status <> 'success';
create index record_unsuccessful_of on countersign.record (account_id, id) where status <> 'success';
create index record_duplicate_of  on countersign.record (duplicate_of) where duplicate_of is not null;

create view countersign.mutation with (security_barrier) as
    select r.id, r.correlation_id, r.account_id, r.actor, r.session_id,
           nullif(json_strip_nulls(json_build_object('name', r.client_name, 'version', r.client_version, 'session_id', r.session_id,
                                                     'trace_id', r.trace_id))::text, '{}')::json as client,
           r.reason, r.tool_name, r.fingerprint, r.idempotency_key, r.params, r.params_summary, r.status, r.duplicate_of, r.undo_of, r.result,
           r.result_summary, r.rows_affected, r.before_image, r.after_image, r.rollback, r.error_code, r.error_sqlstate,
           r.error_message, r.error_detail, r.approval, r.caller_context, r.login, r.xid, r.admitted_at, r.completed_at,
           (extract(epoch from r.completed_at - r.admitted_at) * 1000)::integer as elapsed_ms
    from countersign.record r
    union all
    select null, a.correlation_id, a.account_id, a.actor, a.session_id,
           nullif(json_strip_nulls(json_build_object('name', a.client_name, 'version', a.client_version, 'session_id', a.session_id,
                                                     'trace_id', a.trace_id))::text, '{}')::json,
           a.reason, a.tool_name, a.fingerprint, a.idempotency_key, a.params, a.params_summary, 'pending', null, a.undo_of, null,
           null, null, null, null, null, null, null,
           null, null, null, a.caller_context, a.login, null, a.admitted_at, null, null
    from countersign.attempt a
    where not exists (select from countersign.record r where r.correlation_id = a.correlation_id);
comment on view countersign.mutation is
    'Records, and writes in flight (status pending, no id) that were admitted first or run for long: for reading.';

create table countersign.reversal (
    correlation_id  uuid  not null primary key,
    reversed_by     uuid  not null
);
comment on table countersign.reversal is 'The writes that were undone. The primary key makes it once for each write.';
comment on column countersign.reversal.reversed_by is 'The undo, a write of its own that can be undone as well.';
create index reversal_by on countersign.reversal (reversed_by);

create table countersign.reversal_part (
    correlation_id  uuid     not null,
    part            integer  not null check (part > 0),
    reversed_by     uuid     not null,
    primary key (correlation_id, part)
);
comment on table countersign.reversal_part is
    'The calls that were made of those by which a write declares to be undone, where one is not enough. With the last one it is reversed.';
comment on column countersign.reversal_part.part is 'The number of the call in rollback.undo_calls of the write, from 1.';

create table countersign.tracked (
    shape        integer      generated always as identity primary key,
    relation     oid          not null,
    name         text         not null,
    columns      text[]       not null,
    numbers      int2[]       not null,
    types        text[]       not null,
    type_ids     oid[]        not null,
    type_mods    integer[]    not null,
    key_columns  text[],
    key_operators text[],
    fixed        text[]       not null,
    computed     text[]       not null,
    unstored     text[]       not null,
    maintained   text[]       not null,
    sensitive    text[]       not null,
    is_log       boolean      not null,
    not_log      boolean      not null default false check (not (is_log and not_log)),
    all_writers  boolean      not null,
    writers      name[]       not null,
    is_current   boolean      not null default true,
    since        timestamptz  not null default clock_timestamp(),
    made_by      name         not null default session_user,
    catalog_versions xid[],
    plain_changes text        not null default '',
    clock_columns text[]      not null default '{}',
    clock_numbers int2[]      not null default '{}'
);
comment on table countersign.tracked is
    'Tables whose changes are recorded. One row for each run of `countersign track`: an effect names the shape of its row images.';
comment on column countersign.tracked.name is 'Schema and table, quoted, at that time.';
comment on column countersign.tracked.columns is 'The columns in the order of a row image.';
comment on column countersign.tracked.type_mods is 'Their type modifiers, as pg_attribute has them.';
comment on column countersign.tracked.numbers is 'Their numbers in pg_attribute, by which a column is found again after it was renamed.';
comment on column countersign.tracked.key_columns is 'Primary key or a unique key over NOT NULL columns; null: recorded, and never undone.';
comment on column countersign.tracked.key_operators is 'SQL: the operators by which the index of the key compares them, which need not be in pg_catalog.';
comment on column countersign.tracked.fixed is 'Generated columns and those GENERATED ALWAYS AS IDENTITY: not set by an UPDATE.';
comment on column countersign.tracked.computed is 'Generated columns: not inserted either.';
comment on column countersign.tracked.unstored is 'Virtual generated columns: null in row images.';
comment on column countersign.tracked.maintained is 'Columns that triggers maintain: an undo need not restore them.';
comment on column countersign.tracked.sensitive is 'Columns that are null in row images; a keyed hash stands for them.';
comment on column countersign.tracked.is_log is 'Append-only history: an undo may add rows to it.';
comment on column countersign.tracked.not_log is 'Declared to be none: what triggers add to it, an undo takes back or is refused.';
comment on column countersign.tracked.all_writers is 'Changes by logins that are no server''s are recorded too.';
comment on column countersign.tracked.writers is 'The servers'' logins that the triggers know.';
comment on column countersign.tracked.catalog_versions is
    'The rows of the catalog from which the columns below were found (`keep_table_facts`). They say nothing if the catalog has others.';
comment on column countersign.tracked.plain_changes is
    'I, U and D: the changes of rows that an undo takes back without a trial, if the caller has the right to it.';
comment on column countersign.tracked.clock_columns is 'The columns that its triggers set in an UPDATE to the time, or count up.';
comment on column countersign.tracked.clock_numbers is 'Their numbers in pg_attribute.';
create unique index tracked_current on countersign.tracked (relation) where is_current;

create table countersign.rebound (
    before       oid     not null,
    after        oid     not null,
    numbers      int2[]  not null,
    numbers_now  int2[]  not null,
    last_id      bigint  not null,
    primary key (before, last_id)
);
comment on table countersign.rebound is
    'Tracked tables that got other oids by a dump and its restore (`rebind_tables`): what the evidence of earlier records means.';
comment on column countersign.rebound.numbers is 'The numbers of its columns, as the evidence has them; numbers_now are theirs.';
comment on column countersign.rebound.last_id is 'The last of these records.';

-- CACHE 1: a position is drawn under the row's lock, so positions order the changes of a row by different transactions.
create sequence countersign.effect_position;
create table countersign.effect (
    correlation_id  uuid,
    position        bigint   not null default nextval('countersign.effect_position'),
    relation        oid      not null,
    shape           integer  not null,
    op              "char"   not null,
    by_trigger      boolean  not null default false,
    key             text,
    key_before      text,
    before          text,
    after           text,
    unchanged       int2[],
    secret_before   bytea,
    secret_after    bytea,
    changed_at      timestamptz,
    origin          text,
    erased          int2[]
);
comment on table countersign.effect is
    'Rows that writes changed, whatever changed them: the statement, a trigger, a cascade, a rule. A row image is the text of the row.';
comment on column countersign.effect.correlation_id is 'The write; null for a change that came from outside countersign.';
comment on column countersign.effect.op is 'I, U or D; N for a row that an UPDATE set to what it was: only `after` has its image.';
comment on column countersign.effect.by_trigger is 'A trigger ran the statement. The triggers of an action of a foreign key run as those of the statement do, so it is false for them.';
comment on column countersign.effect.key is 'The key as a JSON object: of the row after the change, or of the deleted row.';
comment on column countersign.effect.key_before is 'The key before, where the change altered it.';
comment on column countersign.effect.unchanged is
    'Positions of large columns that the change left alone: they are null in `before`, and their values are in `after`.';
comment on column countersign.effect.secret_before is 'Keyed hash of the sensitive columns.';
comment on column countersign.effect.changed_at is 'For a change from outside: when.';
comment on column countersign.effect.origin is 'For a change from outside: login and application name.';
comment on column countersign.effect.erased is
    'After an erasure: the positions of the columns that the change set and whose values were erased. The images have [erased] for each erased value.';
create unique index effect_write  on countersign.effect (correlation_id, position);
create index effect_row           on countersign.effect (relation, hashtextextended(key, 0), position);
create index effect_renamed       on countersign.effect (relation, hashtextextended(key_before, 0), position) where key_before is not null;
create index effect_outside       on countersign.effect (changed_at) where correlation_id is null;

create table countersign.freeze (
    id              integer      generated always as identity primary key,
    kind            text         not null check (kind in ('account', 'actor', 'all')),
    name            text         not null check ((kind = 'all') = (name = '')),
    frozen_at       timestamptz  not null default clock_timestamp(),
    frozen_by       text         not null,
    frozen_login    name         not null default session_user,
    reason          text,
    unfrozen_at     timestamptz,
    unfrozen_by     text,
    unfrozen_login  name,
    constraint unfreezing_is_whole check (num_nulls(unfrozen_at, unfrozen_by, unfrozen_login) in (0, 3))
);
comment on table countersign.freeze is 'Accounts and actors whose writes are refused (account_frozen), and those that were. Rows are kept.';
create unique index freeze_current on countersign.freeze (kind, name) where unfrozen_at is null;

create type countersign.known_history as (
    log_no      integer,
    records     uuid[],
    leaf_index  bigint,
    leaf_hash   bytea,
    timeline    integer,
    incarnation text
);
comment on type countersign.known_history is 'What a server knows of the ledger (`lacks`).';
comment on column countersign.known_history.records is 'Writes that it has acknowledged, and that no other of them follows.';
comment on column countersign.known_history.leaf_index is 'The last entry below the newest signed checkpoint that it has seen.';
comment on column countersign.known_history.timeline is 'The timeline of the server of PostgreSQL that it wrote to: for reports.';
comment on column countersign.known_history.incarnation is 'Where all of this was found (`incarnation`); null if it has to be looked for.';

create table countersign.loss (
    log_no           integer      not null primary key,
    found_at         timestamptz  not null default clock_timestamp(),
    login            name         not null default session_user,
    records          uuid[]       not null,
    since            timestamptz,
    entries          bigint       not null,
    signed_entries   bigint,
    timeline_before  integer,
    timeline         integer
);
comment on table countersign.loss is
    'The log of which a server has missed something that was acknowledged or signed. Nothing is written until a fork begins another log.';
comment on column countersign.loss.records is 'The missing writes that the server remembers, the oldest first.';
comment on column countersign.loss.since is 'When it had acknowledged the first of them, by its clock.';
comment on column countersign.loss.entries is 'The entries that the log had when this was found; signed_entries were known to be signed.';
comment on column countersign.loss.timeline_before is 'The timeline that the server knew, and the one that it found.';

create table countersign.secret_key (
    only_row  boolean primary key default true check (only_row),
    key       bytea   not null check (length(key) = 32)
);
comment on table countersign.secret_key is 'The key of the hashes that stand for sensitive columns.';
insert into countersign.secret_key (key) select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'));

------------------------------------------------------------------------------------------------- servers, logins and identity

create table countersign.writer_login (
    role_name  name primary key
);
comment on table countersign.writer_login is 'The roles that servers log in as.';

create table countersign.reader_login (
    role_name   name primary key,
    password    text not null,
    for_callers boolean not null unique
);
comment on table countersign.reader_login is 'How servers log in to read; they get it from countersign.reader_credentials.';
comment on column countersign.reader_login.for_callers is
    'Whether the login reads as the roles of callers. Then it has no rights of its own, so that a query which leaves its role has none.';
create table countersign.reader_relation (
    relation  regclass primary key
);
comment on table countersign.reader_relation is
    'The tables and views that existed when `init` last granted SELECT to the reader: `init` grants on newer ones only.';
create table countersign.reader_schema (
    schema_name  name primary key
);
comment on table countersign.reader_schema is 'The schemas that existed then.';

create table countersign.fingerprint_key (
    key_id   text         primary key check (octet_length(key_id) between 1 and 64),
    used_at  timestamptz  not null
);
comment on table countersign.fingerprint_key is
    'Ids of the keys that servers make fingerprints with: each server renews its own every minute. The keys themselves are not stored.';

create table countersign.state_key (
    id          integer      generated always as identity primary key,
    key         bytea        not null check (length(key) = 32),
    created_at  timestamptz  not null default clock_timestamp(),
    seals_from  timestamptz  not null
);
comment on table countersign.state_key is
    'The keys that seal what clients carry for the servers. Servers get them from countersign.state_keys.';
comment on column countersign.state_key.seals_from is
    'No server seals with the key before this time, so that every server knows the key when the first one uses it.';
insert into countersign.state_key (key, seals_from)
select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), '-infinity';

create table countersign.identity (
    no                 integer      generated always as identity primary key,
    ledger_id          uuid         not null default gen_random_uuid(),
    system_identifier  bigint       not null,
    database_oid       oid          not null,
    since              timestamptz  not null default clock_timestamp(),
    made_by            name         not null default session_user
);
comment on table countersign.identity is
    'For which database the ledger was made; the newest row counts. A copy has another place, and its servers refuse it until `countersign audit fork`.';
comment on column countersign.identity.system_identifier is 'Of the cluster, as pg_control_system() has it.';
