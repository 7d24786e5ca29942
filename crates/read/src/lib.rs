//! What a crate needs to read from PostgreSQL: the read path of the crate `pg`, and nothing that can write. `catalog` and
//! `scaffold` depend on it instead of the ledger. The ledger re-exports it for crates that also write.

pub use pg::value::{EncodeError, encode};
pub use pg::{
    ConnectError, ConnectOptions, Error, MaskError, NextPage, PageProblem, Paging, PoolStatus, ReadError, ReadFacts,
    ReadLimits, ReadRequest, ReadTrace, Reader, ResponsePermit, ResultSet, RowFormat, SearchPath, TruncatedBy,
    UntrustedSchema, outage,
};

/// The schema of the ledger.
pub const LEDGER_SCHEMA: &str = "countersign";
