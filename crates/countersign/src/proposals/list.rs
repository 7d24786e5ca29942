//! `countersign proposals list`.

use ledger::proposals::{ProposalFilter, ProposalLine};

use super::args::ListArgs;
use super::{open, refused};
use crate::settings::Settings;
use crate::terminal::{say, width};
use crate::text::{Side, json_line, table, to_the_second};

pub(crate) async fn run(arguments: ListArgs, settings: &Settings) -> anyhow::Result<()> {
    let filter = ProposalFilter { account: arguments.account, status: arguments.status, limit: arguments.limit };
    let found = open(settings).await?.proposals().list(&filter).await.map_err(|failure| refused(&failure))?;
    if arguments.json {
        for proposal in &found {
            say(&json_line(&serde_json::to_value(proposal)?));
        }
    } else if found.is_empty() {
        say("No proposals.");
    } else {
        let heading = ["UNTIL", "STATE", "TIER", "PROPOSAL ID", "TOOL", "ACCOUNT", "WHAT"];
        let heading = heading.map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(heading).chain(found.iter().map(row)).collect();
        table(&[Side::Left; 7], &rows, width()).iter().for_each(|line| say(line));
    }
    Ok(())
}

fn row(proposal: &ProposalLine) -> Vec<String> {
    vec![
        to_the_second(&proposal.expires_at),
        proposal.status.as_str().to_owned(),
        proposal.tier.as_str().to_owned(),
        proposal.proposal_id.to_string(),
        contract::visible(&proposal.tool_name),
        contract::visible(proposal.account_id.as_str()),
        contract::visible(&proposal.description),
    ]
}
