-- The entry of the record r in the log, and the contents of its parts (docs/reference/log-format.md). countersign.record_entry seals with
-- this text, and `audit verify` and `audit export` run it themselves: whoever can alter records can alter functions too.
select concat(
        E'countersign-entry/v1\nkind record\n',
        (select string_agg(concat(f.key, ' ', v.value, E'\n'), '' order by f.no)
         from (values
            (1, 'id', r.id::text), (2, 'correlation_id', r.correlation_id::text), (3, 'status', r.status), (4, 'tool', r.tool_name),
            (5, 'account', r.account_id), (6, 'actor', r.actor), (7, 'login', r.login::text),
            (8, 'admitted_at', to_char(r.admitted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
            (9, 'completed_at', to_char(r.completed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
            (10, 'rows_affected', r.rows_affected::text), (11, 'error_code', r.error_code), (12, 'duplicate_of', r.duplicate_of::text),
            (13, 'undo_of', case when cardinality(r.undo_of) <= 50 then array_to_string(r.undo_of, ',') end),
            (14, 'proposal_id', r.approval ->> 'proposal_id'), (15, 'decided_by', r.approval ->> 'decided_by'),
            (16, 'decided_login', r.approval ->> 'decided_login'), (17, 'decided_via', r.approval ->> 'decided_via'),
            (18, 'decided_at', r.approval ->> 'decided_at')
         ) f (no, key, text)
         cross join lateral (
            select case when f.key <> 'undo_of' and length(f.text) > 100 then concat(left(f.text, 97), '...') else f.text end as text
         ) cut
         cross join lateral (
            select case when cut.text !~ '[%\u0001-\u001f\u007f-\u009f]' then cut.text else (
                select string_agg(case when c.one ~ '[%\u0001-\u001f\u007f-\u009f]'
                                       then regexp_replace(upper(encode(convert_to(c.one, 'UTF8'), 'hex')), '(..)', '%\1', 'g')
                                       else c.one end, '' order by c.no)
                from regexp_split_to_table(cut.text, '') with ordinality as c (one, no)) end as value
         ) v
         where f.text <> ''),
        (select string_agg(concat(p.name, ' sha256:', encode(sha256(
                    substr(sha256(uuid_send(r.part_salt) || convert_to(p.name, 'UTF8')), 1, 16) || convert_to(p.content, 'UTF8')), 'hex'), E'\n'),
                '' order by p.no)
         from (values (1, 'params', part.params), (2, 'result', part.result), (3, 'effects', part.effects), (4, 'context', part.context))
              p (no, name, content))
    ) as entry,
    part.params, part.result, part.effects, part.context
from (select
    concat('{', concat_ws(', ',
        '"params": ' || r.params, '"params_summary": ' || to_json(r.params_summary),
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
                    '"op": ' || to_json(e.op::text), '"key": ' || to_json(e.key), '"key_before": ' || to_json(e.key_before),
                    '"before": ' || to_json(e.before), '"after": ' || to_json(e.after), '"unchanged": ' || to_json(e.unchanged),
                    '"secret_before": ' || to_json(encode(e.secret_before, 'hex')),
                    '"secret_after": ' || to_json(encode(e.secret_after, 'hex'))), '}'), ', ' order by e.position)
            from countersign.effect e join countersign.tracked t on t.shape = e.shape
            where e.correlation_id = r.correlation_id) || ']'), '}') as effects,
    concat('{', concat_ws(', ',
        '"account_id": ' || to_json(r.account_id), '"actor": ' || to_json(r.actor), '"session_id": ' || to_json(r.session_id),
        '"client_name": ' || to_json(r.client_name), '"client_version": ' || to_json(r.client_version),
        '"trace_id": ' || to_json(r.trace_id), '"tool_name": ' || to_json(r.tool_name), '"error_code": ' || to_json(r.error_code),
        '"undo_of": ' || to_json(r.undo_of), '"approval": ' || r.approval, '"slot": ' || to_json(encode(r.slot, 'hex')),
        '"holds_until": ' || to_json(extract(epoch from r.holds_until)::text), '"xid": ' || to_json(r.xid::text),
        '"admitted_at": ' || to_json(extract(epoch from r.admitted_at)::text),
        '"completed_at": ' || to_json(extract(epoch from r.completed_at)::text)), '}') as context
) part
