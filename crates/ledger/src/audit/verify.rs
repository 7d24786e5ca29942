//! Verification compares every record and event with its entry in the log, and the tree over the entries with the
//! signed checkpoints. PostgreSQL's built-in functions build the entries, by queries that are part of this binary. It
//! works in batches, so memory stays small.

use std::collections::BTreeMap;

use pg::Session;
use pg::value::text_array;
use tlog::{Frontier, Hash, tiles_for_root};

use super::checkpoints::{KeptCheckpoint, StoredCheckpoints, TrustedKeys, load_checkpoints, load_logs, load_newest};
use super::finding::{Discrepancy, VerifyFinding};
use super::tree::{LogState, hash, hash_list, tiles, unsigned};
use super::{Audit, ask, begin_snapshot, number, one_row, unreadable};
use crate::baseline::{ERASED_ENTRY, EVENT_ENTRY, RECORD_ENTRY};

/// What a verification has covered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub entries: u64,
    /// The number of records among them, including pruned ones.
    pub records: u64,
    pub pruned: u64,
    /// The number of pruned records of which no checkpoint covers the pruning: only the tables say that there was one.
    pub pruned_unproved: u64,
    /// The number of parts that erasures have taken values from.
    pub erased: u64,
    /// The number of entries that say so, and the index of the first of them.
    pub erasures: u64,
    pub first_erasure: u64,
    /// The number of these entries that no checkpoint covers.
    pub erasures_unproved: u64,
    /// The number of final records that are not in the log yet, and could not be verified.
    pub unsealed: i64,
    /// The number of records without an outcome.
    pub pending: i64,
    /// The number of stored checkpoints with a signature by a trusted key.
    pub checkpoints: usize,
    /// The number of stored checkpoints without such a signature, which prove nothing.
    pub ignored: usize,
    /// The size of the newest trusted checkpoint.
    pub signed: u64,
    /// The number of checkpoints that the auditor has kept elsewhere.
    pub kept: usize,
}

/// What prunings have removed, and the part of it for which a checkpoint covers none of them. $1 and $2: logs, and the
/// sizes of their checkpoints. An event that `prune_records` did not write removes nothing.
const REMOVED_SQL: &str = "\
    select coalesce(range_agg(p.ids), '{}')::text, \
        (coalesce(range_agg(p.ids), '{}') - coalesce(range_agg(p.ids) filter (where p.is_covered), '{}'))::text \
    from ( \
        select r.ids, exists ( \
            select from countersign.leaf l join unnest($1::integer[], $2::bigint[]) c (log_no, size) \
                on c.log_no = l.log_no and l.leaf_index < c.size where l.event_id = v.id) as is_covered \
        from countersign.event v cross join unnest(v.removed) r (ids) \
        where v.kind = 'prune' and cardinality(v.fields) = 6 \
          and v.fields[1] = 'person' and v.fields[3] = 'records' and v.fields[5] = 'made_before' \
          and v.fields[4] = (select sum(upper(o) - lower(o)) from unnest(v.removed) o)::text) p";
/// What erasures have taken. $1 and $2 as for [`REMOVED_SQL`].
const ERASED_SQL: &str = "\
    select coalesce(sum(cardinality(string_to_array(v.fields[8], ' '))), 0)::text, count(*)::text, coalesce(min(l.leaf_index), 0)::text, \
        count(*) filter (where not exists (select from unnest($1::integer[], $2::bigint[]) c (log_no, size) \
            where c.log_no = l.log_no and l.leaf_index < c.size))::text \
    from countersign.event v left join countersign.leaf l on l.event_id = v.id where v.kind = 'erase'";
const NODES_SQL: &str = "select n.level::text, n.node_index::text, encode(n.hash, 'hex') from countersign.tree_node n \
    where n.log_no = $1::integer";
const REST_SQL: &str = "\
    select (select count(*) from countersign.record r where r.id > (select coalesce(max(l.record_id), 0) from countersign.leaf l))::text, \
        (select count(*) from countersign.mutation a where a.status = 'pending')::text";
const REVERSALS_SQL: &str = include_str!("reversals.sql");
/// The number of leaves in one query, which takes about a second.
const BATCH: u64 = 16 * 256;

struct LogVerifier {
    log_no: i64,
    tree: Frontier,
    nodes: BTreeMap<(u32, u64), Hash>,
    /// The checkpoints by size. Several may have the same size.
    checkpoints: BTreeMap<u64, Vec<KeptCheckpoint>>,
}

/// The ids of records that prunings have removed, as `int8multirange`.
struct Removed {
    all: Option<String>,
    /// Those of which no checkpoint covers the pruning.
    unproved: Option<String>,
    /// The answer of [`ERASED_SQL`].
    erased: [Option<String>; 4],
}

/// The answer of `verify.sql` for one batch.
struct Batch {
    count: u64,
    last: u64,
    records: u64,
    pruned: u64,
    pruned_unproved: u64,
    hashes: Vec<Hash>,
    wrong: Option<VerifyFinding>,
}

type Outcome<T> = Result<Result<T, VerifyFinding>, pg::Error>;

impl Audit {
    /// Compares the whole ledger with its log, and the log with its own checkpoints and with those in `kept`, in one
    /// snapshot. Returns the first contradiction, if there is one.
    pub async fn verify(&self, trusted: &TrustedKeys, kept: &[KeptCheckpoint]) -> Outcome<Verified> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let outcome = verify_all(session, trusted, kept).await?;
        session.batch_execute("commit").await?;
        Ok(outcome)
    }

    /// Compares the log with its newest checkpoint and with those in `kept`, by the stored tree and without reading
    /// the entries.
    pub async fn compare(&self, kept: &[KeptCheckpoint]) -> Result<Option<VerifyFinding>, pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let log = LogState::load(session).await?;
        let own = load_newest(session, log.log_no).await?.map(|(_, checkpoint)| KeptCheckpoint::stored(checkpoint));
        let logs = load_logs(session).await?;
        let current = logs.last().and_then(|log| log.origin.clone());
        let kept = kept.iter().filter(|one| Some(&one.checkpoint.origin) == current.as_ref());
        for KeptCheckpoint { place, checkpoint } in kept.cloned().chain(own) {
            let (size, root) = (checkpoint.size, checkpoint.root);
            if size > log.size {
                return Ok(Some(VerifyFinding::TailRemoved { size, entries: log.size, place }));
            }
            // A full verification reports an incomplete tree.
            let set = tiles(session, log.log_no, tiles_for_root(size)).await?;
            if set.root(size).is_ok_and(|found| found != root) {
                return Ok(Some(VerifyFinding::Rewritten { size, place }));
            }
        }
        Ok(None)
    }

    /// Compares the newest `entries` entries of the log with their records and events. The counts in [`Verified`]
    /// cover these entries, except `entries`, which is the size of the log.
    pub async fn verify_recent(&self, entries: u32) -> Outcome<Verified> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let log = LogState::load(session).await?;
        let first = log.size.saturating_sub(entries.into());
        let mut verified = Verified { entries: log.size, ..Verified::default() };
        let removed = Removed::load(session, &[]).await?;
        let outcome = match compare_entries(session, log.log_no, first, &removed, &mut verified, |_| Ok(())).await? {
            Ok(next) if next != log.size => Ok(Err(VerifyFinding::EntryMissing(next))),
            Ok(_) => Ok(Ok(verified)),
            Err(finding) => Ok(Err(finding)),
        };
        session.batch_execute("commit").await?;
        outcome
    }
}

async fn verify_all(session: &mut Session, trusted: &TrustedKeys, kept: &[KeptCheckpoint]) -> Outcome<Verified> {
    let mut verified = Verified { kept: kept.len(), ..Verified::default() };
    let logs = load_logs(session).await?;
    let (mut by_log, mut is_forged) = (Vec::new(), false);
    for log in &logs {
        let StoredCheckpoints { trusted: mut checkpoints, others, is_newest_forged } =
            load_checkpoints(session, log.log_no, trusted).await?;
        if checkpoints.is_empty() && others > 0 {
            let why = "none of them is signed by a trusted key".to_owned();
            return Ok(Err(VerifyFinding::Checkpoint { place: "the checkpoints in the database".to_owned(), why }));
        }
        is_forged |= is_newest_forged;
        verified.checkpoints += checkpoints.len();
        verified.ignored += others;
        verified.signed = checkpoints.iter().map(|one| one.checkpoint.size).max().unwrap_or_default();
        checkpoints.extend(kept.iter().filter(|one| log.origin.as_ref() == Some(&one.checkpoint.origin)).cloned());
        by_log.push((log.log_no, checkpoints));
    }
    let removed = Removed::load(session, &by_log).await?;
    let [erased, erasures, first_erasure, erasures_unproved] = &removed.erased;
    verified.erased = unsigned(erased.as_ref())?;
    verified.erasures = unsigned(erasures.as_ref())?;
    verified.first_erasure = unsigned(first_erasure.as_ref())?;
    verified.erasures_unproved = unsigned(erasures_unproved.as_ref())?;
    for (log_no, checkpoints) in by_log {
        if let Err(finding) = verify_log(session, log_no, checkpoints, &removed, &mut verified).await? {
            return Ok(Err(finding));
        }
    }
    if let Some(row) = ask(session, REVERSALS_SQL, &[]).await?.into_iter().next() {
        let [wrong, write, undo] = one_row(vec![row])?;
        let is_marked = wrong.as_deref() == Some("forged");
        return Ok(Err(VerifyFinding::Reversal { write: write.unwrap_or_default(), undo, is_marked }));
    }
    let origins: Vec<_> = logs.iter().filter_map(|log| log.origin.as_deref()).collect();
    if let Some(foreign) = kept.iter().find(|one| !origins.contains(&one.checkpoint.origin.as_str())) {
        let why = format!("it is of the log {}, and this ledger has {}", foreign.checkpoint.origin, origins.join(", "));
        return Ok(Err(VerifyFinding::Checkpoint { place: foreign.place.clone(), why }));
    }
    // The last: the servers' login can store any text, which must not hide what else there is.
    if is_forged {
        let why = "neither a trusted key nor a key of the ledger has signed it".to_owned();
        return Ok(Err(VerifyFinding::Checkpoint { place: "the newest checkpoint in the database".to_owned(), why }));
    }
    let [unsealed, pending] = one_row(ask(session, REST_SQL, &[]).await?)?;
    (verified.unsealed, verified.pending) = (number(unsealed.as_ref())?, number(pending.as_ref())?);
    Ok(Ok(verified))
}

async fn verify_log(
    session: &mut Session,
    log_no: i64,
    checkpoints: Vec<KeptCheckpoint>,
    removed: &Removed,
    verified: &mut Verified,
) -> Outcome<()> {
    let mut nodes = BTreeMap::new();
    for row in ask(session, NODES_SQL, &[Some(log_no.to_string())]).await? {
        let [level, index, root] = one_row(vec![row])?;
        let level = u32::try_from(number(level.as_ref())?).map_err(|_| unreadable())?;
        nodes.insert((level, unsigned(index.as_ref())?), hash(root.as_deref().unwrap_or_default())?);
    }
    let mut by_size: BTreeMap<u64, Vec<KeptCheckpoint>> = BTreeMap::new();
    for one in checkpoints {
        by_size.entry(one.checkpoint.size).or_default().push(one);
    }
    let mut log = LogVerifier { log_no, tree: Frontier::default(), nodes, checkpoints: by_size };
    let before = verified.entries;
    let ended = compare_entries(session, log.log_no, 0, removed, verified, |hashes| log.append(hashes)).await?;
    verified.entries = before + log.tree.size();
    Ok(ended.and_then(|_| log.finish()))
}

/// Compares the entries from the index `next` on, batch by batch. Returns the index after the last one.
async fn compare_entries(
    session: &mut Session,
    log_no: i64,
    mut next: u64,
    removed: &Removed,
    verified: &mut Verified,
    mut append: impl FnMut(&[Hash]) -> Result<(), VerifyFinding>,
) -> Outcome<u64> {
    let sql = include_str!("verify.sql").replace("{record_entry}", RECORD_ENTRY).replace("{event_entry}", EVENT_ENTRY);
    let sql = sql.replace("{erased_entry}", ERASED_ENTRY);
    loop {
        let [log, from, most] = [log_no.to_string(), next.to_string(), BATCH.to_string()].map(Some);
        let params = [log, from, most, removed.all.clone(), removed.unproved.clone()];
        let batch = Batch::read(one_row(ask(session, &sql, &params).await?)?)?;
        if batch.count > 0 && batch.last + 1 != next + batch.count {
            return Ok(Err(VerifyFinding::EntryMissing(missing(session, log_no, next, batch.last).await?)));
        }
        if let Some(finding) = batch.wrong {
            return Ok(Err(finding));
        }
        if batch.count == 0 {
            return Ok(Ok(next));
        }
        if let Err(finding) = append(&batch.hashes) {
            return Ok(Err(finding));
        }
        next += batch.count;
        verified.records += batch.records;
        verified.pruned += batch.pruned;
        verified.pruned_unproved += batch.pruned_unproved;
    }
}

/// The first index from `next` to `last` that has no leaf.
async fn missing(session: &mut Session, log_no: i64, next: u64, last: u64) -> Result<u64, pg::Error> {
    let sql = "select min(n)::text from generate_series($2::bigint, $3::bigint) n \
        where not exists (select from countersign.leaf l where l.log_no = $1::integer and l.leaf_index = n)";
    let [index] =
        one_row(ask(session, sql, &[log_no.to_string(), next.to_string(), last.to_string()].map(Some)).await?)?;
    unsigned(index.as_ref())
}

impl Removed {
    async fn load(session: &mut Session, by_log: &[(i64, Vec<KeptCheckpoint>)]) -> Result<Self, pg::Error> {
        let sizes = by_log.iter().flat_map(|(log_no, checkpoints)| {
            checkpoints.iter().map(|one| one.checkpoint.size).max().map(|size| (log_no.to_string(), size.to_string()))
        });
        let (logs, sizes): (Vec<String>, Vec<String>) = sizes.unzip();
        let params = [Some(text_array(&logs)), Some(text_array(&sizes))];
        let [all, unproved] = one_row(ask(session, REMOVED_SQL, &params).await?)?;
        let erased = one_row(ask(session, ERASED_SQL, &params).await?)?;
        Ok(Self { all, unproved, erased })
    }
}

impl Batch {
    fn read(row: [Option<String>; 10]) -> Result<Self, pg::Error> {
        let [count, last, records, pruned, pruned_unproved, hashes, entry, id, correlation_id, what] = row;
        let wrong = match what.as_deref() {
            None => None,
            Some(what) => {
                let (id, entry) = (number(id.as_ref())?, unsigned(entry.as_ref())?);
                Some(match what.strip_prefix("event ") {
                    _ if what == "leaf altered" => VerifyFinding::EntryAltered(entry),
                    Some(what) => {
                        VerifyFinding::Event { id, entry, wrong: Discrepancy::parse(what).ok_or_else(unreadable)? }
                    }
                    None => {
                        let wrong = Discrepancy::parse(what).ok_or_else(unreadable)?;
                        VerifyFinding::Record { id, correlation_id, entry, wrong }
                    }
                })
            }
        };
        Ok(Self {
            count: unsigned(count.as_ref())?,
            last: unsigned(last.as_ref())?,
            records: unsigned(records.as_ref())?,
            pruned: unsigned(pruned.as_ref())?,
            pruned_unproved: unsigned(pruned_unproved.as_ref())?,
            hashes: hash_list(hashes.as_deref().unwrap_or_default())?,
            wrong,
        })
    }
}

impl LogVerifier {
    /// Adds the hashes of the next entries, and compares every node and checkpoint that they complete.
    fn append(&mut self, hashes: &[Hash]) -> Result<(), VerifyFinding> {
        for leaf in hashes {
            let Self { tree, nodes, .. } = self;
            let mut wrong = None;
            tree.append(*leaf, |height, index, root| {
                if height % 8 == 0 && height > 0 && nodes.remove(&(height / 8, index)) != Some(root) {
                    wrong.get_or_insert(VerifyFinding::Node { level: height / 8, index });
                }
            });
            if let Some(finding) = wrong {
                return Err(finding);
            }
            let size = self.tree.size();
            for kept in self.checkpoints.remove(&size).unwrap_or_default() {
                if kept.checkpoint.root != self.tree.root() {
                    return Err(VerifyFinding::Rewritten { size, place: kept.place });
                }
            }
        }
        Ok(())
    }

    /// Reports a checkpoint or a stored hash beyond the end of the log.
    fn finish(self) -> Result<(), VerifyFinding> {
        let entries = self.tree.size();
        let sizes = self.checkpoints.into_iter().filter(|(size, _)| *size > 0);
        if let Some((size, kept)) = sizes.into_iter().next() {
            let place = kept.into_iter().next().map(|one| one.place).unwrap_or_default();
            return Err(VerifyFinding::TailRemoved { size, entries, place });
        }
        match self.nodes.into_keys().next() {
            Some((level, index)) => Err(VerifyFinding::Node { level, index }),
            None => Ok(()),
        }
    }
}
