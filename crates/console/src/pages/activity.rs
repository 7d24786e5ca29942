//! The recent writes by session, and the frozen accounts.

use askama::Template;
use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use ledger::FreezeScope;
use ledger::audit::SessionActivity;
use ledger::read::Error;
use review::sentences::short_id;
use serde::Deserialize;
use types::visible;

use super::undo::{OperatorSession, forbidden, lacks_privilege, operator};
use crate::frame::Frame;
use crate::message::{self, ErrorPage, PageResult, render};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::query_string;

#[derive(Template)]
#[template(path = "activity.html")]
struct Page<'a> {
    frame: Frame<'a>,
    freezes: Vec<Freeze>,
    sessions: Vec<Session>,
    may_freeze: bool,
    form: FreezeForm,
}

struct Freeze {
    kind: String,
    name: String,
    by: String,
    at: String,
    reason: String,
}

/// The recent writes of one session.
struct Session {
    account: String,
    actor: String,
    client: String,
    session: String,
    records: String,
    /// The form that undoes the writes of the session.
    undo: String,
    writes: String,
    failures: String,
    last_at: String,
    freeze: String,
    /// Whether a freeze is of the account or of the actor: it is not of the session alone.
    frozen: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FreezeForm {
    kind: String,
    name: String,
    reason: String,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Query(form): Query<FreezeForm>,
) -> PageResult {
    let freezes = state.database.freezes.current().await?.into_iter().map(freeze_line).collect();
    let sessions = state.database.records.activity().await?.into_iter().map(session_line).collect();
    let may_freeze = operator(&state.database, &person).is_ok();
    Ok(render(&Page { frame: state.frame(&person), freezes, sessions, may_freeze, form }))
}

pub(crate) async fn freeze(
    OperatorSession { person, freezes, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Form(form): Form<FreezeForm>,
) -> PageResult {
    let scope = form.scope()?;
    if !state.database.freezes.is_known(&scope).await? {
        let text = format!("No recent write is of {} \"{}\". Nothing was frozen.", form.kind, visible(&form.name));
        return Ok(message::page(StatusCode::CONFLICT, "Not done", &text));
    }
    let reason = Some(form.reason.trim()).filter(|reason| !reason.is_empty());
    freezes.freeze(&scope, &person.name, reason).await.map_err(refused)?;
    Ok(Redirect::to(&state.database.path("/activity")).into_response())
}

pub(crate) async fn unfreeze(
    OperatorSession { person, freezes, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Form(form): Form<FreezeForm>,
) -> PageResult {
    Ok(if freezes.unfreeze(&form.scope()?, &person.name).await.map_err(refused)? {
        Redirect::to(&state.database.path("/activity")).into_response()
    } else {
        message::page(StatusCode::CONFLICT, "Not done", "This is not frozen any more. Nothing was changed.")
    })
}

impl FreezeForm {
    fn scope(&self) -> PageResult<FreezeScope> {
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        let scope = match self.kind.as_str() {
            "account" => name.map(FreezeScope::Account),
            "actor" => name.map(FreezeScope::Actor),
            "all" => Some(FreezeScope::All),
            _ => None,
        };
        let text = "Give the account or the actor whose writes are meant, or choose all. Nothing was changed.";
        Ok(scope.ok_or_else(|| message::page(StatusCode::BAD_REQUEST, "Not done", text))?)
    }
}

fn refused(error: Error) -> ErrorPage {
    if !lacks_privilege(&error) {
        return error.into();
    }
    tracing::warn!(%error, "the login of operator_url lacks a right");
    forbidden("The console's login for freezing has not the role countersign_operator.").into()
}

fn freeze_line(freeze: ledger::Freeze) -> Freeze {
    Freeze {
        kind: visible(&freeze.kind),
        by: visible(&freeze.frozen_by),
        at: freeze.frozen_at,
        reason: freeze.reason.as_deref().map(visible).unwrap_or_default(),
        // The form posts the name back.
        name: freeze.name,
    }
}

fn session_line(session: SessionActivity) -> Session {
    let text = |text: &Option<String>| text.as_deref().map(visible).unwrap_or_default();
    let (kind, name) = match &session.actor {
        Some(actor) => ("actor", actor),
        None => ("account", &session.account_id),
    };
    let freeze = query_string([("kind", Some(kind.to_owned())), ("name", Some(name.clone()))]);
    let account = visible(&session.account_id);
    let (actor, client, id) = (text(&session.actor), text(&session.client_name), text(&session.session_id));
    let fields = [("account", Some(session.account_id)), ("actor", session.actor), ("session", session.session_id)];
    let undo = fields.iter().cloned().chain([("from", Some("7d".to_owned()))]);
    Session {
        account,
        actor,
        client,
        session: short_id(&id),
        undo: query_string(undo),
        records: query_string(fields),
        writes: session.writes.to_string(),
        failures: session.failures.to_string(),
        last_at: session.last_at,
        freeze,
        frozen: kind,
    }
}
