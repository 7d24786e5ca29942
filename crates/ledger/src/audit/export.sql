-- The entries of the log $1 from index $2 to before $3, with the seed of the salts and the contents of the parts that are still there.
-- The two placeholders are record_entry.sql and event_entry.sql of migrations/baseline.
select l.entry, coalesce(r.part_salt, v.part_salt)::text, x.params, x.result, x.effects, x.context, y.details
from countersign.leaf l
left join countersign.record r on r.id = l.record_id
left join lateral (
{record_entry}
) x on r.id is not null
left join countersign.event v on v.id = l.event_id
left join lateral (
{event_entry}
) y on v.id is not null
where l.log_no = $1::integer and l.leaf_index >= $2::bigint and l.leaf_index < $3::bigint
order by l.leaf_index
