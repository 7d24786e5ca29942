//! Roles of callers: of a profile, or of a token.

use reqwest::StatusCode;
use serde_json::json;
use testkit::{ConfigDir, Database, Proxy, Server, run};

use super::{Crm, DEALS, MANIFEST, command_with_role, crm, ids, ids_of};

pub(super) const ROLES: &str = "role_claim = \"db_role\"\nroles = [\"app_eu\", \"app_us\"]";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_names_the_role_of_its_reads_and_writes() {
    let crm = Crm::new("", ROLES).await;
    let [eu, us] = ["app_eu", "app_us"].map(|role| crm.client(json!({"db_role": role})));
    // The same text, from the same sessions, in turns.
    for _ in 0..3 {
        assert_eq!(ids(&eu, DEALS).await, [1, 2]);
        assert_eq!(ids(&us, DEALS).await, [3]);
    }
    let who = eu.call("query_database", json!({"query": "select current_user as who, session_user as login"})).await;
    assert_eq!(who["data"]["rows"], json!([{"who": "app_eu", "login": "countersign_caller"}]), "{who}");
    let written = eu.call("set_deal", json!({"id": 1, "amount": 11})).await;
    assert_eq!(written["data"], json!({"id": 1, "region": "eu"}), "{written}");
    assert_eq!(written["meta"]["rollback"]["checked"], true, "its undo was tried as the role: {written}");
    let refused = us.call("set_deal", json!({"id": 1, "amount": 12})).await;
    assert_eq!(refused["error"]["code"], "row_count_mismatch", "{refused}");
    let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
    let refused = us.call("undo_mutation", receipt.clone()).await;
    assert_eq!(refused["error"]["code"], "not_found", "{refused}");
    // Policies decide about undos, too.
    let policy = async |rows: &str| {
        crm.db.run(&format!("alter policy eu on crm.deal using (region = 'eu' and {rows})")).await;
    };
    policy("id > 1").await;
    let refused = eu.call("undo_mutation", receipt.clone()).await;
    assert_eq!(refused["error"]["conflicts"][0]["code"], "not_permitted", "{refused}");
    policy("true").await;
    let undone = eu.call("undo_mutation", receipt).await;
    assert_eq!(undone["success"], true, "{undone}");
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "60");
    // An operator undoes what an agent did, without its role.
    let written = us.call("set_deal", json!({"id": 3, "amount": 31})).await;
    let id = written["meta"]["correlation_id"].as_str().unwrap();
    let mut undo = crm.folder.command(&format!("database_url = {:?}", crm.db.url()));
    let ran = run(undo.args(["undo", id])).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "60");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_an_allowed_role_is_refused() {
    let crm = Crm::new("", ROLES).await;
    for (given, says) in [
        (json!({}), "the token names no role (claim db_role)"),
        (json!({"db_role": ["app_eu"]}), "the token names no role (claim db_role)"),
        (json!({"db_role": "postgres"}), "the token names the role ?postgres?, which is not in roles"),
        (json!({"db_role": "APP_EU"}), "the token names the role ?APP_EU?, which is not in roles"),
    ] {
        let client = crm.client(given);
        let refused = client.send(client.calling(1, "query_database", &json!({"query": DEALS}))).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains(says), "{challenge}");
    }
    // What the role may do is looked up again by each transaction.
    let eu = crm.client(json!({"db_role": "app_eu"}));
    let sessions = [json!({"query": DEALS}), json!({"query": "select 2 as id"})];
    assert_eq!(ids(&eu, DEALS).await, [1, 2]);
    crm.db.run("alter role app_eu bypassrls").await;
    for query in sessions {
        let refused = eu.call("query_database", query).await;
        assert_eq!(refused["error"]["code"], "not_permitted", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("statements may not run as the role \"app_eu\""), "{message}");
    }
    let refused = eu.call("set_deal", json!({"id": 1, "amount": 12})).await;
    assert_eq!(refused["error"]["code"], "not_permitted", "{refused}");
    let refused = eu.call("raise_deals", json!({"by": 1, "reason": "x"})).await;
    assert_eq!(refused["error"]["code"], "not_permitted", "{refused}");
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "60");
    crm.db.run("alter role app_eu nobypassrls").await;
    assert_eq!(ids(&eu, DEALS).await, [1, 2]);
}

/// The role of a profile is that of static tokens and of stdio.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_gives_its_role_to_reads_writes_and_resources() {
    let (db, folder) = (crm().await, ConfigDir::new());
    db.run("create table crm.secret (id int); grant select on crm.secret to countersign_reader").await;
    let server = Server::start(command_with_role(&folder, &db.writer_url(), "app_eu", "")).await;
    assert_eq!(ids_of(&server, DEALS).await, [1, 2]);
    let refused = server.fail("query_database", json!({"query": "select id from crm.secret"}), "not_permitted").await;
    assert_eq!(refused["sqlstate"], "42501");
    // What is described is what the role may read.
    let described = server.succeed("describe_database", json!({"schema": "crm"})).await.to_string();
    assert!(described.contains("deal") && !described.contains("secret"), "{described}");
    let written = server.succeed("set_deal", json!({"id": 2, "amount": 21})).await;
    server.fail("set_deal", json!({"id": 3, "amount": 1}), "row_count_mismatch").await;
    let preview = json!({"tool": "set_deal", "params": {"id": 3, "amount": 1}});
    server.fail("preview_mutation", preview, "row_count_mismatch").await;
    let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
    let preview = json!({"tool": "undo_mutation", "params": receipt});
    assert_eq!(server.succeed("preview_mutation", preview).await["data"]["rows_affected"], 1);
    let from = json!({"from": "1h ago", "mode": "skip"});
    let plan = server.succeed("undo_plan", from).await["data"].clone();
    assert!(plan["plan_id"].is_string(), "{plan}");
    let undo = json!({"plan_id": plan["plan_id"], "digest": plan["digest"]});
    server.succeed("undo_run", undo).await;
    assert_eq!(db.value("select sum(amount) from crm.deal").await, "60");
    server.close().await;
}

/// Statements and round trips of a read and of a write that the server has run before, the fewest of several: the server
/// asks for proposals every second.
async fn cost(db: &Database, more: &str) -> [[usize; 2]; 2] {
    let (folder, proxy) = (ConfigDir::new(), Proxy::before(db));
    let manifest = folder.write("crm.toml", MANIFEST);
    let config = format!(
        "log = \"warn\"\nmanifests = [{manifest:?}]\ndatabase_url = {:?}\nprofile = \"own\"\n\
         [profiles.own]\naccess = [\"read\", \"write\"]\n{more}\n",
        proxy.url().replace("user=postgres", "user=countersign_writer")
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    let server = db.settled(Server::start(command)).await;
    let mut costs = [Vec::new(), Vec::new()];
    for amount in 1..8 {
        for (index, cost) in costs.iter_mut().enumerate() {
            let [statements, pipelines] = proxy.traffic();
            match index {
                0 => drop(server.query("select count(*) from crm.deal").await),
                _ => drop(server.call("set_deal", json!({"id": 1, "amount": amount})).await),
            }
            let [more_statements, more_pipelines] = proxy.traffic();
            cost.push([more_statements - statements, more_pipelines - pipelines]);
        }
    }
    server.close().await;
    costs.map(|cost| cost.into_iter().min().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_costs_statements_and_no_round_trip() {
    let db = crm().await;
    db.run("create policy login on crm.deal to countersign_writer using (true)").await;
    let [read, write] = cost(&db, "").await;
    let [read_as_role, write_as_role] = cost(&db, "role = \"app_eu\"").await;
    // The context and the role; in a write also the way back to the login.
    assert_eq!(read_as_role, [read[0] + 2, read[1]]);
    assert_eq!(write_as_role, [write[0] + 3, write[1]]);
}
