//! Masks as a server applies them: by the configuration, for each profile and account, in every answer.

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server};

use super::shop;
use crate::samples::sample;

const MANIFEST: &str = r#"
name = "shop"
version = "1"

[[tool]]
name = "find_customer"
access = "read"
description = "Find customers by their address."
sql = "select id, email, age from shop.customers where email = $1 order by email"

[[tool.param]]
name = "email"
description = "The address."

[[tool]]
name = "set_email"
access = "write"
description = "Change the address of a customer."
sql = "update shop.customers set email = $2 where id = $1 returning id, email"
rows = "one"
before = "select id, email from shop.customers where id = $1 for update"

[[tool.param]]
name = "id"
description = "The customer."

[[tool.param]]
name = "email"
description = "The address."

[tool.undo]
tool = "set_email"
params = { id = "before.id", email = "before.email" }

[[tool]]
name = "propose_email"
access = "write"
tier = "approve"
description = "Propose another address of a customer."
sql = "update shop.customers set email = $2 where id = $1 returning id, email"
rows = "one"
before = "select id, email from shop.customers where id = $1 for update"
undo = { irreversible = "for the test" }

[[tool.param]]
name = "id"
description = "The customer."

[[tool.param]]
name = "email"
description = "The address."
"#;

struct Shop {
    db: Database,
    folder: ConfigDir,
}

impl Shop {
    async fn new() -> Self {
        let db = shop("variant").await;
        db.run(
            "update shop.customers set email = 'alice@x.org', age = 33 where id = 1; \
             grant select, update on shop.customers to countersign_writer; grant usage on schema shop to countersign_writer; \
             analyze shop.customers, shop.events",
        )
        .await;
        let folder = ConfigDir::new();
        folder.write("shop.toml", MANIFEST);
        Self { db, folder }
    }

    fn config(&self, masks: &str) -> String {
        format!("database_url = {:?}\nlog = \"warn\"\nmanifests = [\"shop.toml\"]\n{masks}", self.db.url())
    }

    async fn server(&self, masks: &str, arguments: &[&str]) -> Server {
        let mut command = self.folder.command(&self.config(masks));
        Server::start({
            command.arg("serve").args(arguments);
            command
        })
        .await
    }

    /// What the server and `check` say of wrong masks.
    async fn refusals(&self, masks: &str) -> [String; 2] {
        [self.refusal(masks, "serve").await, self.refusal(masks, "check").await]
    }

    async fn refusal(&self, masks: &str, command: &str) -> String {
        let output = self.folder.command(&self.config(masks)).arg(command).output().await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }
}

async fn emails(server: &Server) -> Value {
    let query = json!({"query": "select email, age from shop.customers where id = 1", "row_format": "array"});
    server.succeed("query_database", query).await["data"]["rows"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_a_server_is_masked() {
    let shop = Shop::new().await;
    let masks = "[mask]\n\"shop.customers.email\" = \"partial\"\n\"shop.customers.age\" = \"null\"\n\"shop.events.secret\" = \"hash\"\n";
    let server = shop.server(masks, &["--profile", "admin"]).await;
    let answer = server
        .succeed("query_database", json!({"query": "select id, email, age from shop.customers where id = 1"}))
        .await;
    let columns = json!([{"name": "id", "type": "int4"}, {"name": "email", "type": "text", "mask": "partial"}, {"name": "age", "type": "int4", "mask": "null"}]);
    assert_eq!(
        (&answer["data"]["rows"][0], &answer["data"]["columns"]),
        (&json!({"id": 1, "email": "a***@x.org", "age": null}), &columns)
    );
    // The same secret has the same hash, in each partition and in each call.
    let hash = async |table: &str| {
        let query = json!({"query": format!("select secret from {table} where id = 60")});
        server.succeed("query_database", query).await["data"]["rows"][0]["secret"].clone()
    };
    let hashed = hash("shop.events").await;
    assert!(hashed.as_str().is_some_and(|hash| hash.len() == 24) && hashed == hash("shop.events_2").await, "{hashed}");

    let refused = server
        .fail("query_database", json!({"query": "select id from shop.customers order by email"}), "not_permitted")
        .await;
    let message = "Database query failed: shop.customers.email is masked: it may only be a result column by itself, and this query uses it for an order";
    assert_eq!(refused["message"], message);
    let update = json!({"query": "update shop.customers set email = ''"});
    server.fail("query_database", update, "not_read_only").await;
    let explain = json!({"query": "select id from shop.customers where age > 3"});
    let refused = server.fail("explain_query", explain, "not_permitted").await;
    assert!(refused["message"].as_str().unwrap().contains("shop.customers.age is masked"), "{refused}");
    server
        .succeed("explain_query", json!({"query": "select email from shop.customers where id > $1", "params": [3]}))
        .await;

    let described = server.succeed("describe_database", json!({"tables": ["shop.customers", "shop.events_2"]})).await;
    let column = |table: usize, name: &str| {
        let columns = described["data"]["tables"][table]["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap().clone()
    };
    for (table, name, mask) in [(0, "email", "partial"), (0, "age", "null"), (1, "secret", "hash")] {
        let column = column(table, name);
        assert_eq!(
            (&column["mask"], &column["most_common_values"], &column["range"]),
            (&json!(mask), &Value::Null, &Value::Null)
        );
    }
    let id = column(0, "id");
    assert!(id["mask"].is_null() && id["range"].is_array(), "{id}");

    // The pages of a result are masked, and no page is ordered by a masked column.
    let query = json!({"query": "select email, id from shop.customers order by id", "row_limit": 1});
    let mut page = server.succeed("query_database", query.clone()).await["data"].clone();
    let mut next = query;
    next["after"] = page["next"]["after"].clone();
    assert_eq!(page["rows"], json!([{"email": "a***@x.org", "id": 1}]));
    page = server.succeed("query_database", next).await["data"].clone();
    assert_eq!(
        (&page["rows"][0]["id"], page["rows"][0]["email"].as_str().map(|email| &email[1..])),
        (&json!(2), Some("***@x.org"))
    );
    let by_mask =
        json!({"query": "select email, id from shop.customers order by email, id", "row_limit": 1, "after": ["a", 1]});
    server.fail("query_database", by_mask, "not_permitted").await;

    // A query of the operator may use the column, and its result is masked.
    let found = server.succeed("find_customer", json!({"email": "alice@x.org"})).await;
    assert_eq!(found["data"]["rows"][0], json!({"id": 1, "email": "a***@x.org", "age": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_results_and_proposals_are_masked_and_no_undo_would_write_a_mask() {
    let shop = Shop::new().await;
    let masks = "[mask]\n\"shop.customers.email\" = { mask = \"partial\", accounts = { boss = \"none\" } }\n";
    let server = shop.server(masks, &["--profile", "admin"]).await;
    let written = server.succeed("set_email", json!({"id": 1, "email": "bob@x.org"})).await;
    assert_eq!(written["data"], json!({"id": 1, "email": "b***@x.org"}));
    let rollback = &written["meta"]["rollback"];
    assert_eq!((&rollback["reversible"], &rollback["undo_params"]), (&json!(true), &Value::Null), "{rollback}");
    assert!(rollback["note"].as_str().unwrap().contains("masked"), "{rollback}");
    let detail = server.record(&written).await;
    let proposed = server.propose("propose_email", json!({"id": 1, "email": "carol@x.org"})).await;
    let proposal = json!({"proposal_id": proposed["proposal_id"]});
    let shown = server.succeed("get_proposal", proposal).await;
    let recent = server.succeed("get_recent_mutations", json!({})).await;
    let preview = server
        .succeed("preview_mutation", json!({"tool": "set_email", "params": {"id": 1, "email": "dave@x.org"}}))
        .await;
    for answer in [&detail, &proposed, &shown, &recent, &preview] {
        for secret in ["alice", "bob@", "carol@", "dave@"] {
            assert!(!answer.to_string().contains(secret), "{secret} is in {answer}");
        }
    }
    assert!(shown.to_string().contains("b***@x.org"), "{shown}");
    let recorded = async |role: &str| {
        let config = shop.config(masks).replace("user=postgres", &format!("user={role}"));
        let mut command = shop.folder.command(&config);
        let id = written["meta"]["correlation_id"].as_str().unwrap();
        let output = command.args(["audit", "show", id, "--json"]).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let auditor = format!("auditor_{}", shop.db.name());
    shop.db.run(&format!("create role {auditor} login; grant countersign_operator to {auditor}; revoke select on shop.customers from public")).await;
    assert!(recorded("postgres").await.contains("alice@x.org"));
    let masked = recorded(&auditor).await;
    assert!(!masked.contains("alice") && !masked.contains("bob@") && masked.contains("a***@x.org"), "{masked}");
    shop.db.run(&format!("grant select (email) on shop.customers to {auditor}")).await;
    assert!(recorded(&auditor).await.contains("alice@x.org"));
    shop.db.run("grant select on shop.customers to public").await;
    // The ledger has the values, and an account without the mask sees them.
    assert_eq!(
        shop.db.value("select before_image->0->>'email' from countersign.mutation where tool_name = 'set_email'").await,
        "alice@x.org"
    );
    let server = shop.server(masks, &["--profile", "admin", "--account", "boss"]).await;
    let written = server.succeed("set_email", json!({"id": 1, "email": "erin@x.org"})).await;
    assert_eq!(written["meta"]["rollback"]["undo_params"]["email"], "bob@x.org", "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_masks_of_the_page_differ_by_profile_and_account() {
    let shop = Shop::new().await;
    let masks = sample("docs/topics/masking.md", "[mask]");
    let masks = format!("[profiles.support]\naccess = [\"read\"]\n{masks}");
    shop.db.run("create table shop.cards (customer_id int, number text); grant select on shop.cards to public; create function shop.current_tenant() returns text language sql stable as 'select ''t'''").await;
    for (arguments, expected) in [
        (vec![], json!(["a***@x.org", 33])),
        (vec!["--profile", "admin"], json!(["alice@x.org", 33])),
        (vec!["--account", "auditor"], json!(["alice@x.org", 33])),
    ] {
        let server = shop.server(&masks, &arguments).await;
        assert_eq!(emails(&server).await, expected, "{arguments:?}");
    }
    let server = shop.server(&masks, &["--profile", "support"]).await;
    let hashed = emails(&server).await;
    assert!(hashed[0].as_str().is_some_and(|hash| hash.len() == 24), "{hashed}");
    server.fail("query_database", json!({"query": "select number from shop.cards"}), "not_permitted").await;
    server.succeed("query_database", json!({"query": "select shop.current_tenant()"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn execute_sql_is_closed_to_callers_with_masks() {
    let shop = Shop::new().await;
    let masks = "execute_sql = \"any\"\n[mask]\n\"shop.customers.email\" = \"null\"\n";
    let server = shop.server(masks, &["--profile", "admin"]).await;
    server.fail("execute_sql", json!({"sql": "select email from shop.customers"}), "not_permitted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mask_that_does_not_fit_stops_the_start_and_says_why() {
    let shop = Shop::new().await;
    for (masks, parts) in [
        ("\"shop.customers.e_mail\" = \"null\"", ["shop.customers.e_mail", "the database has no such column"]),
        ("\"shop.contacts.address\" = \"null\"", ["shop.contacts.address", "mask the column of the table"]),
        ("\"shop.customers.age\" = \"partial\"", ["shop.customers.age", "\"partial\" is for columns of text"]),
        ("\"customers.email\" = \"null\"", ["toml:5:1", "write \"schema.table.column\""]),
        ("\"shop.customers.email\" = \"blur\"", ["toml:5:26", "blur"]),
        (
            "\"shop.customers.email\" = { mask = \"null\", profiles = { suport = \"none\" } }",
            ["toml:5:", "there is no profile \"suport\""],
        ),
        ("\"shop.customers.email\" = { masks = \"null\" }", ["toml:5:", "masks"]),
        ("\"shop.customers.name\" = \"null\"", ["shop.customers.name", "name_key is computed from it"]),
        ("functions = [\"f\"]", ["toml:5:14", "write schema.name"]),
    ] {
        for said in shop.refusals(&format!("[mask]\n{masks}\n")).await {
            for part in parts {
                assert!(said.contains(part), "{masks}: {part} is missing in {said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_renamed_under_a_server_is_not_read_unmasked() {
    let shop = Shop::new().await;
    let server = shop.server("[mask]\n\"shop.customers.email\" = \"null\"\n", &[]).await;
    assert_eq!(emails(&server).await, json!([null, 33]));
    shop.db.run("alter table shop.customers rename to people").await;
    let query = json!({"query": "select email from shop.people"});
    let refused = server.fail("query_database", query, "not_permitted").await;
    assert!(
        refused["message"].as_str().unwrap().contains("the mask of shop.customers.email does not fit"),
        "{refused}"
    );
    shop.db.run("alter table shop.people rename to customers").await;
    // A partition that is added later is masked with its table.
    assert_eq!(emails(&server).await, json!([null, 33]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_masked_caller_gets_plans() {
    // S-7: with and without parameters, of a masked table and of another one, and again on the same session.
    let shop = Shop::new().await;
    let masks = "[mask]\n\"shop.customers.email\" = \"null\"\n[reads]\nlog = \"metadata\"\n";
    let server = shop.server(masks, &[]).await;
    for (query, params) in [
        ("select id, email from shop.customers", json!([])),
        ("select id, email from shop.customers where id = $1", json!([1])),
        ("select id from shop.orders where id = $1", json!([1])),
        ("select 1", json!([])),
    ] {
        for _ in 0..2 {
            let plan = server.succeed("explain_query", json!({"query": query, "params": params})).await;
            assert!(plan["data"]["plan"]["Node Type"].is_string(), "{query}: {plan}");
        }
    }
    server.fail("explain_query", json!({"query": "select upper(email) from shop.customers"}), "not_permitted").await;
    assert_eq!(emails(&server).await, json!([null, 33]));
}
