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
        select coalesce(sealed.id, a.id) as id, a.correlation_id,
            case
                when sealed.id is null then 'inserted'
                when a.id is null and not $4::int8multirange @> sealed.id then 'missing'
                when a.id is not null and $4::int8multirange @> sealed.id then 'returned'
                when sealed.leaf <> sha256(convert_to(json_build_array(
                    'countersign mutation 1', a.id::text, a.correlation_id::text, a.account_id, a.actor, a.session_id, a.client_name,
                    a.client_version, a.trace_id, a.tool_name, a.fingerprint, a.idempotency_key, a.params::text, a.params_summary, a.status,
                    a.duplicate_of::text, a.undo_of::text, a.result::text, a.result_summary, a.rows_affected::text, a.before_image::text,
                    a.after_image::text, a.rollback::text, a.error_code, a.error_sqlstate, a.error_message, a.error_detail::text,
                    a.approval::text, a.login::text, encode(a.slot, 'hex'), extract(epoch from a.holds_until)::text, a.xid::text,
                    extract(epoch from a.admitted_at)::text, extract(epoch from a.completed_at)::text,
                    (select encode(sha256(convert_to(string_agg(json_build_array(
                                f.position::text, t.name, t.columns::text, f.op::text, f.key, f.key_before, f.before, f.after,
                                f.unchanged::text, encode(f.secret_before, 'hex'), encode(f.secret_after, 'hex'))::text, ','
                                order by f.position), 'UTF8')), 'hex')
                     from countersign.effect f join countersign.tracked t on t.shape = f.shape where f.correlation_id = a.correlation_id)
                )::text, 'UTF8')) and a.id is not null then 'altered'
            end as what
        from unnest(e.record_ids, e.leaves) as sealed (id, leaf)
        full join (select * from countersign.record m where m.id between e.from_id and e.to_id) a on a.id = sealed.id
    ) compared
    where what is not null
    order by id limit 1
) wrong on true
order by e.no
