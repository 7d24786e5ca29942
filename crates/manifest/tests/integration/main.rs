//! Manifests compiled against a real PostgreSQL. One binary, so that its tests share one cluster.

mod agreement;
mod compile;
mod mistakes;
mod notes;
mod support;
