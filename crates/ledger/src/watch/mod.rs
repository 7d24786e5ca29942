//! Monitoring: stuck and open records and proposals, and attempts that stopped servers left.

pub(crate) mod doctor;
pub(crate) mod gauges;
pub(crate) mod sweep;
