-- Who may do what, by an explicit list. `init` grants it (crates/ledger/src/setup/privileges.rs); tests run this file. The placeholder
-- {writer} is the login of a server. Everything belongs to countersign_owner, and PUBLIC has nothing.

grant usage on schema countersign to {writer}, countersign_approver, countersign_operator, countersign_console;
grant select on countersign.record, countersign.mutation, countersign.effect, countersign.reversal,
    countersign.reversal_part, countersign.tracked, countersign.freeze, countersign.loss,
    countersign.writer_login, countersign.fingerprint_key, countersign.identity, countersign.proposal, countersign.proposal_rows, countersign.approval, countersign.question, countersign.proposal_check,
    countersign.stored_plan, countersign.event, countersign.leaf, countersign.tree_node, countersign.log_key,
    countersign.witness, countersign.checkpoint, countersign.schema_change
    to {writer}, countersign_approver, countersign_operator, countersign_console;

-- Servers.
grant insert on countersign.admission to {writer};
grant execute on function
    countersign.claim_attempt(uuid, bytea, integer, boolean),
    countersign.claim_preview(uuid, text, text, text, integer),
    countersign.finish(uuid, json, text, bigint, json, json, json, interval, text),
    countersign.record_success(uuid, json, text, bigint, json, json, json, interval, jsonb, boolean),
    countersign.renew_shapes(),
    countersign.fail(uuid, bytea, text, text, text, json, text),
    countersign.admit(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, boolean, interval, json),
    countersign.answer_duplicate(uuid, bytea, uuid, json),
    countersign.resolve(uuid, bytea, integer, boolean),
    countersign.begin_write(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, integer, json, countersign.known_history),
    countersign.take_slot(bytea, boolean, countersign.known_history),
    countersign.note_loss(countersign.known_history, uuid[], timestamp with time zone[], bigint),
    countersign.slot_lock(bytea),
    countersign.refuse_after_loss(countersign.known_history),
    countersign.incarnation(),
    countersign.lacks(countersign.known_history),
    countersign.is_lost(uuid),
    countersign.current_timeline(),
    countersign.record_failure(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, text, text, text, json, interval, json),
    countersign.report_write(bytea, uuid, text, text, text, text, text, text, text, text, text, text, json, text, uuid[], uuid, interval, json),
    countersign.withdraw_report(uuid),
    countersign.sweep(interval, integer),
    countersign.existing_write(bytea, text),
    countersign.propose(uuid, text, text, text, text, text, text, text, text, json, text, text, json, interval, integer, text, text, text, text, integer, text, text, json, json),
    countersign.decide_proposal(uuid, text, text, text, text, text, uuid, interval, json),
    countersign.claim_proposal(uuid, uuid, interval),
    countersign.release_proposal(uuid, uuid, text, text),
    countersign.lock_proposal(uuid, uuid),
    countersign.proposal_digest(countersign.proposal),
    countersign.agree_on_rows(uuid, bigint, boolean, jsonb),
    countersign.changes_nothing(uuid, bigint),
    countersign.difference_of_rows(uuid, json),
    countersign.end_proposal(uuid, uuid, text, text, text),
    countersign.sweep_proposals(integer),
    countersign.propose_schema_change(uuid, text, text, text, text, text, text, json, text, text, integer),
    countersign.take_checks(text[], text[], interval, integer),
    countersign.store_check(uuid, text, json),
    countersign.claim_notices(integer, interval),
    countersign.settle_notice(uuid, integer, interval),
    countersign.current_definitions(text[]),
    countersign.changed_definitions(json),
    countersign.seal(integer),
    countersign.store_checkpoint(bigint, text),
    countersign.reader_credentials(boolean),
    countersign.caller_key(),
    countersign.state_keys(),
    countersign.note_fingerprint_key(text),
    countersign.log_reads(uuid, bigint, bigint, bigint, text[]),
    countersign.apply_policy(text, bytea, text, text, text, text, text, text, text, uuid, text, text[], boolean[], integer, integer, boolean),
    countersign.apply_row_limit(uuid, bigint, integer, boolean)
    to {writer};
grant execute on function countersign.current_identity(), countersign.executable_until(countersign.proposal),
    countersign.note_export(bigint, text, text)
    to {writer}, countersign_approver, countersign_operator;
grant execute on function countersign.current_identity(), countersign.executable_until(countersign.proposal)
    to countersign_console;
-- Policies of row level security call these with the rights of whoever reads the table.
grant execute on function countersign.account(), countersign.claim(text) to public;
grant execute on function countersign.approvals_of(countersign.proposal), countersign.undo_obstacles(uuid), countersign.net_effects(uuid),
    countersign.counts_of_preview(json)
    to {writer}, countersign_approver, countersign_operator, countersign_console;

-- Approvers, and the console.
grant execute on function countersign.begin_decision(uuid), countersign.request_check(uuid)
    to countersign_approver, countersign_console;
grant execute on function countersign.decide_as_reviewer(uuid, text, text, text, text, text)
    to countersign_approver;
grant execute on function
    countersign.bring_schema_change(uuid, text, text, text),
    countersign.schema_change_lock(uuid),
    countersign.begin_schema_change(uuid, text, text, text),
    countersign.note_schema_step(uuid, integer),
    countersign.end_schema_change(uuid, text, text, text),
    countersign.reject_schema_change(uuid, text, text, text)
    to countersign_approver;
grant execute on function
    countersign.decide_as_console(uuid, text, bytea, interval, text, text, text),
    countersign.log_in_with_link(bytea, bytea),
    countersign.begin_sign_in(bytea, bytea, text, text, text, boolean),
    countersign.take_sign_in(bytea, bytea),
    countersign.log_in_with_oidc(bytea, text, text, text[], text[], timestamp with time zone),
    countersign.find_console_session(bytea),
    countersign.log_out(bytea),
    countersign.note_console_address(text)
    to countersign_console;

-- Operators. Servers only add to the log of reads and to the policy log: an agent with execute_sql must not see the calls of others.
grant select on countersign.read_log, countersign.policy_log
    to countersign_operator;
grant execute on function
    countersign.admit_undo(uuid, uuid[], text, text, json, text, text, text),
    countersign.claim_attempt(uuid, bytea, integer, boolean),
    countersign.claim_preview(uuid, text, text, text, integer),
    countersign.finish(uuid, json, text, bigint, json, json, json, interval, text),
    countersign.record_success(uuid, json, text, bigint, json, json, json, interval, jsonb, boolean),
    countersign.renew_shapes(),
    countersign.fail(uuid, bytea, text, text, text, json, text),
    countersign.resolve(uuid, bytea, integer, boolean),
    countersign.freeze(text, text, text, text),
    countersign.unfreeze(text, text, text)
    to countersign_operator;
grant execute on function
    countersign.erasure_plan(json),
    countersign.propose_erasure(uuid, json, text, text, text),
    countersign.erasable_tables(),
    countersign.erase_portion(uuid, text, bigint, integer),
    countersign.finish_erasure(uuid)
    to countersign_operator, countersign_approver;

-- Undo, for servers and for people. None of these reads or writes more than its caller may, but for the ledger's own tables.
grant execute on function
    countersign.superseded_by(uuid),
    countersign.reversal_state(uuid),
    countersign.undone_before(uuid),
    countersign.changed_since(uuid, text),
    countersign.undo_plan(uuid[], text, text, text),
    countersign.trial_conflicts(uuid[]),
    countersign.try_part(uuid[], text),
    countersign.store_plan(text, json, json, json, text, text),
    countersign.selected_writes(text, text, text, text, text, text, timestamp with time zone, timestamp with time zone, text, text),
    countersign.later_changes(uuid[]),
    countersign.known_names(text, text),
    countersign.touched_rows(uuid[]),
    countersign.left_out_by(uuid, json),
    countersign.writes_in_conflict(uuid[], json),
    countersign.effects_of_row(oid, text),
    countersign.undo(uuid[], boolean, text),
    countersign.undo_conflicts(uuid[], countersign.net_change[], boolean, text),
    countersign.net_changes(uuid[], bigint, bigint),
    countersign.shapes_of_net_changes(uuid[]),
    countersign.moved_rows(uuid[], countersign.net_change[]),
    countersign.cast_images(anyelement, text[]),
    countersign.current_rows(countersign.tracked, text[], boolean, text),
    countersign.select_in(text, text, anyarray),
    countersign.execute_in(text, text, anyarray, anyarray),
    countersign.may_hide_rows(oid),
    countersign.rows_for_caller(text, integer[], text[], text),
    countersign.apply_images(countersign.tracked, text, text[], text[], text, boolean),
    countersign.row_image(record),
    countersign.single_change(uuid[]),
    countersign.refused_writes(uuid[]),
    countersign.restore_row(countersign.net_change, text),
    countersign.row_image_expression(countersign.tracked),
    countersign.describe_write(uuid),
    countersign.describe_conflict(countersign.tracked, countersign.net_change, text, text, timestamp with time zone, uuid[]),
    countersign.has_current_shape(countersign.tracked),
    countersign.has_triggers(oid, integer),
    countersign.table_name(oid),
    countersign.columns_now(countersign.tracked, text[]),
    countersign.noted_columns(text),
    countersign.assigned_columns(oid),
    countersign.tracked_now(countersign.tracked),
    countersign.only(countersign.tracked),
    countersign.is_guarded(oid),
    countersign.untracked_counts(boolean, oid[]),
    countersign.untracked_damage(jsonb, jsonb, jsonb, oid[]),
    countersign.evidence_of(uuid[]),
    countersign.deviations(uuid[], uuid[], bigint, jsonb),
    countersign.claimed_attempt(),
    countersign.settle(text),
    countersign.is_remade(countersign.tracked, text, text),
    countersign.evidence_of_undo(jsonb, uuid[]),
    countersign.restore_rows(uuid[], countersign.net_change[], uuid, bigint, jsonb, text),
    countersign.restore_kind(text, countersign.net_change[], integer[], countersign.tracked[], jsonb, jsonb, oid[], text, boolean),
    countersign.recorded_steps(uuid[], bigint),
    countersign.restore_backwards(uuid[], bigint, oid[], text),
    countersign.restore_disturbed(countersign.net_change[], integer[], countersign.tracked[], jsonb, oid[], text),
    countersign.seen_rows(uuid),
    countersign.clock_columns(text),
    countersign.is_free_to_change(oid, smallint[]),
    countersign.free_numbers(countersign.tracked, text[]),
    countersign.set_by_clocks(oid, text),
    countersign.may_take_back(oid, text),
    countersign.has_obstacles(countersign.tracked, text, boolean, boolean),
    countersign.refuses_old_rows(oid, boolean),
    countersign.calls_others(text),
    countersign.catalog_versions(oid, boolean),
    countersign.kinds_of_change(uuid),
    countersign.assigned_first(smallint[], jsonb),
    countersign.examine_write(uuid, uuid[]),
    countersign.facts_of_write(uuid, uuid[]),
    countersign.try_undo(uuid, jsonb, text),
    countersign.receipt(json, countersign.write_facts, bigint, jsonb, json, boolean),
    countersign.promise_of_write(uuid, bigint, json, text, uuid[]),
    countersign.promise_of_preview(uuid, bigint, json, uuid[], text),
    countersign.key_of(oid),
    countersign.key_columns(oid),
    countersign.tracking_problems(),
    countersign.is_recorded_by_root(oid),
    countersign.fields(text),
    countersign.field_value(text),
    countersign.same_image(countersign.tracked, text, text, text[]),
    countersign.key_match(countersign.tracked, text),
    countersign.image_columns(countersign.tracked, text)
    to {writer}, countersign_operator;

-- History. Each reads the table with the rights of its caller.
grant select on countersign.pruned_changes to {writer}, countersign_approver, countersign_operator, countersign_console;
grant execute on function
    countersign.key_of(oid), countersign.key_columns(oid), countersign.has_current_shape(countersign.tracked), countersign.table_name(oid),
    countersign.effects_of_row(oid, text),
    countersign.is_recording(oid), countersign.trigger_name(oid),
    countersign.ledger_era(timestamp with time zone),
    countersign.history_extent(oid)
    to {writer}, countersign_approver, countersign_operator, countersign_console;
