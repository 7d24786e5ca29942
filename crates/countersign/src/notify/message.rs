//! The body of a notice.

use ledger::{Notice, NoticeData};
use serde::Serialize;
use serde_json::json;
use types::{DatabaseLabel, visible};

use super::NoticeForm;

/// What a notice says of a proposal.
#[derive(Debug, Serialize)]
struct ProposalData<'a> {
    #[serde(flatten)]
    database: Option<&'a DatabaseLabel>,
    #[serde(flatten)]
    proposal: NoticeData,
}

/// The body in this form, with a link to the proposal's page if `link_base` is set, and the database if it has a name.
pub(super) fn body(
    notice: &Notice,
    form: NoticeForm,
    link_base: Option<&str>,
    database: Option<&DatabaseLabel>,
) -> String {
    let link = link_base.map(|base| format!("{base}{}", notice.data.proposal_id));
    match form {
        NoticeForm::Json => {
            let data = ProposalData { database, proposal: NoticeData { link, ..notice.data.clone() } };
            let kind = format!("proposal.{}", notice.event);
            json!({"type": kind, "timestamp": notice.created_at, "data": data}).to_string()
        }
        NoticeForm::Slack => {
            let place = database.map(|database| format!("{}: ", escaped(&database.to_string()))).unwrap_or_default();
            json!({"text": format!("{place}{}", text(notice, link.as_deref()))}).to_string()
        }
    }
}

/// One sentence and, with `link`, where to look.
fn text(notice: &Notice, link: Option<&str>) -> String {
    let data = &notice.data;
    let field = |text: &Option<String>| text.as_deref().map(escaped).unwrap_or_default();
    let tool = format!("{} ({})", escaped(&data.title), escaped(&data.tool));
    let proposer = match &data.actor {
        Some(actor) => format!("{}, {}", escaped(&data.account), escaped(actor)),
        None => escaped(&data.account),
    };
    // On the command line, PostgreSQL has verified the login.
    let is_login = data.decided_via.as_deref() == Some("command_line");
    let decider = field(if is_login { &data.decided_login } else { &data.decided_by });
    let sentence = match notice.event.as_str() {
        "proposed" => {
            let counts = data.counts.as_ref().map(|counts| format!(" ({})", review::count_line(counts)));
            let reason = data.reason.as_deref().map(|reason| format!(": {}", escaped(reason))).unwrap_or_default();
            format!("{tool} was proposed by {proposer}{} and waits for agreement{reason}", counts.unwrap_or_default())
        }
        "decided" => format!("{tool} of {proposer} was {} by {decider}", field(&data.decision)),
        "stale" => format!("{tool} of {proposer} is stale: nothing was written"),
        "expired" => format!("{tool} of {proposer} has expired: nothing was written"),
        event => format!("{tool} of {proposer} {event}: {}", field(&data.error_code)),
    };
    let id = data.proposal_id;
    match link {
        Some(link) => format!("{sentence}. <{}|{id}>", escaped(link)),
        None => format!("{sentence}. {id}"),
    }
}

/// Text in which Slack recognises no link, mention or format. Clients choose the names of accounts and actors.
fn escaped(text: &str) -> String {
    let escaped = visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace(['*', '~', '`', '|'], " ")
}
