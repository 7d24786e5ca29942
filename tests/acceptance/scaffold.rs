//! `countersign scaffold`: what it writes passes `check` at once, its tools work, and an undo restores every table exactly.

mod errors;
mod kinds;
mod known;
mod random;

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, TestManifest, run, run_countersign};
use tokio::process::Command;

/// A scaffolded manifest after the commands that `scaffold` names, and a server with it.
struct Scaffolded {
    db: Database,
    schema: String,
    manifest: TestManifest,
    server: Server,
}

impl Scaffolded {
    /// Scaffolds the whole schema. The servers' login has no rights there before.
    async fn new(db: &Database, schema: &str) -> Self {
        Self::edited(db, schema, |text| text).await
    }

    /// Like [`Scaffolded::new`], with the manifest as an operator has changed it.
    async fn edited(db: &Database, schema: &str, edit: impl FnOnce(String) -> String) -> Self {
        let quoted = db.value(&format!("select quote_ident($${schema}$$)")).await;
        db.run(&format!(
            "revoke all on schema {quoted} from countersign_writer;
             revoke all on all tables in schema {quoted} from countersign_writer;
             revoke all on all sequences in schema {quoted} from countersign_writer"
        ))
        .await;
        let written = scaffold(db, schema, &[]).await.succeeded();
        let again = scaffold(db, schema, &[]).await;
        assert_eq!((&again.out, &again.err), (&written.out, &written.err), "it is the same each time");
        for line in written.err.lines().filter_map(|line| line.strip_prefix("  countersign ")) {
            let ran = shell(db, line.trim_end_matches(" | psql")).await;
            assert_eq!(ran.code, 0, "{line}: {}", ran.err);
            if line.ends_with("| psql") {
                db.run(&ran.out).await;
            }
        }
        let manifest = TestManifest::from_text(&edit(written.out));
        let arguments = manifest.path().display().to_string();
        let checked = run_countersign(&db.writer_url(), &["check", "--manifest", &arguments]).await;
        assert_eq!(checked.code, 0, "{}\n{}", checked.err, manifest.text());
        let server = manifest.serve(db).await;
        Self { db: db.clone(), schema: schema.to_owned(), manifest, server }
    }

    /// Every row of every table of the schema, in a fixed order.
    async fn contents(&self) -> Vec<Vec<String>> {
        contents(&self.db, &self.schema).await
    }

    /// Calls a write that succeeds and changes something, and undoes it, which restores every table. The data of the write.
    async fn written_and_undone(&self, tool: &str, arguments: Value) -> Value {
        let before = self.contents().await;
        let done = self.server.succeed(tool, arguments.clone()).await;
        let after = self.contents().await;
        assert_ne!(after, before, "{tool} {arguments} changed nothing");
        let undo = done["meta"]["rollback"]["undo_params"].clone();
        assert_eq!(done["meta"]["rollback"]["undo_tool"], "undo_mutation", "{done}");
        self.server.succeed("undo_mutation", undo).await;
        assert_eq!(self.contents().await, before, "{tool} {arguments} was not undone");
        done["data"].clone()
    }

    /// Calls a write above tier auto, has it approved, and undoes it as an operator, which restores every table.
    async fn approved_and_undone(&self, tool: &str, arguments: Value) {
        let before = self.contents().await;
        let proposal = self.server.propose(tool, arguments.clone()).await;
        let (id, digest) = (proposal["proposal_id"].as_str().unwrap(), proposal["digest"].as_str().unwrap());
        let url = self.db.url();
        let approved = run_countersign(&url, &["proposals", "approve", id, "--digest", digest]).await;
        assert_eq!(approved.code, 0, "{tool}: {}", approved.err);
        assert_ne!(self.contents().await, before, "{tool} {arguments} changed nothing");
        let shown = run_countersign(&url, &["proposals", "show", id, "--json"]).await;
        let shown: Value = serde_json::from_str(&shown.out).unwrap();
        let undone = run_countersign(&url, &["undo", shown["correlation_id"].as_str().unwrap()]).await;
        assert_eq!(undone.code, 0, "{tool}: {}{}", undone.out, undone.err);
        assert_eq!(self.contents().await, before, "{tool} {arguments} was not undone");
    }

    /// The argument of a tool, as clients see it.
    async fn property(&self, tool: &str, name: &str) -> Value {
        let tools = self.server.client().list_tools().await.unwrap();
        let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap_or_else(|| panic!("no {tool}"));
        tool["inputSchema"]["properties"][name].clone()
    }
}

/// Runs `countersign scaffold` as the owner of the tables.
async fn scaffold(db: &Database, schema: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(&db.url(), &[&["scaffold", "--schema", schema], arguments].concat()).await
}

/// Runs a command line of `countersign` in a shell.
async fn shell(db: &Database, line: &str) -> CommandOutput {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("{} {line}", testkit::countersign().display()));
    run(command.env("DATABASE_URL", db.url())).await
}

/// Every row of every table of a schema with any names.
async fn contents(db: &Database, schema: &str) -> Vec<Vec<String>> {
    let tables = format!(
        "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = $${schema}$$ order by tablename collate \"C\""
    );
    let mut all = Vec::new();
    for table in db.rows(&tables).await {
        let name = &table[0];
        all.extend(
            db.rows(&format!("select $n${name}$n$, t::text from only {name} t order by t::text collate \"C\"")).await,
        );
    }
    all
}

/// The value that a column has after a write that is not undone.
async fn kept(scaffolded: &Scaffolded, tool: &str, arguments: Value, sql: &str) -> String {
    let mut arguments = arguments;
    let call = format!("{tool}{arguments}").replace(|c: char| !c.is_ascii_graphic(), "_");
    arguments["idempotency_key"] = json!(call.get(..255).unwrap_or(&call));
    scaffolded.server.succeed(tool, arguments).await;
    scaffolded.db.value(sql).await
}
