//! Writes and undos whose receipts are held against the law.

use serde_json::Value;
use testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::law::{Facts, Receipt, States, judge};
use crate::snapshot::{FUNCTION, Snapshot};
use crate::support::{Call, Refused, Undone, codes, connect, ledger, run, server, undo_as};

/// A database, a server's session, and the session of somebody else, who sees all of it.
pub(crate) struct Trial {
    pub(crate) database: Database,
    pub(crate) session: Client,
    pub(crate) other: Client,
    /// The schema that is compared; otherwise all of them.
    pub(crate) space: Option<String>,
    pub(crate) facts: Facts,
    /// Takes no receipt but what a manifest says: a control.
    pub(crate) believes_manifests: bool,
    has_receipt_of: bool,
}

/// A write that succeeded.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) id: Uuid,
    pub(crate) sql: String,
    pub(crate) receipt: Receipt,
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
}

/// An undo, and what the law finds wrong with it.
pub(crate) struct Judged {
    pub(crate) outcome: Result<Undone, Value>,
    /// What the undo did, as a write of its own.
    pub(crate) undo: Option<Written>,
    pub(crate) receipt: Receipt,
    pub(crate) wrong: Vec<String>,
}

impl Trial {
    /// A database of its own with this schema.
    pub(crate) async fn new(name: &str, schema: &str) -> Self {
        let database = ledger(name).await;
        database.run(FUNCTION).await;
        database.run(schema).await;
        Self::over(database).await
    }

    pub(crate) async fn over(database: Database) -> Self {
        let (session, other) = (server(&database).await, connect(&database, "postgres").await);
        let has_receipt_of = database.value("select to_regproc('countersign.receipt_of') is not null").await == "t";
        Self {
            database,
            session,
            other,
            space: None,
            facts: Facts::default(),
            believes_manifests: false,
            has_receipt_of,
        }
    }

    pub(crate) async fn state(&self) -> Snapshot {
        Snapshot::take(&self.other, self.space.as_deref()).await
    }

    /// Somebody else changes rows or the schema.
    pub(crate) async fn change(&self, sql: &str) {
        run(&self.other, sql).await.unwrap_or_else(|refused| panic!("{sql}: {refused:?}"));
    }

    pub(crate) async fn try_write(&self, sql: &str) -> Result<Written, Refused> {
        let before = self.state().await;
        let call = Call::new("tool", &Uuid::new_v4().to_string());
        let mut answered = call.counted(&self.session, sql).await;
        // The columns of a table have changed: as a server does it, once its triggers have been renewed.
        if answered.as_ref().is_err_and(|refused| refused.code == "CS005")
            && run(&self.session, "select countersign.renew_shapes()").await.is_ok()
        {
            answered = call.counted(&self.session, sql).await;
        }
        let receipt = match answered {
            Ok(receipt) => receipt,
            Err(refused) => {
                run(&self.session, &call.fail(&refused.code, "{}")).await.unwrap();
                return Err(refused);
            }
        };
        let after = self.state().await;
        let receipt = receipt.map_or_else(|| Receipt::of_the_manifest(&before, &after), |json| Receipt::parse(&json));
        Ok(Written { id: call.correlation_id, sql: sql.to_owned(), receipt, before, after })
    }

    pub(crate) async fn write(&self, sql: &str) -> Written {
        self.try_write(sql).await.unwrap_or_else(|refused| panic!("{sql}: {refused:?}"))
    }

    /// Undoes a write. After a change in between, the receipt is asked for again.
    pub(crate) async fn undo(&self, written: &Written, is_disturbed: bool) -> Judged {
        let now = self.state().await;
        let (mut receipt, mut facts) = (written.receipt.clone(), self.facts.clone());
        let mut wrong = Vec::new();
        if self.believes_manifests {
            receipt = Receipt::of_the_manifest(&written.before, &written.after);
            facts.is_disturbed = is_disturbed;
        } else if self.has_receipt_of {
            let asked = run(&self.other, &format!("select countersign.receipt_of('{}')", written.id)).await;
            match asked.map(|values| serde_json::from_str::<Value>(&values[0]).unwrap()) {
                Ok(json) => receipt = Receipt::parse(&json),
                Err(refused) => wrong.push(format!("receipt_of: {refused:?}")),
            }
            if !is_disturbed && receipt.is_a_promise() != written.receipt.is_a_promise() {
                wrong.push(format!("{:?} when it was written, {receipt:?} when asked", written.receipt));
            }
        } else {
            facts.is_disturbed = is_disturbed;
        }
        let mut call = Call::undo(&[written.id]);
        let mut outcome = undo_as(&self.session, &call).await;
        // As a server does it: triggers are renewed, and a session with old plans is replaced.
        let renewed = match outcome.as_ref().err().and_then(|conflict| conflict["code"].as_str()) {
            Some("CS005") => run(&self.session, "select countersign.renew_shapes()").await.is_ok(),
            Some("42804") => true,
            _ => false,
        };
        if renewed {
            call = call.again();
            outcome = undo_as(&server(&self.database).await, &call).await;
        }
        let undone = self.state().await;
        let states = States { before: &written.before, after: &written.after, now: &now, undone: &undone };
        wrong.extend(judge(&states, &receipt, &outcome, &facts));
        let undo = outcome.as_ref().ok().map(|done| Written {
            id: call.correlation_id,
            sql: format!("undo of {}", written.sql),
            receipt: done.receipt.as_ref().map_or_else(|| Receipt::of_the_manifest(&now, &undone), Receipt::parse),
            before: now,
            after: undone,
        });
        Judged { outcome, undo, receipt, wrong }
    }

    /// Undone as promised, redone, and undone again.
    pub(crate) async fn restores(&self, sql: &str) {
        let written = self.write(sql).await;
        self.takes_back(written, false).await;
    }

    /// An earlier write can still be undone after a change of the schema or of other rows.
    pub(crate) async fn still_restores(&self, written: Written) {
        self.takes_back(written, true).await;
    }

    async fn takes_back(&self, mut written: Written, is_disturbed: bool) {
        for (round, what) in ["undo", "redo", "second undo"].iter().enumerate() {
            let judged = self.undo(&written, is_disturbed && round == 0).await;
            let sql = written.sql.clone();
            assert!(judged.receipt.is_a_promise(), "{what} of {sql}: {:?}", judged.receipt);
            written = judged.expect_done(&format!("{what} of {sql}"));
        }
    }

    /// Whatever the receipt says is so, whatever that is.
    pub(crate) async fn keeps_its_word(&self, sql: &str) {
        let written = self.write(sql).await;
        let judged = self.undo(&written, false).await;
        assert!(judged.wrong.is_empty(), "{sql}: {:#?}", judged.wrong);
        if let Some(undo) = judged.undo {
            let wrong = self.undo(&undo, false).await.wrong;
            assert!(wrong.is_empty(), "redo of {sql}: {wrong:#?}");
        }
    }

    /// The receipt promises nothing, and the undo is refused with this code.
    pub(crate) async fn refuses(&self, sql: &str, code: &str) {
        let written = self.write(sql).await;
        self.still_refuses(&written, code, false).await;
    }

    pub(crate) async fn still_refuses(&self, written: &Written, code: &str, is_disturbed: bool) {
        let sql = &written.sql;
        let judged = self.undo(written, is_disturbed).await;
        assert!(judged.wrong.is_empty(), "{sql}: {:#?}", judged.wrong);
        let conflict = judged.outcome.expect_err("an undo that has to be refused");
        assert_eq!(codes(&conflict).first(), Some(&code), "{sql}: {conflict:#}");
        assert!(is_disturbed && !self.has_receipt_of || !judged.receipt.is_a_promise(), "{sql}: {:?}", judged.receipt);
    }
}

impl Judged {
    /// The undo as a write, if it succeeded and nothing is wrong.
    pub(crate) fn expect_done(self, context: &str) -> Written {
        assert!(self.wrong.is_empty(), "{context}: {:#?}", self.wrong);
        match self.outcome {
            Ok(_) => self.undo.unwrap(),
            Err(conflict) => panic!("{context} was refused: {conflict:#}"),
        }
    }
}
