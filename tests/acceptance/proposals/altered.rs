//! A stored proposal that somebody has changed in the database, past the trigger: it is not carried out.

use ledger::Fingerprints;
use serde_json::{Value, json};
use testkit::{Database, Server, database};

use super::{PRICE, agreement, command, id, price, propose, state, studio};

/// Changes a stored proposal as only its owner could, with the trigger off; `resealed` makes its digest fit again.
async fn alter(db: &Database, proposal: &Value, change: &str, resealed: bool) -> Value {
    let row = format!("where proposal_id = '{}'", id(proposal));
    db.run("alter table countersign.proposal disable trigger user").await;
    db.run(&format!("update countersign.proposal set {change} {row}")).await;
    if resealed {
        db.run(&format!("update countersign.proposal p set digest = countersign.proposal_digest(p) {row}")).await;
    }
    db.run("alter table countersign.proposal enable trigger user").await;
    let digest = db.value(&format!("select digest from countersign.proposal {row}")).await;
    json!({"proposal_id": proposal["proposal_id"], "digest": digest})
}

#[tokio::test(flavor = "multi_thread")]
async fn another_parameter_preview_tool_or_tenant_is_noticed_by_the_digest() {
    // X-40, C6-04, AP02
    let db = database().await;
    let server = studio(&db).await;
    for (number, change) in [
        "params = jsonb_set(params::jsonb, '{price}', '1')::json",
        "preview = jsonb_set(preview::jsonb, '{rows_affected}', '2')::json",
        "tool_name = 'delete_package'",
        "tier = 'approve'",
        "description = 'Harmless.'",
        "expires_at = '2099-01-01'",
        "definition = repeat('0', 64)",
    ]
    .into_iter()
    .enumerate()
    {
        let proposal = propose(&server, "upsert_package", price(&format!("{}", 150 + number))).await;
        let agreement = alter(&db, &proposal, change, false).await;
        let error = server.call("confirm_proposal", agreement).await["error"].clone();
        // The digest is looked at before anything else is; a tier that was raised is nobody's to confirm here anyway.
        assert!(["digest_mismatch", "not_permitted"].contains(&error["code"].as_str().unwrap()), "{change}: {error}");
        assert_eq!((db.value(PRICE).await, state(&db, &proposal).await), ("120.00".to_owned(), "pending".to_owned()));
    }
    let proposal = propose(&server, "upsert_package", price("170")).await;
    let stolen = alter(&db, &proposal, "account_id = 'north.light'", false).await;
    server.fail("confirm_proposal", stolen.clone(), "not_found").await;
    let mut thief = command(&db);
    thief.env("COUNTERSIGN_ACCOUNT", "north.light");
    let thief = Server::start(thief).await;
    thief.fail("confirm_proposal", stolen, "digest_mismatch").await;
    assert_eq!(db.value(PRICE).await, "120.00");
    thief.close().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_do_not_fit_the_tool_are_refused_again_when_it_is_carried_out() {
    // C4-01, C4-02, C7-06, C2-03, C1-11: with a digest and a fingerprint that fit, whoever made them.
    let db = database().await;
    let server = studio(&db).await;
    let hash =
        |tool: &str, params: &Value| Fingerprints::default().of(tool, params.as_object().unwrap()).as_str().to_owned();
    let own = json!({"tenant_id": "default", "package_id": 1, "photo_id": 1});
    for (tool, params, code, words) in [
        (
            "delete_package_photo",
            json!({"tenant_id": "default", "package_id": "one", "photo_id": 1}),
            "invalid_params",
            "Invalid payload",
        ),
        ("delete_package_photo", json!({"tenant_id": "default", "package_id": 1}), "invalid_params", "Invalid payload"),
        (
            "delete_package_photo",
            json!({"tenant_id": "default", "package_id": 1, "photo_id": 1, "x": 1}),
            "invalid_params",
            "Invalid payload",
        ),
        (
            "delete_package_photo",
            json!({"tenant_id": "north.light", "package_id": 6, "photo_id": 7}),
            "invalid_params",
            "another account",
        ),
        (
            "delete_package_photo",
            json!({"tenant_id": "default", "package_id": 6, "photo_id": 7}),
            "proposal_stale",
            "not found or access denied",
        ),
        ("no_such_tool", own.clone(), "tool_outdated", "no executor"),
        ("delete_package", own.clone(), "proposal_stale", "tool"),
    ] {
        let proposal = propose(&server, "delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
        let change = format!("tool_name = '{tool}', params = '{params}', params_hash = '{}'", hash(tool, &params));
        let agreement = alter(&db, &proposal, &change, true).await;
        let error = server.fail("confirm_proposal", agreement, code).await;
        assert!(error["message"].as_str().unwrap().contains(words), "{tool} {params}: {error}");
        let expected = if code == "proposal_stale" { "stale" } else { "failed" };
        assert_eq!(state(&db, &proposal).await, expected, "{tool} {params}: not left confirmed");
        assert_eq!(db.value("select count(*) from studio.package_photo").await, "7", "{tool} {params}");
    }
    // And one whose fingerprint is another call's.
    let proposal = propose(&server, "delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    let other = json!({"tenant_id": "default", "package_id": 1, "photo_id": 2});
    let agreement_to_other = alter(&db, &proposal, &format!("params = '{other}'"), true).await;
    server.fail("confirm_proposal", agreement_to_other, "digest_mismatch").await;
    assert_eq!(
        (state(&db, &proposal).await, db.value("select count(*) from studio.package_photo").await),
        ("failed".to_owned(), "7".to_owned())
    );
    let untouched = propose(&server, "delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    server.succeed("confirm_proposal", agreement(&untouched)).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_changed_afterwards_is_found_by_the_audit() {
    let db = database().await;
    let server = studio(&db).await;
    let proposal = propose(&server, "upsert_package", price("150")).await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    server.succeed("manage_working_hours", json!({"weekday": 7, "opens": "10:00", "closes": "12:00"})).await;
    server.close().await;
    let audit = |what: &'static str| {
        let mut command = tokio::process::Command::new(testkit::countersign());
        command.env("DATABASE_URL", db.url()).args(["audit", what]);
        async move { command.output().await.unwrap().status.success() }
    };
    assert!(audit("seal").await);
    assert!(audit("verify").await, "records with an approval and without one");
    db.run("alter table countersign.mutation_audit disable trigger user").await;
    db.run("update countersign.mutation_audit set approval = jsonb_set(approval::jsonb, '{decided_by}', '\"somebody else\"')::json where approval is not null").await;
    db.run("alter table countersign.mutation_audit enable trigger user").await;
    assert!(!audit("verify").await, "who agreed is part of what is sealed");
}
