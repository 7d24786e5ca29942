//! Changes of proposals, for somebody who watches.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use types::{Failure, ProposalId};

use super::proposal::ProposalSummary;
use super::state::ProposalStatus;
use super::{LINE_SQL, Proposals};

/// Open proposals, those that were open when they were last seen, and those that ended since: each by an index.
const CHANGED_SQL: &str = "where p.status in ('pending', 'confirmed') or p.proposal_id = any ($1::uuid[]) \
    or p.status in ('rejected', 'expired') and p.completed_at > clock_timestamp() - make_interval(secs => $2::double precision) \
    or p.status in ('executed', 'failed', 'stale') \
       and p.completed_at > clock_timestamp() - make_interval(secs => $2::double precision) \
    order by p.id desc limit 1000";

/// A change may be committed this long after the time that it has.
const MARGIN: Duration = Duration::from_secs(60);

/// What was seen of a proposal.
type Seen = (ProposalStatus, usize);

/// The state of somebody who watches.
#[derive(Debug, Default)]
pub struct ProposalWatch {
    seen: HashMap<ProposalId, Seen>,
    looked_at: Option<Instant>,
}

impl Proposals {
    /// The proposals that are new or have changed since the last look, the oldest first. The first look has those that are
    /// open. It sees the newest 1000.
    ///
    /// # Errors
    /// The ledger cannot be read. The next look has what this one would have had.
    pub async fn changes(&self, watch: &mut ProposalWatch) -> Result<Vec<ProposalSummary>, Failure> {
        let now = Instant::now();
        let since = watch.looked_at.map_or(Duration::ZERO, |before| now.duration_since(before)) + MARGIN;
        let is_open = |status: ProposalStatus| matches!(status, ProposalStatus::Pending | ProposalStatus::Confirmed);
        let open = watch.seen.iter().filter(|(_, (status, _))| is_open(*status)).map(|(id, _)| id.to_string());
        let params =
            [Some(format!("{{{}}}", open.collect::<Vec<_>>().join(","))), Some(since.as_secs_f64().to_string())];
        let mut found: Vec<ProposalSummary> = self.read(LINE_SQL, CHANGED_SQL, &params).await?;
        found.reverse();
        let is_first = watch.looked_at.replace(now).is_none();
        let before = std::mem::take(&mut watch.seen);
        let state = |proposal: &ProposalSummary| (proposal.status, proposal.approved_by.len());
        watch.seen = found.iter().map(|proposal| (proposal.proposal_id, state(proposal))).collect();
        found.retain(|proposal| {
            let is_known = before.get(&proposal.proposal_id) == Some(&state(proposal));
            !is_known && (!is_first || is_open(proposal.status))
        });
        Ok(found)
    }
}
