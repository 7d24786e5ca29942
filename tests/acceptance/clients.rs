//! The official clients and suites against the built binary, over every transport, in both protocol eras: the Python SDK's
//! client, rmcp's own, the inspector's command line, the conformance suites, and agent frameworks. One way with each by
//! default, all in the long form.

mod conformance;
mod frameworks;
mod inspector;
mod python;
mod rust;

use testkit::{External, external};
use tokio::process::Command;

/// The command that runs a script of an npm package of `tests/clients`.
pub(crate) fn node(script: &str) -> Command {
    let modules = External::NodeModules.expected_path();
    let mut command = Command::new(external::node(&modules).expect("a Node.js"));
    command.arg(modules.join(script)).kill_on_drop(true);
    command
}
