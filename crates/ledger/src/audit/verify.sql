-- The next leaves of the log $1 from index $2, at most $3: their number, the last index, their hashes, and what is wrong first.
-- $4: what was pruned, as an int8multirange; $5: the part of it for which no checkpoint covers a pruning. The placeholders are record_entry.sql, event_entry.sql and erased_entry.sql of migrations/baseline.
with batch as materialized (
    select l.*, left_of.entry as entry_left from countersign.leaf l
    cross join lateral (
{erased_entry}
    ) left_of
    where l.log_no = $1::integer and l.leaf_index >= $2::bigint order by l.leaf_index limit $3::bigint
), span as materialized (
    select coalesce((select l.record_id from countersign.leaf l
                     where (l.log_no, l.leaf_index) < ($1::integer, $2::bigint) and l.record_id is not null
                     order by l.log_no desc, l.leaf_index desc limit 1), '-9223372036854775808'::bigint) as after,
           (select max(b.record_id) from batch b) as up_to
), compared (leaf_index, id, correlation_id, what) as (
    select b.leaf_index, b.record_id, r.correlation_id, case
        when r.id is null and $4::int8multirange @> b.record_id then null
        when r.id is null then 'missing'
        when $4::int8multirange @> b.record_id then 'returned'
        when x.entry is distinct from b.entry_left then 'altered' end
    from batch b
    left join countersign.record r on r.id = b.record_id
    left join lateral (
{record_entry}
    ) x on r.id is not null
    where b.record_id is not null
    union all
    select b.leaf_index, b.event_id, null, case
        when v.id is null then 'event missing'
        when x.entry is distinct from b.entry_left then 'event altered' end
    from batch b
    left join countersign.event v on v.id = b.event_id
    left join lateral (
{event_entry}
    ) x on v.id is not null
    where b.event_id is not null
    union all
    select b.leaf_index, b.leaf_index, null, 'leaf altered' from batch b
    where b.hash <> sha256('\x00'::bytea || convert_to(b.entry, 'UTF8'))
    union all
    select (select min(b.leaf_index) from batch b where b.record_id > r.id), r.id, r.correlation_id, 'inserted'
    from span, countersign.record r
    where r.id > span.after and r.id <= span.up_to and not exists (select from countersign.leaf l where l.record_id = r.id)
)
select totals.count, totals.last, totals.records, totals.pruned, totals.pruned_unproved, totals.hashes, wrong.leaf_index, wrong.id, wrong.correlation_id, wrong.what
from (
    select count(*), max(b.leaf_index) as last, count(b.record_id) as records,
           count(*) filter (where $4::int8multirange @> b.record_id) as pruned,
           count(*) filter (where $5::int8multirange @> b.record_id) as pruned_unproved,
           encode(string_agg(b.hash, '' order by b.leaf_index), 'hex') as hashes
    from batch b
) totals
left join lateral (
    select * from compared c where c.what is not null order by c.leaf_index, c.what <> 'leaf altered', c.id limit 1
) wrong on true
