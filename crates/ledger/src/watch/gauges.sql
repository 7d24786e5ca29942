-- How many records and proposals are in the states that an operator watches: one row, numbers and ages in seconds.
-- Each part is one range of one index, whatever the ledger has grown to; `tests/acceptance/metrics.rs` looks at the plan.
with sealed as materialized (
    select coalesce(max(l.record_id), 0) as id from countersign.leaf l
), pending as (
    select count(*) as records, min(a.admitted_at) as oldest from countersign.mutation a where a.status = 'pending'
), first as materialized (
    select (select a.id from countersign.record a where a.id > (select sealed.id from sealed) order by a.id limit 1) as id
), unsealed as (
    -- A range with two ends, since there may be millions if sealing is stuck: PostgreSQL takes one end, or a limit, for a third
    -- of the table, and reads all of it.
    select count(*) as records, min(a.completed_at) as oldest from countersign.record a
    where a.id >= (select first.id from first) and a.id < (select first.id from first) + 10000
), open as (
    select count(*) filter (where p.status = 'pending' and p.expires_at > now()) as waiting,
           count(*) filter (where p.status = 'confirmed') as confirmed,
           min(p.decided_at) filter (where p.status = 'confirmed') as oldest
    from countersign.proposal p where p.status in ('pending', 'confirmed')
), ended as (
    select p.status from countersign.proposal p
    where p.status in ('executed', 'failed', 'stale') and p.completed_at > now() - interval '1 hour'
    union all
    select p.status from countersign.proposal p
    where p.status in ('rejected', 'expired') and p.completed_at > now() - interval '1 hour'
)
select pending.records, extract(epoch from now() - pending.oldest),
       open.waiting, open.confirmed, extract(epoch from now() - open.oldest),
       unsealed.records, extract(epoch from now() - unsealed.oldest),
       (select array_to_string(array[count(*) filter (where ended.status = 'executed'),
                                     count(*) filter (where ended.status = 'failed'),
                                     count(*) filter (where ended.status = 'stale'),
                                     count(*) filter (where ended.status = 'rejected'),
                                     count(*) filter (where ended.status = 'expired')], ' ') from ended)
from pending, unsealed, open
