//! The frameworks that most agents are built with, on the built binary. Each runs one script of `tests/python/frameworks` or
//! `tests/clients/frameworks`, in which this test is the model: one scenario for all of them, and what each of them does its
//! own way is a field of [`Framework`].

mod model;
mod schemas;

use serde_json::json;
use testkit::{Database, External, HttpServer, TestManifest, database, long_form, skip_without};

use model::{Model, Shown, Target};

const BANK: &str = "
create schema bank;
create table bank.account (id bigint primary key, holder text not null, balance numeric(20, 2) not null);
insert into bank.account values (9007199254740992, 'Ben', 1.10), (9007199254740993, 'Ada', 123456789012345678.10);
create table bank.entry (id int primary key, what text not null);
insert into bank.entry select g, repeat('x', 20) from generate_series(1, 300) g;
select countersign.track('bank.account');
grant usage on schema bank to countersign_writer, countersign_reader;
grant select on all tables in schema bank to countersign_reader;
grant all on all tables in schema bank to countersign_writer;
";

const TOOLS: &str = r#"
[[tool]]
name = "set_balance"
access = "write"
description = "Set the balance of an account."
sql = "update bank.account set balance = $2 where id = $1 returning id, balance"
rows = "one"
not_found = "There is no such account"
param = [{ name = "id", description = "Which." }, { name = "balance", description = "How much." }]

[[tool]]
name = "rename_holder"
access = "write"
tier = "confirm"
description = "Rename the holder of an account."
before = "select holder from bank.account where id = $1 for update"
sql = "update bank.account set holder = $2 where id = $1 returning id, holder"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "holder", description = "The name." }]
"#;

const ADA: &str = "9007199254740993";

/// A word that is in an answer once; the model sees it as often as it sees the answer.
const MARKER: &str = "Llanfairpwll";

/// How often an answer reaches the model, by the setting `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copies {
    text: usize,
    structured: usize,
    both: usize,
}

/// A framework, and what it does its own way.
#[derive(Debug)]
struct Framework {
    script: &'static str,
    external: External,
    copies: Copies,
    /// Whether it tells the model, or the provider, beside the text that a call has failed.
    marks_failures: bool,
    /// Whether it can put the questions of a server to a user. Without, the write is answered with a proposal.
    asks_users: bool,
}

const PLAIN: Framework = Framework {
    script: "",
    external: External::Frameworks,
    copies: Copies { text: 1, structured: 0, both: 1 },
    marks_failures: true,
    asks_users: false,
};

const OPENAI_AGENTS: Framework = Framework { script: "run_openai_agents.py", marks_failures: false, ..PLAIN };
const PYDANTIC_AI: Framework = Framework {
    script: "run_pydantic_ai.py",
    copies: Copies { text: 1, structured: 1, both: 1 },
    asks_users: true,
    ..PLAIN
};
const GOOGLE_GENAI: Framework =
    Framework { script: "run_google_genai.py", copies: Copies { text: 1, structured: 1, both: 2 }, ..PLAIN };
const GOOGLE_ADK: Framework = Framework { script: "run_google_adk.py", asks_users: true, ..GOOGLE_GENAI };
const LLAMA_INDEX: Framework = Framework {
    script: "run_llama_index.py",
    copies: Copies { text: 1, structured: 1, both: 2 },
    marks_failures: false,
    ..PLAIN
};
const LANGCHAIN: Framework =
    Framework { script: "run_langchain.py", external: External::FrameworksMcp1, asks_users: true, ..PLAIN };
const SMOLAGENTS: Framework =
    Framework { script: "run_smolagents.py", external: External::FrameworksMcp1, marks_failures: false, ..PLAIN };
const TYPESCRIPT_SDK: Framework = Framework {
    script: "sdk.mjs",
    external: External::NodeModules,
    copies: Copies { text: 1, structured: 1, both: 2 },
    asks_users: true,
    ..PLAIN
};
const AI: Framework =
    Framework { script: "ai.mjs", external: External::NodeModules, marks_failures: false, asks_users: true, ..PLAIN };
const LANGCHAIN_JS: Framework = Framework {
    script: "langchain.mjs",
    external: External::NodeModules,
    copies: Copies { text: 1, structured: 0, both: 2 },
    ..PLAIN
};
const GOOGLE_GENAI_JS: Framework = Framework { script: "genai.mjs", external: External::NodeModules, ..GOOGLE_GENAI };

/// A database with the accounts, and the manifest of its tools.
async fn bank() -> (Database, TestManifest) {
    let db = database().await;
    db.run(BANK).await;
    (db, TestManifest::new(TOOLS))
}

/// The arguments of a server with this manifest.
fn arguments(manifest: &TestManifest) -> Vec<String> {
    let manifest = manifest.arguments().map(|argument| argument.into_string().unwrap());
    manifest.into_iter().chain(["--agent-confirms".to_owned()]).collect()
}

async fn http_server(db: &Database, manifest: &TestManifest) -> HttpServer {
    let mut command = HttpServer::command(db);
    command.args(manifest.arguments());
    HttpServer::start(command).await
}

/// The number of successful writes on record.
async fn writes(db: &Database) -> String {
    db.value("select count(*) from countersign.mutation where status = 'success'").await
}

impl Framework {
    fn start(&self, db: &Database, to: &Target<'_>, has_user: bool) -> Model {
        Model::start(self.external, self.script, db, to, has_user)
    }

    fn assert_failed(&self, shown: &Shown, code: &str) {
        assert!(shown.text().contains(code), "{}: {shown:?}", self.script);
        assert_eq!(shown.failed.unwrap_or(false), self.marks_failures, "{}: {shown:?}", self.script);
    }

    fn assert_succeeded(&self, shown: &Shown) {
        assert!(!shown.failed.unwrap_or(false), "{}: {shown:?}", self.script);
    }

    /// Reads, writes, repeats the write, undoes it, and fails.
    async fn goes_through(&self, db: &Database, to: &Target<'_>) {
        let mut model = self.start(db, to, false);
        let balance = format!("select balance from bank.account where id = {ADA}");
        let others = format!("select * from bank.account where id <> {ADA}");
        let before = (db.value(&balance).await, db.rows(&others).await);

        let query = format!("select id, balance, '{MARKER}' as word from bank.account where id = $1");
        let read = model.call("query_database", json!({"query": query, "params": [ADA]})).await;
        self.assert_succeeded(&read);
        assert_eq!(read.text().matches(MARKER).count(), self.copies.both, "{}: {read:?}", self.script);
        for digits in [ADA, "123456789012345678.10"] {
            assert!(read.text().contains(digits), "{}: {read:?}", self.script);
        }

        let call = json!({"id": ADA, "balance": "20.05"});
        let written = model.call("set_balance", call.clone()).await;
        self.assert_succeeded(&written);
        assert_eq!((db.value(&balance).await.as_str(), db.rows(&others).await), ("20.05", before.1.clone()));
        let again = model.call("set_balance", call).await;
        self.assert_succeeded(&again);
        assert_eq!(again.word("duplicate"), "true", "{}: {again:?}", self.script);
        assert_eq!(writes(db).await, "1");

        let receipt = json!({"correlation_id": written.word("correlation_id")});
        let undone = model.call(&written.word("undo_tool"), receipt).await;
        self.assert_succeeded(&undone);
        assert_eq!((db.value(&balance).await, db.rows(&others).await), before, "{}: {undone:?}", self.script);

        let refused = model.call("query_database", json!({"query": "delete from bank.account"})).await;
        self.assert_failed(&refused, "not_read_only");
        let missing = model.call("set_balance", json!({"id": "1", "balance": "1"})).await;
        self.assert_failed(&missing, "There is no such account");

        let entries = json!({"query": "select id, what from bank.entry order by id", "row_limit": 150});
        let cut = model.call("query_database", entries.clone()).await;
        let mut rest = entries;
        rest["after"] = json!([cut.word("after")]);
        let rest = model.call("query_database", rest).await;
        assert!(rest.text().contains("151") && rest.text().contains("300"), "{}: {rest:?}", self.script);
        assert_eq!(rest.word("truncated"), "false", "{}: {rest:?}", self.script);
        self.proposes(db, &mut model).await;
        model.finish().await;
    }

    /// A write of tier `confirm` without a user: the model gets a proposal, and confirms it.
    async fn proposes(&self, db: &Database, model: &mut Model) {
        let proposed = model.call("rename_holder", json!({"id": ADA, "holder": "Ida"})).await;
        self.assert_succeeded(&proposed);
        let holder = format!("select holder from bank.account where id = {ADA}");
        assert_eq!(db.value(&holder).await, "Ada");
        let agreed = json!({"proposal_id": proposed.word("proposal_id"), "digest": proposed.word("digest")});
        let confirmed = model.call("confirm_proposal", agreed).await;
        self.assert_succeeded(&confirmed);
        assert_eq!(db.value(&holder).await, "Ida", "{}: {confirmed:?}", self.script);
        assert!(model.asked.is_empty(), "{}: {:?}", self.script, model.asked);
    }

    /// A write of tier `confirm` with a user, who is asked within the call.
    async fn asks(&self, db: &Database, to: &Target<'_>) {
        let mut model = self.start(db, to, true);
        let renamed = model.call("rename_holder", json!({"id": ADA, "holder": "Eve"})).await;
        self.assert_succeeded(&renamed);
        assert_eq!(db.value(&format!("select holder from bank.account where id = {ADA}")).await, "Eve");
        assert!(matches!(&model.asked[..], [question] if question.contains("Eve")), "{:?}", model.asked);
        model.finish().await;
    }

    /// How often an answer reaches the model under this setting.
    async fn copies(&self, db: &Database, manifest: &TestManifest, content: &str) -> usize {
        let arguments = [arguments(manifest), vec!["--content".to_owned(), content.to_owned()]].concat();
        let mut model = self.start(db, &Target::stdio(&arguments), false);
        let read = model.call("query_database", json!({"query": "select 'Llanfair' || 'pwll' as word"})).await;
        let copies = read.text().matches(MARKER).count();
        model.finish().await;
        copies
    }

    async fn run(&self) {
        if long_form::is_left_out() || skip_without(&[self.external]) {
            return;
        }
        let (db, manifest) = bank().await;
        let stdio = Target::stdio(&arguments(&manifest));
        self.goes_through(&db, &stdio).await;
        if self.asks_users {
            self.asks(&db, &stdio).await;
        }
        schemas::reach_the_model(self).await;
        let (db, manifest) = bank().await;
        let server = http_server(&db, &manifest).await;
        self.goes_through(&db, &Target::Http(&server)).await;
        // Three more starts of a framework: docs/setup/clients.md says which `content` to set because of them.
        if long_form::variable("COUNTERSIGN_TEST_FRAMEWORKS_CONTENT").is_none() {
            return;
        }
        let copies = Copies {
            text: self.copies(&db, &manifest, "text").await,
            structured: self.copies(&db, &manifest, "structured").await,
            both: self.copies(&db, &manifest, "both").await,
        };
        assert_eq!(copies, self.copies, "{}", self.script);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_agents_reads_writes_undoes_and_fails() {
    OPENAI_AGENTS.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pydantic_ai_reads_writes_undoes_and_fails() {
    PYDANTIC_AI.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_genai_reads_writes_undoes_and_fails() {
    GOOGLE_GENAI.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_adk_reads_writes_undoes_and_fails() {
    GOOGLE_ADK.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn llama_index_reads_writes_undoes_and_fails() {
    LLAMA_INDEX.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn langchain_reads_writes_undoes_and_fails() {
    LANGCHAIN.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn smolagents_reads_writes_undoes_and_fails() {
    SMOLAGENTS.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_sdk_reads_writes_undoes_and_fails() {
    TYPESCRIPT_SDK.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ai_sdk_reads_writes_undoes_and_fails() {
    AI.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn langchain_js_reads_writes_undoes_and_fails() {
    LANGCHAIN_JS.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_genai_js_reads_writes_undoes_and_fails() {
    GOOGLE_GENAI_JS.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_behind_mcp_remote_reads_writes_undoes_and_fails() {
    if long_form::is_left_out() || skip_without(&[External::NodeModules]) {
        return;
    }
    let (db, manifest) = bank().await;
    let server = http_server(&db, &manifest).await;
    TYPESCRIPT_SDK.goes_through(&db, &Target::bridge(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_adk_loads_the_files_of_the_skills_and_can_do_what_they_say() {
    if long_form::is_left_out() || skip_without(&[GOOGLE_ADK.external]) {
        return;
    }
    let (db, manifest) = bank().await;
    let to = Target::stdio(&arguments(&manifest));
    let mut model = Model::with_skills(GOOGLE_ADK.external, GOOGLE_ADK.script, &db, &to);
    for (skill, says) in [
        ("countersign-read", "next.after"),
        ("countersign-write", "requires_approval"),
        ("countersign-undo", "undo_params"),
    ] {
        let loaded = model.call("load_skill", json!({"skill_name": skill})).await;
        assert!(loaded.text().contains(says), "{loaded:?}");
    }
    let written = model.call("set_balance", json!({"id": ADA, "balance": "20.05", "reason": "A test."})).await;
    let found = model.call("get_recent_mutations", json!({})).await;
    assert_eq!(found.word("correlation_id"), written.word("correlation_id"));
    let receipt = json!({"correlation_id": found.word("correlation_id"), "reason": "The user wants it."});
    let undone = model.call("undo_mutation", receipt).await;
    GOOGLE_ADK.assert_succeeded(&undone);
    let balance = format!("select balance from bank.account where id = {ADA}");
    assert_eq!(db.value(&balance).await, "123456789012345678.10");
    model.finish().await;
}
