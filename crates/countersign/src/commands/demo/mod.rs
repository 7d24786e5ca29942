//! `countersign demo`: shows a session between a real MCP client and the real server, on a private PostgreSQL.
#![expect(
    clippy::indexing_slicing,
    reason = "a serde_json::Value indexed by a name that it lacks is null, not a panic"
)]

#[cfg(unix)]
mod cluster;
mod console;
pub(crate) mod database;
mod transcript;

#[cfg(windows)]
mod no_cluster;
#[cfg(windows)]
use no_cluster as cluster;

use std::path::Path;
use std::time::{Instant, SystemTime};

use anyhow::Context;
use mcp::Client;
use serde_json::{Value, json};

use self::database::DemoDatabase;
use self::transcript::{Session, this_program};
use crate::commands::cli::DemoArgs;
use crate::commands::console::MakeHealthCheck;
use crate::settings::Settings;
use crate::terminal::{Style, print_line};

pub(crate) async fn run(arguments: DemoArgs, settings: &Settings, health: MakeHealthCheck) -> anyhow::Result<()> {
    let (style, started) = (Style::of_stdout(), Instant::now());
    if arguments.console {
        return console::run(arguments.fresh, style, settings, health).await;
    }
    print_line(&style.bold("countersign demo: an agent works on PostgreSQL, and every write is accounted for"));
    print_line("");
    let database = database::prepare(arguments.fresh, |step| print_line(&format!("   {step}"))).await?;
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let mut server = this_program()?;
    server.args(["--log", "warn"]).args(SERVE);
    let client = Client::start(server).await.context("the demo's server did not start")?;
    if arguments.verbose {
        print_line(&format!("   an MCP client is connected to {} {}", program.display(), SERVE.join(" ")));
    }

    let played = play(&mut Session::new(&client, Style::of_stdout(), arguments.verbose), &database).await;
    let closed = client.close().await;
    drop(database);
    played?;
    closed?;
    let took = started.elapsed().as_secs_f64();
    print_line("");
    print_line(&style.bold(&format!("Every step answered as it should, in {took:.1} s.")));
    if arguments.verbose {
        print_configuration(&program);
    } else {
        print_next_steps();
    }
    Ok(())
}

/// The arguments of the demo's server.
const SERVE: [&str; 4] = ["serve", "--demo", "--execute-sql", "--agent-confirms"];

/// Plays the steps. Each checks its result; the first unexpected result ends the demo with an error.
async fn play(session: &mut Session<'_>, database: &DemoDatabase) -> anyhow::Result<()> {
    session.list_tools(&["query_database", "execute_sql", "like_tweet", "unlike_tweet", "get_mutation_detail"]).await?;

    let query = "select t.id, a.handle, t.text from social.tweet t join social.account a using (account_id) \
                 where not exists (select from social.tweet_like l where l.tweet_id = t.id and l.account_id = $1) \
                 order by t.id limit 3";
    let found =
        session.succeeds("The agent reads", "query_database", json!({"query": query, "params": ["default"]})).await?;
    let mut tweet_id = found["data"]["rows"][0]["id"].clone();
    if tweet_id.is_null() {
        let posted = session
            .succeeds("It has liked everything; so it posts", "post_tweet", json!({"text": "One more for the demo."}))
            .await?;
        tweet_id = posted["data"]["id"].clone();
    }

    session
        .is_refused(
            "The read tool cannot write",
            "query_database",
            json!({"query": "delete from social.tweet"}),
            "not_read_only",
        )
        .await?;

    session.shown("An agent reads, and its reading tool cannot write");

    write_without_a_tool(session).await?;

    let like = json!({"tweet_id": tweet_id});
    let liked = session
        .succeeds("A declared tool, which needs no SQL and here no agreement", "like_tweet", like.clone())
        .await?;
    let receipt = liked["meta"]["correlation_id"].clone();

    let again = session
        .succeeds("The same call again: the agent retried, nothing happens twice", "like_tweet", like.clone())
        .await?;
    session.expect(again["data"]["duplicate"] == json!(true), "the second call is answered as a duplicate")?;
    session.expect(again["data"]["original_correlation_id"] == receipt, "it points to the first call's receipt")?;

    session.shown("A declared tool writes; the same call again writes nothing, and answers with the first receipt");
    let undo = &liked["meta"]["rollback"];
    let undo_tool = undo["undo_tool"].as_str().context("like_tweet did not say how to undo it")?;
    let undone = session
        .succeeds("Undone, with exactly the call that meta.rollback names", undo_tool, undo["undo_params"].clone())
        .await?;

    session
        .is_refused(
            "The same call once more: it was undone, so it is neither answered as done nor done again by accident",
            "like_tweet",
            like.clone(),
            "superseded",
        )
        .await?;
    let mut anew = like;
    anew["idempotency_key"] = format!("after:{}", receipt.as_str().unwrap_or_default()).into();
    let relike = session.succeeds("With a key of its own it is a new write", "like_tweet", anew).await?;
    session.expect(relike["data"]["duplicate"].is_null(), "it is executed, not answered from the record")?;

    session.shown("It was undone by the call that its receipt names; a retry after that is refused");
    let recent = session.succeeds("What did the agent do?", "get_recent_mutations", json!({"limit": 3})).await?;
    let statuses: Vec<&str> = recent["data"]["mutations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|mutation| mutation["status"].as_str())
        .collect();
    session.expect(
        statuses == ["success", "failure", "success"],
        "newest first: the new write, the refused call and the undo; the retry was answered from memory and left no record",
    )?;

    let detail = session
        .succeeds("One of them in full, by its receipt", "get_mutation_detail", json!({"correlation_id": receipt}))
        .await?;
    session.expect(
        detail["data"]["reversed_by"] == Value::from(vec![undone["meta"]["correlation_id"].clone()]),
        "the record names the write that reversed it",
    )?;
    session.shown("Each write is on record, with the write that reversed it");
    take_back(session, database).await?;
    agree(session).await?;
    verify(session, database).await
}

/// A write for which nobody has declared a tool: tried, agreed to, undone.
async fn write_without_a_tool(session: &mut Session<'_>) -> anyhow::Result<()> {
    // An earlier run has undone its own write, and the same call would count as superseded.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let name = "North Street Bakery and Café";
    let update = json!({"sql": "update social.account set display_name = $1 where handle = $2",
        "params": [name, "northstreetbakery"], "reason": "The bakery opened a café.",
        "idempotency_key": format!("demo:{since}")});
    let proposed = session
        .succeeds("A write of its own SQL: run, rolled back, and shown to the user", "execute_sql", update)
        .await?;
    let shown = &proposed["data"]["proposal"]["preview"]["effects"]["rows"][0]["columns"]["display_name"];
    session.expect(shown["after"] == json!(name), "the user sees the row before and after; nothing was written yet")?;
    let done =
        session.succeeds("The user agrees: it is executed once", "confirm_proposal", agreement(&proposed)).await?;
    let undo = &done["meta"]["rollback"];
    let undo_tool = undo["undo_tool"].as_str().context("execute_sql did not say how to undo it")?;
    let proposed = session.succeeds("Its undo is shown as well", undo_tool, undo["undo_params"].clone()).await?;
    session.succeeds("And made, when the user agrees", "confirm_proposal", agreement(&proposed)).await?;
    let query = json!({"query": "select display_name from social.account where handle = 'northstreetbakery'"});
    let now = session.succeeds("The row is as before", "query_database", query).await?;
    session.expect(now["data"]["rows"][0]["display_name"] != json!(name), "the name is the old one")?;
    session.shown("SQL of its own was tried, rolled back and shown; it was agreed to, and executed once");
    session.shown("Its undo was shown as well, and has put the row back");
    Ok(())
}

/// The arguments with which a user agrees to what this answer has shown.
fn agreement(proposed: &Value) -> Value {
    let proposal = &proposed["data"]["proposal"];
    json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]})
}

/// Undoes a write by its recorded effects: first a conflict, then a plan.
async fn take_back(session: &mut Session<'_>, database: &DemoDatabase) -> anyhow::Result<()> {
    // The text is unique: an earlier run has undone its own post, and the same text would count as superseded.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let text = json!({"text": format!("Something to take back ({since}).")});
    let posted = session.succeeds("Another write", "post_tweet", text).await?;
    let on_it = json!({"tweet_id": posted["data"]["id"]});
    session.succeeds("And one that stands on it", "like_tweet", on_it).await?;
    session
        .is_refused(
            "Undoing the first one alone is refused: the like refers to the tweet",
            "undo_mutation",
            json!({"correlation_id": posted["meta"]["correlation_id"]}),
            "undo_conflict",
        )
        .await?;
    let receipt = json!({"correlation_id": posted["meta"]["correlation_id"]});
    let detail = session.succeeds("Which rows a write changed is on record", "get_mutation_detail", receipt).await?;
    let (own, from) = (&detail["data"]["client"]["session_id"], &detail["data"]["created_at"]);
    let (own, from) = own.as_str().zip(from.as_str()).context("the record has no session, or no time")?;
    let planned = session
        .runs(
            "A person takes back what this session did since then: first a plan, which changes nothing",
            database,
            &["undo", "plan", "--session", own, "--from", from],
        )
        .await?;
    let run = planned.lines().find_map(|line| line.split_once("countersign ")).context("the plan cannot run")?.1;
    let run: Vec<&str> = run.split(' ').collect();
    let undone = session.runs("Then exactly what was shown", database, &run).await?;
    session.expect(undone.starts_with("Undone: the plan"), "every row is what it was, in one transaction")?;
    session.shown("An undo under a later write is refused; a plan of a person takes both back");
    Ok(())
}

/// Shows writes that wait for an approval.
async fn agree(session: &mut Session<'_>) -> anyhow::Result<()> {
    let query = "select package_id, title, description, price + 1 as price, duration_minutes from studio.package \
                 order by package_id limit 1";
    let found = session
        .succeeds(
            "Another domain, with many tenants: the agent sees the rows of its own",
            "query_database",
            json!({"query": query}),
        )
        .await?;
    let package = found["data"]["rows"][0].clone();
    let proposed = session
        .succeeds("A write that its user has to agree to: shown, and not made", "upsert_package", package.clone())
        .await?;
    session.expect(proposed["data"]["requires_approval"] == json!(true), "nothing was written yet")?;
    let done = session
        .succeeds(
            "The user agrees to what they saw, and exactly that is written",
            "confirm_proposal",
            agreement(&proposed),
        )
        .await?;
    session.expect(done["data"]["result"]["price"] == package["price"], "the price is what was shown")?;

    session.shown("A write that its user has to agree to is written exactly as it was shown");
    let proposed = session
        .succeeds("A write that another person has to approve", "delete_package", json!({"package_id": 3}))
        .await?;
    session
        .is_refused(
            "No agent approves that, whatever it says",
            "confirm_proposal",
            agreement(&proposed),
            "not_permitted",
        )
        .await?;
    let taken_back =
        json!({"proposal_id": proposed["data"]["proposal"]["proposal_id"], "reason": "It was only a demo."});
    session.succeeds("So it is taken back", "reject_proposal", taken_back).await?;
    session.shown("No agent approves what another person has to approve");
    Ok(())
}

async fn verify(session: &mut Session<'_>, database: &DemoDatabase) -> anyhow::Result<()> {
    let title = "The records are sealed in a log, and its checkpoint is signed; a server does this every minute";
    session.runs(title, database, &["audit", "seal"]).await?;
    let verified =
        session.runs("An auditor compares every record with that log", database, &["audit", "verify"]).await?;
    session.expect(verified.starts_with("The ledger agrees with its log"), "no record was changed or removed since")?;
    session.shown("The records are in a signed log, and an auditor finds none changed or removed");
    Ok(())
}

fn print_next_steps() {
    print_line("   Each call with its answer, and the configuration of a client: countersign demo --verbose");
    print_line("   The same as a reviewer sees it, in your browser:              countersign demo --console");
    print_line("   On a database of your own:    countersign init --schema SCHEMA --config FILE, and then");
    print_line("                                 countersign install --client cursor --config FILE");
}

fn print_configuration(program: &Path) {
    let program = program.display().to_string();
    let server = |args: &[&str]| json!({"command": program, "args": args});
    let pretty = |value: Value| serde_json::to_string_pretty(&value).unwrap_or_default();
    print_line("To use this server yourself:");
    print_line("");
    print_line("Claude Desktop (claude_desktop_config.json), Cursor (.cursor/mcp.json), Windsurf and most others:");
    print_line("");
    print_line(&pretty(json!({"mcpServers": {"countersign-demo": server(&SERVE)}})));
    print_line("");
    print_line("VS Code (.vscode/mcp.json):");
    print_line("");
    let mut stdio = server(&SERVE);
    stdio["type"] = json!("stdio");
    print_line(&pretty(json!({"servers": {"countersign-demo": stdio}})));
    print_line("");
    print_line("On a database of your own: `countersign init --schema SCHEMA --config FILE` once, and then");
    print_line("`countersign install --client cursor --name NAME --config FILE`.");
}
