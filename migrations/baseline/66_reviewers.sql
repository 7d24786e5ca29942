-- Reviewers: people who decide on proposals, over a login of their own or over the console's.

-- An approval takes two transactions of the approver: the first one, once the proposal has been shown, gets a nonce, and the
-- second one decides with it. SQL that is made to run within one statement of the approver's session cannot do both.
create table countersign.decision_nonce (
    nonce_hash   bytea        primary key,
    proposal_id  uuid         not null,
    login        name         not null default session_user,
    created_at   timestamptz  not null default clock_timestamp()
);
comment on table countersign.decision_nonce is 'SHA-256 of each nonce that was given to an approver; one counts once, for 15 minutes.';
alter table countersign.decision_nonce enable row level security;

create function countersign.begin_decision(proposal uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    nonce  text := gen_random_uuid()::text || gen_random_uuid()::text;
begin
    perform countersign.refuse_within_a_write();
    delete from countersign.decision_nonce n where n.created_at < clock_timestamp() - interval '15 minutes';
    insert into countersign.decision_nonce (nonce_hash, proposal_id) values (sha256(convert_to(nonce, 'UTF8')), proposal);
    return nonce;
end $$;
comment on function countersign.begin_decision(uuid) is 'A nonce for countersign.decide_as_reviewer, in another transaction.';

create function countersign.use_nonce(proposal uuid, nonce text) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    -- Not in the transaction that got the nonce either, which has a transaction id.
    perform countersign.refuse_within_a_write();
    delete from countersign.decision_nonce n
    where n.nonce_hash = sha256(convert_to(nonce, 'UTF8')) and n.proposal_id = proposal and n.login = session_user
      and n.created_at >= clock_timestamp() - interval '15 minutes';
    return found;
end $$;
comment on function countersign.use_nonce(uuid, text) is 'Whether this login has got the nonce for this proposal. It counts once.';

create function countersign.has_role(role_name text) returns boolean language sql stable
set search_path = pg_catalog, pg_temp as $$
select exists (select from pg_roles r where r.rolname = role_name and pg_has_role(session_user, r.oid, 'usage')) $$;
comment on function countersign.has_role(text) is 'Whether this login has the privileges of the role. Superusers have those of every role.';

create function countersign.decide_as_person(
    proposal uuid, outcome text, who text, of_person text, accounts text[], groups text[], via text, shown_digest text, why text, nonce text
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p  countersign.proposal;
begin
    if not countersign.use_nonce(proposal, nonce) then
        return 'nonce_unknown';
    end if;
    select * into p from countersign.proposal o where o.proposal_id = proposal;
    if not found then
        return 'not_found';
    elsif outcome = 'confirmed' and p.tier = 'approve' and exists (
              select from unnest(array[who, of_person] || accounts) name where lower(name) in (lower(p.account_id), lower(p.actor))) then
        return 'proposer';
    elsif outcome = 'confirmed' and p.approvers is not null
          and not (case when groups is null then countersign.has_role(p.approvers) else p.approvers = any (groups) end) then
        return 'not_in_group';
    end if;
    return countersign.decide_pending(proposal, outcome, who, of_person, via, shown_digest, why, null, interval '0');
end $$;
comment on function countersign.decide_as_person(uuid, text, text, text, text[], text[], text, text, text, text) is
    'As decide_pending, and: nonce_unknown: there was no begin_decision; proposer: the proposer cannot approve, under the own name or the name '
    'of an account of theirs; not_in_group: the tool names a group '
    'of approvers, and the person is not in it. Whoever may decide may reject.';

create function countersign.decide_as_reviewer(
    proposal uuid, outcome text, who text, shown_digest text, why text, nonce text
) returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return countersign.decide_as_person(proposal, outcome, who, session_user, '{}', null, 'command_line', shown_digest, why, nonce);
end $$;
comment on function countersign.decide_as_reviewer(uuid, text, text, text, text, text) is
    'For countersign_approver, which no server has. The login is the person; `who` is the user of the operating system.';
