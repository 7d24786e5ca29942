//! Verifying: every record and every entry is hashed again and compared (attacks AU04, AU05). The hashes are computed by
//! PostgreSQL's own functions from texts in this binary, entry by entry, so memory stays small.

use pg::Session;

use super::{Audit, Checkpoint, ask, number, one_row, unreadable};

/// A finding of the verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyFinding {
    /// A record is not what was sealed.
    Record {
        /// `record.id`.
        id: i64,
        /// Its receipt, if the record is there.
        correlation_id: Option<String>,
        /// The entry that covers it; `None` for an id below all of them.
        entry: Option<i64>,
        /// The kind of difference.
        wrong: Discrepancy,
    },
    /// There is no entry of this number, though there are later ones.
    EntryMissing(i64),
    /// The entry, or one before it, was altered: its hash is not that of its contents.
    EntryAltered(i64),
    /// The chain ends before an entry that a checkpoint names.
    TailRemoved {
        /// The checkpoint's entry.
        entry: i64,
    },
    /// An entry differs from the one in a checkpoint.
    Rewritten {
        /// The checkpoint's entry.
        entry: i64,
    },
}

/// How a record differs from the sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discrepancy {
    /// It says something else, or its effects do.
    Altered,
    /// The record is gone, and no pruning announces it.
    Missing,
    /// It was not there.
    Inserted,
    /// A pruning says that it was removed.
    Returned,
}

impl std::fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record { id, correlation_id, entry, wrong } => {
                write!(f, "record {id}")?;
                if let Some(correlation_id) = correlation_id {
                    write!(f, " (correlation id {correlation_id})")?;
                }
                f.write_str(match wrong {
                    Discrepancy::Altered => " was altered after it was sealed",
                    Discrepancy::Missing => " is missing: it was sealed and never pruned",
                    Discrepancy::Inserted => " was inserted after its range of ids was sealed",
                    Discrepancy::Returned => " is there, though a pruning says that it was removed",
                })?;
                entry.map_or(Ok(()), |entry| write!(f, " (entry {entry} of the chain)"))
            }
            Self::EntryMissing(no) => write!(f, "entry {no} of the chain is missing"),
            Self::EntryAltered(no) => write!(f, "entry {no} of the chain was altered: its hash does not fit"),
            Self::TailRemoved { entry } => {
                write!(f, "the chain ends before entry {entry}, which the checkpoint names: its tail was removed")
            }
            Self::Rewritten { entry } => {
                write!(f, "entry {entry} of the chain is not the one that the checkpoint names: history was rewritten")
            }
        }
    }
}

/// The numbers of verified entries and records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries of the chain.
    pub entries: i64,
    /// Records in them, pruned ones included.
    pub records: i64,
    /// Records that were pruned since.
    pub pruned: i64,
    /// Final records that are not in the chain yet: nothing can be said about them.
    pub unsealed: i64,
    /// Records that are not final.
    pub pending: i64,
}

const VERIFY_SQL: &str = include_str!("verify.sql");
const REMOVED_SQL: &str = "select coalesce(range_agg(r), '{}')::text from countersign.seal s, unnest(s.removed) r";
const BELOW_SQL: &str =
    "select a.id::text, a.correlation_id::text from countersign.record a where a.id < 1 order by a.id limit 1";
const REST_SQL: &str = "\
    select (select count(*) from countersign.record r where r.id > $1::bigint)::text, \
        (select count(*) from countersign.mutation a where a.status = 'pending')::text";
const ENTRY_SQL: &str = "select encode(s.hash, 'hex') from countersign.seal s where s.no = $1::bigint";
/// The start for comparing at least $1 records: the entry before, its hash, the last id of all entries up to it, and
/// the number of their records. Reads the last thousand entries.
const RECENT_SQL: &str = "\
    with last as ( \
        select s.no, s.from_id, sum(coalesce(cardinality(s.record_ids), 0)) over (order by s.no desc) \
            - coalesce(cardinality(s.record_ids), 0) as behind \
        from (select * from countersign.seal order by no desc limit 1000) s \
    ), first as (select coalesce(min(l.no), 1) - 1 as no from last l where l.behind < $1::bigint) \
    select f.no::text, \
        coalesce((select encode(s.hash, 'hex') from countersign.seal s where s.no = f.no), ''), \
        coalesce((select s.to_id from countersign.seal s where s.no <= f.no and s.to_id is not null \
                  order by s.no desc limit 1), 0)::text \
    from first f";
/// A thousand records each: one statement takes a second or so.
const ENTRIES_AT_ONCE: i64 = 20;

/// The progress along the chain.
#[derive(Debug, Default)]
struct VerifyProgress {
    verified: Verified,
    last_hash: String,
    last_id: i64,
}

impl Audit {
    /// Compares the whole ledger with the chain, in one snapshot: the first thing that is wrong, if anything is.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn verify(&self) -> Result<Result<Verified, VerifyFinding>, pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        session.begin(Some("isolation level repeatable read read only"), &[]).await.map_err(|failed| failed.error)?;
        let outcome = follow(session, VerifyProgress::default()).await?;
        session.batch_execute("commit").await?;
        Ok(outcome)
    }

    /// Compares the newest records with their seals: those of the last entries of the chain, at least `records` if there are so
    /// many. The hash of the entry before them is taken as it is. [`Verified`] counts what was compared; its `entries` is the
    /// number of the last entry.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn verify_recent(&self, records: u32) -> Result<Result<Verified, VerifyFinding>, pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        session.begin(Some("isolation level repeatable read read only"), &[]).await.map_err(|failed| failed.error)?;
        let [entries, hash, last_id] = one_row(ask(session, RECENT_SQL, &[Some(records.to_string())]).await?)?;
        let verified = Verified { entries: number(entries.as_ref())?, ..Verified::default() };
        let before =
            VerifyProgress { verified, last_hash: hash.unwrap_or_default(), last_id: number(last_id.as_ref())? };
        let outcome = follow(session, before).await?;
        session.batch_execute("commit").await?;
        Ok(outcome)
    }

    /// Compares the chain with a checkpoint that was kept elsewhere.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn compare(&self, checkpoint: &Checkpoint) -> Result<Option<VerifyFinding>, pg::Error> {
        let entry = checkpoint.entries;
        if entry == 0 {
            return Ok(None);
        }
        let rows = self.ask(ENTRY_SQL, &[Some(entry.to_string())]).await?;
        Ok(match rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten() {
            None => Some(VerifyFinding::TailRemoved { entry }),
            Some(hash) if hash != checkpoint.hash => Some(VerifyFinding::Rewritten { entry }),
            Some(_) => None,
        })
    }
}

/// Compares the entries after `progress`.
async fn follow(
    session: &mut Session,
    mut progress: VerifyProgress,
) -> Result<Result<Verified, VerifyFinding>, pg::Error> {
    if let Some(row) = ask(session, BELOW_SQL, &[]).await?.into_iter().next() {
        let [id, correlation_id] = one_row(vec![row])?;
        let id = number(id.as_ref())?;
        return Ok(Err(VerifyFinding::Record { id, correlation_id, entry: None, wrong: Discrepancy::Inserted }));
    }
    let [removed] = one_row(ask(session, REMOVED_SQL, &[]).await?)?;
    loop {
        let params = [
            Some(progress.verified.entries.to_string()),
            Some(ENTRIES_AT_ONCE.to_string()),
            Some(progress.last_hash.clone()),
            removed.clone(),
        ];
        let rows = ask(session, VERIFY_SQL, &params).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if let Err(finding) = progress.take(row)? {
                return Ok(Err(finding));
            }
        }
    }
    let [unsealed, pending] = one_row(ask(session, REST_SQL, &[Some(progress.last_id.to_string())]).await?)?;
    let (unsealed, pending) = (number(unsealed.as_ref())?, number(pending.as_ref())?);
    Ok(Ok(Verified { unsealed, pending, ..progress.verified }))
}

impl VerifyProgress {
    /// One row of `verify.sql`.
    fn take(&mut self, row: Vec<Option<String>>) -> Result<Result<(), VerifyFinding>, pg::Error> {
        let [no, hash, from, to, records, removed, removed_to, count_is_right, hash_is_right, id, correlation_id, what] =
            one_row(vec![row])?;
        let no = number(no.as_ref())?;
        if no != self.verified.entries + 1 {
            return Ok(Err(VerifyFinding::EntryMissing(self.verified.entries + 1)));
        }
        let is_true = |answer: Option<String>| answer.as_deref() == Some("t");
        // A range that does not follow the last one, or a pruning of records that were never sealed, hides something.
        let in_place = match &from {
            Some(_) => number(from.as_ref())? == self.last_id + 1,
            None => removed_to.is_some() && number(removed_to.as_ref())? <= self.last_id,
        };
        if !(is_true(hash_is_right) && is_true(count_is_right) && in_place) {
            return Ok(Err(VerifyFinding::EntryAltered(no)));
        }
        if let Some(what) = what {
            let wrong = match what.as_str() {
                "altered" => Discrepancy::Altered,
                "missing" => Discrepancy::Missing,
                "inserted" => Discrepancy::Inserted,
                "returned" => Discrepancy::Returned,
                _ => return Err(unreadable()),
            };
            return Ok(Err(VerifyFinding::Record { id: number(id.as_ref())?, correlation_id, entry: Some(no), wrong }));
        }
        self.verified.entries = no;
        self.verified.records += number(records.as_ref())?;
        self.verified.pruned += number(removed.as_ref())?;
        self.last_id = to.map_or(Ok(self.last_id), |to| number(Some(&to)))?;
        self.last_hash = hash.unwrap_or_default();
        Ok(Ok(()))
    }
}
