-- The entries of the log $1 from index $2 to before $3, with the seed of the salts and the contents of the parts that are still there.
-- As many of them as have at most $4 bytes of parts together, and the first one in any case: a record is as large as its write.
-- $5: the size of the bundle. Parts that an erasure behind it has left are named by no entry of the bundle.
-- The placeholders are record_entry.sql, event_entry.sql and erased_entry.sql of migrations/baseline.
select s.entry, s.entry_left, s.part_salt, s.params, s.result, s.effects, s.context, s.details
from (
    select l.leaf_index, l.entry, left_of.entry as entry_left,
           case when left_of.erasure is null or z.leaf_index < $5::bigint then coalesce(r.part_salt, v.part_salt)::text end as part_salt,
           x.params, x.result, x.effects, x.context, y.details,
           sum(coalesce(octet_length(x.params::text), 0) + coalesce(octet_length(x.result::text), 0)
               + coalesce(octet_length(x.effects::text), 0) + coalesce(octet_length(x.context::text), 0)
               + coalesce(octet_length(y.details::text), 0)) over (order by l.leaf_index) as bytes
    from countersign.leaf l
    cross join lateral (
{erased_entry}
    ) left_of
    left join countersign.leaf z on z.log_no = l.log_no and z.event_id = left_of.erasure
    left join countersign.record r on r.id = l.record_id
    left join lateral (
{record_entry}
    ) x on r.id is not null
    left join countersign.event v on v.id = l.event_id
    left join lateral (
{event_entry}
    ) y on v.id is not null
    where l.log_no = $1::integer and l.leaf_index >= $2::bigint and l.leaf_index < $3::bigint
) s
where s.bytes <= $4::bigint or s.leaf_index = $2::bigint
order by s.leaf_index
