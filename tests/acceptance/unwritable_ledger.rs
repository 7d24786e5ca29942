//! If the ledger cannot be written, nothing is written.

use reqwest::StatusCode;
use serde_json::json;
use testkit::social::untouched_tweet;
use testkit::{Database, HttpServer, Server, SmallDisk, database, external, lone_database};

const FULL_DISK: &str = "
create function public.no() returns trigger language plpgsql as
$$ begin raise exception 'no space left' using errcode = '53100'; end $$;
create trigger full_disk before insert on countersign.record
    for each row when (new.status = 'success') execute function public.no()";

/// Tries a write that must fail with this SQLSTATE, and makes sure that nothing has changed.
async fn refuses(db: &Database, server: &Server, sqlstate: &str) {
    let before = db.social().await;
    let tweet = untouched_tweet(db).await;
    let error = server.fail("like_tweet", json!({"tweet_id": tweet}), "db_error").await;
    assert_eq!((&error["sqlstate"], &error["retryable"]), (&json!(sqlstate), &json!(true)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("nothing was written"), "{error}");
    assert_eq!(db.social().await, before);
}

/// The servers of a database that has lost the right to a function of the ledger: the attempts of the second one are admitted first.
async fn without(db: &Database, function: &str) -> [Server; 2] {
    let mut command = Server::command(db);
    command.arg("--durable-admission");
    let servers = [Server::on(db).await, Server::start(command).await];
    let id = db.value(&format!("select 'countersign.{function}'::regproc::regprocedure")).await;
    db.run(&format!("revoke execute on function {id} from countersign_writer")).await;
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_privilege() {
    let db = database().await;
    let [server, durable] = without(&db, "begin_write").await;
    refuses(&db, &server, "42501").await;
    db.run("revoke insert on countersign.admission from countersign_writer").await;
    refuses(&db, &durable, "42501").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_claimed() {
    let db = database().await;
    let [_, durable] = without(&db, "claim_attempt").await;
    refuses(&db, &durable, "42501").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database() {
    let db = database().await;
    db.run(&format!("alter database {} set default_transaction_read_only = on", db.name())).await;
    refuses(&db, &Server::on(&db).await, "25006").await;
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_cannot_be_recorded() {
    // The intent is recorded, the work is done, and its record cannot be completed: the work is undone, and that is known.
    let db = database().await;
    let server = Server::on(&db).await;
    db.run(FULL_DISK).await;
    refuses(&db, &server, "53100").await;
    // The record says what the caller was told.
    let record = "select status, error_code, error_sqlstate, error_message from countersign.mutation";
    let told = "the ledger cannot be written, so nothing was written";
    assert_eq!(db.rows(record).await, [["failure", "db_error", "53100", told]]);
    db.run("drop trigger full_disk on countersign.record").await;
    let tweet = untouched_tweet(&db).await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk() {
    let db = lone_database().await;
    let disk = match SmallDisk::mount(1 << 20, Some(&db.cluster().data_dir())) {
        Ok(disk) => disk,
        Err(reason) => {
            return external::skip_unprivileged(&format!("only root can mount a small file system: {reason}"));
        }
    };
    let server = Server::on(&db).await;
    db.run(&format!("create tablespace small location '{}'", disk.path().display())).await;
    db.run("alter table countersign.record set tablespace small").await;
    db.run("create table public.filler (text) tablespace small as select repeat('x', 7000)").await;
    // Ends with the disk full, whatever is left of it at the start.
    let fill = "do $$ begin loop insert into public.filler select repeat(md5(random()::text), 200); end loop; \
                exception when disk_full then null; end $$";
    db.run(fill).await;

    // What is left of the ledger's last page takes some records yet.
    let mut written = 0;
    let refused = loop {
        let text = format!("{written} {}", "ledger ".repeat(35));
        let envelope = server.call("post_tweet", json!({"text": text})).await;
        if envelope["success"] != true {
            break envelope;
        }
        written += 1;
        assert!(written < 200, "the disk is not full");
    };
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["sqlstate"]),
        (&json!("db_error"), &json!("53100")),
        "{refused}"
    );
    let posted = "select count(*) from social.tweet where text like '%ledger ledger%'";
    assert_eq!(db.value(posted).await, written.to_string());

    // Room again: it goes on, and what was refused can be repeated.
    db.run("drop table public.filler").await;
    server.succeed("post_tweet", json!({"text": "room again"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_last_write_found_a_full_disk_says_so_when_it_is_asked() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    db.run(FULL_DISK).await;
    let client = server.session("2025-11-25").await;
    let tweet = untouched_tweet(&db).await;
    let refused = client.call("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(refused["error"]["sqlstate"], "53100", "{refused}");
    let said = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(said.contains("a disk of the database is full (53100)"), "{said}");
    db.run("drop trigger full_disk on countersign.record").await;
    let written = client.call("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(written["success"], true, "{written}");
    server.until_ready().await;
}
