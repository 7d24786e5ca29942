-- The next entries of the chain behind $1, at most $2, and for each of them what is wrong with it first.
-- $3: the hash of entry $1, in hex; empty for none. $4: what was pruned, as an int8multirange.
-- The texts that are hashed are those of countersign.record_leaf and countersign.seal_hash (migrations/baseline/70_seals.sql), once more: whoever can alter records can alter functions too.
with entry as materialized (
    select s.*, coalesce(lag(s.hash) over (order by s.no), decode($3::text, 'hex')) as previous
    from (select * from countersign.seal where no > $1::bigint order by no limit $2::bigint) s
)
select e.no, encode(e.hash, 'hex') as hash, e.from_id, e.to_id, cardinality(e.record_ids) as records,
    e.removed_count, upper(e.removed) - 1 as removed_to,
    e.removed_count is null
        or e.removed_count = (select sum(upper(r) - lower(r)) from unnest(e.removed) r) as count_is_right,
    e.hash = sha256(e.previous || convert_to(json_build_array(
        'countersign seal 1', e.no::text, extract(epoch from e.sealed_at)::text, e.from_id::text, e.to_id::text,
        array_to_string(e.record_ids, ' '),
        (select string_agg(encode(l.leaf, 'hex'), ' ' order by l.n) from unnest(e.leaves) with ordinality as l (leaf, n)),
        e.removed::text, extract(epoch from e.removed_before)::text, e.removed_count::text, e.removed_by
    )::text, 'UTF8')) as hash_is_right,
    wrong.id as wrong_id, wrong.correlation_id as wrong_correlation_id, wrong.what
from entry e
left join lateral (
    select * from (
        select coalesce(sealed.id, r.id) as id, r.correlation_id,
            case
                when sealed.id is null then 'inserted'
                when r.id is null and not $4::int8multirange @> sealed.id then 'missing'
                when r.id is not null and $4::int8multirange @> sealed.id then 'returned'
                when sealed.leaf <> sha256(convert_to(json_build_array(
                    'countersign mutation 1', r.id::text, r.correlation_id::text, r.account_id, r.actor, r.session_id, r.client_name, r.client_version,
                    r.trace_id, r.tool_name, r.fingerprint, r.idempotency_key, r.params::text, r.params_summary, r.status, r.duplicate_of::text,
                    r.undo_of::text, r.result::text, r.result_summary, r.rows_affected::text, r.before_image::text, r.after_image::text,
                    r.rollback::text, r.error_code, r.error_sqlstate, r.error_message, r.error_detail::text, r.approval::text, r.login::text,
                    encode(r.slot, 'hex'), extract(epoch from r.holds_until)::text, r.xid::text,
                    extract(epoch from r.admitted_at)::text, extract(epoch from r.completed_at)::text,
                    (select encode(sha256(convert_to(string_agg(json_build_array(
                                e.position::text, t.name, t.columns::text, e.op::text, e.key, e.key_before, e.before, e.after, e.unchanged::text,
                                encode(e.secret_before, 'hex'), encode(e.secret_after, 'hex'))::text, ',' order by e.position), 'UTF8')), 'hex')
                     from countersign.effect e join countersign.tracked t on t.shape = e.shape where e.correlation_id = r.correlation_id)
                )::text, 'UTF8')) and r.id is not null then 'altered'
            end as what
        from unnest(e.record_ids, e.leaves) as sealed (id, leaf)
        full join (select * from countersign.record m where m.id between e.from_id and e.to_id) r on r.id = sealed.id
    ) compared
    where what is not null
    order by id limit 1
) wrong on true
order by e.no
