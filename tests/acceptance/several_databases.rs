//! Several databases behind one server: each call names its database, and what one database does or does not do costs
//! the others nothing.

mod away;
mod commands;
mod configuration;
pub(crate) mod console;
mod receipts;

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server, database, poll, repository};
use tokio::process::Command;

/// A production and a staging database of one schema, and a folder for their configuration.
pub(crate) struct Shop {
    pub(crate) production: Database,
    pub(crate) staging: Database,
    pub(crate) folder: ConfigDir,
}

impl Shop {
    pub(crate) async fn new() -> Self {
        Self { production: database().await, staging: database().await, folder: ConfigDir::new() }
    }

    /// The table of a database with the tools of the social network.
    fn table(name: &str, environment: &str, url: &str, rest: &str) -> String {
        let social = repository().join("manifests/social.toml");
        format!(
            "[database.{name}]\nenvironment = \"{environment}\"\ndescription = \"What {environment} has.\"\n\
             database_url = {url:?}\nmanifests = [{social:?}]\n{rest}\n"
        )
    }

    /// The configuration with these keys before the tables, and this end of the table of staging.
    pub(crate) fn config(&self, top: &str, rest: &str) -> String {
        let tables = [
            Self::table("shop", "production", &self.production.url(), ""),
            Self::table("shop_staging", "staging", &self.staging.url(), rest),
        ];
        format!("{top}\n{}", tables.concat())
    }

    /// `countersign serve` with this configuration.
    pub(crate) fn serve(&self, config: &str) -> Command {
        let mut command = self.folder.command(config);
        command.arg("serve");
        command
    }
}

/// A server whose databases both answer. It waits for them for 2 s only, which is short beside other work.
pub(crate) async fn started(command: Command) -> Server {
    let server = Server::start(command).await;
    for database in ["shop", "shop_staging"] {
        let read = async || server.call("query_database", at(database, json!({"query": "select 1"}))).await;
        poll::until(database, async || read().await["success"] == true).await;
    }
    server
}

/// The tool of this name in a list of tools.
pub(crate) fn tool<'a>(tools: &'a Value, name: &str) -> &'a Value {
    let tools = tools.as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no tool {name} in {tools:?}"))
}

/// The arguments with the database in them.
pub(crate) fn at(database: &str, mut arguments: Value) -> Value {
    arguments["database"] = json!(database);
    arguments
}
