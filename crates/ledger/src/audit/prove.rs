//! Proofs that the log contains the entry of a record, and that one checkpoint extends another.

use pg::Session;
use tlog::{Checkpoint, CheckpointRequest, EntryProof, Hash, SignedNote, tiles_for_consistency, tiles_for_inclusion};
use types::CorrelationId;

use super::checkpoints::load_newest;
use super::tree::{tiles, unsigned};
use super::{Audit, ask, number, one_row};

/// The reason why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(
        "there is no final record with the correlation id {0}: it was never given out, is still pending, or was pruned before it was sealed"
    )]
    Unknown(CorrelationId),
    #[error("the record is not in the log yet: `countersign audit seal` seals it")]
    Unsealed,
    #[error(
        "no signed checkpoint covers entry {0} of the log yet: `countersign audit seal` signs one, where the signing key is"
    )]
    Unsigned(u64),
    #[error("the log is damaged ({0}): `countersign audit verify` names what is wrong")]
    Damaged(String),
    /// The checkpoints belong to different logs, or the old one is larger than the new one.
    #[error("{0}")]
    Checkpoints(String),
}

const LEAF_SQL: &str = "select l.log_no::text, l.leaf_index::text, l.entry from countersign.leaf l ";
const OF_RECORD: &str = "where l.record_id = (select r.id from countersign.record r where r.correlation_id = $1::uuid)";
/// Finds the entry of a pruned record by its text, since only the entry remains.
const OF_ENTRY: &str =
    "where l.record_id is not null and strpos(l.entry, E'\\ncorrelation_id ' || $1 || E'\\n') > 0 limit 1";
const IS_FINAL_SQL: &str = "select from countersign.record r where r.correlation_id = $1::uuid";
const LOG_SQL: &str = "\
    select k.log_no::text, (select count(*) from countersign.leaf l where l.log_no = k.log_no)::text \
    from countersign.log_key k where split_part(k.vkey, '+', 1) = $1 limit 1";

impl Audit {
    /// Proves that the log contains the entry of a record, in the tree of its newest checkpoint. This works for
    /// pruned records, too.
    pub async fn prove(&self, id: CorrelationId) -> Result<EntryProof, ProveError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let mut rows = Vec::new();
        for condition in [OF_RECORD, OF_ENTRY] {
            if rows.is_empty() {
                rows = ask(session, &[LEAF_SQL, condition].concat(), &[Some(id.to_string())]).await?;
            }
        }
        if rows.is_empty() {
            let is_final = !ask(session, IS_FINAL_SQL, &[Some(id.to_string())]).await?.is_empty();
            return Err(if is_final { ProveError::Unsealed } else { ProveError::Unknown(id) });
        }
        let [log_no, index, entry] = one_row(rows)?;
        let (log_no, index) = (number(log_no.as_ref())?, unsigned(index.as_ref())?);
        let newest = load_newest(session, log_no).await?.filter(|(_, checkpoint)| checkpoint.size > index);
        let (note, Checkpoint { size, .. }) = newest.ok_or(ProveError::Unsigned(index))?;
        let set = tiles(session, log_no, tiles_for_inclusion(index, size)).await?;
        let hashes = set.inclusion_proof(index, size).map_err(|error| ProveError::Damaged(error.to_string()))?;
        Ok(EntryProof { entry: entry.unwrap_or_default().into_bytes(), index, hashes, checkpoint: note })
    }

    /// Proves that the checkpoint `new` extends `old`, in the form that witnesses accept. The signatures are not
    /// verified.
    pub async fn prove_consistency(&self, old: &SignedNote, new: &SignedNote) -> Result<CheckpointRequest, ProveError> {
        let read = |note: &SignedNote| {
            note.text().parse::<Checkpoint>().map_err(|error| ProveError::Checkpoints(error.to_string()))
        };
        let (old, of_new) = (read(old)?, read(new)?);
        if old.origin != of_new.origin {
            let why = format!("the checkpoints are of different logs: {} and {}", old.origin, of_new.origin);
            return Err(ProveError::Checkpoints(why));
        }
        if old.size > of_new.size {
            return Err(ProveError::Checkpoints(format!(
                "the old checkpoint is of {} entries, and the new one of {}",
                old.size, of_new.size
            )));
        }
        let mut lease = self.acquire().await?;
        let proof = consistency(lease.session(), &old, of_new.size).await?;
        Ok(CheckpointRequest { old_size: old.size, proof, checkpoint: new.clone() })
    }
}

/// The proof that the tree of size `new` extends a checkpoint.
pub(super) async fn consistency(session: &mut Session, old: &Checkpoint, new: u64) -> Result<Vec<Hash>, ProveError> {
    let rows = ask(session, LOG_SQL, &[Some(old.origin.clone())]).await?;
    if rows.is_empty() {
        return Err(ProveError::Checkpoints(format!("this ledger has no log {}", old.origin)));
    }
    let [log_no, size] = one_row(rows)?;
    if unsigned(size.as_ref())? < new {
        return Err(ProveError::Checkpoints(format!(
            "the log has {} entries, and the checkpoint is of {new}",
            size.unwrap_or_default()
        )));
    }
    let set = tiles(session, number(log_no.as_ref())?, tiles_for_consistency(old.size, new)).await?;
    set.consistency_proof(old.size, new).map_err(|error| ProveError::Damaged(error.to_string()))
}
