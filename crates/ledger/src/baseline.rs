//! The schema of the ledger, as SQL: records that are final when they are inserted, effects, and undo that is proved.

/// The files of the schema, by topic, in the order in which they are applied to a database with an empty schema `countersign`.
pub const BASELINE: [(&str, &str); 12] = [
    ("10_tables", include_str!("../../../migrations/baseline/10_tables.sql")),
    ("20_admission", include_str!("../../../migrations/baseline/20_admission.sql")),
    ("30_effects", include_str!("../../../migrations/baseline/30_effects.sql")),
    ("40_images", include_str!("../../../migrations/baseline/40_images.sql")),
    ("45_undo", include_str!("../../../migrations/baseline/45_undo.sql")),
    ("50_plans", include_str!("../../../migrations/baseline/50_plans.sql")),
    ("60_definitions", include_str!("../../../migrations/baseline/60_definitions.sql")),
    ("65_proposals", include_str!("../../../migrations/baseline/65_proposals.sql")),
    ("70_seals", include_str!("../../../migrations/baseline/70_seals.sql")),
    ("75_reads", include_str!("../../../migrations/baseline/75_reads.sql")),
    ("80_people", include_str!("../../../migrations/baseline/80_people.sql")),
    ("90_privileges", include_str!("../../../migrations/baseline/90_privileges.sql")),
];

/// The grants on it. `{writer}` stands for the login of a server.
pub const BASELINE_GRANTS: &str = include_str!("../../../migrations/baseline/grants.sql");
