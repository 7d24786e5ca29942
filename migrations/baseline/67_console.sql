-- Who is logged in to the console. Tokens are stored as SHA-256, so that reading these tables lets nobody in.

create table countersign.console_link (
    token_hash  bytea        primary key,
    person      text         not null check (person <> ''),
    role        text         not null check (role in ('auditor', 'reviewer', 'operator')),
    groups      text[]       not null,
    made_at     timestamptz  not null default clock_timestamp()
);
comment on table countersign.console_link is 'Links that log a person in to the console, once, within 5 minutes.';
comment on column countersign.console_link.role is 'auditor: reads. reviewer: also decides on proposals. operator: also undoes writes and freezes accounts.';
comment on column countersign.console_link.groups is 'What `approvers` of a proposal is compared with.';
alter table countersign.console_link enable row level security;

create table countersign.console_session (
    token_hash    bytea        primary key,
    person        text         not null check (person <> ''),
    role          text         not null check (role in ('auditor', 'reviewer', 'operator')),
    groups        text[]       not null,
    accounts      text[]       not null default '{}',
    method        text         not null check (method in ('link', 'oidc')),
    signed_in_at  timestamptz,
    logged_in_at  timestamptz  not null default clock_timestamp(),
    seen_at       timestamptz  not null default clock_timestamp()
);
comment on table countersign.console_session is 'Sessions of the console: 15 minutes without a request at most, and 12 hours in all.';
comment on column countersign.console_session.accounts is
    'Names under which agents of the person propose: a proposal of one of them is the person''s own.';
comment on column countersign.console_session.method is 'link: a link of an owner. oidc: an OpenID Connect provider.';
comment on column countersign.console_session.signed_in_at is
    'When the person has shown who they are, which for oidc can be long before the session. Null: the provider does not say.';
create index console_session_person on countersign.console_session (person);
alter table countersign.console_session enable row level security;

create table countersign.console_address (
    only_row  boolean  primary key default true check (only_row),
    origin    text     not null check (char_length(origin) between 1 and 2000)
);
comment on table countersign.console_address is 'Where browsers reach the console that was started last, for the links of `console login`.';

create function countersign.note_console_address(address text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into countersign.console_address as a (origin) values (address)
    on conflict (only_row) do update set origin = excluded.origin where a.origin <> excluded.origin;
end $$;
comment on function countersign.note_console_address(text) is 'For a console that starts.';

create function countersign.make_console_link(link bytea, of_person text, of_role text, of_groups text[]) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    delete from countersign.console_link k where k.made_at < clock_timestamp() - interval '5 minutes';
    insert into countersign.console_link (token_hash, person, role, groups) values (link, of_person, of_role, of_groups);
end $$;
comment on function countersign.make_console_link(bytea, text, text, text[]) is
    'For members of the owner: whoever makes links decides who is whom in the console.';

create function countersign.log_in_with_link(link bytea, session bytea) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    k  countersign.console_link;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    delete from countersign.console_session s
    where s.seen_at < clock_timestamp() - interval '15 minutes' or s.logged_in_at < clock_timestamp() - interval '12 hours';
    delete from countersign.console_link o
    where o.token_hash = link and o.made_at >= clock_timestamp() - interval '5 minutes' returning * into k;
    if not found then
        return null;
    end if;
    insert into countersign.console_session (token_hash, person, role, groups, method, signed_in_at)
    values (session, k.person, k.role, k.groups, 'link', clock_timestamp());
    perform countersign.note_event('login', array['person', k.person, 'role', k.role, 'method', 'link']);
    return k.person;
end $$;
comment on function countersign.log_in_with_link(bytea, bytea) is 'Who is logged in from now on; null if the link is unknown, used or too old.';

create function countersign.find_console_session(session bytea)
returns table (person text, role text, groups text[], method text, sign_in_age_s double precision)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
update countersign.console_session s set seen_at = clock_timestamp()
where s.token_hash = session and s.seen_at >= clock_timestamp() - interval '15 minutes'
  and s.logged_in_at >= clock_timestamp() - interval '12 hours'
returning s.person, s.role, s.groups, s.method, extract(epoch from clock_timestamp() - s.signed_in_at)::double precision $$;
comment on function countersign.find_console_session(bytea) is 'Who makes a request; nobody if the session has ended.';

create function countersign.log_out(session bytea) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
delete from countersign.console_session s where s.token_hash = session $$;
comment on function countersign.log_out(bytea) is 'Ends a session of the console.';

create function countersign.end_console_sessions(of_person text) returns integer language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    ended  integer;
begin
    delete from countersign.console_link k where k.person = of_person;
    delete from countersign.console_session s where s.person = of_person;
    get diagnostics ended = row_count;
    return ended;
end $$;
comment on function countersign.end_console_sessions(text) is 'Logs a person out everywhere; how many sessions ended. For members of the owner.';

create function countersign.decide_as_console(
    proposal uuid, outcome text, session bytea, within interval, shown_digest text, why text, nonce text
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s  countersign.console_session;
begin
    select * into s from countersign.console_session o
    where o.token_hash = session and o.seen_at >= clock_timestamp() - interval '15 minutes'
      and o.logged_in_at >= clock_timestamp() - interval '12 hours';
    if not found then
        return 'session_ended';
    elsif s.role = 'auditor' then
        return 'not_reviewer';
    elsif outcome = 'confirmed' and within is not null and (s.signed_in_at >= clock_timestamp() - within) is not true then
        return 'sign_in_again';
    end if;
    return countersign.decide_as_person(
        proposal, outcome, s.person, s.person, s.accounts, s.groups, 'console', shown_digest, why, nonce);
end $$;
comment on function countersign.decide_as_console(uuid, text, bytea, interval, text, text, text) is
    'For countersign_console, which only the console has. The session says who decides. As decide_as_person, and: session_ended; not_reviewer: an '
    'auditor reads; sign_in_again: the person has signed in longer ago than `within`, or nobody knows when. Null: whenever it was.';
