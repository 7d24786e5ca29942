//! Control runs with missing mechanisms. A separate transaction records the outcome, like a log table beside the work; an undo marks
//! writes that it has not undone; an undo skips a row without comparing.

use testkit::Database;

/// What stands between `countersign.record_success` and its record: here the record is committed by another connection, before the write.
const FINISH: &str = "
begin
    perform public.dblink_exec('{place}', format(
        'insert into countersign.record (correlation_id, account_id, actor, session_id, client_name, client_version, trace_id, tool_name,
             fingerprint, idempotency_key, params, params_summary, status, undo_of, result, result_summary, rows_affected, before_image,
             after_image, rollback, login, slot, holds_until, xid, admitted_at, completed_at)
         select a.correlation_id, a.account_id, a.actor, a.session_id, a.client_name, a.client_version, a.trace_id, a.tool_name,
             a.fingerprint, a.idempotency_key, a.params, a.params_summary, ''success'', a.undo_of, %L, %L, %L, %L, %L, %L, a.login, a.slot,
             clock_timestamp() + interval ''5 minutes'', pg_current_xact_id(), a.admitted_at, clock_timestamp()
         from (select (%L::countersign.attempt).*) a',
        answer, answer_summary, affected, images_before, images_after, receipt,
        (select row(c.*)::countersign.attempt from countersign.claim c where c.correlation_id = correlation)));
    delete from countersign.claim c where c.correlation_id = correlation;
    delete from countersign.attempt a where a.correlation_id = correlation;
    return receipt;
end ";

/// Replaces the function that records the outcome of a write. Everything else of the protocol stays as it is. An error means that there is
/// no dblink.
pub(super) async fn write_outcomes_in_a_second_transaction(db: &Database) -> Result<(), tokio_postgres::Error> {
    let client = db.connect().await;
    client.batch_execute("create extension dblink schema public").await?;
    let record = db.value("select pg_get_functiondef('countersign.record_success'::regproc)").await;
    let (head, _) = record.split_once("$function$").expect("the text of countersign.record_success");
    let body = FINISH.replace("{place}", &db.url().replace('\'', "''"));
    db.run(&format!("{head}$function${body}$function$")).await;
    // A superuser's function: dblink asks everybody else for a password.
    db.run("alter function countersign.record_success owner to current_user").await;
    Ok(())
}

/// What the operator undoes marks one more write, which stands.
pub(super) async fn mark_one_write_more(db: &Database) {
    let marked = "select w, a.correlation_id from unnest(a.undo_of) w;";
    let more = "select w, a.correlation_id from unnest(a.undo_of || case when a.by_operator then array(
                    select r.correlation_id from countersign.record r
                    where r.status = 'success' and r.tool_name = 'add_entry' and r.correlation_id <> all (a.undo_of)
                      and not exists (select from countersign.reversal v where v.correlation_id = r.correlation_id)
                    order by r.id desc limit 1) else '{}' end) w;";
    replace(db, "countersign.prove_undo", marked, more).await;
}

/// Each undo by the operator leaves a row out, and no undo is compared with what it undoes.
pub(super) async fn leave_a_row_out(db: &Database) {
    let all = "array(select w from countersign.net_changes(writes) w)";
    let fewer =
        "array(select w from countersign.net_changes(writes) w offset case session_user when 'olga' then 1 else 0 end)";
    replace(db, "countersign.undo", all, fewer).await;
    replace(db, "countersign.prove_inverse", "wrong is not null", "false").await;
}

async fn replace(db: &Database, function: &str, text: &str, by: &str) {
    let definition = db.value(&format!("select pg_get_functiondef('{function}'::regproc)")).await;
    assert!(definition.contains(text), "{definition}");
    db.run(&definition.replacen(text, by, 1)).await;
}
