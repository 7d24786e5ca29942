//! The body of a notice.

use ledger::Notice;
use serde_json::{Value, json};
use types::visible;

use super::NoticeForm;

/// The body in this form, with a link if there are pages of proposals.
pub(super) fn body(notice: &Notice, form: NoticeForm, link_base: Option<&str>) -> String {
    let link = link_base.zip(notice.data.get("proposal_id").and_then(Value::as_str));
    let link = link.map(|(base, id)| format!("{base}{id}"));
    match form {
        NoticeForm::Json => {
            let mut data = notice.data.clone();
            data.extend(link.map(|link| ("link".to_owned(), link.into())));
            let kind = format!("proposal.{}", notice.event);
            json!({"type": kind, "timestamp": notice.created_at, "data": data}).to_string()
        }
        NoticeForm::Slack => json!({"text": text(notice, link.as_deref())}).to_string(),
    }
}

/// One sentence, and where to look.
fn text(notice: &Notice, link: Option<&str>) -> String {
    let field = |key: &str| notice.data.get(key).and_then(Value::as_str).map(escaped);
    let tool = field("tool").unwrap_or_default();
    let proposer = [field("account"), field("actor")].into_iter().flatten().collect::<Vec<_>>().join(", ");
    // On the command line the login is what PostgreSQL has verified.
    let is_login = notice.data.get("decided_via").and_then(Value::as_str) == Some("command_line");
    let decider = field(if is_login { "decided_login" } else { "decided_by" }).unwrap_or_default();
    let sentence = match notice.event.as_str() {
        "proposed" => format!("{tool} was proposed by {proposer} and waits for agreement"),
        "decided" => format!("{tool} of {proposer} was {} by {decider}", field("decision").unwrap_or_default()),
        "stale" => format!("{tool} of {proposer} is stale: nothing was written"),
        "expired" => format!("{tool} of {proposer} has expired: nothing was written"),
        event => format!("{tool} of {proposer} {event}: {}", field("error_code").unwrap_or_default()),
    };
    let id = field("proposal_id").unwrap_or_default();
    match link {
        Some(link) => format!("{sentence}. <{}|{id}>", escaped(link)),
        None => format!("{sentence}. {id}"),
    }
}

/// Text in which Slack reads no link, mention or format. Names of accounts and actors are chosen by clients.
fn escaped(text: &str) -> String {
    let escaped = visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace(['*', '~', '`', '|'], " ")
}
