//! A server that carries a call out: with waiting for identical calls, and the truth after a lost connection.

use testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{Call, Refused, run, server};

/// What came of a call that went the whole way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Duplicate(Uuid),
    /// Another verdict: `superseded`, `key_reused`, `frozen`.
    AdmitDecision(String),
    /// The statement or COMMIT failed with this SQLSTATE, and the record says so.
    Failed(String),
    /// The connection was lost, and the record says what happened.
    Resolved(String),
}

/// Whether an attempt was refused because an identical call is in flight or was carried out.
pub(crate) fn is_taken(refused: &Refused) -> bool {
    refused.code == "CS001" || refused.code == "23505" && refused.message.contains("attempt_pkey")
}

/// A call as a server carries it out, with waiting for identical calls and the truth after a lost connection.
pub(crate) async fn perform(database: &Database, session: &mut Client, call: &Call, statement: &str) -> Outcome {
    let mut outcome = call.run(session, statement).await;
    let mut is_admitted = call.is_admitted_first;
    loop {
        match outcome {
            Ok(()) => return Outcome::Success,
            Err(refused) if refused.code == "08006" || refused.code.starts_with("57P") => {
                *session = server(database).await;
                return Outcome::Resolved(resolve(database, session, call).await);
            }
            Err(refused) if is_taken(&refused) => match settle(session, call).await {
                Ok(Some(done)) => return done,
                Ok(None) => {
                    is_admitted = true;
                    outcome = match run(session, &call.carry_out(statement)).await {
                        Ok(_) => Ok(()),
                        Err(refused) => {
                            let _lost = run(session, "rollback").await;
                            Err(refused)
                        }
                    }
                }
                Err(refused) => outcome = Err(refused),
            },
            Err(refused) => {
                let end = Call { is_admitted_first: is_admitted, ..call.clone() }.fail("sql_error", "{}");
                match run(session, &end).await {
                    Ok(_) => return Outcome::Failed(refused.code),
                    Err(again) => outcome = Err(again),
                }
            }
        }
    }
}

/// Asks for the verdict until there is one; `None` for `run`.
pub(crate) async fn settle(session: &Client, call: &Call) -> Result<Option<Outcome>, Refused> {
    loop {
        let answer = run(session, &call.admit()).await;
        if answer.is_err() {
            let _lost = run(session, "rollback").await;
        }
        let answer = answer?.remove(0);
        let mut words = answer.split(' ');
        match (words.next().unwrap(), words.next()) {
            ("run", _) => return Ok(None),
            // Nothing is known to be free sooner; PostgreSQL has no event for it.
            ("in_flight", _) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            ("standing", original) => {
                let original = Uuid::parse_str(original.unwrap()).unwrap();
                run(
                    session,
                    &format!(
                        "select countersign.answer_duplicate('{}', {}, '{original}')",
                        call.correlation_id,
                        call.slot()
                    ),
                )
                .await?;
                return Ok(Some(Outcome::Duplicate(original)));
            }
            (verdict, _) => return Ok(Some(Outcome::AdmitDecision(verdict.to_owned()))),
        }
    }
}

/// The truth after a lost connection.
pub(crate) async fn resolve(database: &Database, session: &mut Client, call: &Call) -> String {
    loop {
        let sql =
            format!("select final_status from countersign.resolve('{}', {}, 5000)", call.correlation_id, call.slot());
        let found = match run(session, &sql).await {
            Ok(found) if found.is_empty() => {
                run(session, &call.record_failure("in_doubt_aborted", "{}")).await.map(|_| vec!["failure".to_owned()])
            }
            other => other,
        };
        match found {
            Ok(found) => return found[0].clone(),
            Err(_) => *session = server(database).await,
        }
    }
}
