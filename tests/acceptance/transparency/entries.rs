//! Each kind of entry of the log, from the command or the tool that makes it to its text. `console` and `console_oidc` have
//! logins.

use serde_json::{Value, json};
use testkit::audit::{audit, insert_failed_records, tamper};
use testkit::social::untouched_tweet;
use testkit::{Database, Server, TestManifest, database, run_countersign};
use tlog::Entry;

use super::{Auditor, text, verdict};
use crate::proposals::{agreement, id};
use crate::shop::{SET_STATUS, SHOP};

/// The entries of this kind that are in the log after everything was sealed.
async fn sealed(db: &Database, kind: &str) -> Vec<Entry> {
    audit(db, &["seal"]).await;
    let entries = db.rows("select entry from countersign.leaf order by log_no, leaf_index").await.concat();
    let parsed = entries.iter().map(|entry| {
        let parsed = Entry::parse(entry.as_bytes()).unwrap_or_else(|error| panic!("{error}: {entry}"));
        assert_eq!(parsed.to_string(), *entry);
        parsed
    });
    parsed.filter(|entry| entry.get("kind") == Some(kind)).collect()
}

/// The one entry of this kind with all of these values.
async fn one(db: &Database, kind: &str, values: &[(&str, &str)]) -> Entry {
    let entries = sealed(db, kind).await;
    let is_it = |entry: &&Entry| values.iter().all(|(key, value)| entry.get(key) == Some(value));
    let found: Vec<&Entry> = entries.iter().filter(is_it).collect();
    let [entry] = found.as_slice() else { panic!("one {kind} with {values:?}, not {found:?}: {entries:?}") };
    (*entry).clone()
}

async fn run(db: &Database, arguments: &[&str]) -> String {
    let ran = run_countersign(&db.url(), arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {} {}", ran.out, ran.err);
    ran.out
}

fn receipt(answer: &Value) -> &str {
    answer["meta"]["correlation_id"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_an_entry_whoever_makes_it_and_whatever_it_is() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let deletion = async |package: i64| server.propose("delete_package", json!({"package_id": package})).await;
    let photo =
        async |photo: i64| server.propose("delete_package_photo", json!({"package_id": 1, "photo_id": photo})).await;
    let rejected = deletion(3).await;
    run(&db, &["proposals", "reject", id(&rejected), "--reason", "not today %\u{7}"]).await;
    let approved = deletion(3).await;
    run(&db, &["proposals", "approve", id(&approved), "--yes"]).await;
    let confirmed = photo(1).await;
    server.succeed("confirm_proposal", agreement(&confirmed)).await;
    let withdrawn = photo(2).await;
    server.succeed("reject_proposal", json!({"proposal_id": id(&withdrawn), "reason": "no"})).await;
    server.close().await;

    for (proposal, tool, decision, via) in [
        (&approved, "delete_package", "confirmed", "command_line"),
        (&rejected, "delete_package", "rejected", "command_line"),
        (&confirmed, "delete_package_photo", "confirmed", "confirm_proposal"),
        (&withdrawn, "delete_package_photo", "rejected", "reject_proposal"),
    ] {
        let entry = one(&db, "decision", &[("proposal_id", id(proposal))]).await;
        let found = ["decision", "via", "tool", "digest", "account"].map(|key| entry.get(key).unwrap_or_default());
        assert_eq!(found, [decision, via, tool, proposal["digest"].as_str().unwrap(), "default"]);
        assert!(entry.get("person").is_some() && entry.get("login").is_some(), "{entry}");
        assert_eq!(entry.parts().count(), usize::from(decision == "rejected"), "the reason is a part: {entry}");
    }
    // The write that a decision led to says which one that was.
    let record = one(&db, "record", &[("proposal_id", id(&approved))]).await;
    assert_eq!((record.get("status"), record.get("decided_via")), (Some("success"), Some("command_line")));
}

#[tokio::test(flavor = "multi_thread")]
async fn freezes_and_their_ends_are_entries() {
    let db = database().await;
    run(&db, &["freeze", "--account", "shop", "--reason", "odd"]).await;
    run(&db, &["unfreeze", "--account", "shop"]).await;
    run(&db, &["freeze", "--all", "--reason", "night"]).await;
    let account = [("subject", "account"), ("name", "shop")];
    let frozen = one(&db, "freeze", &account).await;
    assert!(frozen.get("details").is_some() && frozen.get("person").is_some(), "the reason is a part: {frozen}");
    assert_eq!(one(&db, "unfreeze", &account).await.get("details"), None);
    one(&db, "freeze", &[("subject", "all")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undos_of_one_write_and_of_many_name_what_they_undid() {
    let db = database().await;
    db.run(SHOP).await;
    let social = Server::without_dedup_cache(&db).await;
    let liked = social.succeed("like_tweet", json!({"tweet_id": untouched_tweet(&db).await})).await;
    let undone = social.succeed("unlike_tweet", liked["meta"]["rollback"]["undo_params"].clone()).await;
    social.close().await;
    let record = one(&db, "record", &[("correlation_id", receipt(&undone))]).await;
    assert_eq!(record.get("undo_of"), Some(receipt(&liked)));

    let server = TestManifest::new(SET_STATUS).serve(&db).await;
    let mut writes = Vec::new();
    for number in [1, 2] {
        writes.push(server.succeed("set_status", json!({"id": number, "status": "paid"})).await);
    }
    server.close().await;
    let plan = run(&db, &["undo", "plan", "--tool", "set_status", "--from", "1h", "--json"]).await;
    let plan: Value = serde_json::from_str(plan.lines().next().unwrap()).unwrap();
    let of = |key: &str| plan[key].as_str().unwrap();
    run(&db, &["undo", "run", of("plan_id"), "--digest", of("digest")]).await;
    let undos = sealed(&db, "record").await.into_iter().filter(|entry| entry.get("undo_of").is_some()).skip(1);
    let undone: Vec<String> = undos
        .flat_map(|entry| entry.get("undo_of").unwrap().split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(undone.len() == 2 && writes.iter().all(|write| undone.contains(&receipt(write).to_owned())), "{undone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pruning_is_an_entry_that_counts_what_it_removed() {
    let db = database().await;
    insert_failed_records(&db, 3, 100).await;
    audit(&db, &["prune", "--older-than", "90d"]).await;
    let entry = one(&db, "prune", &[("records", "3")]).await;
    assert!(["person", "made_before", "details"].iter().all(|key| entry.get(key).is_some()), "{entry}");
    assert_eq!(sealed(&db, "record").await.len(), 3, "pruning removes no entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_keys_and_exports_are_entries_and_so_is_the_making_of_the_ledger() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    let witness = tlog::SigningKey::from_seed("example.com/w", tlog::KeyKind::Witness, [1; 32]).unwrap();
    let witness = witness.verifier_key().to_string();
    audit(&db, &["witness", "add", "https://w.example.com/", &witness]).await;
    audit(&db, &["witness", "remove", &witness]).await;
    auditor.exports(&db, "bundle").await;
    auditor.signs(&db, &["export", &auditor.path("bare"), "--without-parts"]).await;
    audit(&db, &["keys", "retire", &vkey]).await;
    for (key, action) in [(&vkey, "add"), (&vkey, "retire"), (&witness, "add"), (&witness, "retire")] {
        let entry = one(&db, "key", &[("vkey", key), ("action", action)]).await;
        assert!(entry.get("person").is_some() && entry.get("at").is_some(), "{entry}");
    }
    for (parts, size) in [("included", "5"), ("withheld", "6")] {
        let entry = one(&db, "export", &[("parts", parts), ("size", size)]).await;
        assert!(entry.get("person").is_some() && entry.get("login").is_some(), "{entry}");
    }
    one(&db, "upgrade", &[("version", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_contents_have_different_digests() {
    let db = database().await;
    // Twice the same parameters and the same error.
    insert_failed_records(&db, 1, 0).await;
    insert_failed_records(&db, 1, 0).await;
    let records = sealed(&db, "record").await;
    for part in ["params", "result"] {
        let digests = [0, 1].map(|index: usize| records[index].get(part).unwrap());
        assert_ne!(digests[0], digests[1], "without its salt nobody can find the content by trying values: {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_any_kind_are_sealed_as_the_format_says() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 6, 0).await;
    tamper(
        &db,
        "update countersign.record set account_id = E'a\\u0001\\n%\\u007f\\u0085\\u20ac' where id = 1; \
         update countersign.record set actor = repeat(E'\\u0085', 5000) where id = 2; \
         update countersign.record set tool_name = repeat('x', 101), undo_of = array(select gen_random_uuid() from generate_series(1, 50)) where id = 3; \
         update countersign.record set undo_of = array(select gen_random_uuid() from generate_series(1, 51)) where id = 4; \
         update countersign.record set account_id = repeat('%', 300), actor = repeat(E'\\u0085', 300), tool_name = repeat(E'\\u0085', 300), \
             error_code = repeat(E'\\u0085', 300), approval = json_build_object('decided_by', repeat(E'\\u0085', 300), \
             'decided_login', repeat(E'\\u0085', 300), 'decided_via', repeat(E'\\u0085', 300)), \
             undo_of = array(select gen_random_uuid() from generate_series(1, 50)) where id = 5; \
         update countersign.record set account_id = '', actor = '', params = '[1, {\"a\" : \"\\u0000\"}]' where id = 6",
    )
    .await;
    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--vkey", &vkey]).await;
    assert_eq!(found["verdict"], "valid", "{found}");
    let entry = async |id: u32| {
        let entry = db.value(&format!("select entry from countersign.leaf where record_id = {id}")).await;
        assert!(entry.len() <= tlog::MAX_ENTRY_BYTES, "{id}: {}", entry.len());
        let parsed = tlog::Entry::parse(entry.as_bytes()).unwrap_or_else(|error| panic!("{error}: {entry}"));
        assert_eq!(parsed.to_string(), entry);
        parsed
    };
    assert_eq!(entry(1).await.get("account"), Some("a\u{1}\n%\u{7f}\u{85}\u{20ac}"));
    let cut = format!("{}...", "\u{85}".repeat(97));
    assert_eq!(entry(2).await.get("actor"), Some(cut.as_str()));
    assert_eq!(entry(3).await.get("undo_of").unwrap().split(',').count(), 50);
    assert_eq!(entry(4).await.get("undo_of"), None);
    entry(5).await;
    assert_eq!(entry(6).await.get("account"), None);
}
