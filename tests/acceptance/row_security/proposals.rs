//! A proposal keeps the role and the claims of its proposer: they are shown, agreed to, and in force when it is executed.

use serde_json::json;
use testkit::{run, run_countersign};

use super::Crm;

const BOTH: &str = "claims = [\"tenant\"]\nrole_claim = \"db_role\"\nroles = [\"app_eu\", \"app_us\"]";

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_executes_an_approved_proposal_as_the_role_and_with_the_claims_of_its_proposer() {
    let crm = Crm::new("", BOTH).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let proposed = eu.call("raise_deals", json!({"by": 5, "reason": "They asked."})).await;
    let proposal = &proposed["data"]["proposal"];
    let context = json!({"role": "app_eu", "claims": {"tenant": "acme"}});
    assert_eq!(
        (&proposal["caller_context"], &proposal["preview"]["rows_affected"]),
        (&context, &json!(2)),
        "{proposed}"
    );
    let id = proposal["proposal_id"].as_str().unwrap();
    let reviewer = crm.db.login("approver", "countersign_approver").await;
    let shown = run_countersign(&reviewer, &["proposals", "show", id]).await.out;
    for line in ["role             app_eu", "claims           tenant = \"acme\""] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let approved = run_countersign(&reviewer, &["proposals", "approve", id, "--yes"]).await;
    assert_eq!(approved.code, 0, "{}{}", approved.out, approved.err);
    crm.db.until_value("select status from countersign.proposal", "executed").await;
    assert_eq!(
        crm.db.rows("select id, amount from crm.deal order by id").await,
        [["1", "15"], ["2", "25"], ["3", "30"]]
    );

    let record = crm.db.value("select correlation_id from countersign.record").await;
    let shown = run_countersign(&crm.db.url(), &["audit", "show", &record]).await.out;
    assert!(shown.contains("app_eu") && shown.contains("tenant = \"acme\""), "{shown}");
    let shown = run_countersign(&crm.db.url(), &["audit", "show", &record, "--json"]).await.out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["caller_context"], context, "{shown}");
    let verified = run_countersign(&crm.db.url(), &["audit", "verify"]).await;
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
}

/// The role is part of what was agreed to. Without that part of the digest the write would run as another role.
#[tokio::test(flavor = "multi_thread")]
async fn an_altered_role_is_not_executed() {
    let crm = Crm::new("", BOTH).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let proposed = eu.call("raise_deals", json!({"by": 5, "reason": "They asked."})).await;
    let id = proposed["data"]["proposal"]["proposal_id"].as_str().unwrap();
    for context in
        [r#"{"role":"app_us","claims":{"tenant":"acme"}}"#, r#"{"role":"app_eu","claims":{"tenant":"bolt"}}"#]
    {
        crm.db
            .run(&format!(
                "alter table countersign.proposal disable trigger user; \
                 update countersign.proposal set caller_context = '{context}'; \
                 alter table countersign.proposal enable trigger user"
            ))
            .await;
        let reviewer = crm.db.url();
        let refused = run_countersign(&reviewer, &["proposals", "approve", id, "--yes"]).await;
        assert_ne!(refused.code, 0, "{}{}", refused.out, refused.err);
        // The digest refuses the approval; the fingerprint would only refuse the execution.
        assert_eq!(crm.db.value("select status from countersign.proposal").await, "pending");
    }
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "60");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_was_revoked_since_fails_the_proposal() {
    let crm = Crm::new("", BOTH).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let proposed = eu.call("raise_deals", json!({"by": 5, "reason": "They asked."})).await;
    let id = proposed["data"]["proposal"]["proposal_id"].as_str().unwrap();
    crm.db.run("revoke app_eu from countersign_writer").await;
    let approved = run_countersign(&crm.db.url(), &["proposals", "approve", id, "--yes"]).await;
    assert!(approved.out.contains("app_eu") || approved.err.contains("app_eu"), "{}{}", approved.out, approved.err);
    crm.db.until_value("select status from countersign.proposal", "failed").await;
    assert_eq!(crm.db.value("select sum(amount) from crm.deal").await, "60");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_caller_with_the_same_claims_confirms() {
    let crm = Crm::new("", "claims = [\"tenant\"]").await;
    let [acme, bolt] = ["acme", "bolt"].map(|tenant| crm.client(json!({"tenant": tenant})));
    let proposed = acme.call("set_all_notes", json!({"body": "x"})).await;
    let proposal = proposed["data"]["proposal"].clone();
    assert_eq!(proposal["preview"]["rows_affected"], 2, "{proposed}");
    let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    let refused = bolt.call("confirm_proposal", confirm.clone()).await;
    assert_eq!(refused["error"]["code"], "not_found", "{refused}");
    let id = json!({"proposal_id": proposal["proposal_id"]});
    for tool in ["get_proposal", "reject_proposal"] {
        let refused = bolt.call(tool, id.clone()).await;
        assert_eq!(refused["error"]["code"], "not_found", "{refused}");
    }
    assert_eq!(bolt.call("list_proposals", json!({})).await["data"]["proposals"], json!([]));
    // The same call of another tenant is a proposal of its own.
    let other = bolt.call("set_all_notes", json!({"body": "x"})).await;
    assert_ne!(other["data"]["proposal"]["proposal_id"], proposal["proposal_id"], "{other}");
    assert_eq!(other["data"]["proposal"]["preview"]["rows_affected"], 1, "{other}");
    let written = acme.call("confirm_proposal", confirm).await;
    assert_eq!(written["meta"]["rows_affected"], 2, "{written}");
    let bodies = "select string_agg(body, ',' order by id) from crm.note";
    assert_eq!(crm.db.value(bodies).await, "x,x,bolt 3,nobody");
    let mut listed = crm.folder.command(&format!("database_url = {:?}", crm.db.url()));
    let ran = run(listed.args(["proposals", "show", proposal["proposal_id"].as_str().unwrap(), "--json"])).await;
    assert!(ran.out.contains("\"caller_context\""), "{}", ran.out);
}
