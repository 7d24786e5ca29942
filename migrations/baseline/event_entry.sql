-- The entry of the event v in the log, and the content of its part (docs/reference/log-format.md). As with record_entry.sql, sealing and
-- verifying run the same text.
select concat(
        E'countersign-entry/v1\nkind ', v.kind, E'\n',
        (select string_agg(concat(f.key, ' ', w.value, E'\n'), '' order by f.no)
         from (
            values (-2, 'id', v.id::text), (-1, 'at', to_char(v.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
                   (0, 'login', v.login::text)
            union all
            select n, v.fields[2 * n - 1], v.fields[2 * n] from generate_series(1, cardinality(v.fields) / 2) n
         ) f (no, key, text)
         cross join lateral (
            select case when f.key <> 'vkey' and length(f.text) > 100 then concat(left(f.text, 97), '...') else f.text end as text
         ) cut
         cross join lateral (
            select case when cut.text !~ '[%\u0001-\u001f\u007f-\u009f]' then cut.text else (
                select string_agg(case when c.one ~ '[%\u0001-\u001f\u007f-\u009f]'
                                       then regexp_replace(upper(encode(convert_to(c.one, 'UTF8'), 'hex')), '(..)', '%\1', 'g')
                                       else c.one end, '' order by c.no)
                from regexp_split_to_table(cut.text, '') with ordinality as c (one, no)) end as value
         ) w
         where f.text <> ''),
        'details sha256:' || encode(sha256(
            substr(sha256(uuid_send(v.part_salt) || convert_to('details', 'UTF8')), 1, 16) || convert_to(part.details, 'UTF8')), 'hex') || E'\n'
    ) as entry,
    part.details
from (select case when num_nonnulls(v.reason, v.removed) > 0 then
    concat('{', concat_ws(', ', '"reason": ' || to_json(v.reason), '"removed": ' || to_json(v.removed::text)), '}') end as details
) part
