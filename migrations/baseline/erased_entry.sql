-- The entry of the leaf l as its record or event has it now: with the digests of the newest erasure, if there was one. The entry of an
-- erasure stays as it is. As with record_entry.sql, erasing and verifying run the same text.
select case when v.id is null then l.entry else concat(
           left(l.entry, strpos(l.entry, concat(E'\n', v.fields[15], ' sha256:'))),
           (select string_agg(concat(v.fields[2 * n - 1], ' ', v.fields[2 * n], E'\n'), '' order by n)
            from generate_series(8, cardinality(v.fields) / 2) n)) end as entry,
       v.id as erasure
from (select 1) always
left join lateral (
    select v.id, v.fields from countersign.event v
    where v.kind = 'erase' and v.fields[3] = case when l.record_id is null then 'event' else 'record' end
      and v.fields[4] = coalesce(l.record_id, l.event_id)::text and l.entry not like E'countersign-entry/v1\nkind erase\n%'
    order by v.id desc limit 1
) v on true
