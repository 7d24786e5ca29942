-- Signing in to the console at an OpenID Connect provider.

-- Anybody who reaches the console can begin to sign in, so the table is unlogged, and bounded. A crash ends what has begun.
create unlogged table countersign.console_sign_in (
    state_hash    bytea        primary key,
    browser_hash  bytea        not null,
    nonce         text         not null,
    verifier      text         not null,
    return_to     text         not null,
    is_fresh      boolean      not null,
    started_at    timestamptz  not null default clock_timestamp()
);
comment on table countersign.console_sign_in is 'Browsers that were sent to the provider, for 10 minutes; the newest 10,000.';
comment on column countersign.console_sign_in.state_hash is 'SHA-256 of the state, which the provider sends back with the browser.';
comment on column countersign.console_sign_in.browser_hash is 'SHA-256 of the cookie of the browser: no other one can complete the sign-in.';
comment on column countersign.console_sign_in.verifier is 'The secret of PKCE (RFC 7636), which redeems the code of the provider.';
comment on column countersign.console_sign_in.is_fresh is 'The person was asked to sign in again, in order to approve.';
create index console_sign_in_started_at on countersign.console_sign_in (started_at);
alter table countersign.console_sign_in enable row level security;

create function countersign.begin_sign_in(
    state bytea, browser bytea, of_nonce text, of_verifier text, of_return_to text, must_be_fresh boolean
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.console_sign_in o
    where o.started_at < clock_timestamp() - interval '10 minutes'
       or o.started_at <= (select n.started_at from countersign.console_sign_in n order by n.started_at desc offset 9999 limit 1);
    insert into countersign.console_sign_in (state_hash, browser_hash, nonce, verifier, return_to, is_fresh)
    values (state, browser, of_nonce, of_verifier, of_return_to, must_be_fresh);
end $$;
comment on function countersign.begin_sign_in(bytea, bytea, text, text, text, boolean) is 'Remembers a browser that is sent to the provider.';

create function countersign.take_sign_in(state bytea, browser bytea)
returns table (nonce text, verifier text, return_to text, is_fresh boolean)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
delete from countersign.console_sign_in o
where o.state_hash = state and o.browser_hash = browser and o.started_at >= clock_timestamp() - interval '10 minutes'
returning o.nonce, o.verifier, o.return_to, o.is_fresh $$;
comment on function countersign.take_sign_in(bytea, bytea) is
    'What this browser has begun, once; nothing if it was completed already, has taken more than 10 minutes, or is of another browser.';

create function countersign.log_in_with_oidc(
    session bytea, of_person text, of_role text, of_groups text[], of_accounts text[], authenticated_at timestamptz
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably();
    delete from countersign.console_session s
    where s.seen_at < clock_timestamp() - interval '15 minutes' or s.logged_in_at < clock_timestamp() - interval '12 hours';
    insert into countersign.console_session (token_hash, person, role, groups, accounts, method, signed_in_at)
    values (session, of_person, of_role, of_groups, of_accounts, 'oidc',
        case when authenticated_at > clock_timestamp() then clock_timestamp() else authenticated_at end);
    perform countersign.note_event('login', array['person', of_person, 'role', of_role, 'method', 'oidc']);
end $$;
comment on function countersign.log_in_with_oidc(bytea, text, text, text[], text[], timestamptz) is
    'For countersign_console, which has verified the person with the provider. authenticated_at: when the provider has; null if it does not say.';
