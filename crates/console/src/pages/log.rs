//! The verifiable log: its sealed entries, its signatures and its witnesses.

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use ledger::audit::{LogKey, SignatureState, WitnessState};
use types::visible;

use crate::frame::Frame;
use crate::message::{self, PageResult, render};
use crate::session::LoggedIn;
use crate::state::DatabaseState;

#[derive(Template)]
#[template(path = "log.html")]
struct Page<'a> {
    frame: Frame<'a>,
    ledger_id: String,
    signatures: SignatureState,
    /// The age of the newest signed checkpoint, such as `3 min`.
    age: String,
    keys: Vec<Key>,
    witnesses: Vec<WitnessLine>,
    note: Option<String>,
}

struct Key {
    vkey: String,
    is_retired: bool,
}

struct WitnessLine {
    name: String,
    url: String,
    state: String,
    is_late: bool,
}

pub(crate) async fn show(LoggedIn(person): LoggedIn, State(state): State<DatabaseState>) -> PageResult {
    let log = &state.database.records;
    let signatures = log.signatures().await?;
    let witnesses = log.witness_states().await?;
    Ok(render(&Page {
        frame: state.frame(&person),
        ledger_id: log.ledger_id().await?,
        age: age(signatures.age_s),
        keys: log.keys().await?.into_iter().map(key).collect(),
        witnesses: witnesses.iter().map(|witness| witness_line(witness, signatures.signed)).collect(),
        note: log.newest_checkpoint().await?.map(|note| visible_lines(&note)),
        signatures,
    }))
}

/// The newest signed checkpoint, in the form that witnesses and auditors accept.
pub(crate) async fn checkpoint(LoggedIn(_): LoggedIn, State(state): State<DatabaseState>) -> PageResult {
    Ok(match state.database.records.newest_checkpoint().await? {
        Some(note) => {
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
                (header::CONTENT_DISPOSITION, "attachment; filename=\"checkpoint\""),
            ];
            (headers, note.to_string()).into_response()
        }
        None => message::page(StatusCode::NOT_FOUND, "Not found", "No checkpoint of the log is signed yet."),
    })
}

fn key(key: LogKey) -> Key {
    Key { vkey: visible(&key.vkey), is_retired: key.is_retired }
}

fn witness_line(state: &WitnessState, signed: u64) -> WitnessLine {
    let (words, is_late) = match state.cosigned {
        None => ("has cosigned nothing yet".to_owned(), true),
        Some((size, age_s)) => (format!("has cosigned {size} entries, {} ago", age(age_s)), size < signed),
    };
    WitnessLine {
        name: visible(state.witness.key.name()),
        url: visible(state.witness.url.as_str()),
        state: words,
        is_late,
    }
}

fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
