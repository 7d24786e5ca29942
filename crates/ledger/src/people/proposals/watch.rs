//! Reports changes of proposals to a client that polls.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use types::{Failure, ProposalId};

use super::proposal::ProposalSummary;
use super::state::ProposalStatus;
use super::{LINE_SQL, Proposals};

/// Finds three kinds of proposals, each by an index: open ones, ones that were open at the last poll, and ones that
/// have ended since.
const CHANGED_SQL: &str = "where p.status in ('pending', 'confirmed') or p.proposal_id = any ($1::uuid[]) \
    or p.status in ('rejected', 'expired') and p.completed_at > clock_timestamp() - make_interval(secs => $2::double precision) \
    or p.status in ('executed', 'failed', 'stale') \
       and p.completed_at > clock_timestamp() - make_interval(secs => $2::double precision) \
    order by p.id desc limit 1000";

/// A change may become visible this long after its timestamp, when its transaction commits.
const MARGIN: Duration = Duration::from_secs(60);

/// The last reported state of a proposal.
type Seen = (ProposalStatus, usize, usize);

/// The state of one client that polls.
#[derive(Debug, Default)]
pub struct ProposalWatch {
    seen: HashMap<ProposalId, Seen>,
    looked_at: Option<Instant>,
}

impl Proposals {
    /// The proposals that are new or have changed since the last call, the oldest first, at most the newest 1000. The
    /// first call returns the open ones.
    ///
    /// # Errors
    /// The ledger cannot be read. The next call returns what this one would have returned.
    pub async fn changes(&self, watch: &mut ProposalWatch) -> Result<Vec<ProposalSummary>, Failure> {
        let now = Instant::now();
        let since = watch.looked_at.map_or(Duration::ZERO, |before| now.duration_since(before)) + MARGIN;
        let is_open = |status: ProposalStatus| matches!(status, ProposalStatus::Pending | ProposalStatus::Confirmed);
        let open = watch.seen.iter().filter(|(_, (status, _, _))| is_open(*status)).map(|(id, _)| id.to_string());
        let params =
            [Some(format!("{{{}}}", open.collect::<Vec<_>>().join(","))), Some(since.as_secs_f64().to_string())];
        let mut found: Vec<ProposalSummary> = self.read(LINE_SQL, CHANGED_SQL, &params).await?;
        found.reverse();
        let is_first = watch.looked_at.replace(now).is_none();
        let before = std::mem::take(&mut watch.seen);
        let state =
            |proposal: &ProposalSummary| (proposal.status, proposal.approved_by.len(), proposal.questions.len());
        watch.seen = found.iter().map(|proposal| (proposal.proposal_id, state(proposal))).collect();
        found.retain(|proposal| {
            let is_known = before.get(&proposal.proposal_id) == Some(&state(proposal));
            !is_known && (!is_first || is_open(proposal.status))
        });
        Ok(found)
    }
}
