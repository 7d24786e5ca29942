//! A stored proposal that was altered in the database, past the trigger, is not executed.

use ledger::Fingerprints;
use serde_json::{Value, json};
use testkit::{Database, Server, database};
use types::CallerContext;

use super::{PRICE, agreement, id, price, state};

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
    let db = database().await;
    let server = Server::studio(&db).await;
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
        let proposal = server.propose("upsert_package", price(&format!("{}", 150 + number))).await;
        let agreement = alter(&db, &proposal, change, false).await;
        let error = server.call("confirm_proposal", agreement).await["error"].clone();
        // A raised tier could not be confirmed here anyway, and another tool is not the one of this server.
        assert!(
            ["digest_mismatch", "not_permitted", "proposal_stale"].contains(&error["code"].as_str().unwrap()),
            "{change}: {error}"
        );
        assert_eq!((db.value(PRICE).await, state(&db, &proposal).await), ("120.00".to_owned(), "pending".to_owned()));
    }
    let proposal = server.propose("upsert_package", price("170")).await;
    let stolen = alter(&db, &proposal, "account_id = 'north.light'", false).await;
    server.fail("confirm_proposal", stolen.clone(), "not_found").await;
    let mut thief = Server::studio_command(&db);
    thief.env("COUNTERSIGN_ACCOUNT", "north.light");
    let thief = Server::start(thief).await;
    thief.fail("confirm_proposal", stolen, "digest_mismatch").await;
    assert_eq!(db.value(PRICE).await, "120.00");
    thief.close().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_violate_the_schema_are_refused_again_at_execution() {
    // The attacker has computed a matching digest and fingerprint.
    let db = database().await;
    let server = Server::studio(&db).await;
    let hash = |tool: &str, params: &Value| {
        let params = params.as_object().unwrap();
        Fingerprints::default().of(tool, params, &CallerContext::default()).as_str().to_owned()
    };
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
        let proposal = server.propose("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
        let change = format!("tool_name = '{tool}', params = '{params}', fingerprint = '{}'", hash(tool, &params));
        let agreement = alter(&db, &proposal, &change, true).await;
        let error = server.fail("confirm_proposal", agreement, code).await;
        assert!(error["message"].as_str().unwrap().contains(words), "{tool} {params}: {error}");
        let expected = match (tool, code) {
            // Another server may have the tool that was proposed.
            ("no_such_tool" | "delete_package", _) => "pending",
            (_, "proposal_stale") => "stale",
            _ => "failed",
        };
        assert_eq!(state(&db, &proposal).await, expected, "{tool} {params}: not left confirmed");
        assert_eq!(db.value("select count(*) from studio.package_photo").await, "7", "{tool} {params}");
    }
    // And one whose fingerprint is another call's.
    let proposal = server.propose("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    let other = json!({"tenant_id": "default", "package_id": 1, "photo_id": 2});
    let agreement_to_other = alter(&db, &proposal, &format!("params = '{other}'"), true).await;
    server.fail("confirm_proposal", agreement_to_other, "digest_mismatch").await;
    assert_eq!(
        (state(&db, &proposal).await, db.value("select count(*) from studio.package_photo").await),
        ("pending".to_owned(), "7".to_owned())
    );
    server.succeed("reject_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    let untouched = server.propose("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    server.succeed("confirm_proposal", agreement(&untouched)).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_an_approval_that_was_altered_later() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
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
    db.run("alter table countersign.record disable trigger user").await;
    db.run("update countersign.record set approval = jsonb_set(approval::jsonb, '{decided_by}', '\"somebody else\"')::json where approval is not null").await;
    db.run("alter table countersign.record enable trigger user").await;
    assert!(!audit("verify").await, "who agreed is part of what is sealed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_proposal_blocks_nothing_and_ends_like_any_other() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let altered = server.propose("delete_package", json!({"package_id": 3})).await;
    assert_eq!(super::approve(&db, &altered).await, "done");
    // Approved and altered before a server could carry it out; and one that waits, altered as well.
    server.close().await;
    let server = {
        let server = Server::studio(&db).await;
        let waiting = server.propose("upsert_package", price("150")).await;
        alter(&db, &waiting, "description = 'Harmless.', expires_at = now() - interval '1 minute'", false).await;
        server
    };
    let stuck = server.propose("upsert_package", price("151")).await;
    server.close().await;
    db.run("alter table countersign.proposal disable trigger user").await;
    db.run(&format!(
        "update countersign.proposal set status = 'confirmed', decision = 'confirmed', decided_by = 'default', decided_login = 'x', \
         decided_via = 'confirm_proposal', decided_at = now(), attempt_until = now(), params = '{{}}' where proposal_id = '{}'",
        id(&stuck)
    ))
    .await;
    db.run("alter table countersign.proposal enable trigger user").await;
    let server = Server::studio(&db).await;
    let ended = |proposal: &Value| {
        format!(
            "select status from countersign.proposal where proposal_id = '{}' and completed_at is not null",
            id(proposal)
        )
    };
    assert_eq!(db.first_value(&ended(&stuck)).await, "failed");
    db.first_value("select 1 from countersign.proposal where status = 'expired'").await;
    // What comes behind it is carried out, and the account can go on proposing.
    let next = server.propose("upsert_package", price("152")).await;
    server.succeed("confirm_proposal", agreement(&next)).await;
    assert_eq!(db.value(PRICE).await, "152.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_now_needs_a_reviewer_cannot_be_confirmed() {
    let db = database().await;
    let sql = "insert into social.tweet (account_id, text) values ('default', 'raised')";
    let with_tier = |tier: &'static str| {
        let mut command = Server::studio_command(&db);
        command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", tier]);
        Server::start(command)
    };
    let lower = with_tier("confirm").await;
    let proposal = lower.propose("execute_sql", json!({"sql": sql})).await;
    lower.close().await;
    let raised = with_tier("approve").await;
    let other = raised.propose("execute_sql", json!({"sql": sql})).await;
    assert_ne!(other["proposal_id"], proposal["proposal_id"], "what waits at the lower tier is not handed out again");
    raised.fail("confirm_proposal", agreement(&proposal), "proposal_stale").await;
    // With the server's own login: the very same, said to be for the account to confirm.
    let client = testkit::connect(&db.writer_url()).await;
    let forged = format!(
        "select stored::text from countersign.proposal o, countersign.propose(gen_random_uuid(), 'default', null, 'execute_sql', o.title, o.tool_version, \
         o.definition, 'confirm', 'Harmless.', o.params, o.fingerprint, null, o.preview, interval '1 hour', 100, null, null, null, null, 1, null, null) where o.proposal_id = '{}'",
        id(&other)
    );
    let stored: String = client.query_one(&forged, &[]).await.unwrap().get(0);
    let forged = json!({"proposal_id": stored});
    let forged = raised.succeed("get_proposal", forged).await["data"].clone();
    if forged["proposal_id"] != other["proposal_id"] {
        raised.fail("confirm_proposal", agreement(&forged), "proposal_stale").await;
    }
    assert_eq!(db.value("select count(*) from social.tweet where text = 'raised'").await, "0");
    raised.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_a_write_can_decide_on_a_proposal() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let admin = Server::start(command).await;
    let proposal = admin.propose("upsert_package", price("150")).await;
    let (id, digest) = (id(&proposal), proposal["digest"].as_str().unwrap());
    for call in [
        format!(
            "countersign.decide_proposal('{id}', 'default', 'confirmed', 'elicitation', '{digest}', null, null, interval '0')"
        ),
        "countersign.state_keys()".to_owned(),
        "countersign.reader_credentials()".to_owned(),
    ] {
        let sql = format!("select set_config('countersign.claimed', '', true), {call}");
        let error = admin.fail("execute_sql", json!({"sql": sql}), "sql_error").await;
        assert_eq!(error["sqlstate"], "42501", "{call}: {error}");
    }
    assert_eq!(state(&db, &proposal).await, "pending");
    admin.close().await;
}
