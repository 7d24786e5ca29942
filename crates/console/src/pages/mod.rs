//! The pages.

pub(crate) mod activity;
mod decided;
pub(crate) mod health;
pub(crate) mod inbox;
pub(crate) mod log;
pub(crate) mod login;
pub(crate) mod proposal;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod row_history;
pub(crate) mod schema_change;
mod search_line;
pub(crate) mod sign_in;
pub(crate) mod undo;
