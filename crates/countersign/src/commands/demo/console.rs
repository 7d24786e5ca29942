//! `countersign demo --console`: an agent has proposed writes, and a person decides on them in a browser.

use anyhow::Context;
use ledger::Ledger;
use ledger::console::{ConsolePerson, ConsoleRole};
use mcp::Client;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;

use super::database::{self, DemoDatabase};
use super::transcript::this_program;
use crate::commands::console::{self as command, DatabaseLogins, MakeHealthCheck};
use crate::settings::Settings;
use crate::signals::stop_on_signals;
use crate::terminal::{Style, print_line};

/// The address of the console, unless another program has it.
const ADDRESS: &str = "127.0.0.1:7788";

pub(super) async fn run(fresh: bool, style: Style, settings: &Settings, health: MakeHealthCheck) -> anyhow::Result<()> {
    print_line(&style.bold("countersign demo: an agent wants to change data, and you decide"));
    print_line("");
    let database = database::prepare(fresh, |step| print_line(&format!("   {step}"))).await?;
    database.add_people().await?;
    let mut server = this_program()?;
    server.args(["--log", "warn", "serve", "--demo"]).env("COUNTERSIGN_ACTOR", "mia");
    let client = Client::start(server).await.context("the demo's server did not start")?;
    let waiting = propose(&client).await?;
    let served = serve(&database, waiting, style, settings, health).await;
    let closed = client.close().await;
    drop(database);
    served?;
    closed?;
    Ok(())
}

/// Makes a few writes and proposals, as an agent would. Returns how many proposals wait for another person.
async fn propose(client: &Client) -> anyhow::Result<usize> {
    let text = "select 'Notes of ' || to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS.US') as text";
    let text = data(client, "query_database", json!({"query": text})).await?;
    let posted = data(client, "post_tweet", json!({"text": text.pointer("/rows/0/text")})).await?;
    data(client, "like_tweet", json!({"tweet_id": posted.get("id")})).await?;
    let packages = "select package_id, title from studio.package order by package_id";
    let packages = data(client, "query_database", json!({"query": packages})).await?;
    let packages = packages.get("rows").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut waiting = 0;
    // The last package has no bookings in the demo, so its deletion can be executed.
    for package in packages.iter().rev().take(2) {
        let proposed = data(client, "delete_package", json!({"package_id": package.get("package_id")})).await;
        waiting += usize::from(proposed.is_ok());
    }
    if let Some(package) = packages.first() {
        let change = json!({"package_id": package.get("package_id"), "title": package.get("title"),
            "description": "One person, one backdrop, twelve edited pictures.", "price": "135.00", "duration_minutes": 75});
        data(client, "upsert_package", change).await?;
    }
    Ok(waiting)
}

async fn data(client: &Client, tool: &str, arguments: Value) -> anyhow::Result<Value> {
    let arguments = if let Value::Object(arguments) = arguments { arguments } else { Map::new() };
    let mut envelope = client.call(tool, arguments).await?.envelope;
    let message = envelope.pointer("/error/message").and_then(Value::as_str).unwrap_or("no answer").to_owned();
    envelope
        .get_mut("data")
        .map(Value::take)
        .filter(|data| !data.is_null())
        .with_context(|| format!("{tool}: {message}"))
}

async fn serve(
    database: &DemoDatabase,
    waiting: usize,
    style: Style,
    settings: &Settings,
    health: MakeHealthCheck,
) -> anyhow::Result<()> {
    let listener = match TcpListener::bind(ADDRESS).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await.context("the console cannot listen")?,
    };
    let origin = format!("http://{}", listener.local_addr()?);
    let own = settings.database()?;
    let ledger = |target: &ledger::ConnectOptions| Ledger::new(target.clone(), own.ledger.clone());
    let target = database.as_login("demo_console")?;
    let operator = ledger(&database.as_login("demo_operator")?);
    let health = health(&target, own, settings);
    let logins = DatabaseLogins { console: ledger(&target), operator: Some(operator), health };
    let console = command::console(&origin, vec![logins.parts(own)?])?;
    let stop = stop_on_signals()?;
    let serving = tokio::spawn(::console::serve(listener, None, console, stop.clone()));
    let owner = ledger(&database.owner()?);
    let person = ConsolePerson { name: "anna".to_owned(), role: ConsoleRole::Operator, groups: Vec::new() };
    print_line("");
    print_line(&style.bold("Open this link. It signs you in as anna, once, within 5 minutes:"));
    print_line("");
    print_line(&format!("   {}", command::make_link(&owner, &origin, &person).await?));
    print_line("");
    let proposals = if waiting == 1 { "1 proposal waits".to_owned() } else { format!("{waiting} proposals wait") };
    print_line(&format!("{proposals} for your approval there, beside the records of what the agent has done."));
    print_line("What you approve is executed within a second. Enter prints another link, Ctrl+C ends the demo.");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            line = lines.next_line() => match line {
                Ok(Some(_)) => print_line(&format!("   {}", command::make_link(&owner, &origin, &person).await?)),
                _ => {
                    stop.cancelled().await;
                    break;
                }
            },
        }
    }
    serving.await.context("the console failed")
}
