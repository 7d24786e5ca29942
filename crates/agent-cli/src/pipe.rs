//! Execution of `pipe`: commands as lines, events as lines, many requests concurrently.
//!
//! ```text
//! input ──▶ loop ──▶ a task for each request ──▶ queue ─▶ writer ──▶ output
//!             └─────────── own answers ───────────▶ queue ─▶┘
//! ```
//! The loop waits only for input, so `cancel` and `ping` are handled at any time. Queries over the limit are deferred,
//! together with the commands after them. If many are deferred, reading stops.

mod input;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pg::{ConnectOptions, NamedSession, SqlExecutor, TransactionOptions};
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Patch};
use crate::connection::{ConnectionFields, ConnectionLayers};
use crate::error::{CliError, EventErrorCode};
use crate::events::{Close, CloseTrace, Event, Pong, PongTrace, Request};
use crate::in_flight::{InFlight, Kind};
use crate::one_shot::{DONE, FAILED};
use crate::request::{
    AffectedTransactions, Command, DEFAULT_BEGIN, MAX_ID_BYTES, MAX_LINE_BYTES, QueryCommand, RequestError,
};
use crate::run_query::{self, ExecutionContext, StopSignals, StopTokens};
use crate::transactions::{NewTransaction, TransactionCommand, TransactionLookup, Transactions};
use crate::writer::{EventSender, OutputClosedError};
use types::{LineCodec, quoted};

/// How long requests in flight may continue when the session ends.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

type Parsed = Result<Command, Box<RequestError>>;

pub(crate) struct Pipe {
    config: Config,
    layers: ConnectionLayers,
    executor: Arc<dyn SqlExecutor>,
    transactions: Transactions,
    /// The number of times that each session has moved to another server.
    generations: HashMap<String, u64>,
    /// The connection options of sessions that have not moved since they were resolved.
    targets: HashMap<String, ConnectOptions>,
    in_flight: InFlight,
    /// Deferred commands, which wait until the first of them can be accepted.
    held: VecDeque<Parsed>,
    /// When `close` or the end of the input was received.
    asked_to_end: Option<Instant>,
    event_sender: EventSender,
    answers: EventSender,
    tasks: TaskTracker,
    /// Cancels every request.
    all: CancellationToken,
    started: Instant,
}

/// The reason why the loop ended.
enum PipeEnd {
    /// `close`, the end of the input, or a signal.
    Requested,
    InputLost(std::io::Error),
    OutputClosed,
}

impl Pipe {
    pub(crate) fn new(
        config: Config,
        layers: ConnectionLayers,
        executor: Arc<dyn SqlExecutor>,
        event_sender: EventSender,
        answers: EventSender,
    ) -> Self {
        Self {
            config,
            layers,
            executor,
            transactions: Transactions::default(),
            generations: HashMap::new(),
            targets: HashMap::new(),
            in_flight: InFlight::default(),
            held: VecDeque::new(),
            asked_to_end: None,
            event_sender,
            answers,
            tasks: TaskTracker::new(),
            all: CancellationToken::new(),
            started: Instant::now(),
        }
    }

    /// Runs the pipe and returns the exit code. `closed` is cancelled when the output has no reader any more,
    /// `ending` when the end begins.
    pub(crate) async fn run<R: AsyncRead + Unpin>(
        mut self,
        input: R,
        closed: &CancellationToken,
        stop: &StopSignals,
        ending: &CancellationToken,
    ) -> u8 {
        let mut lines = FramedRead::new(input, LineCodec::new(MAX_LINE_BYTES, MAX_ID_BYTES));
        let end = tokio::select! {
            biased;
            () = closed.cancelled() => PipeEnd::OutputClosed,
            () = stop.asked.cancelled() => PipeEnd::Requested,
            end = self.listen(&mut lines) => end,
        };
        ending.cancel();
        self.end(end, closed, &stop.urged).await
    }

    async fn handle(&mut self, command: Parsed) -> Result<(), OutputClosedError> {
        let command = match command {
            Ok(command) => command,
            Err(rejected) => return self.refuse(rejected.id, rejected.problem, &rejected.affected).await,
        };
        let (id, affected, done) = match command {
            // `listen` has already handled it.
            Command::Close => return Ok(()),
            Command::Ping => return self.answers.emit(&self.pong()).await,
            Command::Config(patch) => match self.configure(*patch) {
                Ok(()) => return self.answers.emit(&Event::Config(Box::new(self.shown_config()))).await,
                Err(problem) => (None, AffectedTransactions::ForNone, Err(problem)),
            },
            Command::Cancel { id } => {
                // With the id of a running commit, this event would look like its terminal event.
                let shown = (!self.in_flight.contains(&id)).then(|| id.clone());
                (shown, AffectedTransactions::ForNone, self.in_flight.cancel(&id))
            }
            Command::Query(query) => {
                let affected = AffectedTransactions::ForSession { session: query.session.clone(), is_begin: false };
                (Some(query.id.clone()), affected, self.query(*query))
            }
            Command::Begin { id, session, begin } => {
                let begun = self.begin(&id, session.as_deref(), begin);
                (Some(id), AffectedTransactions::ForSession { session, is_begin: true }, begun)
            }
            Command::Commit { id, session } => {
                let ended = self.end_transaction(&id, session.as_deref(), TransactionCommand::Commit);
                (Some(id), AffectedTransactions::ForNone, ended)
            }
            Command::Rollback { id, session } => {
                let ended = self.end_transaction(&id, session.as_deref(), TransactionCommand::RollBack);
                (Some(id), AffectedTransactions::ForNone, ended)
            }
        };
        match done {
            Ok(()) => Ok(()),
            Err(problem) => self.refuse(id, problem, &affected).await,
        }
    }

    async fn refuse(
        &mut self,
        id: Option<String>,
        problem: CliError,
        affected: &AffectedTransactions,
    ) -> Result<(), OutputClosedError> {
        match affected {
            AffectedTransactions::ForNone => {}
            AffectedTransactions::ForSession { session, is_begin } => {
                self.refuse_in(session.as_deref(), *is_begin, &problem)
            }
            AffectedTransactions::ForAny => self.transactions.refuse_all(&problem),
        }
        self.answers.emit(&Event::error(id, problem, 0)).await
    }

    /// Reports that a command for the transaction of a session was refused.
    fn refuse_in(&mut self, session: Option<&str>, is_begin: bool, problem: &CliError) {
        let session = match self.config.session(session) {
            Ok((session, _)) => session.to_owned(),
            // The session is not configured, so the command may belong to any transaction.
            Err(_) => return self.transactions.refuse_all(problem),
        };
        if !is_begin {
            return self.transactions.refuse(&session, problem);
        }
        // Without a database, later requests of this session fail too.
        let Ok(place) = self.place(Some(&session)) else { return };
        let new = self.new_transaction(place, DEFAULT_BEGIN);
        self.transactions.refuse_begin(new, problem);
    }

    /// Returns the configuration with the addresses of its sessions.
    fn shown_config(&self) -> Config {
        let described = |session: &ConnectionFields| match self.layers.target(session) {
            Ok(target) => target.described(),
            Err(problem) => problem.message,
        };
        let connections = self.config.sessions.iter().map(|(name, session)| (name.clone(), described(session)));
        Config { connections: connections.collect(), ..self.config.clone() }
    }

    fn pong(&self) -> Event {
        let (in_flight, requests_total) = self.in_flight.counts();
        Event::Pong(Pong { trace: PongTrace { uptime_s: self.started.elapsed().as_secs(), requests_total, in_flight } })
    }

    fn configure(&mut self, patch: Patch) -> Result<(), CliError> {
        let touched: Vec<String> = patch.sessions.iter().map(|(name, _)| name.clone()).collect();
        // Later requests without a session are for the transaction that is open in the former default session.
        let left = patch.default_session.as_ref().map(|_| &self.config.default_session);
        for session in touched.iter().chain(left) {
            if self.transactions.is_open(session) {
                let message = format!("the session {} has an open transaction", quoted(session));
                return Err(CliError::invalid(message).hint("commit or roll it back, then change the session"));
            }
        }
        self.config = self.config.patched(patch)?;
        for session in touched {
            self.executor.forget(&session);
            self.targets.remove(&session);
            *self.generations.entry(session).or_default() += 1;
        }
        Ok(())
    }

    /// The database in which a request of this session runs.
    fn place(&mut self, session: Option<&str>) -> Result<NamedSession, CliError> {
        let (session, fields) = self.config.session(session)?;
        let generation = self.generations.get(session).copied().unwrap_or_default();
        let target = match self.targets.get(session) {
            Some(known) => known.clone(),
            // Resolving the layers reads files.
            None => self.layers.target(fields)?,
        };
        let place = NamedSession { session: session.to_owned(), generation, target };
        self.targets.entry(place.session.clone()).or_insert_with(|| place.target.clone());
        Ok(place)
    }

    fn query(&mut self, command: QueryCommand) -> Result<(), CliError> {
        let place = self.place(command.session.as_deref())?;
        let mut query = command.options.resolve(&self.config.defaults).query(command.sql, command.params, false);
        let request = Request { id: command.id, session: place.session.clone(), started: Instant::now() };
        match self.transactions.find(&place.session) {
            TransactionLookup::Open(transaction) => {
                let other = command.options.read_only.filter(|read_only| *read_only != transaction.read_only);
                if other.is_some() && !transaction.has_failed() {
                    let is = if transaction.read_only { "cannot write" } else { "can write" };
                    return Err(CliError::invalid(format!("the open transaction of this session {is}"))
                        .hint("leave read_only out: the transaction decides"));
                }
                query.read_only = transaction.read_only;
                let cancel = self.in_flight.accept(&request.id, Kind::Query, &self.all)?;
                let work = transaction.submit(TransactionCommand::Query(query), request.clone(), cancel);
                self.start(request, work);
            }
            TransactionLookup::None { after } => {
                let cancel = self.in_flight.accept(&request.id, Kind::Query, &self.all)?;
                let (executor, event_sender) = (Arc::clone(&self.executor), self.event_sender.clone());
                let stop = StopTokens { request: cancel, session: self.all.clone() };
                let own = request.clone();
                self.start(request, async move {
                    if let Some(after) = after {
                        tokio::select! {
                            () = after.cancelled() => {}
                            () = stop.request.cancelled() => {}
                        }
                    }
                    if stop.request.is_cancelled() {
                        return own.cancelled();
                    }
                    let runner = ExecutionContext::Alone(executor.as_ref(), &place);
                    run_query::run(runner, &own, query, &event_sender, &stop).await.event
                });
            }
        }
        Ok(())
    }

    fn begin(&mut self, id: &str, session: Option<&str>, begin: TransactionOptions) -> Result<(), CliError> {
        let place = self.place(session)?;
        self.transactions.check_begin(&place.session)?;
        let cancel = self.in_flight.accept(id, Kind::Query, &self.all)?;
        let request = Request { id: id.to_owned(), session: place.session.clone(), started: Instant::now() };
        let new = self.new_transaction(place, begin);
        let work = self.transactions.begin(new, request.clone(), cancel);
        self.start(request, work);
        Ok(())
    }

    fn new_transaction(&self, place: NamedSession, begin: TransactionOptions) -> NewTransaction {
        let (executor, event_sender) = (Arc::clone(&self.executor), self.event_sender.clone());
        NewTransaction { executor, place, begin, event_sender, tasks: self.tasks.clone() }
    }

    fn end_transaction(&mut self, id: &str, session: Option<&str>, task: TransactionCommand) -> Result<(), CliError> {
        let session = self.config.session(session)?.0.to_owned();
        self.transactions.check_end(&session)?;
        let cancel = self.in_flight.accept(id, Kind::TransactionEnd, &self.all)?;
        let request = Request { id: id.to_owned(), session, started: Instant::now() };
        if let Some(work) = self.transactions.end(task, request.clone(), cancel) {
            self.start(request, work);
        }
        Ok(())
    }

    /// Starts the task of a request. `work` returns its terminal event, which is emitted, whatever the outcome is.
    fn start(&self, request: Request, work: impl Future<Output = Event> + Send + 'static) {
        let (event_sender, in_flight) = (self.event_sender.clone(), self.in_flight.clone());
        let log = self.config.log.clone();
        // It has a size of some kilobytes.
        let work = Box::pin(work);
        self.tasks.spawn(async move {
            let ended = std::panic::AssertUnwindSafe(work).catch_unwind().await;
            let event = ended.unwrap_or_else(|_| request.defect());
            in_flight.finish(&request.id, event_sender.place_last(&event, &request, &log).await.ok());
        });
    }

    /// Waits for the requests in flight, then ends the pipe.
    async fn end(mut self, end: PipeEnd, closed: &CancellationToken, urged: &CancellationToken) -> u8 {
        let grace = CLOSE_GRACE.saturating_sub(self.asked_to_end.map(|asked| asked.elapsed()).unwrap_or_default());
        // Idle transactions are rolled back; the others are rolled back after their queued commands.
        drop(self.transactions);
        self.tasks.close();
        let is_closed = matches!(end, PipeEnd::OutputClosed);
        if !is_closed {
            tokio::select! {
                biased;
                () = self.tasks.wait() => {}
                () = closed.cancelled() => {}
                () = urged.cancelled() => {}
                () = tokio::time::sleep(grace) => {}
            }
        }
        self.all.cancel();
        self.tasks.wait().await;
        for id in self.held.drain(..).filter_map(request_id) {
            let problem = CliError::new(EventErrorCode::Cancelled, "the session ended before there was room for it");
            let _ = self.event_sender.emit(&Event::error(Some(id), problem, 0)).await;
        }
        let mut code = DONE;
        if let PipeEnd::InputLost(error) = end {
            code = FAILED;
            let problem = CliError::new(EventErrorCode::InternalError, format!("the input cannot be read: {error}"));
            let _ = self.event_sender.emit(&Event::error(None, problem, 0)).await;
        }
        let (_, requests_total) = self.in_flight.counts();
        let trace = CloseTrace { uptime_s: self.started.elapsed().as_secs(), requests_total };
        match self.event_sender.emit(&Event::Close(Close { message: "shutdown", trace })).await {
            Ok(()) => code,
            Err(OutputClosedError) => FAILED,
        }
    }
}

/// Returns the id of a command that was not accepted yet.
fn request_id(command: Parsed) -> Option<String> {
    match command {
        Ok(Command::Query(query)) => Some(query.id),
        Ok(Command::Begin { id, .. } | Command::Commit { id, .. } | Command::Rollback { id, .. }) => Some(id),
        Ok(_) => None,
        Err(rejected) => rejected.id,
    }
}
