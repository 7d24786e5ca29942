//! An executor whose statements are scripts: `rows 3`, `wait`, `panic`, .. What it did, it notes.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pg::{
    BoxFuture, ConnectError, ExecuteError, NamedSession, Query, QueryDescription, QueryEvent, QuerySummary,
    RowDelivery, ServerError, SqlExecutor, Transaction, TransactionOptions,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use types::{Column, PgType, Scalar, TypeKind};

#[derive(Clone, Default)]
pub(crate) struct Fake {
    notes: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// What it did since the last time.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap())
    }

    fn note(&self, note: impl Into<String>) {
        self.notes.lock().unwrap().push(note.into());
    }
}

fn type_named(name: &str, scalar: Scalar) -> Arc<PgType> {
    Arc::new(PgType { oid: 0, name: name.into(), kind: TypeKind::Scalar(scalar) })
}

fn column(name: &str) -> Column {
    Column { name: name.into(), ty: type_named("int4", Scalar::Int4), not_null: false }
}

pub(crate) fn server_error(severity: &str, sqlstate: &str, message: &str) -> Box<ServerError> {
    let (severity, sqlstate, message) = (severity.into(), sqlstate.into(), message.into());
    Box::new(ServerError { severity, sqlstate, message, ..ServerError::default() })
}

fn refused(place: &str) -> ConnectError {
    let (place, reason) = (place.to_owned(), "connection refused".to_owned());
    ConnectError::Unreachable { place, reason, is_transient: true }
}

/// What a script says that fails.
fn failure(word: &str, place: &NamedSession) -> Option<ExecuteError> {
    let at = place.target.address();
    Some(match word {
        "duplicate" => {
            let error = server_error("ERROR", "23505", "duplicate key value violates unique constraint \"t_pkey\"");
            let (detail, hint) = (Some("Key (id)=(1) already exists.".to_owned()), Some("Use another.".to_owned()));
            ExecuteError::Sql(Box::new(ServerError { detail, hint, position: Some(15), ..*error }))
        }
        "params" => ExecuteError::Params("the query takes 1 parameter(s) and 0 were given in params".into()),
        "too-large" => {
            ExecuteError::TooLarge { message: "the result has more than 1000 rows".into(), taken: Some((1001, 9000)) }
        }
        "copy" => {
            ExecuteError::Unsupported { message: "COPY is not supported".into(), hint: Some("use INSERT".into()) }
        }
        "refused" => ExecuteError::Connect(refused(&at)),
        "slow-connect" => ExecuteError::Connect(ConnectError::TimedOut { place: at, timeout_ms: 10_000 }),
        "bad-password" => ExecuteError::Connect(ConnectError::Authentication("password authentication failed".into())),
        "no-database" => ExecuteError::Connect(ConnectError::DatabaseMissing("database \"d\" does not exist".into())),
        "full" => ExecuteError::Connect(ConnectError::Refused {
            place: at,
            error: server_error("FATAL", "53300", "sorry, too many clients already"),
        }),
        "lost" => ExecuteError::Lost("connection reset by peer".into()),
        "unknown-commit" => ExecuteError::CommitOutcomeUnknown {
            message: "the answer to COMMIT did not come".into(),
            correlation_id: Some("c-1".into()),
        },
        "no-ledger" => {
            let (message, hint) = ("this database has no ledger".into(), Some("run countersign init".into()));
            ExecuteError::Ledger { message, hint, retryable: false }
        }
        "defect" => ExecuteError::Internal("this cannot be".into()),
        _ => return None,
    })
}

fn rows(from: u64, to: u64) -> String {
    let rows: Vec<String> = (from..=to).map(|n| format!("{{\"n\":{n}}}")).collect();
    format!("[{}]", rows.join(","))
}

/// `count` rows, as they are to be delivered.
async fn send_rows(count: u64, delivery: RowDelivery, out: &mpsc::Sender<QueryEvent>) -> Result<u64, ExecuteError> {
    let gone = |_| ExecuteError::Cancelled;
    out.send(QueryEvent::Columns(vec![column("n")])).await.map_err(gone)?;
    let (mut sent, mut bytes) = (0, 0);
    while sent < count {
        let batch = match delivery {
            RowDelivery::Inline { max_rows, .. } if count > max_rows as u64 => {
                let taken = Some((max_rows as u64 + 1, 0));
                return Err(ExecuteError::TooLarge {
                    message: format!("the result has more than {max_rows} rows"),
                    taken,
                });
            }
            RowDelivery::Inline { .. } => count,
            RowDelivery::Batches { rows, .. } => (count - sent).min(rows as u64),
        };
        let json = rows(sent + 1, sent + batch);
        bytes += json.len() as u64;
        out.send(QueryEvent::Rows { json, count: batch }).await.map_err(gone)?;
        sent += batch;
    }
    Ok(bytes)
}

impl Fake {
    async fn script(
        &self,
        place: &NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> Result<QuerySummary, ExecuteError> {
        let mut words = query.sql.split(' ');
        let word = words.next().unwrap();
        let number = words.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        if let Some(failed) = failure(word, place) {
            return Err(failed);
        }
        self.note(format!("{} on {}{}", query.sql, place.session, if query.read_only { "" } else { ", may write" }));
        let read = |row_count, payload_bytes| QuerySummary {
            returns_rows: true,
            row_count,
            payload_bytes,
            ..QuerySummary::default()
        };
        match word {
            "rows" | "notices" => {
                if word == "notices" {
                    let notice = QueryEvent::Notice(server_error("NOTICE", "00000", "hello"));
                    out.send(notice).await.map_err(|_| ExecuteError::Cancelled)?;
                }
                let running = send_rows(number, query.delivery, &out);
                tokio::select! {
                    bytes = running => Ok(read(number, bytes?)),
                    () = cancel.cancelled() => Err(ExecuteError::Cancelled),
                }
            }
            // As many rows as anybody takes.
            "endless" => {
                let _gone = Gone(self.clone());
                tokio::select! {
                    ended = send_rows(u64::MAX, query.delivery, &out) => ended.map(|bytes| read(0, bytes)),
                    () = cancel.cancelled() => { self.note("endless cancelled"); Err(ExecuteError::Cancelled) }
                }
            }
            "half" => {
                send_rows(number, query.delivery, &out).await?;
                Err(ExecuteError::Sql(server_error("ERROR", "22012", "division by zero")))
            }
            "write" | "write-returning" => {
                if query.read_only {
                    let message = "cannot execute INSERT in a read-only transaction";
                    return Err(ExecuteError::Sql(server_error("ERROR", "25006", message)));
                }
                if word == "write-returning" {
                    send_rows(number, query.delivery, &out).await?;
                }
                deliver(&out).await?;
                self.note("committed");
                let (tag, receipt) = (Some(format!("INSERT 0 {number}")), Some("c-2".to_owned()));
                Ok(QuerySummary { tag, correlation_id: receipt, returns_rows: word != "write", ..read(number, 0) })
            }
            "sleep" => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(number)) => Ok(read(0, 0)),
                    () = cancel.cancelled() => { self.note("sleep cancelled"); Err(ExecuteError::Cancelled) }
                }
            }
            "wait" => {
                cancel.cancelled().await;
                self.note("wait cancelled");
                Err(ExecuteError::Cancelled)
            }
            // Ends as if nobody had stopped it.
            "deaf" => {
                cancel.cancelled().await;
                tokio::task::yield_now().await;
                // Nobody takes it any more.
                let _ = out.send(QueryEvent::Rows { json: rows(1, 1), count: 1 }).await;
                Ok(read(1, 2))
            }
            // Does not stop.
            "stuck" => {
                let _gone = Gone(self.clone());
                std::future::pending().await
            }
            // Has the word for its COMMIT, and hears nothing more.
            "stuck-commit" => {
                deliver(&out).await?;
                std::future::pending().await
            }
            // Its COMMIT takes so long.
            "slow-commit" => {
                deliver(&out).await?;
                self.note("committing");
                tokio::time::sleep(Duration::from_millis(number)).await;
                Ok(QuerySummary { tag: Some("INSERT 0 1".to_owned()), ..QuerySummary::default() })
            }
            "settings" => {
                let json = format!(
                    "[{{\"read_only\":{},\"statement_timeout_ms\":{},\"lock_timeout_ms\":{},\"delivery\":\"{:?}\",\"params\":{},\"at\":\"{}\",\"user\":\"{}\"}}]",
                    query.read_only,
                    query.statement_timeout.as_millis(),
                    query.lock_timeout.as_millis(),
                    query.delivery,
                    serde_json::to_string(&query.params).unwrap(),
                    place.target.address(),
                    place.target.user,
                );
                out.send(QueryEvent::Columns(vec![column("settings")])).await.unwrap();
                out.send(QueryEvent::Rows { json, count: 1 }).await.unwrap();
                Ok(read(1, 2))
            }
            "panic" => panic!("a defect of the executor"),
            other => {
                Err(ExecuteError::Sql(server_error("ERROR", "42601", &format!("syntax error at or near {other:?}"))))
            }
        }
    }
}

/// Notes when a statement is dropped.
struct Gone(Fake);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note("gone");
    }
}

/// Waits for the word that everything was taken.
async fn deliver(out: &mpsc::Sender<QueryEvent>) -> Result<(), ExecuteError> {
    let (taken, is_taken) = oneshot::channel();
    out.send(QueryEvent::AwaitAck { taken, correlation_id: Some("c-3".to_owned()) })
        .await
        .map_err(|_| ExecuteError::Cancelled)?;
    is_taken.await.map_err(|_| ExecuteError::Cancelled)
}

impl SqlExecutor for Fake {
    fn query<'a>(
        &'a self,
        place: &'a NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(self.script(place, query, out, cancel))
    }

    fn describe<'a>(
        &'a self,
        place: &'a NamedSession,
        sql: &'a str,
        _: CancellationToken,
    ) -> BoxFuture<'a, QueryDescription> {
        Box::pin(async move {
            failure(sql, place).map_or(Ok(()), Err)?;
            self.note("described");
            Ok(QueryDescription { params: vec![type_named("text", Scalar::Text)], columns: Some(vec![column("n")]) })
        })
    }

    fn begin<'a>(&'a self, place: &'a NamedSession, begin: TransactionOptions) -> BoxFuture<'a, Box<dyn Transaction>> {
        Box::pin(async move {
            if place.target.dbname == "refused" {
                return Err(ExecuteError::Connect(refused(&place.target.address())));
            }
            self.note(format!("begin{}", if begin.read_only { "" } else { ", may write" }));
            let transaction = FakeTransaction { fake: self.clone(), place: place.clone(), is_open: true };
            Ok(Box::new(transaction) as Box<dyn Transaction>)
        })
    }

    fn forget(&self, session: &str) {
        self.note(format!("forget {session}"));
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.note("drained") })
    }
}

struct FakeTransaction {
    fake: Fake,
    place: NamedSession,
    is_open: bool,
}

impl Transaction for FakeTransaction {
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        self.fake.note("in transaction:");
        Box::pin(self.fake.script(&self.place, query, out, cancel))
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            self.is_open = false;
            // It takes its time, so that what does not wait for it comes first.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.fake.note("commit");
            if self.place.target.dbname == "uncertain" {
                return Err(failure("unknown-commit", &self.place).unwrap());
            }
            Ok(QuerySummary::default())
        })
    }

    fn roll_back(mut self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            self.is_open = false;
            self.fake.note("rollback");
            Ok(QuerySummary::default())
        })
    }
}

impl Drop for FakeTransaction {
    fn drop(&mut self) {
        if self.is_open {
            self.fake.note("rollback by drop");
        }
    }
}
