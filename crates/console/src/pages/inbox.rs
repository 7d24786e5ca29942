//! The pending proposals, and those that were decided recently: of one database, or of all.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use http_server::HttpConnection;
use ledger::console::ConsolePerson;
use ledger::proposals::{OutlinedProposal, not_found};
use ledger::schema_changes::Loaded;
use review::ago::ago;
use types::{Failure, ProposalId, Tier, visible};

use super::decided::{Decided, DecidedQuery, can_decide};
use crate::database::{ConsoleDatabase, DatabaseError};
use crate::frame::{self, Frame};
use crate::message::{PageResult, render};
use crate::session::{LoggedIn, to_login, token};
use crate::state::{Console, DatabaseState};
use crate::text::{params, proposer};

/// The maximum number of pending and of ended proposals on the page.
const MAX_PROPOSALS: usize = 200;
const ENDED: usize = 30;

/// The maximum number of schema changes on the page.
const MAX_CHANGES: u32 = 50;

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox<'a> {
    frame: Frame<'a>,
    /// What was decided just before.
    decided: Option<Decided>,
    /// The databases of the console, if the page is about several.
    databases: Vec<DatabaseLine>,
    /// The proposals that wait for a decision of this person.
    waiting: Vec<WaitingLine>,
    /// Those that wait for somebody else.
    others: Vec<WaitingLine>,
    changes: Vec<ChangeLine>,
    ended: Vec<Line>,
    /// Whether there are more proposals than are shown.
    is_cut: bool,
}

/// A database in the list of all.
struct DatabaseLine {
    name: Name,
    /// Whether the person has to log in there.
    is_closed: bool,
    state: String,
}

/// The name of a database, with a link to its pages.
struct Name {
    path: String,
    text: String,
    class: &'static str,
}

/// A proposal that waits.
struct WaitingLine {
    line: Line,
    /// Whether this person can approve it.
    can_decide: bool,
    expires_at: String,
    /// Its risks, each with its class of colours and in a few words.
    marks: Vec<(&'static str, String)>,
    /// The number of questions that reviewers have asked.
    questions: usize,
    /// The number of rows; `None` if the write was not tried.
    rows: Option<u64>,
    time_left: String,
}

/// A schema change that waits.
struct ChangeLine {
    path: String,
    database: Option<Name>,
    reason: String,
    by: String,
    at: String,
    status: &'static str,
}

/// A proposal in a list.
struct Line {
    path: String,
    /// Its database, in a list of several.
    database: Option<Name>,
    what: String,
    /// The beginning of the parameters.
    params: String,
    by: String,
    at: String,
    status: &'static str,
    /// Whether the agent's own user decides, in the client.
    is_for_account: bool,
}

/// The proposals and the open schema changes of one database.
struct Proposals {
    waiting: Vec<OutlinedProposal>,
    changes: Vec<Loaded>,
    ended: Vec<OutlinedProposal>,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Query(decided): Query<DecidedQuery>,
) -> PageResult {
    let mut page = Inbox::new(state.frame(&person));
    page.decided = decided.proposal(&state).await?;
    page.add(&state.database, &person, &proposals(&state.database).await?);
    Ok(page.into_response())
}

/// The proposals of every database where the person is logged in.
pub(crate) async fn show_all(
    State(console): State<Arc<Console>>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    uri: Uri,
    headers: HeaderMap,
) -> PageResult {
    let answers = ask_each(&console, &connection, &uri, &headers, proposals).await?;
    let person = answers.iter().find_map(|answer| Some(answer.as_ref().ok()?.as_ref()?.0.name.clone()));
    let mut page = Inbox::new(Frame { person: person.as_deref(), has_several: true, ..Frame::default() });
    for (database, answer) in console.databases.iter().zip(&answers) {
        let state = match answer {
            Ok(Some((person, proposals))) => {
                page.add(database, person, proposals);
                match proposals.waiting.len() {
                    0 => "nothing waits".to_owned(),
                    1 => "1 waits".to_owned(),
                    count if count > MAX_PROPOSALS => format!("more than {MAX_PROPOSALS} wait"),
                    count => format!("{count} wait"),
                }
            }
            Ok(None) => "you are not logged in there".to_owned(),
            Err(error) if error.is_silence() => "does not answer".to_owned(),
            Err(_) => "is not used: the log of the console has the reason".to_owned(),
        };
        let is_closed = matches!(answer, Ok(None));
        page.databases.extend(name(database).map(|name| DatabaseLine { name, is_closed, state }));
    }
    Ok(page.into_response())
}

/// Redirects to the page of a proposal, whichever database has it.
pub(crate) async fn find(
    State(console): State<Arc<Console>>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    uri: Uri,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> PageResult {
    let id = ProposalId::parse(&id).ok_or_else(not_found)?;
    let answers = ask_each(&console, &connection, &uri, &headers, |database| database.proposals.get(None, id)).await?;
    let owner = console.databases.iter().zip(&answers).find(|(_, answer)| matches!(answer, Ok(Some((_, Some(_))))));
    if let Some((database, _)) = owner {
        return Ok(Redirect::to(&database.path(format_args!("/proposals/{id}"))).into_response());
    }
    if answers.iter().any(|answer| matches!(answer, Ok(None))) {
        return Err(to_login(&uri).into());
    }
    let error = answers.into_iter().find_map(Result::err);
    Err(error.map_or_else(|| not_found().into(), Into::into))
}

/// The person in a database, and what it answers; `None` if they are not logged in there.
type Answer<T> = Result<Option<(ConsolePerson, T)>, DatabaseError>;

/// What each database answers to the person of the request.
///
/// # Errors
/// The person is logged in nowhere, or no database answers.
async fn ask_each<'a, T, F: Future<Output = Result<T, Failure>>>(
    console: &'a Console,
    connection: &HttpConnection,
    uri: &Uri,
    headers: &HeaderMap,
    question: impl Fn(&'a ConsoleDatabase) -> F,
) -> PageResult<Vec<Answer<T>>> {
    let token = token(headers).ok_or_else(|| to_login(uri))?;
    let (token, question) = (&token, &question);
    let ask = |database: &'a ConsoleDatabase| async move {
        match database.sessions.find(token).await? {
            Some(session) => Ok::<_, DatabaseError>(Some((session.person, question(database).await?))),
            None => Ok(None),
        }
    };
    let answers = console.ask_each(ask).await;
    if answers.iter().any(|answer| matches!(answer, Ok(Some(_)))) {
        connection.mark_authenticated();
        return Ok(answers);
    }
    if answers.iter().any(Result::is_ok) {
        return Err(to_login(uri).into());
    }
    answers.into_iter().find_map(Result::err).map_or_else(|| Ok(Vec::new()), |error| Err(error.into()))
}

async fn proposals(database: &ConsoleDatabase) -> Result<Proposals, Failure> {
    let waiting = database.proposals.waiting(MAX_PROPOSALS as u32 + 1).await?;
    let changes = database.schema_changes.open(MAX_CHANGES).await?;
    Ok(Proposals { waiting, changes, ended: database.proposals.lately_ended(ENDED as u32).await? })
}

impl<'a> Inbox<'a> {
    fn new(frame: Frame<'a>) -> Self {
        Self {
            frame,
            decided: None,
            databases: Vec::new(),
            waiting: Vec::new(),
            others: Vec::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            is_cut: false,
        }
    }

    fn add(&mut self, database: &ConsoleDatabase, person: &ConsolePerson, proposals: &Proposals) {
        let (now, is_named) = (SystemTime::now(), self.frame.database.is_none());
        self.waiting.extend(proposals.waiting.iter().map(|one| waiting_line(one, database, person, is_named, now)));
        self.changes.extend(proposals.changes.iter().map(|one| change_line(one, database, is_named)));
        self.ended.extend(proposals.ended.iter().map(|one| line(one, database, is_named)));
    }

    /// Of those that wait first what the person can decide, the most urgent first; then the newest of the others.
    fn into_response(mut self) -> Response {
        self.waiting
            .sort_by(|one, other| (!one.can_decide, &one.expires_at).cmp(&(!other.can_decide, &other.expires_at)));
        self.ended.sort_by(|one, other| other.at.cmp(&one.at));
        self.is_cut = self.waiting.len() > MAX_PROPOSALS;
        self.waiting.truncate(MAX_PROPOSALS);
        self.others = self.waiting.split_off(self.waiting.partition_point(|one| one.can_decide));
        self.ended.truncate(ENDED);
        render(&self)
    }
}

fn name(database: &ConsoleDatabase) -> Option<Name> {
    let label = database.label.as_ref()?;
    Some(Name { path: database.path("/"), text: label.to_string(), class: frame::class(label) })
}

fn waiting_line(
    waiting: &OutlinedProposal,
    database: &ConsoleDatabase,
    person: &ConsolePerson,
    is_named: bool,
    now: SystemTime,
) -> WaitingLine {
    let OutlinedProposal { proposal, outline } = waiting;
    WaitingLine {
        line: line(waiting, database, is_named),
        can_decide: can_decide(person, proposal),
        expires_at: proposal.expires_at.clone(),
        marks: review::marks(&outline.counts).into_iter().map(|(level, mark)| (level.word(), mark)).collect(),
        questions: proposal.questions.len(),
        rows: outline.counts.rows,
        time_left: ago(&proposal.expires_at, now),
    }
}

fn change_line(change: &Loaded, database: &ConsoleDatabase, is_named: bool) -> ChangeLine {
    let path = |id| database.path(format_args!("/schema-changes/{id}"));
    let database = if is_named { name(database) } else { None };
    match change {
        Ok(change) => ChangeLine {
            path: path(change.change_id),
            database,
            reason: visible(&change.reason),
            by: proposer(change.actor.as_deref(), change.account_id.as_str()),
            at: change.created_at.clone(),
            status: change.status.as_str(),
        },
        Err(altered) => ChangeLine {
            path: path(altered.change_id),
            database,
            reason: altered.to_string(),
            by: String::new(),
            at: String::new(),
            status: "altered",
        },
    }
}

fn line(OutlinedProposal { proposal, outline }: &OutlinedProposal, database: &ConsoleDatabase, is_named: bool) -> Line {
    Line {
        path: database.path(format_args!("/proposals/{}", proposal.proposal_id)),
        database: if is_named { name(database) } else { None },
        what: visible(&proposal.title),
        params: params(&outline.params),
        by: proposer(proposal.actor.as_deref(), proposal.account_id.as_str()),
        at: proposal.created_at.clone(),
        status: proposal.status.as_str(),
        is_for_account: proposal.tier != Tier::Approve,
    }
}
