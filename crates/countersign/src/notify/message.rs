//! The body of a notice.

use ledger::{Notice, NoticeData};
use review::sentences;
use serde_json::json;
use types::visible;

use super::NoticeForm;

/// The body in this form, with a link to the proposal's page if `link_base` is set.
pub(super) fn body(notice: &Notice, form: NoticeForm, link_base: Option<&str>) -> String {
    let link = link_base.map(|base| format!("{base}{}", notice.data.proposal_id));
    match form {
        NoticeForm::Json => {
            let data = NoticeData { link, ..notice.data.clone() };
            let kind = format!("proposal.{}", notice.event);
            json!({"type": kind, "timestamp": notice.created_at, "data": data}).to_string()
        }
        NoticeForm::Slack => json!({"text": text(notice, link.as_deref())}).to_string(),
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
            let rows = data.rows.map(|rows| format!(", would change {}", sentences::rows(rows))).unwrap_or_default();
            let reason = data.reason.as_deref().map(|reason| format!(": {}", escaped(reason))).unwrap_or_default();
            format!("{tool} was proposed by {proposer}{rows} and waits for agreement{reason}")
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
