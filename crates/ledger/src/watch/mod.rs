//! What is stuck, what is open, and what stopped servers left.

pub(crate) mod doctor;
pub(crate) mod gauges;
pub(crate) mod sweep;
