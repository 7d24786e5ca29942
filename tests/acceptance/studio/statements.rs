//! Effects of the manifest's statements alone, run in one transaction like the gate runs them.

use manifest::{ServerNames, Source, ToolCatalog};
use testkit::{Database, repository};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The manifest, compiled against a database.
pub(super) struct Studio {
    pub(super) db: Database,
    catalog: ToolCatalog,
}

/// What a call gave; each row as its values, NULL is the word `NULL`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Done {
    pub(super) before: Vec<Vec<String>>,
    pub(super) result: Vec<Vec<String>>,
    pub(super) after: Vec<Vec<String>>,
}

/// Who runs them.
#[derive(Debug, Clone, Copy)]
pub(super) enum As<'a> {
    /// The servers' login, with the account that the server would set: row level security holds.
    Account(&'a str),
    /// A superuser, whom it does not hold.
    Superuser,
}

/// A value of a parameter.
pub(super) type Param<'a> = Option<&'a str>;

impl Studio {
    pub(super) async fn new() -> Self {
        let db = testkit::database().await;
        let source = Source::read(repository().join("manifests/studio.toml")).unwrap();
        let target = db.target().as_role(ledger::DEFAULT_WRITER, None);
        let ledger = ledger::Ledger::new(target, ledger::LedgerOptions::default());
        let names = ServerNames { builtin: &[], executors: &["delete_package_photo"], prefix: "" };
        let catalog = manifest::compile(&[source], &names, &ledger).await.unwrap();
        Self { db, catalog }
    }

    /// Runs `before`, the statements and `after` of a tool for a tenant, and commits unless one of them is refused: then its
    /// SQLSTATE. That a wrong number of rows is rolled back is not done here: it says what was found.
    pub(super) async fn call(&self, by: As<'_>, tenant: &str, tool: &str, own: &[Param<'_>]) -> Result<Done, String> {
        let client = self.open(by).await;
        client.batch_execute("begin").await.unwrap();
        let done = self.run(&client, tenant, tool, own).await?;
        client.batch_execute("commit").await.map_err(|error| state(&error)).map(|()| done)
    }

    /// A session of this account.
    pub(super) async fn open(&self, by: As<'_>) -> Client {
        let (client, account) = match by {
            As::Account(account) => (super::writer(&self.db).await, account),
            As::Superuser => (self.db.connect().await, ""),
        };
        client.batch_execute(&format!("set countersign.account_id = '{account}'")).await.unwrap();
        client
    }

    /// Runs statements in a transaction that the test has begun and leaves open.
    pub(super) async fn run(
        &self,
        client: &Client,
        tenant: &str,
        tool: &str,
        own: &[Param<'_>],
    ) -> Result<Done, String> {
        let spec = self.catalog.get(tool).unwrap();
        let params: Vec<Param<'_>> = std::iter::once(Some(tenant)).chain(own.iter().copied()).collect();
        assert_eq!(params.len(), spec.params.len(), "{tool}");
        let mut done = Done::default();
        if let Some(before) = &spec.before {
            done.before = execute(client, before, &params).await?;
        }
        for statement in &spec.statements {
            done.result = execute(client, statement, &params).await?;
        }
        if let Some(after) = &spec.after {
            done.after = execute(client, after, &params).await?;
        }
        Ok(done)
    }
}

/// Runs a statement with parameters in text form.
async fn execute(
    client: &Client,
    statement: &manifest::StatementSpec,
    params: &[Param<'_>],
) -> Result<Vec<Vec<String>>, String> {
    let types = statement.param_types.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let names = format!("select format_type(t, null) from unnest('{{{types}}}'::oid[]) t");
    let names: Vec<String> = client.query(&names, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let values: Vec<String> = params
        .iter()
        .map(|param| param.map_or_else(|| "null".to_owned(), |text| format!("'{}'", text.replace('\'', "''"))))
        .collect();
    let prepare = format!("deallocate all; prepare call ({}) as {}", names.join(", "), statement.sql);
    client.batch_execute(&prepare).await.map_err(|error| state(&error))?;
    let messages = client.simple_query(&format!("execute call ({})", values.join(", "))).await;
    let messages = messages.map_err(|error| state(&error))?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|index| row.get(index).unwrap_or("NULL").to_owned()).collect())
        }
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

fn state(error: &tokio_postgres::Error) -> String {
    error.as_db_error().unwrap_or_else(|| panic!("{error:?}")).code().code().to_owned()
}
