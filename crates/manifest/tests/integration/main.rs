//! Manifests compiled against a real PostgreSQL. One binary, so that its tests share one cluster.

mod agreement;
mod compile;
mod diagnostics;
mod notes;
mod requirements;
mod set_clause;
mod support;
