//! The schema of the ledger, as SQL files.

/// The files of the schema, by topic, in the order in which they are applied to an empty schema `countersign`.
pub const BASELINE: [(&str, &str); 28] = [
    ("10_tables", include_str!("../../../migrations/baseline/10_tables.sql")),
    ("20_admission", include_str!("../../../migrations/baseline/20_admission.sql")),
    ("30_effects", include_str!("../../../migrations/baseline/30_effects.sql")),
    ("40_images", include_str!("../../../migrations/baseline/40_images.sql")),
    ("45_undo", include_str!("../../../migrations/baseline/45_undo.sql")),
    ("46_restore", include_str!("../../../migrations/baseline/46_restore.sql")),
    ("47_proof", include_str!("../../../migrations/baseline/47_proof.sql")),
    ("48_receipts", include_str!("../../../migrations/baseline/48_receipts.sql")),
    ("49_history", include_str!("../../../migrations/baseline/49_history.sql")),
    ("50_plans", include_str!("../../../migrations/baseline/50_plans.sql")),
    ("60_definitions", include_str!("../../../migrations/baseline/60_definitions.sql")),
    ("64_agreed_rows", include_str!("../../../migrations/baseline/64_agreed_rows.sql")),
    ("65_proposals", include_str!("../../../migrations/baseline/65_proposals.sql")),
    ("66_checks", include_str!("../../../migrations/baseline/66_checks.sql")),
    ("66_reviewers", include_str!("../../../migrations/baseline/66_reviewers.sql")),
    ("67_console", include_str!("../../../migrations/baseline/67_console.sql")),
    ("68_notices", include_str!("../../../migrations/baseline/68_notices.sql")),
    ("69_console_oidc", include_str!("../../../migrations/baseline/69_console_oidc.sql")),
    ("70_log", include_str!("../../../migrations/baseline/70_log.sql")),
    ("71_loss", include_str!("../../../migrations/baseline/71_loss.sql")),
    ("72_entries", ENTRIES),
    ("72_schema_changes", include_str!("../../../migrations/baseline/72_schema_changes.sql")),
    ("75_reads", include_str!("../../../migrations/baseline/75_reads.sql")),
    ("77_policies", include_str!("../../../migrations/baseline/77_policies.sql")),
    ("78_callers", include_str!("../../../migrations/baseline/78_callers.sql")),
    ("79_erase", include_str!("../../../migrations/baseline/79_erase.sql")),
    ("80_people", include_str!("../../../migrations/baseline/80_people.sql")),
    ("90_privileges", include_str!("../../../migrations/baseline/90_privileges.sql")),
];

/// A query over `r`, a record: the text of its log entry, and the contents of the entry's parts.
pub(crate) const RECORD_ENTRY: &str = include_str!("../../../migrations/baseline/record_entry.sql");

/// A query over `v`, an event: the text of its log entry, and the contents of the entry's parts.
pub(crate) const EVENT_ENTRY: &str = include_str!("../../../migrations/baseline/event_entry.sql");

/// A query over `l`, a leaf: the text of its entry with what the newest erasure left of its parts, and the id of the
/// event of that erasure.
pub(crate) const ERASED_ENTRY: &str = include_str!("../../../migrations/baseline/erased_entry.sql");

/// Functions around these queries, which seal and erase records and events. Verification runs the queries themselves.
const ENTRIES: &str = concat!(
    "create function countersign.record_entries(ids bigint[]) returns table (id bigint, entry text) \
     language sql stable set search_path = pg_catalog, pg_temp as $$\n\
     select r.id, e.entry from countersign.record r cross join lateral (\n",
    include_str!("../../../migrations/baseline/record_entry.sql"),
    ") e where r.id = any (ids) $$;\n\
     comment on function countersign.record_entries(bigint[]) is 'The entries of records.';\n\
     create function countersign.event_entry(v countersign.event) returns table (entry text, details text) \
     language sql stable set search_path = pg_catalog, pg_temp as $$\n",
    include_str!("../../../migrations/baseline/event_entry.sql"),
    "$$;\n\
     comment on function countersign.event_entry(countersign.event) is 'The entry of an event, and the content of its part.';\n\
     create function countersign.erased_entry(l countersign.leaf) returns table (entry text, erasure bigint) \
     language sql stable set search_path = pg_catalog, pg_temp as $$\n",
    include_str!("../../../migrations/baseline/erased_entry.sql"),
    "$$;\n\
     comment on function countersign.erased_entry(countersign.leaf) is 'The entry of a leaf with what the newest erasure left of its parts.';\n",
);

/// The grants on the schema. `{writer}` stands for the login of a server.
pub const BASELINE_GRANTS: &str = include_str!("../../../migrations/baseline/grants.sql");
