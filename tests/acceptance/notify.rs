//! Notices of proposals to a receiver that is slow, down, or answers 500 (docs/topics/notifications.md).

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, ReceivedRequest, Reception, Server, WebhookReceiver, countersign, database, now_s};
use tokio::process::Command;

use crate::proposals::{agreement, decide_as_person, id, price, state};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A folder with the secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), format!("{SECRET}\n")).unwrap();
    folder
}

/// A server of the studio that posts notices there.
fn command(db: &Database, url: &str, folder: &tempfile::TempDir) -> Command {
    let mut command = Server::studio_command(db);
    command.args(["--notify-url", url]).arg("--notify-secret-file").arg(folder.path().join("secret"));
    command
}

fn header<'a>(request: &'a ReceivedRequest, name: &str) -> &'a str {
    request.headers.get(name).unwrap_or_else(|| panic!("no {name} in {request:?}"))
}

fn ids(requests: &[ReceivedRequest]) -> BTreeSet<&str> {
    requests.iter().map(|request| header(request, "webhook-id")).collect()
}

fn body(request: &ReceivedRequest) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

async fn waiting(db: &Database) -> String {
    db.value("select count(*) from countersign.notice").await
}

async fn all_sent(db: &Database) {
    db.first_value("select 1 where not exists (select from countersign.notice)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_posted_with_a_signature_and_without_data_of_rows() {
    let db = database().await;
    let (folder, receiver) = (folder(), WebhookReceiver::start(&[]).await);
    let mut with_link = command(&db, &receiver.url(), &folder);
    with_link.args(["--notify-link-base", "https://console.example.com/proposals/"]);
    with_link.env("COUNTERSIGN_ACTOR", "claude");
    let server = Server::start(with_link).await;
    let executed = server.propose("upsert_package", price("4711.47")).await;
    server.succeed("confirm_proposal", agreement(&executed)).await;
    let rejected = server.propose("upsert_package", price("4711.48")).await;
    let reason = json!({"proposal_id": rejected["proposal_id"], "reason": "4711 is too much"});
    server.succeed("reject_proposal", reason).await;
    let stale = server.propose("upsert_package", price("4711.49")).await;
    db.run("update studio.package set price = 4711.50 where package_id = 1").await;
    server.fail("confirm_proposal", agreement(&stale), "proposal_stale").await;
    let deletion = server.propose("delete_package", json!({"package_id": 3})).await;
    assert_eq!(decide_as_person(&db, &deletion, "rejected", "ben").await, "done");

    let requests = receiver.at_least(9).await;
    all_sent(&db).await;
    assert_eq!(receiver.requests().len(), 9, "{requests:?}");
    assert_eq!(ids(&requests).len(), 9, "each notice has its id");
    for request in &requests {
        assert_eq!(request.line, "POST /hook?from=countersign HTTP/1.1");
        assert_eq!(header(request, "content-type"), "application/json");
        assert_eq!(header(request, "webhook-signature"), request.expected_signature(SECRET));
        let sent_at: i64 = header(request, "webhook-timestamp").parse().unwrap();
        assert!((now_s() - sent_at).abs() < 60, "{sent_at}");
        assert!(!request.body.contains("4711") && !request.body.contains("Portrait"), "{}", request.body);
        let data = &body(request)["data"];
        assert_eq!((&data["account"], &data["actor"]), (&json!("default"), &json!("claude")));
        let link = format!("https://console.example.com/proposals/{}", data["proposal_id"].as_str().unwrap());
        assert_eq!(data["link"], link);
    }
    let mut told: Vec<(String, String, String)> = requests
        .iter()
        .map(|request| {
            let body = body(request);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&body["data"]["proposal_id"]), text(&body["type"]), text(&body["data"]["decision"]))
        })
        .collect();
    told.sort();
    let of = |proposal: &Value, events: &[(&str, &str)]| {
        let event = |(event, decision): &(&str, &str)| {
            (id(proposal).to_owned(), format!("proposal.{event}"), (*decision).to_owned())
        };
        events.iter().map(event).collect::<Vec<_>>()
    };
    let mut expected = [
        of(&executed, &[("proposed", ""), ("decided", "confirmed")]),
        of(&rejected, &[("proposed", ""), ("decided", "rejected")]),
        of(&stale, &[("proposed", ""), ("decided", "confirmed"), ("stale", "confirmed")]),
        of(&deletion, &[("proposed", ""), ("decided", "rejected")]),
    ]
    .concat();
    expected.sort();
    assert_eq!(told, expected);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_slow_or_answers_500_gets_the_same_notice_again_and_no_write_waits() {
    let db = database().await;
    let folder = folder();
    let receiver = WebhookReceiver::start(&[Reception::Silence, Reception::Status(500), Reception::Close]).await;
    let server = Server::start(command(&db, &receiver.url(), &folder)).await;
    let asked = Instant::now();
    let proposal = server.propose("upsert_package", price("150")).await;
    receiver.at_least(1).await;
    // The receiver holds the notice of the first one now.
    let done = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(done["data"]["status"], "executed");
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());

    all_sent(&db).await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 5, "two notices, and three failures: {requests:?}");
    assert_eq!(ids(&requests).len(), 2, "{requests:?}");
    let proposed: Vec<&ReceivedRequest> =
        requests.iter().filter(|request| body(request)["type"] == "proposal.proposed").collect();
    assert!(proposed.len() > 1, "{requests:?}");
    assert!(proposed.iter().all(|request| request.body == proposed[0].body), "a repetition says the same");
    for request in &requests {
        assert_eq!(header(request, "webhook-signature"), request.expected_signature(SECRET), "of its own time");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_down_gets_its_notices_when_it_is_back() {
    let db = database().await;
    let (folder, receiver) = (folder(), WebhookReceiver::start(&[]).await);
    let (url, address) = (receiver.url(), receiver.address());
    drop(receiver);
    let server = Server::start(command(&db, &url, &folder)).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.first_value("select 1 from countersign.notice where attempts >= 2").await;
    assert_eq!(state(&db, &proposal).await, "pending");
    let receiver = WebhookReceiver::on(address, &[]).await;
    let requests = receiver.at_least(1).await;
    assert_eq!(body(&requests[0])["data"]["proposal_id"], proposal["proposal_id"]);
    all_sent(&db).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_send_each_notice_once_and_a_killed_server_loses_none() {
    let db = database().await;
    let folder = folder();
    // Proposed while no server sends: the outbox keeps them.
    let silent = Server::studio(&db).await;
    for number in 0..30 {
        silent.propose("upsert_package", price(&format!("{}", 200 + number))).await;
    }
    assert_eq!(waiting(&db).await, "30");
    let receiver = WebhookReceiver::start(&[]).await;
    let servers = [
        Server::start(command(&db, &receiver.url(), &folder)).await,
        Server::start(command(&db, &receiver.url(), &folder)).await,
    ];
    all_sent(&db).await;
    let requests = receiver.requests();
    assert_eq!((requests.len(), ids(&requests).len()), (30, 30));
    for server in servers {
        server.close().await;
    }

    // Killed while the receiver has the request.
    let stuck = WebhookReceiver::start(&[Reception::Silence]).await;
    let mut sending = command(&db, &stuck.url(), &folder);
    let mut sending = sending.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let proposal = silent.propose("upsert_package", price("300")).await;
    let first = stuck.at_least(1).await;
    sending.kill().await.unwrap();
    assert_eq!(waiting(&db).await, "1");
    // While the lease lasts nobody else has it; then the next server does.
    let next = Server::start(command(&db, &receiver.url(), &folder)).await;
    assert_eq!(db.value("select count(*) from countersign.notice where due_at > now() and attempts = 1").await, "1");
    db.run("update countersign.notice set due_at = now()").await;
    let again = receiver.at_least(31).await;
    assert_eq!(header(&again[30], "webhook-id"), header(&first[0], "webhook-id"));
    assert_eq!(body(&again[30])["data"]["proposal_id"], proposal["proposal_id"]);
    all_sent(&db).await;
    next.close().await;
    silent.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_for_slack_is_a_text_without_mentions_and_links_of_agents() {
    let db = database().await;
    db.run(
        "create table studio.offer (id int primary key, tenant_id text, package_id bigint,
            foreign key (tenant_id, package_id) references studio.package on delete cascade);
        insert into studio.offer select n, tenant_id, 3 from studio.package, generate_series(1, 5) n where package_id = 3;
        select countersign.track('studio.offer')",
    )
    .await;
    let receiver = WebhookReceiver::start(&[]).await;
    let mut command = Server::studio_command(&db);
    command.args(["--notify-form", "slack", "--notify-url", &receiver.url()]);
    command.args(["--notify-link-base", "https://console.example.com/p/"]);
    command.env("COUNTERSIGN_ACTOR", "<!channel> *now* <https://evil.example|click>");
    let server = Server::start(command).await;
    let call = json!({"package_id": 3, "reason": "<!here> *drop* it"});
    let proposal = server.propose("delete_package", call).await;
    let requests = receiver.at_least(1).await;
    let id = id(&proposal);
    let expected = format!(
        "Delete a package (delete_package) was proposed by default, &lt;!channel&gt;  now  &lt;https://evil.example click&gt; \
         (2 rows, and 5 more rows) and waits for agreement: &lt;!here&gt;  drop  it. <https://console.example.com/p/{id}|{id}>"
    );
    assert_eq!(body(&requests[0]), json!({"text": expected}));
    assert!(!requests[0].headers.contains_key("webhook-signature"), "there is no secret");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_proposal_is_told_of_and_old_notices_go() {
    let db = database().await;
    let (folder, receiver) = (folder(), WebhookReceiver::start(&[]).await);
    let mut short = command(&db, &receiver.url(), &folder);
    short.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "1");
    let server = Server::start(short).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.first_value("select 1 from countersign.proposal where expires_at <= clock_timestamp()").await;
    server.fail("confirm_proposal", agreement(&proposal), "proposal_expired").await;
    let requests = receiver.at_least(2).await;
    assert_eq!(body(&requests[1])["type"], "proposal.expired");
    all_sent(&db).await;
    server.close().await;

    // Nobody sends: they are not sent after a day, and removed after three.
    let silent = Server::studio(&db).await;
    silent.propose("upsert_package", price("151")).await;
    db.run("update countersign.notice set created_at = now() - interval '25 hours'").await;
    assert_eq!(db.value("select count(*) from countersign.claim_notices(10, interval '1 s')").await, "0");
    db.run("update countersign.notice set created_at = now() - interval '73 hours'").await;
    db.rows("select ended::text from countersign.sweep_proposals(10)").await;
    assert_eq!(waiting(&db).await, "0");
    let failing = silent.propose("delete_package", json!({"package_id": 3})).await;
    silent.close().await;
    assert_eq!(decide_as_person(&db, &failing, "confirmed", "ben").await, "done");
    let end = format!("select countersign.end_proposal('{}', null, 'failed', 'sql_error', 'no')", id(&failing));
    assert_eq!(db.value(&end).await, "t");
    let told = "select event || coalesce(' ' || (data ->> 'error_code'), '') from countersign.notice order by id";
    assert_eq!(db.rows(told).await.concat(), ["proposed", "decided", "failed sql_error"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_servers_claim_notices_and_nobody_reads_the_outbox() {
    let db = database().await;
    let as_approver = db.login("approver", "countersign_approver").await;
    let claim = "select countersign.claim_notices(1, interval '1 s')";
    for (url, statement) in [
        (&as_approver, claim),
        (&as_approver, "select countersign.settle_notice(gen_random_uuid(), 1, null)"),
        (&as_approver, "select from countersign.notice"),
        (&db.writer_url(), "select from countersign.notice"),
        (&db.writer_url(), "insert into countersign.notice (event, data) values ('failed', '{}')"),
    ] {
        let client = testkit::connect(url).await;
        let refused = client.simple_query(statement).await.unwrap_err();
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_would_send_nothing_or_unsigned_notices_are_refused() {
    let db = database().await;
    let folder = folder();
    std::fs::write(folder.path().join("short"), "whsec_c2hvcnQ=").unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let url = "https://hooks.example.com/x";
    for (arguments, named) in [
        (vec!["--notify-url", url], "[notify] has no secret_file"),
        (vec!["--notify-form", "slack"], "[notify] has no url"),
        (vec!["--notify-url", "http://hooks.example.com/"], "is not a URL that begins with https://"),
        (vec!["--notify-url", url, "--notify-secret-file", &path("short")], "24 to 64 bytes in base64"),
        (vec!["--notify-url", url, "--notify-secret-file", &path("missing")], "cannot be read"),
    ] {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).arg("serve").args(&arguments).stdin(Stdio::null());
        let output = command.output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(named), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_every_user_may_read_is_a_warning() {
    // S-15
    let db = database().await;
    let folder = folder();
    let secret = folder.path().join("secret");
    for (mode, is_open) in [(0o644, true), (0o640, false), (0o600, false)] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).args(["serve", "--notify-url", "https://hooks.example.com/x"]);
        command.arg("--notify-secret-file").arg(&secret).stdin(Stdio::null());
        let said = String::from_utf8(command.output().await.unwrap().stderr).unwrap();
        let path = secret.display();
        let warning = format!(
            "every user of this machine may read the secret in {path} (secret_file of [notify]): chmod 600 {path}"
        );
        assert_eq!(said.contains(&warning), is_open, "{mode:o}: {said}");
        // H-2: as is the key of TLS. This one ends the server, since it is none.
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).args(["serve", "--http", "127.0.0.1:0"]).stdin(Stdio::null());
        command.arg("--http-tls-key").arg(&secret).arg("--http-tls-certificate").arg(&secret);
        let said = String::from_utf8(command.output().await.unwrap().stderr).unwrap();
        assert_eq!(said.contains(&format!("{path} (tls_key of [http])")), is_open, "{mode:o}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_of_notifications_are_read_and_sent() {
    let db = database().await;
    let (folder, receiver) = (folder(), WebhookReceiver::start(&[]).await);
    let page = "docs/topics/notifications.md";
    let config = crate::samples::sample(page, "[notify]")
        .replace("/run/secrets/countersign-notify", "secret")
        .replace("https://hooks.example.com/countersign", &receiver.url());
    std::fs::write(folder.path().join("countersign.toml"), config).unwrap();
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_CONFIG", folder.path().join("countersign.toml")).env("COUNTERSIGN_ACTOR", "claude");
    let server = Server::start(command).await;
    let proposal =
        server.propose("delete_package", json!({"package_id": 3, "reason": "The studio no longer offers it."})).await;
    assert_eq!(decide_as_person(&db, &proposal, "rejected", "anna").await, "done");
    let requests = receiver.at_least(2).await;
    let decided = requests.iter().map(body).find(|body| body["type"] == "proposal.decided").unwrap();
    let shown: Value = serde_json::from_str(&crate::samples::sample(page, "{\n  \"type\"")).unwrap();
    let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&decided["data"]), keys(&shown["data"]), "{decided}");
    for key in [
        "tool",
        "title",
        "reason",
        "rows",
        "changed",
        "listed",
        "reversible",
        "unfiltered",
        "unusual",
        "warnings",
        "tier",
        "status",
        "account",
        "actor",
        "approvals",
        "decision",
        "decided_by",
        "decided_via",
    ] {
        assert_eq!(decided["data"][key], shown["data"][key], "{key}");
    }
    server.close().await;
}
