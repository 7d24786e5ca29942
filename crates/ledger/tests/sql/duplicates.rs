//! An identical call is answered with the first result while its effect stands, and never executed a second time in silence.

use crate::server::{Outcome, perform};
use crate::support::{Call, ledger, run, server, undo, write};

const TABLE: &str = "create schema s; create table s.t (id int primary key, v text, n numeric default 0); insert into s.t values (1, 'start'), (2, 'x');
                     create table s.plain (id int primary key, n int); insert into s.plain values (1, 0);
                     select countersign.track('s.t')";

fn verdict(text: &str) -> Outcome {
    Outcome::AdmitDecision(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_answered_only_while_its_effect_is_in_place() {
    let database = ledger("duplicates").await;
    database.run(TABLE).await;
    let mut session = server(&database).await;
    let value = async || database.value("select v from s.t where id = 1").await;
    let set = |v: &str| (Call::new("set", v), format!("update s.t set v = '{v}' where id = 1"));
    let (a, set_a) = set("A");
    let (b, set_b) = set("B");

    assert_eq!(perform(&database, &mut session, &a, &set_a).await, Outcome::Success);
    assert_eq!(perform(&database, &mut session, &a.again(), &set_a).await, Outcome::Duplicate(a.correlation_id));
    assert_eq!(perform(&database, &mut session, &b, &set_b).await, Outcome::Success);
    assert_eq!(perform(&database, &mut session, &a.again(), &set_a).await, verdict("superseded"));
    assert_eq!(value().await, "B");
    // The undo of B is no duplicate of A.
    let undone = undo(&session, &[b.correlation_id]).await.unwrap();
    assert_eq!(value().await, "A");
    assert_eq!(perform(&database, &mut session, &b.again(), &set_b).await, verdict("superseded"), "reversed");
    // Redone, it stands again.
    undo(&session, &[undone]).await.unwrap();
    assert_eq!(value().await, "B");
    assert_eq!(perform(&database, &mut session, &b.again(), &set_b).await, Outcome::Duplicate(b.correlation_id));
    // A fresh key writes again.
    assert_eq!(perform(&database, &mut session, &a.again().keyed("new"), &set_a).await, Outcome::Success);
    assert_eq!(value().await, "A");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_from_outside_are_found_by_comparing_the_rows() {
    let database = ledger("duplicates_outside").await;
    database.run(TABLE).await;
    let session = server(&database).await;
    let call = Call::new("set", "A");
    call.run(&session, "update s.t set v = 'A' where id = 1").await.unwrap();
    database.run("update s.t set v = 'by hand' where id = 1").await;
    let again = call.again();
    let refused = call.again().run(&session, "select").await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.detail.as_str()), ("CS001", "held"));
    run(&session, "select countersign.sweep('0 s', 10)").await.unwrap();
    let answer = run(&session, &again.admit()).await.unwrap().remove(0);
    assert_eq!(answer, format!("standing {}", call.correlation_id));
    // What the server does then: it looks at the rows with its own rights.
    let looked = run(&session, &format!("select countersign.undo('{{{}}}', false)", call.correlation_id))
        .await
        .unwrap()
        .remove(0);
    assert!(looked.contains("changed_since"), "{looked}");
    run(
        &session,
        &format!(
            "select countersign.answer_duplicate('{}', {}, '{}', '{{\"reason\": \"changed\"}}')",
            again.correlation_id,
            again.slot(),
            call.correlation_id
        ),
    )
    .await
    .unwrap();
    assert_eq!(crate::support::outcome(&database, again.correlation_id).await, "failure superseded");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_bind_and_writes_without_an_effect_do_not() {
    let database = ledger("duplicates_keys").await;
    database.run(TABLE).await;
    let mut session = server(&database).await;
    let nothing = Call::new("set", "nothing").touching(0);
    for _ in 0..2 {
        let outcome = perform(&database, &mut session, &nothing.again(), "update s.t set v = 'x' where id = 77").await;
        assert_eq!(outcome, Outcome::Success);
    }
    let keyed = Call::new("add", "5").keyed("k");
    assert_eq!(
        perform(&database, &mut session, &keyed, "update s.t set n = n + 5 where id = 1").await,
        Outcome::Success
    );
    let other = Call { params: "6".to_owned(), ..keyed.again() };
    assert_eq!(
        perform(&database, &mut session, &other, "update s.t set n = n + 6 where id = 1").await,
        verdict("key_reused")
    );
    // Another account's key is another key.
    assert_eq!(
        perform(&database, &mut session, &keyed.again().by("other"), "update s.t set n = n + 5 where id = 2").await,
        Outcome::Success
    );
    // Two writes with keys of their own are two writes, and each is undone by itself.
    let second = Call::new("add", "5").keyed("k2");
    assert_eq!(
        perform(&database, &mut session, &second, "update s.t set n = n + 5 where id = 1").await,
        Outcome::Success
    );
    undo(&session, &[second.correlation_id]).await.unwrap();
    assert_eq!(database.value("select n from s.t where id = 1").await, "5");
    assert_eq!(database.value("select count(*) from countersign.reversal").await, "1");
    // Without tracking the window counts.
    let plain = Call::new("plain", "1");
    assert_eq!(perform(&database, &mut session, &plain, "update s.plain set n = n + 1").await, Outcome::Success);
    write(&session, "update s.plain set n = n + 1").await;
    assert_eq!(
        perform(&database, &mut session, &plain.again(), "update s.plain set n = n + 1").await,
        Outcome::Duplicate(plain.correlation_id)
    );
}
