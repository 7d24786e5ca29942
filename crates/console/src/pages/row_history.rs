//! The recorded changes of one row of a tracked table and who made them.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ledger::audit::RowError;
use review::RowKey;
use serde::Deserialize;
use serde_json::Value;
use types::{RowHistoryEntry, visible};

use crate::database::ConsoleDatabase;
use crate::frame::Frame;
use crate::message::{self, render};
use crate::rows::{self, Effect};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::proposer;

/// The maximum number of changes on a page.
const MAX_CHANGES: u32 = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RowQuery {
    table: String,
    /// `7`, or `order_id=7, line=2` for a key of several columns.
    key: String,
}

#[derive(Template)]
#[template(path = "row_history.html")]
struct Page<'a> {
    frame: Frame<'a>,
    query: &'a RowQuery,
    changes: Vec<Change>,
    was_asked: bool,
    problem: Option<String>,
}

struct Change {
    at: String,
    /// The record of the change; `None` if it was made outside of countersign.
    record: Option<(String, String)>,
    by: String,
    effect: Effect,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Query(query): Query<RowQuery>,
) -> Response {
    let was_asked = !query.table.trim().is_empty() && !query.key.trim().is_empty();
    let mut page = Page { frame: state.frame(&person), query: &query, changes: Vec::new(), was_asked, problem: None };
    if !was_asked {
        return render(&page);
    }
    match changes(&state.database, &query).await {
        Ok(changes) => {
            page.changes = changes;
            render(&page)
        }
        Err(RowError::Database(error)) if error.server_error().is_none() => message::unavailable(&error),
        Err(error) => {
            page.problem = Some(format!("{}.", visible(&error.to_string())));
            (StatusCode::BAD_REQUEST, render(&page)).into_response()
        }
    }
}

async fn changes(database: &ConsoleDatabase, query: &RowQuery) -> Result<Vec<Change>, RowError> {
    // The key is not empty.
    let key = RowKey::parse_typed(&query.key).map(|key| key.0).unwrap_or_default();
    let row = database.records.tracked_row(query.table.trim(), &key).await?;
    Ok(database.records.row(&row, MAX_CHANGES).await?.iter().map(one).collect())
}

fn one(change: &RowHistoryEntry<Value>) -> Change {
    let text = |text: &Option<String>| text.as_deref().map(visible).unwrap_or_default();
    Change {
        at: text(&change.changed_at),
        by: match change.correlation_id {
            Some(_) => proposer(change.actor.as_deref(), change.account_id.as_deref().unwrap_or_default()),
            None => format!("outside countersign, {}", text(&change.origin)),
        },
        record: change.correlation_id.map(|id| (id.to_string(), text(&change.tool_name))),
        effect: rows::effect(&change.effect),
    }
}
