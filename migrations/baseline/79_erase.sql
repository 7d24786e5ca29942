-- Erasing the values of a person from the ledger. The leaves of the log stay, so every proof holds; a record or an event whose parts lose
-- values gets a new salt, and an event of kind `erase` has the digests of what remains. docs/topics/erase.md has the use.
--
--   propose_erasure   a proposal of the tool `audit erase` and of tier approve: the proposer does not approve it
--   erase_portion     one portion of one table, in a transaction of its own, as often as it takes
--   finish_erasure    ends the proposal
--
-- An erasure that was interrupted goes on: what is erased already does not hold the values any more.

create table countersign.erasure (
    proposal_id  uuid    primary key,
    of_values    text[]  not null
);
comment on table countersign.erasure is
    'Erasures that were agreed to and have begun. What an erasure permits, the triggers of the tables permit while its row is here.';
comment on column countersign.erasure.of_values is
    'The texts that are looked for, the longest first. They are kept until the end, because the rows that they come from lose them.';

create type countersign.erasure_scope as (kind text, relation oid, keys text[], number int2, record bigint, actor text);
comment on type countersign.erasure_scope is 'What an erasure begins with: a row (by all keys that it has had), a column (by its number), an actor or a record.';

create function countersign.is_erasure(before jsonb, after jsonb, erasable text[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return before - erasable = after - erasable and exists (select from countersign.erasure);
end $$;
comment on function countersign.is_erasure(jsonb, jsonb, text[]) is 'Whether an erasure that was agreed to changes a row, in these columns only.';

------------------------------------------------------------------------------------------------------------------------ values

create function countersign.without_values(content text, of_values text[]) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    for n in 1 .. coalesce(cardinality(of_values), 0) loop
        content := replace(content, of_values[n], '[erased]');
    end loop;
    return case when of_values is not null then content when content is not null then '[erased]' end;
end $$;
comment on function countersign.without_values(text, text[]) is 'The text with [erased] for each of the values; without values, for all of it.';

create function countersign.without_values(content json, of_values text[]) returns json
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return case
        when json_typeof(content) = 'object' then (
            select coalesce(json_object_agg(case when of_values is null then m.key else countersign.without_values(m.key, of_values) end,
                                            countersign.without_values(m.value, of_values)), '{}') from json_each(content) m)
        when json_typeof(content) = 'array' then (
            select coalesce(json_agg(countersign.without_values(i.value, of_values) order by i.n), '[]')
            from json_array_elements(content) with ordinality i (value, n))
        when json_typeof(content) = 'string' or json_typeof(content) = 'number' and of_values is null
            then to_json(countersign.without_values(content #>> '{}', of_values))
        else content end;
end $$;
comment on function countersign.without_values(json, text[]) is 'The same in all strings of a JSON value; without values, in its numbers as well.';

create function countersign.without_values_in(content json, member text, of_values text[]) returns json
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when content -> member is null then content else (
        select json_object_agg(m.key, case when m.key = member then countersign.without_values(m.value, of_values) else m.value end)
        from json_each(content) m) end
$$;
comment on function countersign.without_values_in(json, text, text[]) is 'The same in one member of a JSON object.';

create function countersign.holds(content text, of_values text[]) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from unnest(of_values) v where strpos(content, v) > 0);
end $$;
comment on function countersign.holds(text, text[]) is 'Whether a text has one of the values in it.';

create function countersign.erasure_scope(what json) returns countersign.erasure_scope
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    s  countersign.erasure_scope;
begin
    s.kind := case when what ->> 'record' is not null then 'record' when what ->> 'actor' is not null then 'actor'
                   when what ->> 'column' is not null then 'column' else 'row' end;
    s.actor := what ->> 'actor';
    s.relation := (what ->> 'relation')::oid;
    if s.kind = 'record' then
        select r.id into s.record from countersign.record r where r.correlation_id = (what ->> 'record')::uuid;
    elsif s.kind = 'column' then
        select t.numbers[array_position(t.columns, what ->> 'column')] into s.number
        from countersign.tracked t where t.relation = s.relation and t.is_current;
    elsif s.kind = 'row' then
        with recursive known (key) as (
            select what ->> 'key'
            union
            select case when e.key = k.key then e.key_before else e.key end
            from known k join countersign.effect e on e.relation = s.relation and e.key_before is not null and k.key in (e.key, e.key_before)
        )
        select array_agg(k.key) into s.keys from known k where k.key is not null;
    end if;
    if coalesce(s.record::text, s.number::text, s.keys[1], s.actor) is null then
        raise exception 'the ledger has nothing that is called %: it was pruned, or the table has no such column', what using errcode = '22023';
    end if;
    return s;
end $$;
comment on function countersign.erasure_scope(json) is 'The scope that the parameters of an erasure say.';

create function countersign.values_to_erase(s countersign.erasure_scope) returns table (of_column text, of_value text, why_not text)
language sql stable set search_path = pg_catalog, pg_temp set jit = off as $$
    with field as materialized (
        select distinct coalesce(e.key = any (s.keys) or e.key_before = any (s.keys), s.keys is null) as is_own,
               t.columns[f.n] as name, t.numbers[f.n] as number, t.types[f.n] as type, countersign.field_value(f.field) as value
        from countersign.effect e join countersign.tracked t on t.shape = e.shape
        cross join lateral (select b.n, b.field from unnest(countersign.fields(e.before)) with ordinality b (field, n)
                            union select a.n, a.field from unnest(countersign.fields(e.after)) with ordinality a (field, n)) f
        where e.relation = s.relation and (s.number is null or t.numbers[f.n] = s.number) and f.field not in ('', '[erased]')
    ), text_of as (
        select f.is_own, f.name, f.number, v.value,
               f.type ~ '^(text|character|citext|name|inet|cidr|macaddr|xml|json)' as is_text
        from field f
        cross join lateral (
            select f.value where f.type !~ '^json' and f.type !~ '\[\]$'
            union all select i #>> '{}' from jsonb_path_query(case when f.type ~ '^jsonb?$' then f.value::jsonb end, 'strict $.**') i
                      where jsonb_typeof(i) = 'string'
            union all select i from unnest(case when f.type ~ '^(text|character).*\[\]$' then f.value::text[] end) i
        ) v (value)
        where v.value is not null
    )
    select distinct t.name, t.value, case
        when not t.is_text then 'no text'
        when length(t.value) < 4 or t.value ~ '^[0-9]{4,6}$' then 'too short'
        when exists (select from text_of o where not o.is_own and o.number = t.number and o.value = t.value) then 'of other rows as well' end
    from text_of t where t.is_own
    union all
    select 'actor', s.actor, case when length(s.actor) < 4 then 'too short' end where s.kind = 'actor'
$$;
comment on function countersign.values_to_erase(countersign.erasure_scope) is
    'The values of the row, the column or the actor, and why one is not looked for elsewhere as text.';

create function countersign.texts_to_erase(s countersign.erasure_scope) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    found_values  text[];
begin
    found_values := array(select distinct v.of_value from countersign.values_to_erase(s) v where v.why_not is null);
    if cardinality(found_values) > 5000 then
        raise exception 'the ledger has % values of it, and an erasure looks for 5000 at most: erase single rows', cardinality(found_values)
            using errcode = '54000';
    end if;
    -- As SQL, JSON and a row image quote them.
    return array(
        select f.form from (
            select distinct q.form from unnest(found_values) v
            cross join lateral unnest(array[v, replace(v, '''', ''''''), trim('"' from to_json(v)::text), replace(replace(v, '\', '\\'), '"', '""')]) q (form)
        ) f where length(f.form) >= 4 order by length(f.form) desc, f.form);
end $$;
comment on function countersign.texts_to_erase(countersign.erasure_scope) is 'What is looked for as text: the values, in each form in which they are quoted.';

create function countersign.free_texts() returns table (place text, relation regclass, columns name[], is_open text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select f.place, c.oid::regclass, f.columns, f.is_open
    from (values
        ('records', 'record', '{params,params_summary,reason,idempotency_key,result,result_summary,before_image,after_image,rollback,error_message,error_detail}'::name[], null),
        ('changes from outside', 'effect', '{key,key_before,before,after}', null),
        ('events of the log', 'event', '{reason}', null),
        ('calls in flight', 'attempt', '{params,params_summary,reason,idempotency_key}', 'true'),
        ('proposals', 'proposal', '{title,description,params,preview,reason,idempotency_key,decision_reason,error_message}', 't.status in (''pending'', ''confirmed'')'),
        ('schema changes', 'schema_change', '{sql,reason,decision_reason,error_message}', 't.status in (''pending'', ''applying'')'),
        ('rows of proposals', 'proposal_rows', '{rows}', null),
        ('questions', 'question', '{question}', null),
        ('checks of proposals', 'proposal_check', '{difference,found}', null),
        ('notices', 'notice', '{data}', null),
        ('plans', 'stored_plan', '{selection,parts,report}', null),
        ('freezes', 'freeze', '{reason}', null),
        ('the log of reads', 'read_log', '{query}', null)) f (place, name, columns, is_open)
    join pg_class p on p.relname = f.name and p.relnamespace = 'countersign'::regnamespace
    join pg_class c on c.relkind = 'r' and (c.oid = p.oid or c.oid in (select i.inhrelid from pg_inherits i where i.inhparent = p.oid))
$$;
comment on function countersign.free_texts() is
    'The columns in which a value can stand as text, and when another request still needs the row. What an erasure does to records, effects and '
    'events has functions of its own.';

create function countersign.rows_with(of_values text[], except_proposal uuid, is_waiting boolean) returns table (place text, found bigint, example text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    f  record;
begin
    for f in
        select t.* from countersign.free_texts() t
        where t.relation <> 'countersign.effect'::regclass and case when is_waiting then t.is_open is not null else t.is_open is distinct from 'true' end
    loop
        return query execute format(
            'select %L, count(*), min(coalesce(to_jsonb(t) ->> ''proposal_id'', to_jsonb(t) ->> ''change_id'')) from only %s t '
            'where countersign.holds(concat_ws(E''\n'', %s), $1) %s %s',
            f.place, f.relation, (select string_agg(format('t.%I', c), ', ') from unnest(f.columns) c),
            case when is_waiting then 'and (' || f.is_open || ')' else 'and not (' || f.is_open || ')' end,
            case when f.relation = 'countersign.proposal'::regclass then 'and t.proposal_id is distinct from $2'
                 when f.relation = 'countersign.event'::regclass then 'and t.kind <> ''erase''' end)
        using of_values, except_proposal;
    end loop;
end $$;
comment on function countersign.rows_with(text[], uuid, boolean) is 'How many rows hold a value, by place; with is_waiting only those that another request needs.';

---------------------------------------------------------------------------------------------------------------- plan, proposal

create function countersign.erased_effect(e countersign.effect, s countersign.erasure_scope, of_values text[]) returns countersign.effect
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    t       countersign.tracked;
    b       text[] := countersign.fields(e.before);
    a       text[] := countersign.fields(e.after);
    is_own  boolean := s.kind = 'record' or s.kind = 'row' and e.relation = s.relation and (e.key = any (s.keys) or e.key_before = any (s.keys));
    doomed  int2[];
begin
    if not coalesce(is_own, false) and not (s.kind = 'column' and e.relation = s.relation)
       and not countersign.holds(concat(e.before, e.after), of_values) then
        return null;
    end if;
    select k.* into t from countersign.tracked k where k.shape = e.shape;
    doomed := array(
        select n from generate_subscripts(t.columns, 1) n
        where (coalesce(b[n], '') not in ('', '[erased]') or coalesce(a[n], '') not in ('', '[erased]'))
          and (-- A number or a uuid as a key says nothing of a person, and by it the row is found again.
               is_own and not (coalesce(t.columns[n] = any (t.key_columns), false) and t.type_ids[n] = any ('{int2,int4,int8,numeric,uuid}'::regtype[]))
               or s.kind = 'column' and e.relation = s.relation and t.numbers[n] = s.number
               or countersign.holds(b[n], of_values) or countersign.holds(a[n], of_values))
        order by n);
    if doomed = '{}' then
        return null;
    end if;
    e.erased := array(
        select distinct n from (
            select unnest(e.erased) as n
            union all select n from unnest(doomed) n where e.op <> 'U' or b[n] is distinct from a[n] and n <> all (coalesce(e.unchanged, '{}'))) all_of
        order by n);
    select '(' || string_agg(case when n = any (doomed) and f <> '' then '[erased]' else f end, ',' order by n) || ')' into e.before
    from unnest(b) with ordinality u (f, n);
    select '(' || string_agg(case when n = any (doomed) and f <> '' then '[erased]' else f end, ',' order by n) || ')' into e.after
    from unnest(a) with ordinality u (f, n);
    if t.key_columns && array(select t.columns[n] from unnest(doomed) n) then
        e.key := null;
        e.key_before := null;
    end if;
    e.secret_before := null;
    e.secret_after := null;
    return e;
end $$;
comment on function countersign.erased_effect(countersign.effect, countersign.erasure_scope, text[]) is
    'An effect without the values that are erased; null for one that has none of them.';

create function countersign.erasure_plan(what json) returns json
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    s         countersign.erasure_scope := countersign.erasure_scope(what);
    texts     text[] := countersign.texts_to_erase(s);
    doomed    uuid[];
    effects   bigint;
    outside   bigint;
begin
    select array_agg(distinct e.correlation_id), count(e.correlation_id), count(*) - count(e.correlation_id) into doomed, effects, outside
    from countersign.effect e
    where case when s.kind = 'record' then e.correlation_id = (what ->> 'record')::uuid else true end
      and (countersign.erased_effect(e, s, texts)).shape is not null;
    return json_build_object(
        'looked_for', (select json_agg(json_build_object('column', v.of_column, 'values', v.n, 'why_not', v.why_not) order by v.why_not nulls first, v.of_column)
                       from (select of_column, why_not, count(*) as n from countersign.values_to_erase(s) group by of_column, why_not) v),
        'found', (select json_agg(json_build_object('place', f.place, 'rows', f.n) order by f.n desc, f.place) from (
            select r.place, sum(r.found) as n from countersign.rows_with(texts, null, false) r group by r.place having sum(r.found) > 0
            union all select 'recorded changes of rows', effects where effects > 0
            union all select 'changes from outside', outside where outside > 0
            union all select 'the record itself', 1 where s.kind = 'record') f),
        'waiting', (select json_agg(json_build_object('place', r.place, 'example', r.example)) from countersign.rows_with(texts, null, true) r where r.found > 0),
        'lose_undo', (select json_agg(r.correlation_id order by r.id) from countersign.record r
            where r.status = 'success' and r.rollback ->> 'reversible' = 'true'
              and (r.correlation_id = any (doomed) or countersign.holds(r.rollback::text, texts) or r.id = s.record)),
        'named', (select count(*) from countersign.leaf l where s.kind = 'actor' and countersign.holds(l.entry, texts)));
end $$;
comment on function countersign.erasure_plan(json) is
    'What an erasure would find, without a value: what is looked for, how many rows of which table, which writes lose their undo, and how many '
    'entries of the log name the actor. For operators and approvers.';

create function countersign.propose_erasure(proposal uuid, what json, who text, why text, words text) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p     countersign.proposal;
    plan  json;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably(), countersign.refuse_copy();
    if countersign.holds(why, countersign.texts_to_erase(countersign.erasure_scope(what))) then
        raise exception 'the reason holds a value that is to be erased: name the request instead' using errcode = '22023';
    end if;
    p.proposal_id := proposal;
    p.account_id := who;
    -- A superuser may log in as everybody, so the names have to differ. Of others, the logins have to differ as well.
    p.actor := case when (select r.rolsuper from pg_roles r where r.rolname = session_user) then null else session_user end;
    p.tool_name := 'audit erase';
    p.title := 'Erase values from the ledger';
    p.tool_version := '1';
    p.definition := encode(sha256('audit erase'), 'hex');
    p.tier := 'approve';
    p.approvals := 1;
    p.description := words;
    p.params := what::jsonb || jsonb_build_object('login', session_user);
    p.fingerprint := encode(sha256(convert_to(p.params::text, 'UTF8')), 'hex');
    plan := countersign.erasure_plan(what);
    if plan ->> 'found' is null then
        raise exception 'nothing of it is in the ledger, so nothing was proposed' using errcode = '22023';
    end if;
    p.preview := json_build_object('result', plan,
                                   'rollback', '{"reversible": false, "note": "Nobody can bring erased values back."}'::json);
    p.preview_hash := encode(sha256(convert_to(p.preview::text, 'UTF8')), 'hex');
    p.created_at := clock_timestamp();
    p.expires_at := p.created_at + interval '14 days';
    p.reason := why;
    p.digest := countersign.proposal_digest(p);
    insert into countersign.proposal (proposal_id, account_id, actor, tool_name, title, tool_version, definition, tier, approvals, description,
        params, fingerprint, preview, preview_hash, created_at, expires_at, digest, reason)
    values (p.proposal_id, p.account_id, p.actor, p.tool_name, p.title, p.tool_version, p.definition, p.tier, p.approvals, p.description,
        p.params, p.fingerprint, p.preview, p.preview_hash, p.created_at, p.expires_at, p.digest, p.reason);
    return proposal;
exception when unique_violation then
    return (select o.proposal_id from countersign.proposal o
            where o.status = 'pending' and o.account_id = p.account_id and o.tool_name = p.tool_name and o.fingerprint = p.fingerprint);
end $$;
comment on function countersign.propose_erasure(uuid, json, text, text, text) is
    'For operators and approvers: a proposal that a person with another name and another login approves. A superuser''s login counts as no person. '
    'The same proposal that waits, if there is one.';

----------------------------------------------------------------------------------------------------------------------- erasure

create function countersign.agreed_erasure(request uuid) returns countersign.proposal
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p      countersign.proposal;
    found_values  text[];
    needed        record;
begin
    perform countersign.refuse_within_a_write(), countersign.commit_durably(), countersign.refuse_copy(), countersign.lock_for_removal();
    select * into p from countersign.proposal o where o.proposal_id = request and o.tool_name = 'audit erase' for update;
    if p.id is null then
        raise exception 'no erasure has the id %: `countersign proposals list` has them', request using errcode = '22023';
    elsif p.status <> 'confirmed' or countersign.proposal_digest(p) <> p.digest or not countersign.has_its_approvals(p) then
        raise exception 'erasure % is %, and only one that another person has approved is executed', request,
            case when p.status = 'confirmed' then 'altered' else p.status end using errcode = '55000';
    end if;
    if not exists (select from countersign.erasure o where o.proposal_id = request) then
        found_values := countersign.texts_to_erase(countersign.erasure_scope(p.params));
        select r.* into needed from countersign.rows_with(found_values, request, true) r where r.found > 0 limit 1;
        if found then
            raise exception 'nothing was erased: % hold a value and are not decided (%)', needed.place, coalesce(needed.example, needed.found::text)
                using errcode = '55000', hint = 'Let them end, or reject them. Then repeat the erasure.';
        end if;
        insert into countersign.erasure (proposal_id, of_values) values (request, found_values);
        -- In progress until it ends: it neither expires nor is rejected.
        update countersign.proposal o set attempt = request, attempt_until = 'infinity', attempts = 1 where o.id = p.id;
    end if;
    return p;
end $$;
comment on function countersign.agreed_erasure(uuid) is 'Begins an erasure that another person has approved, or goes on with it.';

create function countersign.note_erasure(p countersign.proposal, of_key text, of_id bigint, of_record uuid, parts text[], digests text[], why text) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select countersign.note_event('erase', array['person', p.decided_by, of_key, of_id::text, 'correlation_id', of_record::text,
        'erased', array_to_string(parts, ' '), 'proposal_id', p.proposal_id::text, 'asked_by', p.account_id, 'asked_login', p.params ->> 'login'] || digests, why)
$$;
comment on function countersign.note_erasure(countersign.proposal, text, bigint, uuid, text[], text[], text) is
    'Logs what an erasure took from a record or an event, and the digests of what remains. erased_entry.sql knows the places of these fields.';

create function countersign.is_as_sealed(of_record bigint, of_event bigint, entry_now text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    sealed_entry  text;
begin
    select e.entry into sealed_entry from countersign.leaf l cross join lateral countersign.erased_entry(l) e
    where l.record_id = of_record or l.event_id = of_event;
    if sealed_entry is null then
        return false;
    elsif sealed_entry <> entry_now then
        raise exception '% % is not what was sealed, so nothing of it is erased: `countersign audit verify` says more',
            case when of_event is null then 'record' else 'event' end, coalesce(of_record, of_event) using errcode = '55000';
    end if;
    return true;
end $$;
comment on function countersign.is_as_sealed(bigint, bigint, text) is 'False for what is not sealed yet. What was altered must not be covered up by an erasure: 55000.';

create function countersign.digest_lines(entry text) returns text[] language sql immutable set search_path = pg_catalog, pg_temp as $$
    select array_agg(x order by n, i) from regexp_matches(entry, '^(params|result|effects|context|details) (sha256:[0-9a-f]{64})$', 'gn') with ordinality m (found, n)
    cross join lateral unnest(m.found) with ordinality u (x, i)
$$;
comment on function countersign.digest_lines(text) is 'The keys and the digests of the parts of an entry.';

create function countersign.erase_record(r countersign.record, p countersign.proposal, s countersign.erasure_scope, of_values text[]) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    was       countersign.record := r;
    texts     text[] := case when s.kind is distinct from 'record' then of_values end;
    images    countersign.effect[];
    parts     text[];
    is_held   boolean := coalesce(r.holds_until > clock_timestamp(), false);
begin
    if s.kind = 'record' and s.record <> r.id then
        return null;
    end if;
    images := array(select x from countersign.effect e cross join lateral countersign.erased_effect(e, s, of_values) x
                    where e.correlation_id = r.correlation_id and x.shape is not null);
    if s.kind = 'record' or countersign.holds(concat_ws(E'\n', r.params, r.params_summary, r.reason, r.idempotency_key, r.result, r.result_summary, r.before_image,
           r.after_image, r.rollback, r.error_message, r.error_detail, r.approval -> 'reason', r.caller_context -> 'claims'), of_values) then
        r.params := countersign.without_values(r.params, texts);
        r.reason := countersign.without_values(r.reason, texts);
        r.idempotency_key := countersign.without_values(r.idempotency_key, texts);
        r.result := countersign.without_values(r.result, texts);
        r.before_image := countersign.without_values(r.before_image, texts);
        r.after_image := countersign.without_values(r.after_image, texts);
        r.error_message := countersign.without_values(r.error_message, texts);
        r.error_detail := case when texts is not null then countersign.without_values(r.error_detail, texts) end;
        r.approval := countersign.without_values_in(r.approval, 'reason', texts);
        r.caller_context := countersign.without_values_in(r.caller_context, 'claims', texts);
        -- A summary may have the beginning of a value only.
        r.params_summary := case when r.params::text = was.params::text then countersign.without_values(r.params_summary, texts) else '[erased]' end;
        r.result_summary := case when r.result::text is not distinct from was.result::text then countersign.without_values(r.result_summary, texts) else '[erased]' end;
        -- Nobody guesses a value by the digest of the call. While the record answers identical calls, it needs the digest.
        if not is_held and r.params::text <> was.params::text then
            r.fingerprint := repeat('0', 64);
            r.slot := null;
        end if;
    end if;
    if r.rollback is not null and (cardinality(images) > 0 or s.kind = 'record' or countersign.holds(r.rollback::text, of_values)) then
        r.rollback := '{"reversible": false, "reason": "erased", "note": "It cannot be undone: its values were erased."}';
    end if;
    parts := array_remove(array[
        case when (r.params::text, r.params_summary, r.reason, r.idempotency_key, r.fingerprint)
                  is distinct from (was.params::text, was.params_summary, was.reason, was.idempotency_key, was.fingerprint) then 'params' end,
        case when (r.result::text, r.result_summary, r.rollback::text, r.error_message, r.error_detail::text)
                  is distinct from (was.result::text, was.result_summary, was.rollback::text, was.error_message, was.error_detail::text) then 'result' end,
        case when cardinality(images) > 0 or (r.before_image::text, r.after_image::text) is distinct from (was.before_image::text, was.after_image::text) then 'effects' end,
        case when (r.approval::text, r.caller_context::text, r.slot) is distinct from (was.approval::text, was.caller_context::text, was.slot) then 'context' end], null);
    if parts = '{}' then
        return null;
    elsif not countersign.is_as_sealed(was.id, null, (select e.entry from countersign.record_entries(array[was.id]) e)) then
        return 'unsealed';
    end if;
    update countersign.effect e
    set key = x.key, key_before = x.key_before, before = x.before, after = x.after, secret_before = null, secret_after = null, erased = x.erased
    from unnest(images) x where e.correlation_id = was.correlation_id and e.position = x.position;
    update countersign.record o
    set (params, params_summary, reason, idempotency_key, fingerprint, result, result_summary, before_image, after_image, rollback, error_message, error_detail,
         approval, caller_context, slot, part_salt)
        = (r.params, r.params_summary, r.reason, r.idempotency_key, r.fingerprint, r.result, r.result_summary, r.before_image, r.after_image, r.rollback,
           r.error_message, r.error_detail, r.approval, r.caller_context, r.slot, gen_random_uuid())
    where o.correlation_id = was.correlation_id;
    perform countersign.note_erasure(p, 'record', was.id, was.correlation_id, parts, countersign.digest_lines(e.entry), p.reason)
    from countersign.record_entries(array[was.id]) e;
    return 'erased';
end $$;
comment on function countersign.erase_record(countersign.record, countersign.proposal, countersign.erasure_scope, text[]) is
    'Erases from a record and its effects, and logs that. erased | unsealed: nothing was erased yet | null: it has none of the values. A record that '
    'answers identical calls goes on answering them.';

create function countersign.erase_event(v countersign.event, p countersign.proposal, of_values text[]) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not countersign.is_as_sealed(null, v.id, (select e.entry from countersign.event_entry(v) e)) then
        return 'unsealed';
    end if;
    update countersign.event o set reason = countersign.without_values(o.reason, of_values), part_salt = gen_random_uuid()
    where o.id = v.id returning o.* into v;
    perform countersign.note_erasure(p, 'event', v.id, null, array['details'], countersign.digest_lines(e.entry), null) from countersign.event_entry(v) e;
    return 'erased';
end $$;
comment on function countersign.erase_event(countersign.event, countersign.proposal, text[]) is 'The same for the reason of an event.';

create function countersign.erase_portion(request uuid, of_table text, from_block bigint, blocks integer, out erased bigint, out unsealed bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    p         countersign.proposal := countersign.agreed_erasure(request);
    s         countersign.erasure_scope := countersign.erasure_scope(p.params);
    texts     text[] := (select o.of_values from countersign.erasure o where o.proposal_id = request);
    first     tid := format('(%s,0)', from_block)::tid;
    behind    tid := format('(%s,0)', from_block + blocks)::tid;
    f         record;
    verdicts  text[];
begin
    select t.* into strict f from countersign.free_texts() t where t.relation = of_table::regclass;
    if f.relation = 'countersign.record'::regclass then
        verdicts := array(select countersign.erase_record(r, p, s, texts) from (
            select o.* from countersign.record o where o.ctid >= first and o.ctid < behind order by o.id) r);
    elsif f.relation = 'countersign.event'::regclass then
        verdicts := array(select countersign.erase_event(v, p, texts) from (
            select o.* from countersign.event o
            where o.ctid >= first and o.ctid < behind and o.kind <> 'erase' and countersign.holds(o.reason, texts) order by o.id) v);
    elsif f.relation = 'countersign.effect'::regclass then
        with doomed as materialized (
            select e.ctid as at, x from countersign.effect e cross join lateral countersign.erased_effect(e, s, texts) x
            where e.ctid >= first and e.ctid < behind and e.correlation_id is null and s.kind <> 'record' and x.shape is not null
        ), changed as (
            update countersign.effect e
            set key = (d.x).key, key_before = (d.x).key_before, before = (d.x).before, after = (d.x).after, secret_before = null, secret_after = null,
                erased = (d.x).erased
            from doomed d where e.ctid = d.at returning 1
        )
        select array_agg('erased'::text) into verdicts from changed;
    else
        execute format('with changed as (update only %s t set (%s) = row (%s)%s where t.ctid >= $2 and t.ctid < $3 '
                       'and countersign.holds(concat_ws(E''\n'', %s), $1) %s returning 1) select array_agg(''erased''::text) from changed',
            f.relation, (select string_agg(quote_ident(c), ', ') from unnest(f.columns) c),
            (select string_agg(format('countersign.without_values(t.%I, $1)', c), ', ') from unnest(f.columns) c),
            case when f.place = 'the log of reads' then ', fingerprint = null' end,
            (select string_agg(format('t.%I', c), ', ') from unnest(f.columns) c), 'and not (' || f.is_open || ')')
        into verdicts using texts, first, behind;
    end if;
    select count(*) filter (where v = 'erased'), count(*) filter (where v = 'unsealed') into erased, unsealed from unnest(verdicts) v;
end $$;
comment on function countersign.erase_portion(uuid, text, bigint, integer) is
    'Erases in some pages of one table. What it changes moves behind the last page, and has no more values. For operators and approvers.';

create function countersign.erasable_tables() returns table (of_table text, blocks bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select f.relation::text, pg_relation_size(f.relation) / current_setting('block_size')::bigint
    from countersign.free_texts() f where f.is_open is distinct from 'true' order by f.relation = 'countersign.record'::regclass, 1
$$;
comment on function countersign.erasable_tables() is 'The tables in which an erasure looks, with their numbers of pages; that of the records is the last.';

create function countersign.finish_erasure(request uuid) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p      countersign.proposal := countersign.agreed_erasure(request);
    s      countersign.erasure_scope := countersign.erasure_scope(p.params);
    texts  text[] := (select o.of_values from countersign.erasure o where o.proposal_id = request);
begin
    -- What others have updated meanwhile may stand on pages that were gone through before.
    if exists (select from countersign.rows_with(texts, request, false) r where r.found > 0)
       or exists (select from countersign.effect e where (countersign.erased_effect(e, s, texts)).shape is not null
                  and (s.record is null or e.correlation_id = (p.params ->> 'record')::uuid))
       or exists (select from countersign.record r where r.id = s.record
                  and concat(r.params, r.result) <> concat(countersign.without_values(r.params, null), countersign.without_values(r.result, null)))
    then
        return false;
    end if;
    -- A key may be a value, and is in the request itself.
    update countersign.proposal o
    set params = countersign.without_values(o.params, texts), description = countersign.without_values(o.description, texts)
    where o.id = p.id and countersign.holds(concat(o.params, o.description), texts);
    update countersign.proposal o set status = 'executed', completed_at = clock_timestamp() where o.id = p.id;
    delete from countersign.erasure o where o.proposal_id = request;
    return true;
end $$;
comment on function countersign.finish_erasure(uuid) is 'Ends an erasure after its last portion; false: rows have values still. For operators and approvers.';
