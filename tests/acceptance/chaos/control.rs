//! The mechanism taken away: the outcome is recorded by a transaction of its own, as a log table beside the work would.

use testkit::Database;

/// What stands between `countersign.finish` and its record: here the record is committed by another connection, before the write.
const FINISH: &str = "
begin
    perform public.dblink_exec('{place}', format(
        'insert into countersign.record (correlation_id, account_id, actor, session_id, client_name, client_version, trace_id, tool_name,
             fingerprint, idempotency_key, params, params_summary, status, undo_of, result, result_summary, rows_affected, before_image,
             after_image, rollback, login, slot, holds_until, xid, admitted_at, completed_at)
         select a.correlation_id, a.account_id, a.actor, a.session_id, a.client_name, a.client_version, a.trace_id, a.tool_name,
             a.fingerprint, a.idempotency_key, a.params, a.params_summary, ''success'', a.undo_of, %L, %L, %L, %L, %L, %L, a.login, a.slot,
             clock_timestamp() + interval ''5 minutes'', pg_current_xact_id(), a.admitted_at, clock_timestamp()
         from countersign.attempt a where a.correlation_id = %L',
        answer, answer_summary, affected, images_before, images_after, undo_call, correlation));
    delete from countersign.attempt a where a.correlation_id = correlation;
end ";

/// Replaces the function of T2 that records the outcome. Everything else of the protocol stays as it is. An error means that there is
/// no dblink.
pub(super) async fn write_outcomes_in_a_second_transaction(db: &Database) -> Result<(), tokio_postgres::Error> {
    let client = db.connect().await;
    client.batch_execute("create extension dblink schema public").await?;
    let finish = db.value("select pg_get_functiondef('countersign.finish'::regproc)").await;
    let (head, _) = finish.split_once("$function$").expect("the text of countersign.finish");
    let body = FINISH.replace("{place}", &db.url().replace('\'', "''"));
    db.run(&format!("{head}$function${body}$function$")).await;
    // A superuser's function: dblink asks everybody else for a password.
    db.run("alter function countersign.finish owner to current_user").await;
    Ok(())
}
