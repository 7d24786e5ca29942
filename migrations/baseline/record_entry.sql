-- The entry of the record r in the log, and the contents of its parts (docs/reference/log-format.md). countersign.record_entries seals with
-- this text, and `audit verify` and `audit export` run it themselves: whoever can alter records can alter functions too.
select concat(
        E'countersign-entry/v1\nkind record\nid ', r.id, E'\ncorrelation_id ', r.correlation_id, E'\nstatus ', r.status, E'\n',
        'tool ' || nullif(name.of[1], '') || E'\n', 'account ' || nullif(name.of[2], '') || E'\n',
        'actor ' || nullif(name.of[3], '') || E'\n', 'login ' || nullif(name.of[4], '') || E'\n',
        to_char(r.admitted_at at time zone 'UTC', '"admitted_at "YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), E'\n',
        to_char(r.completed_at at time zone 'UTC', '"completed_at "YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), E'\n',
        'rows_affected ' || r.rows_affected || E'\n', 'error_code ' || nullif(name.of[5], '') || E'\n',
        'duplicate_of ' || r.duplicate_of || E'\n',
        'undo_of ' || case when cardinality(r.undo_of) between 1 and 50 then array_to_string(r.undo_of, ',') end || E'\n',
        'proposal_id ' || nullif(name.of[6], '') || E'\n', 'decided_by ' || nullif(name.of[7], '') || E'\n',
        'decided_login ' || nullif(name.of[8], '') || E'\n', 'decided_via ' || nullif(name.of[9], '') || E'\n',
        'decided_at ' || nullif(name.of[10], '') || E'\n',
        'params sha256:', encode(sha256(substr(sha256(salt || 'params'), 1, 16) || convert_to(part.params, 'UTF8')), 'hex'),
        E'\nresult sha256:', encode(sha256(substr(sha256(salt || 'result'), 1, 16) || convert_to(part.result, 'UTF8')), 'hex'),
        E'\neffects sha256:', encode(sha256(substr(sha256(salt || 'effects'), 1, 16) || convert_to(part.effects, 'UTF8')), 'hex'),
        E'\ncontext sha256:', encode(sha256(substr(sha256(salt || 'context'), 1, 16) || convert_to(part.context, 'UTF8')), 'hex'), E'\n'
    ) as entry,
    part.params, part.result, part.effects, part.context
from (select
    uuid_send(r.part_salt) as salt,
    array[r.tool_name, r.account_id, r.actor, r.login::text, r.error_code, r.approval ->> 'proposal_id', r.approval ->> 'decided_by',
        r.approval ->> 'decided_login', r.approval ->> 'decided_via', r.approval ->> 'decided_at'] as names
    offset 0) raw
cross join lateral (select
    -- Names are short and plain as a rule, and looking at each of them takes longer than all the rest.
    case when length(array_to_string(names, '')) <= 100 and array_to_string(names, '') !~ '[%\u0001-\u001f\u007f-\u009f]' then names else (
        select array_agg(encoded.value order by n.no)
        from unnest(names) with ordinality as n (value, no)
        cross join lateral (select case when length(n.value) > 100 then concat(left(n.value, 97), '...') else n.value end as value) cut
        cross join lateral (
            select case when cut.value !~ '[%\u0001-\u001f\u007f-\u009f]' then cut.value else (
                select string_agg(case when c.one ~ '[%\u0001-\u001f\u007f-\u009f]'
                                       then regexp_replace(upper(encode(convert_to(c.one, 'UTF8'), 'hex')), '(..)', '%\1', 'g')
                                       else c.one end, '' order by c.no)
                from regexp_split_to_table(cut.value, '') with ordinality as c (one, no)) end as value
        ) encoded) end as of
    offset 0) name
cross join lateral (select
    concat('{', concat_ws(', ',
        '"params": ' || r.params, '"params_summary": ' || to_json(r.params_summary), '"reason": ' || to_json(r.reason),
        '"idempotency_key": ' || to_json(r.idempotency_key), '"fingerprint": ' || to_json(r.fingerprint)), '}') as params,
    concat('{', concat_ws(', ',
        '"result": ' || r.result, '"result_summary": ' || to_json(r.result_summary), '"rollback": ' || r.rollback,
        '"error_sqlstate": ' || to_json(r.error_sqlstate), '"error_message": ' || to_json(r.error_message),
        '"error_detail": ' || r.error_detail), '}') as result,
    concat('{', concat_ws(', ',
        '"before_image": ' || r.before_image, '"after_image": ' || r.after_image,
        '"effects": [' || (
            select string_agg(concat('{', concat_ws(', ',
                    '"position": ' || e.position, '"table": ' || to_json(t.name), '"columns": ' || to_json(t.columns),
                    '"op": ' || to_json(e.op::text), case when e.by_trigger then '"by_trigger": true' end, '"key": ' || to_json(e.key), '"key_before": ' || to_json(e.key_before),
                    '"before": ' || to_json(e.before), '"after": ' || to_json(e.after), '"unchanged": ' || to_json(e.unchanged),
                    '"erased": ' || to_json(e.erased),
                    '"secret_before": ' || to_json(encode(e.secret_before, 'hex')),
                    '"secret_after": ' || to_json(encode(e.secret_after, 'hex'))), '}'), ', ' order by e.position)
            from countersign.effect e join countersign.tracked t on t.shape = e.shape
            where e.correlation_id = r.correlation_id) || ']', '"evidence": ' || r.evidence), '}') as effects,
    concat('{', concat_ws(', ',
        '"account_id": ' || to_json(r.account_id), '"actor": ' || to_json(r.actor), '"session_id": ' || to_json(r.session_id),
        '"client_name": ' || to_json(r.client_name), '"client_version": ' || to_json(r.client_version),
        '"trace_id": ' || to_json(r.trace_id), '"tool_name": ' || to_json(r.tool_name), '"error_code": ' || to_json(r.error_code),
        '"undo_of": ' || to_json(r.undo_of), '"approval": ' || r.approval, '"caller_context": ' || r.caller_context,
        '"slot": ' || to_json(encode(r.slot, 'hex')),
        '"holds_until": ' || to_json(extract(epoch from r.holds_until)::text), '"xid": ' || to_json(r.xid::text),
        '"admitted_at": ' || to_json(extract(epoch from r.admitted_at)::text),
        '"completed_at": ' || to_json(extract(epoch from r.completed_at)::text)), '}') as context
    offset 0) part
