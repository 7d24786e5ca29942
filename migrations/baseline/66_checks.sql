-- Whether the rows of a proposal are still as they were shown. The login of a reviewer has no right to them, so a server tries the
-- write once more, rolls it back, and stores what it found.

create table countersign.proposal_check (
    proposal_id   uuid         primary key references countersign.proposal (proposal_id) on delete cascade,
    requested_at  timestamptz  not null default clock_timestamp(),
    taken_until   timestamptz  not null default '-infinity',
    checked_at    timestamptz,
    difference    text,
    found         json,
    constraint found_when_checked check (checked_at is not null or num_nonnulls(difference, found) = 0)
);
comment on table countersign.proposal_check is 'The newest check of each proposal: what its write would do at that time.';
comment on column countersign.proposal_check.taken_until is 'Until when the server that makes the check has time for it.';
comment on column countersign.proposal_check.difference is 'What is not as it was shown; null if all of it is, or if there is no answer yet.';
comment on column countersign.proposal_check.found is 'The preview at that time, if it is another one.';
create index proposal_check_open on countersign.proposal_check (requested_at) where checked_at is null;

create function countersign.request_check(proposal uuid) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    insert into countersign.proposal_check as c (proposal_id)
    select p.proposal_id from countersign.proposal p where p.proposal_id = proposal and p.status in ('pending', 'stale')
    on conflict (proposal_id) do update
    set requested_at = clock_timestamp(), taken_until = '-infinity', checked_at = null, difference = null, found = null
    where c.checked_at is not null;
    return exists (select from countersign.proposal_check c where c.proposal_id = proposal and c.checked_at is null);
end $$;
comment on function countersign.request_check(uuid) is
    'Asks a server to check a proposal that is pending or stale; whether one will. A request that waits is not made twice.';

create function countersign.check_stale() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into countersign.proposal_check (proposal_id) values (new.proposal_id) on conflict (proposal_id) do update
    set requested_at = clock_timestamp(), taken_until = '-infinity', checked_at = null, difference = null, found = null;
    return null;
end $$;
comment on function countersign.check_stale() is 'A proposal becomes stale: a server looks at what is there now.';
create trigger check_stale after update of status on countersign.proposal
    for each row when (new.status = 'stale' and old.status <> 'stale') execute function countersign.check_stale();

create function countersign.take_checks(tools text[], definitions text[], lease interval, most integer) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return query
        update countersign.proposal_check c set taken_until = clock_timestamp() + least(lease, interval '2 hours')
        where c.proposal_id in (
            select d.proposal_id from countersign.proposal_check d join countersign.proposal p on p.proposal_id = d.proposal_id
            where d.checked_at is null and d.taken_until <= clock_timestamp() and p.tool_name = any (tools)
              and (d.requested_at < clock_timestamp() - interval '2 seconds'
                   or (p.tool_name, p.definition) in (select * from unnest(tools, definitions)))
            order by d.requested_at limit most for update of d skip locked)
        returning c.proposal_id;
end $$;
comment on function countersign.take_checks(text[], text[], interval, integer) is
    'Checks for this server to make, if it has these tools. A server whose tool is another one can only say that, so it leaves the check to others '
    'for 2 seconds.';

create function countersign.store_check(proposal uuid, what_differs text, what_is_there json) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    update countersign.proposal_check c set checked_at = clock_timestamp(), difference = what_differs, found = what_is_there
    where c.proposal_id = proposal and c.checked_at is null;
end $$;
comment on function countersign.store_check(uuid, text, json) is 'What the check has found. What differs is null if the proposal still says what would happen.';
