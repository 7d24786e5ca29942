//! Row level security by the role and the claims of a caller: what a token says is seen and changed holds for every
//! statement of an agent, and no statement changes it.

mod attacks;
mod beside;
mod claims;
mod proposals;
mod recipes;
mod recorded;
mod roles;
mod sealed;
mod started;

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, HttpClient, HttpServer, KeyServer, Server, SigningKey, lone_database, now_s};
use tokio::process::Command;

/// Notes are separated by a claim, deals by a role. The logins of the server inherit nothing from the roles of callers.
const CRM: &str = "
create role app_eu;
create role app_us;
alter role countersign_writer noinherit;
grant app_eu, app_us to countersign_caller, countersign_writer;
create schema crm;
create table crm.note (id int primary key, tenant text not null, body text not null);
create table crm.deal (id int primary key, region text not null, amount int not null);
alter table crm.note enable row level security;
alter table crm.deal enable row level security;
create policy tenant on crm.note
    using (tenant = nullif(current_setting('countersign.claim_tenant', true), ''));
create policy eu on crm.deal to app_eu using (region = 'eu');
create policy us on crm.deal to app_us using (region = 'us');
insert into crm.note values (1, 'acme', 'acme 1'), (2, 'acme', 'acme 2'), (3, 'bolt', 'bolt 3'), (4, '', 'nobody');
insert into crm.deal values (1, 'eu', 10), (2, 'eu', 20), (3, 'us', 30);
grant usage on schema crm to app_eu, app_us, countersign_reader, countersign_writer;
grant select on all tables in schema crm to countersign_reader;
grant select, insert, update, delete on all tables in schema crm to app_eu, app_us, countersign_writer;
select countersign.track(t) from unnest(array['crm.note', 'crm.deal']::regclass[]) t;
";

const MANIFEST: &str = r#"
name = "crm"
version = "1"

[[tool]]
name = "list_notes"
access = "read"
description = "The notes."
sql = "select id, tenant from crm.note order by id"
rows = "any"

[[tool]]
name = "set_note"
access = "write"
description = "Change a note."
sql = "update crm.note set body = $2 where id = $1 returning id, tenant"
rows = "one"
param = [{ name = "id", description = "The note." }, { name = "body", description = "Its text." }]

[[tool]]
name = "set_all_notes"
access = "write"
tier = "confirm"
description = "Change all notes."
before = "select id, body from crm.note order by id for update"
sql = "update crm.note set body = $1 returning id"
rows = "any"
max_rows = 10
param = [{ name = "body", description = "Their text." }]

[[tool]]
name = "raise_deals"
access = "write"
tier = "approve"
description = "Raise all deals."
before = "select id, amount from crm.deal order by id for update"
sql = "update crm.deal set amount = amount + $1 returning id"
rows = "any"
max_rows = 10
param = [{ name = "by", description = "How much." }]

[[tool]]
name = "set_deal"
access = "write"
description = "Change a deal."
sql = "update crm.deal set amount = $2 where id = $1 returning id, region"
rows = "one"
param = [{ name = "id", description = "The deal." }, { name = "amount", description = "Its amount." }]

[[tool]]
name = "drop_deal"
access = "write"
description = "Drop a deal."
sql = "delete from crm.deal where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "The deal." }]
"#;

async fn crm() -> Database {
    // A cluster of its own: roles belong to all databases of one.
    let db = lone_database().await;
    db.run(CRM).await;
    db
}

/// A server over HTTP for the tokens of an issuer of its own.
struct Crm {
    db: Database,
    server: HttpServer,
    key: SigningKey,
    issuer: KeyServer,
    folder: ConfigDir,
}

impl Crm {
    /// `oauth` are more keys of `[oauth]`, `top` more keys of the file.
    async fn new(top: &str, oauth: &str) -> Self {
        let db = crm().await;
        let url = db.writer_url();
        Self::through(db, &url, top, oauth).await
    }

    /// The server reaches the database at this connection string.
    async fn through(db: Database, url: &str, top: &str, oauth: &str) -> Self {
        Self::serving(MANIFEST, db, url, top, oauth).await
    }

    /// With the tools of this manifest.
    async fn serving(manifest: &str, db: Database, url: &str, top: &str, oauth: &str) -> Self {
        let (key, folder) = (SigningKey::new("first"), ConfigDir::new());
        let issuer = KeyServer::start(&[&key]).await;
        let manifest = folder.write("crm.toml", manifest);
        let config = format!(
            "log = \"info\"\nmanifests = [{manifest:?}]\ndatabase_url = {:?}\n{top}\n\
             [http]\npublic_url = \"https://mcp.example.com\"\n\
             [oauth]\nissuer = {:?}\nscopes = {{ \"cs:admin\" = \"admin\" }}\n{oauth}\n",
            url,
            issuer.issuer()
        );
        let mut command = folder.command(&config);
        command.args(["serve", "--http", "127.0.0.1:0"]).env("COUNTERSIGN_AGENT_CONFIRMS", "true");
        let server = HttpServer::start(command).await;
        Self { db, server, key, issuer, folder }
    }

    fn token(&self, more: Value) -> String {
        let mut claims = json!({"iss": self.issuer.issuer(), "aud": "https://mcp.example.com/mcp", "sub": "anna",
            "scope": "cs:admin", "iat": now_s(), "nbf": now_s(), "exp": now_s() + 600});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.key.token(&claims)
    }

    /// A client whose token has these claims as well.
    fn client(&self, more: Value) -> HttpClient {
        self.server.http_client().with_token(&self.token(more))
    }
}

/// A server on stdio whose profile has this role.
fn command_with_role(folder: &ConfigDir, url: &str, role: &str, top: &str) -> Command {
    let manifest = folder.write("crm.toml", MANIFEST);
    let config = format!(
        "log = \"warn\"\nmanifests = [{manifest:?}]\ndatabase_url = {url:?}\nprofile = \"own\"\n{top}\n\
         [profiles.own]\naccess = [\"read\", \"write\", \"admin\"]\nrole = {role:?}\n"
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    command
}

/// The ids of the rows that a query returns.
async fn ids(client: &HttpClient, sql: &str) -> Vec<i64> {
    let answer = client.call("query_database", json!({"query": sql})).await;
    assert_eq!(answer["success"], true, "{answer}");
    numbers(&answer["data"]["rows"])
}

async fn ids_of(server: &Server, sql: &str) -> Vec<i64> {
    numbers(&Value::from(server.query(sql).await))
}

fn numbers(rows: &Value) -> Vec<i64> {
    rows.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

const NOTES: &str = "select id from crm.note order by id";
const DEALS: &str = "select id from crm.deal order by id";
