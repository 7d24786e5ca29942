//! The recipes of docs/topics/row-security.md.

use serde_json::{Value, json};
use testkit::{ConfigDir, HttpClient, HttpServer, KeyServer, SigningKey, lone_database, now_s};

use super::ids;
use crate::samples::sample;

const PAGE: &str = "docs/topics/row-security.md";

const TABLES: &str = "
create schema crm;
create table crm.note (id int primary key, owner text);
create table crm.deal (id int primary key, tenant text);
create table crm.task (id int primary key, team text);
create table crm.offer (id int primary key, region text);
insert into crm.note values (1, 'oauth:anna'), (2, 'oauth:bert'), (3, 'team-a');
insert into crm.deal values (1, 'acme'), (2, 'bolt'), (3, '');
insert into crm.task values (1, 'red'), (2, 'blue'), (3, 'green');
insert into crm.offer values (1, 'eu'), (2, 'us');
grant usage on schema crm to countersign_reader;
grant select on all tables in schema crm to countersign_reader;
";

/// The ids that a caller sees of notes, deals, tasks and offers.
async fn seen(client: &HttpClient) -> [Vec<i64>; 4] {
    let mut seen = [const { Vec::new() }; 4];
    for (table, seen) in ["note", "deal", "task", "offer"].iter().zip(&mut seen) {
        *seen = ids(client, &format!("select id from crm.{table} order by id")).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recipes_of_the_page_separate_callers() {
    let (db, folder, key) = (lone_database().await, ConfigDir::new(), SigningKey::new("first"));
    db.run(TABLES).await;
    for beginning in ["alter table crm.note", "alter table crm.deal", "create role app_eu"] {
        db.run(&sample(PAGE, beginning)).await;
    }
    db.run("grant select on all tables in schema crm to app_eu, app_us").await;
    let issuer = KeyServer::start(&[&key]).await;
    let oauth = sample(PAGE, "[oauth]").replace("https://login.example.com", issuer.issuer());
    let (token, tokens) = HttpServer::token("team-a", &["--profile", "eu"]).await;
    let config = format!(
        "log = \"info\"\ndatabase_url = {:?}\n[http]\npublic_url = \"https://mcp.example.com\"\n{oauth}\n{}\n{tokens}",
        db.writer_url(),
        sample(PAGE, "[profiles.eu]")
    );
    let mut command = folder.command(&config);
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let server = HttpServer::start(command).await;
    let of_claims = |more: Value| {
        let mut claims = json!({"iss": issuer.issuer(), "aud": "https://mcp.example.com/mcp", "scope": "countersign:write",
            "exp": now_s() + 600});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.http_client().with_token(&key.token(&claims))
    };
    let anna = of_claims(
        json!({"sub": "anna", "https://example.com/tenant": "acme", "teams": ["red", "green"], "db_role": "app_us"}),
    );
    assert_eq!(seen(&anna).await, [vec![1], vec![1], vec![1, 3], vec![2]]);
    let bert = of_claims(json!({"sub": "bert", "db_role": "app_eu"}));
    assert_eq!(seen(&bert).await, [vec![2], vec![], vec![], vec![1]]);
    let team = server.http_client().with_token(&token);
    assert_eq!(seen(&team).await, [vec![3], vec![], vec![], vec![1]]);
}
