//! The log of reads, and the login of the read path.

pub(crate) mod read_log;
pub(crate) mod reader_role;
