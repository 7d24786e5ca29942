//! The read path of `pg`, handed on: the crates beyond this one do not depend on `pg`, so that none of them can name a
//! session that writes.

pub use pg::value::{EncodeError, encode};
pub use pg::{
    ConnectError, Error, PoolStatus, ReadError, ReadLimits, ReadRequest, Reader, ResponsePermit, ResultSet, RowFormat,
    SearchPath, TruncatedBy, UntrustedSchema,
};
