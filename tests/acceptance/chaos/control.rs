//! The mechanism taken away: the outcome is recorded by a transaction of its own, as a log table beside the work would.

use testkit::Database;

/// Replaces the two functions of T2 that touch the record: each does its work on a connection of its own, which commits
/// at once. Everything else of the protocol stays as it is. An error means that there is no dblink.
pub(super) async fn write_outcomes_in_a_second_transaction(db: &Database) -> Result<(), tokio_postgres::Error> {
    let client = db.connect().await;
    client.batch_execute("create extension dblink schema public").await?;
    let place = db.url().replace('\'', "''");
    let finish = db.value("select pg_get_functiondef('countersign.finish_success'::regproc)").await;
    let condition = "and current_setting('countersign.claimed', true) = correlation::text";
    assert!(finish.contains(condition), "the control no longer fits the protocol: {finish}");
    let apart = finish.replace("countersign.finish_success(", "countersign.finish_apart(").replace(condition, "");
    db.run(&apart).await;
    db.run(&format!(
        "create or replace function countersign.claim(correlation uuid, timeout_ms integer) returns void
         language plpgsql as $$
         begin
             if public.dblink_exec('{place}', format(
                 'update countersign.record set xid = %L
                  where correlation_id = %L and status = ''pending'' and exec_xid is null',
                 pg_current_xact_id(), correlation)) <> 'UPDATE 1'
             then
                 raise exception 'mutation % is not to be executed here', correlation using errcode = 'CS001';
             end if;
         end $$;
         create or replace function countersign.finish_success(
             correlation uuid, answer json, answer_summary text, affected bigint, images_before json,
             images_after json, undo json, undo_tools text[], undo_fingerprints text[], time_window interval
         ) returns void language plpgsql as $$
         begin
             perform from public.dblink('{place}', format(
                 'select countersign.finish_apart(%L, %L, %L, %L, %L, %L, %L, %L, %L, %L)::text',
                 correlation, answer, answer_summary, affected, images_before,
                 images_after, undo, undo_tools, undo_fingerprints, time_window)) as finished (nothing text);
         end $$;"
    ))
    .await;
    let finishing = "select count(*) from pg_proc where proname = 'finish_success'";
    assert_eq!(db.value(finishing).await, "1", "the control no longer fits the protocol: it would replace nothing");
    Ok(())
}
