//! Calls in every protocol revision.

use serde_json::json;
use testkit::{HttpServer, database};

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_revision_reads_writes_and_finds_its_record() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for protocol in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let client = match protocol {
            "2026-07-28" => server.http_client(),
            _ => server.session(protocol).await,
        };
        let text = format!("over {protocol}");
        let written = client.call("post_tweet", json!({"text": text})).await;
        assert_eq!(written["data"]["text"], text, "{written}");
        let receipt = &written["meta"]["correlation_id"];
        let record = client.call("get_mutation_detail", json!({"correlation_id": receipt})).await;
        assert_eq!(record["data"]["result"], written["data"]);
        let read = json!({"query": "select text from social.tweet where id = $1", "params": [written["data"]["id"]]});
        let read = client.call("query_database", read).await;
        assert_eq!(read["data"]["rows"], json!([{"text": text}]), "{read}");
        // To the letter also over a transport that is not ours, as text, which no client changes.
        let numeric =
            client.call("query_database", json!({"query": "select 1.10 as n, 12345678901234567890123 as m"})).await;
        assert_eq!(numeric["data"]["rows"][0].to_string(), r#"{"n":"1.10","m":"12345678901234567890123"}"#);
    }
}
