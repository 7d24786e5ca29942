-- Notices of proposals for a receiver outside (docs/topics/notifications.md): an outbox. A notice is in the transaction of what it tells of, so
-- a crash loses none, and the sending is in no transaction. Nothing of a row is in it, unless the agent's reason quotes one.

create table countersign.notice (
    id          bigint       generated always as identity primary key,
    notice_id   uuid         not null default gen_random_uuid() unique,
    event       text         not null check (event in ('proposed', 'decided', 'stale', 'expired', 'failed')),
    data        json         not null,
    created_at  timestamptz  not null default clock_timestamp(),
    attempts    integer      not null default 0,
    due_at      timestamptz  not null default clock_timestamp()
);
comment on table countersign.notice is 'What servers with [notify] have still to send. A row goes when it was delivered, or after three days.';
comment on column countersign.notice.notice_id is 'The same for every attempt: a receiver knows a repetition by it.';
comment on column countersign.notice.due_at is 'The next attempt. While a server sends, the end of its time for that.';
create index notice_due on countersign.notice (due_at);

create function countersign.enqueue_notice() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    what  text := case
        when tg_op = 'INSERT' then 'proposed'
        when new.status = old.status then null
        when new.status in ('confirmed', 'rejected') then 'decided'
        when new.status in ('stale', 'expired', 'failed') then new.status end;
begin
    if what is not null then
        insert into countersign.notice (event, data) values (what, jsonb_strip_nulls(countersign.counts_of_preview(new.preview)::jsonb || jsonb_build_object(
            'proposal_id', new.proposal_id, 'tool', new.tool_name, 'title', new.title, 'reason', new.reason,
            'tier', new.tier, 'status', new.status, 'account', new.account_id,
            'actor', new.actor, 'approvals', new.approvals, 'approvers', new.approvers,
            'expires_at', to_char(new.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'decision', new.decision, 'decided_by', new.decided_by, 'decided_login', new.decided_login, 'decided_via', new.decided_via,
            'error_code', new.error_code)));
    end if;
    return null;
end $$;
comment on function countersign.enqueue_notice() is 'What the tool does, the reason of the agent, how many rows and warnings, who proposed or decided, and the state: no parameter and no row.';
create trigger enqueue_notice after insert or update of status on countersign.proposal
    for each row execute function countersign.enqueue_notice();

create function countersign.claim_notices(most integer, lease interval) returns setof json
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query
        update countersign.notice n
        set attempts = n.attempts + 1, due_at = clock_timestamp() + least(lease, interval '1 hour')
        where n.id in (
            select d.id from countersign.notice d
            where d.due_at <= clock_timestamp() and d.created_at > clock_timestamp() - interval '1 day'
            order by d.due_at limit most for update skip locked)
        returning json_build_object(
            'notice_id', n.notice_id, 'event', n.event, 'attempt', n.attempts, 'data', n.data,
            'created_at', to_char(n.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
end $$;
comment on function countersign.claim_notices(integer, interval) is
    'Notices that are due, which the caller has to send within `lease`. Another server gets them afterwards. Not those older than a day.';

create function countersign.settle_notice(notice uuid, attempt integer, retry_in interval) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    if retry_in is null then
        delete from countersign.notice n where n.notice_id = notice;
    else
        update countersign.notice n set due_at = clock_timestamp() + least(retry_in, interval '1 day')
        where n.notice_id = notice and n.attempts = attempt;
    end if;
end $$;
comment on function countersign.settle_notice(uuid, integer, interval) is
    'After an attempt. Without retry_in the notice is removed. A slow server does not move the attempt of another one.';
