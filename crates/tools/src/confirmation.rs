//! Where a proposal of tier `confirm` is confirmed: in the client, whose user is asked or whose agent may, or by a person outside
//! of it.

use ledger::proposals::Proposal;
use review::sentences::short_id;
use types::Tier;

use crate::services::{ConsoleLinks, Services};
use crate::tool::Call;

#[derive(Debug, Clone)]
pub(crate) struct Confirmation {
    /// The URLs of the console's pages, if there is a console.
    console: Option<ConsoleLinks>,
    /// Whether the agent may confirm where its client cannot ask.
    by_agent: bool,
}

impl Confirmation {
    pub(crate) fn new(services: &Services) -> Self {
        Self { console: services.console.clone(), by_agent: services.agent_confirms }
    }

    /// Whether `confirm_proposal` may confirm in this call: the client asks its user, or lets the agent.
    pub(crate) const fn is_in_client(&self, call: &Call) -> bool {
        call.asks_user || self.by_agent
    }

    /// Whether a person has to decide on the proposal outside of the client of this call.
    pub(crate) fn is_for_person(&self, proposal: &Proposal, call: &Call) -> bool {
        let has_tool = call.tools.info("confirm_proposal").is_some();
        proposal.tier == Tier::Approve || !has_tool || !self.is_in_client(call)
    }

    /// The console's pages, if there is a console.
    pub(crate) const fn console(&self) -> Option<&ConsoleLinks> {
        self.console.as_ref()
    }

    /// How a person confirms what the client cannot ask about.
    pub(crate) fn by_person(&self, proposal: &Proposal) -> String {
        let id = proposal.proposal_id.to_string();
        let page = self.console().map(|console| format!(", or at {}", console.proposal(&id))).unwrap_or_default();
        let id = short_id(&id);
        format!(
            "A person confirms it outside of this conversation: tell the user `countersign proposals approve {id}`{page}."
        )
    }
}
