//! A database with the baseline in it, and the statements of the protocol.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use countersign_ledger::{BASELINE, BASELINE_GRANTS, DEFAULT_WRITER};
use serde_json::Value;
use sha2::{Digest, Sha256};
use testkit::Database;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::server::{Outcome, is_taken, settle};

/// A login of a second server, and a person who may undo the writes of any account.
pub(crate) const OTHER_WRITER: &str = "countersign_writer_2";
pub(crate) const OPERATOR: &str = "olga";

/// Makes the roles that `init` makes, and logins for the tests.
async fn make_roles(database: &Database) {
    let sql = format!(
        "do $$ declare r text; begin
             foreach r in array array['countersign_owner', 'countersign_approver', 'countersign_console',
                                'countersign_operator'] loop
                 if to_regrole(r) is null then execute format('create role %I nologin', r); end if;
             end loop;
             foreach r in array array['{DEFAULT_WRITER}', '{OTHER_WRITER}', '{OPERATOR}'] loop
                 if to_regrole(r) is null then execute format('create role %I login', r); end if;
             end loop;
         end $$;
         grant countersign_operator to {OPERATOR}"
    );
    database.run(&sql).await;
}

/// An empty database with the baseline, whose tables of any schema servers and the operator may use.
pub(crate) async fn ledger(name: &str) -> Database {
    ledger_without(name, &[]).await
}

/// The same with texts of the baseline replaced: a mechanism is taken out.
pub(crate) async fn ledger_without(name: &str, replaced: &[(&str, &str)]) -> Database {
    static ROLES: OnceCell<()> = OnceCell::const_new();
    let database = Database::empty(name).await;
    ROLES.get_or_init(async || make_roles(&database).await).await;
    install(&database, replaced).await;
    database
}

/// The same on a cluster that may be killed.
pub(crate) async fn lone_ledger(name: &str) -> Database {
    let other = testkit::lone_database().await;
    other.run(&format!("create database {name} template template0")).await;
    let database = other.beside(name);
    make_roles(&database).await;
    install(&database, &[]).await;
    database
}

async fn install(database: &Database, replaced: &[(&str, &str)]) {
    let mut sql = "create schema countersign authorization countersign_owner; set role countersign_owner;".to_owned();
    for (_, text) in BASELINE {
        sql.push_str(text);
    }
    for (text, by) in replaced {
        assert!(sql.contains(text), "{text}");
        sql = sql.replace(text, by);
    }
    sql.push_str(&BASELINE_GRANTS.replace("{writer}", DEFAULT_WRITER));
    sql.push_str(&BASELINE_GRANTS.replace("{writer}", OTHER_WRITER));
    let everybody = format!("{DEFAULT_WRITER}, {OTHER_WRITER}, {OPERATOR}");
    write!(
        sql,
        "insert into countersign.writer_login values ('{DEFAULT_WRITER}'), ('{OTHER_WRITER}'); reset role;
         alter default privileges grant usage on schemas to {everybody};
         alter default privileges grant select, insert, update, delete on tables to {everybody};
         alter default privileges grant usage on sequences to {everybody}"
    )
    .unwrap();
    database.run(&sql).await;
}

/// A session as this login, once PostgreSQL answers. Not `poll`, whose future cannot be spawned.
pub(crate) async fn connect(database: &Database, login: &str) -> Client {
    let url = database.url().replace("user=postgres", &format!("user={login}"));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match tokio_postgres::connect(&url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => assert!(Instant::now() < until, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const SELF_CONTAINED: &str = "(select pg_catalog.jsonb_build_object('checked', not exists ( \
    select from countersign.tracked k join pg_catalog.pg_class c on c.oid = k.relation cross join pg_catalog.unnest('{I,U,D}'::text[]) op \
    where k.is_current and (c.relkind = 'r' and c.relhassubclass or countersign.set_by_clocks(k.relation, op) is null))))";

/// A session of a server.
pub(crate) async fn server(database: &Database) -> Client {
    connect(database, DEFAULT_WRITER).await
}

/// What PostgreSQL refused, or that the connection is gone (`08006`).
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) detail: String,
}

/// The first value of each row of statements that run one after another, up to the first error.
pub(crate) async fn run(session: &Client, sql: &str) -> Result<Vec<String>, Refused> {
    let rows = answers(session, sql).await?.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    Ok(rows.collect())
}

async fn answers(session: &Client, sql: &str) -> Result<Vec<SimpleQueryMessage>, Refused> {
    session.simple_query(sql).await.map_err(|error| match error.as_db_error() {
        Some(db) => Refused {
            code: db.code().code().to_owned(),
            message: db.message().to_owned(),
            detail: db.detail().unwrap_or_default().to_owned(),
        },
        None => Refused { code: "08006".to_owned(), message: error.to_string(), detail: String::new() },
    })
}

/// One call, as a server makes it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) correlation_id: Uuid,
    pub(crate) account: String,
    pub(crate) tool: String,
    pub(crate) key: Option<String>,
    /// What the fingerprint is made of.
    pub(crate) params: String,
    pub(crate) undo_of: Vec<Uuid>,
    pub(crate) rows: u64,
    /// Its attempt is committed before the write begins.
    pub(crate) is_admitted_first: bool,
}

impl Call {
    pub(crate) fn new(tool: &str, params: &str) -> Self {
        Self {
            correlation_id: Uuid::new_v4(),
            account: "agent".to_owned(),
            tool: tool.to_owned(),
            key: None,
            params: params.to_owned(),
            undo_of: Vec::new(),
            rows: 1,
            is_admitted_first: false,
        }
    }

    pub(crate) fn admitted_first(mut self) -> Self {
        self.is_admitted_first = true;
        self
    }

    pub(crate) fn undo(writes: &[Uuid]) -> Self {
        let key = Some(format!("undo:{}", writes[0]));
        Self { undo_of: writes.to_vec(), key, ..Self::new("undo_mutation", &format!("{writes:?}")) }
    }

    pub(crate) fn keyed(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn by(mut self, account: &str) -> Self {
        account.clone_into(&mut self.account);
        self
    }

    pub(crate) fn touching(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// The same call once more, with a receipt of its own.
    pub(crate) fn again(&self) -> Self {
        Self { correlation_id: Uuid::new_v4(), ..self.clone() }
    }

    pub(crate) fn fingerprint(&self) -> String {
        hex(&Sha256::digest(format!("{} {}", self.tool, self.params)))
    }

    /// As `countersign.slot_of` has it.
    pub(crate) fn slot(&self) -> String {
        let text = if self.undo_of.is_empty() {
            let (account, tool) = (self.account.chars().count(), self.tool.chars().count());
            let key = self.key.as_ref().map_or_else(|| format!("f{}", self.fingerprint()), |key| format!("k{key}"));
            format!("{account} {tool} {}{}{key}", self.account, self.tool)
        } else {
            let ids: Vec<String> = self.undo_of.iter().map(Uuid::to_string).collect();
            format!("undo {}", ids.join(" "))
        };
        format!("'\\x{}'", hex(&Sha256::digest(text)))
    }

    fn undo_array(&self) -> String {
        if self.undo_of.is_empty() { "null".to_owned() } else { array(&self.undo_of) }
    }

    fn key_literal(&self) -> String {
        self.key.as_ref().map_or_else(|| "null".to_owned(), |key| format!("'{key}'"))
    }

    /// The arguments of `begin_write` and of others.
    fn intent(&self) -> String {
        format!(
            "{}, '{}', '{}', 'ana', null, null, null, null, null, '{}', '{}', {}, '{{}}', '{{}}', {}, null",
            self.slot(),
            self.correlation_id,
            self.account,
            self.tool,
            self.fingerprint(),
            self.key_literal(),
            self.undo_array()
        )
    }

    /// The transaction of the write is open, with the attempt in front where it is admitted first.
    pub(crate) fn begin(&self) -> String {
        if self.is_admitted_first {
            format!("{} and chain; {}", self.admission(), self.claim(false))
        } else {
            format!("begin isolation level read committed; select countersign.begin_write({}, null)", self.intent())
        }
    }

    pub(crate) fn report(&self) -> String {
        format!("select countersign.report_write({}, '1 second')", self.intent())
    }

    /// The admission by INSERT.
    pub(crate) fn admission(&self) -> String {
        format!(
            "begin isolation level read committed; select countersign.take_slot({}, false); insert into countersign.admission (slot, correlation_id, account_id, actor, tool_name, \
             fingerprint, idempotency_key, params, params_summary, undo_of) \
             values ({}, '{}', '{}', 'ana', '{}', '{}', {}, '{{}}', '{{}}', {}); commit",
            self.slot(),
            self.slot(),
            self.correlation_id,
            self.account,
            self.tool,
            self.fingerprint(),
            self.key_literal(),
            self.undo_array()
        )
    }

    /// The verdict of the slow path; `run`, `in_flight standing:<original>` and so on.
    pub(crate) fn admit(&self) -> String {
        format!(
            "begin isolation level read committed; select concat_ws(' ', verdict, original, detail ->> 'reason') from countersign.admit({}); commit",
            self.intent()
        )
    }

    pub(crate) fn claim(&self, even_if_held: bool) -> String {
        format!("select countersign.claim_attempt('{}', {}, null, {even_if_held})", self.correlation_id, self.slot())
    }

    pub(crate) fn finish(&self) -> String {
        let id = self.correlation_id;
        // What a server says of a tool without a declared undo; `finish` says what is true of it. Here it is that no tracked table
        // has triggers or children that change others; a server looks at those of the tool.
        let said = serde_json::json!({
            "reversible": true, "undo_tool": "undo_mutation", "undo_params": {"correlation_id": id},
        });
        format!(
            "set constraints all immediate; \
             select countersign.finish('{id}', '{{}}', '{{}}', {}, undo_call => ('{said}'::jsonb || {SELF_CONTAINED})::json); commit",
            self.rows
        )
    }

    /// The end of a call whose transaction was rolled back.
    pub(crate) fn fail(&self, code: &str, detail: &str) -> String {
        if self.is_admitted_first { self.fail_attempt(code, detail) } else { self.record_failure(code, detail) }
    }

    /// For a call without an attempt.
    pub(crate) fn record_failure(&self, code: &str, detail: &str) -> String {
        let detail = detail.replace('\'', "''");
        format!("select countersign.record_failure({}, '{code}', null, null, '{detail}')", self.intent())
    }

    pub(crate) fn fail_attempt(&self, code: &str, detail: &str) -> String {
        format!(
            "select countersign.fail('{}', {}, '{code}', null, null, '{}')",
            self.correlation_id,
            self.slot(),
            detail.replace('\'', "''")
        )
    }

    /// The whole of it.
    pub(crate) fn protocol(&self, statement: &str) -> String {
        format!("{}; {statement}; {}", self.begin(), self.finish())
    }

    /// The same after the verdict `run`.
    pub(crate) fn carry_out(&self, statement: &str) -> String {
        format!("begin; {}; {statement}; {}", self.claim(true), self.finish())
    }

    /// Runs it. After an error its transaction is rolled back; an attempt that was admitted first is still there.
    pub(crate) async fn run(&self, session: &Client, statement: &str) -> Result<(), Refused> {
        match run(session, &self.protocol(statement)).await {
            Ok(_) => Ok(()),
            Err(refused) => {
                let _lost = run(session, "rollback").await;
                Err(refused)
            }
        }
    }

    /// The same in two steps, with the number of rows that PostgreSQL reports; what `finish` returned.
    pub(crate) async fn counted(&self, session: &Client, statement: &str) -> Result<Option<Value>, Refused> {
        let outcome = async {
            run(session, &self.begin()).await?;
            let tags = answers(session, statement).await?.into_iter().map(|message| match message {
                SimpleQueryMessage::CommandComplete(rows) => rows,
                _ => 0,
            });
            let call = self.clone().touching(tags.sum());
            Ok(receipt(&run(session, &call.finish()).await?))
        }
        .await;
        if outcome.is_err() {
            let _lost = run(session, "rollback").await;
        }
        outcome
    }
}

/// A write of a new call; its receipt.
pub(crate) async fn write(session: &Client, statement: &str) -> Uuid {
    let call = Call::new("tool", &Uuid::new_v4().to_string());
    call.run(session, statement).await.unwrap_or_else(|refused| panic!("{statement}: {refused:?}"));
    call.correlation_id
}

/// What an undo answered, and its own receipt.
#[derive(Debug, Clone)]
pub(crate) struct Undone {
    pub(crate) answer: Value,
    pub(crate) receipt: Option<Value>,
}

/// An undo of one or several writes: its correlation id, or the conflicts.
pub(crate) async fn undo(session: &Client, writes: &[Uuid]) -> Result<Uuid, Value> {
    let call = Call::undo(writes);
    undo_as(session, &call).await.map(|_| call.correlation_id)
}

pub(crate) async fn undo_as(session: &Client, call: &Call) -> Result<Undone, Value> {
    let opening = format!("{}; select countersign.undo({})", call.begin(), array(&call.undo_of));
    let answered = run(session, &opening).await;
    if !matches!(&answered, Err(refused) if is_taken(refused)) {
        return finish_undo(session, call, answered).await;
    }
    run(session, "rollback").await.unwrap();
    match settle(session, call).await.unwrap() {
        Some(Outcome::AdmitDecision(verdict)) => Err(serde_json::json!({"conflicts": [{"code": verdict}]})),
        Some(Outcome::Duplicate(_)) => Err(serde_json::json!({"conflicts": [{"code": "duplicate"}]})),
        other => panic!("the verdict on an undo whose key is held: {other:?}"),
    }
}

/// The rest of an undo, after what `undo` answered.
pub(crate) async fn finish_undo(
    session: &Client,
    call: &Call,
    answered: Result<Vec<String>, Refused>,
) -> Result<Undone, Value> {
    let answer = match answered {
        Ok(values) => serde_json::from_str::<Value>(values.last().unwrap()).unwrap(),
        Err(refused) => serde_json::json!({"status": "refused", "code": refused.code, "message": refused.message}),
    };
    let counted = call.clone().touching(answer["rows"].as_u64().unwrap_or(1));
    let ended = if answer["status"] == "ok" { run(session, &counted.finish()).await } else { Ok(Vec::new()) };
    let conflict = match ended {
        Ok(values) if answer["status"] == "ok" => return Ok(Undone { answer, receipt: receipt(&values) }),
        Ok(_) => answer,
        Err(refused) => {
            let conflicts: Value = serde_json::from_str(&refused.detail).unwrap_or_default();
            serde_json::json!({"status": "refused", "code": refused.code, "message": refused.message, "conflicts": conflicts})
        }
    };
    run(session, "rollback").await.unwrap();
    run(session, &call.fail("undo_conflict", &conflict.to_string())).await.unwrap();
    Err(conflict)
}

/// What `finish`, the last statement with a value, returned.
pub(crate) fn receipt(values: &[String]) -> Option<Value> {
    values.last().and_then(|text| serde_json::from_str(text).ok())
}

/// The codes of a conflict report.
pub(crate) fn codes(conflict: &Value) -> Vec<&str> {
    conflict["conflicts"]
        .as_array()
        .map(|all| all.iter().map(|one| one["code"].as_str().unwrap()).collect())
        .unwrap_or_default()
}

pub(crate) fn array(ids: &[Uuid]) -> String {
    let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    format!("'{{{}}}'::uuid[]", ids.join(","))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The status of the record of this receipt, with its error code.
pub(crate) async fn outcome(database: &Database, id: Uuid) -> String {
    let sql =
        format!("select concat_ws(' ', status, error_code) from countersign.mutation where correlation_id = '{id}'");
    database.value(&sql).await
}
