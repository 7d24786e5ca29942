//! The audited write path: the gate and its steps.

pub(crate) mod adhoc_sql;
pub(crate) mod admit;
pub(crate) mod attempt;
pub(crate) mod caller_part;
pub(crate) mod dedup_cache;
pub(crate) mod definitions;
pub(crate) mod error_hints;
pub(crate) mod execute;
pub(crate) mod executor;
pub(crate) mod executor_registry;
pub(crate) mod existing_write;
pub(crate) mod failures;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod intent;
pub(crate) mod loss;
pub(crate) mod modify_rows;
pub(crate) mod obstacle;
pub(crate) mod policy;
pub(crate) mod preview;
pub(crate) mod remote_writes;
pub(crate) mod renewals;
pub(crate) mod report;
pub(crate) mod resolve;
pub(crate) mod row_limit;
pub(crate) mod write_tx;
