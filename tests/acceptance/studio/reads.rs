//! What `query_database` shows of tables with row level security: the rows of the account that asks.

use testkit::{Server, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_query_sees_only_the_rows_of_its_account() {
    let db = database().await;
    let own = "select package_id, tenant_id from studio.package order by package_id";
    let mut servers = Vec::new();
    for (account, first) in [("default", 1), ("north.light", 6), ("nobody", 0)] {
        let mut command = Server::studio_command(&db);
        command.env("COUNTERSIGN_ACCOUNT", account);
        let server = Server::start(command).await;
        // The first time the text is new, then it is known to the session, then it is remembered and the session may be another.
        for _ in 0..3 {
            let rows = server.query(own).await;
            assert!(rows.iter().all(|row| row["tenant_id"] == account), "{account}: {rows:?}");
            assert_eq!(rows.first().map_or(0, |row| row["package_id"].as_i64().unwrap()), first, "{account}");
        }
        servers.push(server);
    }
    // Without row level security there is nothing to filter.
    assert_eq!(servers[2].query("select count(*) > 1 as all from social.account").await[0]["all"], true);
    // A plan is made on nobody's behalf, also on a session that has read for somebody.
    servers[0].succeed("explain_query", serde_json::json!({"query": own})).await;
    assert_eq!(servers[0].query(own).await.len(), 3);
    for server in servers {
        server.close().await;
    }
}
