-- Who calls, for policies of row level security. A query may find a way to change a setting, and to change it back before it ends. So
-- these functions believe no setting that a server has not sealed.

create function countersign.caller_key() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform countersign.refuse_within_a_write();
    return encode(countersign.keyed_hash('callers'), 'hex');
end $$;
comment on function countersign.caller_key() is
    'What servers seal the callers of reads with: the account, the role and the claims. Not for the statements of a write.';

create function countersign.seal_of_caller(caller text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select encode(sha256(convert_to(encode(countersign.keyed_hash('callers'), 'hex'), 'UTF8') || sha256(convert_to(caller, 'UTF8'))), 'hex') $$;
comment on function countersign.seal_of_caller(text) is
    'The seal that a server makes with countersign.caller_key. The inner hash has a fixed length, so nobody can append to what is sealed.';

create function countersign.of_caller(setting text, variadic path text[]) returns text
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    attempt  countersign.attempt;
    caller   text := nullif(current_setting('countersign.caller', true), '');
    sealed   json;
begin
    if pg_current_xact_id_if_assigned() is not null then
        attempt := countersign.claimed_attempt();
        sealed := json_build_object('account', attempt.account_id, 'claims', attempt.caller_context -> 'claims');
    elsif has_function_privilege(session_user, 'countersign.caller_key()', 'execute') then
        -- The server's own statements: over its login, those of agents run in writes only.
        return nullif(current_setting('countersign.' || setting, true), '');
    elsif caller is not null then
        if left(caller, 64) <> countersign.seal_of_caller(substr(caller, 66)) then
            raise exception 'no server has sealed the caller of this transaction' using errcode = '42501',
                hint = 'Something has changed the setting countersign.caller.';
        end if;
        sealed := substr(caller, 66)::json;
        if abs(extract(epoch from now()) - (sealed ->> 'at')::bigint) > 600 then
            raise exception 'the caller of this transaction was sealed at %, by the clock of the server', to_timestamp((sealed ->> 'at')::bigint)
                using errcode = '42501', hint = 'The clocks of the server and of the database may differ by ten minutes.';
        end if;
    end if;
    return nullif(sealed #>> path, '');
end $$;
comment on function countersign.of_caller(text, text[]) is
    'A fact about the caller: of a write from its attempt, of a read from what the server has sealed. Null outside of both.';

create function countersign.account() returns text
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
    select countersign.of_caller('account_id', 'account') $$;
comment on function countersign.account() is
    'For policies: the account on whose behalf a statement of an agent runs; null for any other statement. Write (select countersign.account()), '
    'which PostgreSQL evaluates once for each statement.';

create function countersign.claim(name text) returns text
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
    select countersign.of_caller('claim_' || name, 'claims', name) $$;
comment on function countersign.claim(text) is
    'For policies: a claim of the token of the caller; null without it. Write (select countersign.claim(''tenant'')).';
