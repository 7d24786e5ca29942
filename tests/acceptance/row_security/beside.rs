//! Roles and claims beside a pooler, masks, and several databases.

use serde_json::json;
use testkit::{ConfigDir, External, PgBouncer, Server, database, skip_without};

use super::roles::ROLES;
use super::{Crm, DEALS, NOTES, crm, ids};

/// Clients share connections, so what one transaction leaves would be another one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_lends_connections_for_transactions_mixes_nothing_up() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = crm().await;
    let pooler = PgBouncer::start(&db).await;
    let claims = format!("{ROLES}\nclaims = [\"tenant\"]");
    let crm = Crm::through(db, &pooler.url(), "pooler = \"transaction\"", &claims).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let us = crm.client(json!({"db_role": "app_us", "tenant": "bolt"}));
    for amount in [11, 12, 13] {
        assert_eq!((ids(&eu, DEALS).await, ids(&us, DEALS).await), (vec![1, 2], vec![3]));
        assert_eq!((ids(&eu, NOTES).await, ids(&us, NOTES).await), (vec![1, 2], vec![3]));
        let written = eu.call("set_deal", json!({"id": 1, "amount": amount})).await;
        assert_eq!(written["data"], json!({"id": 1, "region": "eu"}), "{written}");
        let refused = us.call("set_deal", json!({"id": 1, "amount": 0})).await;
        assert_eq!(refused["error"]["code"], "row_count_mismatch", "{refused}");
    }
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "63");
}

#[tokio::test(flavor = "multi_thread")]
async fn masks_hold_for_a_caller_with_a_role() {
    let crm = Crm::new("[mask]\n\"crm.deal.amount\" = \"null\"\n", ROLES).await;
    let [eu, us] = ["app_eu", "app_us"].map(|role| crm.client(json!({"db_role": role})));
    for (client, rows) in [
        (&eu, json!([{"id": 1, "amount": null}, {"id": 2, "amount": null}])),
        (&us, json!([{"id": 3, "amount": null}])),
    ] {
        let read = client.call("query_database", json!({"query": "select id, amount from crm.deal order by id"})).await;
        assert_eq!(read["data"]["rows"], rows, "{read}");
        let refused = client.call("query_database", json!({"query": "select max(amount) from crm.deal"})).await;
        assert_eq!(refused["error"]["code"], "not_permitted", "{refused}");
    }
}

/// A database that lacks the role of a profile is not served, and costs the others nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_a_profile_counts_in_each_of_several_databases() {
    let (crm, other, folder) = (crm().await, database().await, ConfigDir::new());
    let config = format!(
        "profile = \"own\"\n[database.crm]\ndatabase_url = {:?}\n[database.other]\ndatabase_url = {:?}\n\
         [profiles.own]\naccess = [\"read\"]\nrole = \"app_eu\"\n",
        crm.writer_url(),
        other.writer_url()
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    let server = Server::start(command).await;
    let read = |database: &str| json!({"database": database, "query": DEALS});
    let answer = server.succeed("query_database", read("crm")).await;
    assert_eq!(answer["data"]["rows"], json!([{"id": 1}, {"id": 2}]), "{answer}");
    let away = server.call("query_database", read("other")).await;
    assert_eq!(away["error"]["code"], "database_unavailable", "{away}");
    assert!(away["error"]["message"].as_str().unwrap().contains("the role \"app_eu\""), "{away}");
    server.close().await;
}
