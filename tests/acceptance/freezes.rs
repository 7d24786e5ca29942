//! `countersign freeze` and `unfreeze`: an operator stops the writes of an account; servers refuse them and continue otherwise.

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, database, run_countersign};

/// The connection string of a person who is an operator.
async fn operator(db: &Database) -> String {
    db.login("olga", "countersign_operator").await
}

async fn succeed(url: &str, arguments: &[&str]) -> String {
    let CommandOutput { code, out, err } = run_countersign(url, arguments).await;
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}: {out}");
    out
}

async fn make_accounts(db: &Database) {
    db.run("insert into social.account (account_id, handle, display_name) values ('robot', 'robot', 'R'), ('other', 'other', 'O')").await;
}

async fn server(db: &Database, account: &str, actor: &str) -> Server {
    Server::with(db, |it| it.args(["--account", account, "--actor", actor])).await
}

async fn post(server: &Server, text: &str) -> Value {
    server.call("post_tweet", json!({"text": text})).await
}

fn error_code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_account_reads_and_does_not_write_and_others_write() {
    let db = database().await;
    let olga = operator(&db).await;
    make_accounts(&db).await;
    let (robot, other) = (server(&db, "robot", "ann").await, server(&db, "other", "ann").await);
    assert_eq!(error_code(&post(&robot, "before").await), "");

    let said = succeed(&olga, &["freeze", "--account", "robot", "--reason", "it posts nonsense"]).await;
    assert!(said.starts_with("Writes of the account robot are refused from now on"), "{said}");
    assert!(said.contains("No write of these is known to be in flight.") && !said.contains("warning"), "{said}");
    let refused = post(&robot, "during").await;
    assert_eq!(error_code(&refused), "account_frozen", "{refused}");
    let texts = robot.query("select text from social.tweet where text in ('before', 'during')").await;
    assert_eq!(texts, [json!({"text": "before"})], "reads go on");
    assert_eq!(error_code(&post(&other, "of another account").await), "");

    let listed = succeed(&olga, &["freeze", "--list"]).await;
    assert!(listed.starts_with("writes of the account robot, since 20"), "{listed}");
    assert!(listed.contains("by olga_") && listed.contains("it posts nonsense"), "{listed}");
    let doctor = run_countersign(&db.writer_url(), &["doctor"]).await;
    let line =
        doctor.out.lines().find(|line| line.contains("writes of the account robot are refused")).expect("a finding");
    assert!(
        line.starts_with("warning") && doctor.out.contains("it posts nonsense; `countersign unfreeze`"),
        "{}",
        doctor.out
    );
    let again = succeed(&olga, &["freeze", "--account", "robot"]).await;
    assert!(again.contains("were frozen already") && again.contains("it posts nonsense"), "{again}");

    // Of a person, whatever the account; of everybody.
    succeed(&olga, &["freeze", "--actor", "ann"]).await;
    assert_eq!(error_code(&post(&other, "for ann").await), "account_frozen");
    let said = succeed(&olga, &["unfreeze", "--account", "robot"]).await;
    assert!(
        said.contains("Writes of the account robot are not frozen any more.")
            && said.contains("Still frozen: writes of the actor ann"),
        "{said}"
    );
    assert_eq!(error_code(&post(&robot, "during").await), "account_frozen");
    succeed(&olga, &["unfreeze", "--actor", "ann"]).await;
    assert_eq!(error_code(&post(&robot, "during").await), "");
    succeed(&olga, &["freeze", "--all"]).await;
    assert_eq!(error_code(&post(&other, "by anybody").await), "account_frozen");
    let json = succeed(&olga, &["freeze", "--list", "--json"]).await;
    let line: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&line["kind"], &line["frozen_login"]), (&json!("all"), &json!(format!("olga_{}", db.name()))));
    succeed(&olga, &["unfreeze", "--all"]).await;
    assert_eq!(error_code(&post(&other, "by anybody").await), "");
    assert_eq!(succeed(&olga, &["freeze", "--list"]).await, "Nothing is frozen.\n");
    assert_eq!(db.value("select count(*) from countersign.freeze where unfrozen_login like 'olga_%'").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_flight_is_counted_and_refused_when_it_ends() {
    let db = database().await;
    let olga = operator(&db).await;
    make_accounts(&db).await;
    let robot = server(&db, "robot", "ann").await;
    let holder = db.connect().await;
    holder.batch_execute("begin; lock table social.tweet in share mode").await.unwrap();
    let write = post(&robot, "in flight");
    let freeze = async {
        db.until_value("select count(*) from countersign.mutation where status = 'pending'", "1").await;
        let said = succeed(&olga, &["freeze", "--account", "robot"]).await;
        assert!(said.contains("1 write of these is in flight"), "{said}");
        holder.batch_execute("rollback").await.unwrap();
    };
    let (refused, ()) = tokio::join!(write, freeze);
    assert_eq!(error_code(&refused), "account_frozen", "{refused}");
    assert_eq!(db.value("select count(*) from social.tweet where text = 'in flight'").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_freeze_and_an_unknown_account_gets_a_warning() {
    let db = database().await;
    let olga = operator(&db).await;
    for url in [db.writer_url(), db.login("paul", "countersign_approver").await] {
        for arguments in [["freeze", "--all"], ["unfreeze", "--all"]] {
            let CommandOutput { code, out, err } = run_countersign(&url, &arguments).await;
            assert_eq!((code, out.as_str()), (1, ""), "{err}");
            assert!(err.contains("is not an operator") && err.contains("grant countersign_operator to"), "{err}");
        }
    }
    assert_eq!(db.value("select count(*) from countersign.freeze").await, "0");
    let said = succeed(&olga, &["freeze", "--account", "robbot"]).await;
    assert!(said.contains("warning: the account robbot is in none of the newest 100,000 records"), "{said}");
    let CommandOutput { code, err, .. } = run_countersign(&olga, &["unfreeze", "--actor", "ann"]).await;
    assert!(code == 1 && err.contains("Writes of the actor ann were not frozen"), "{err}");
}
