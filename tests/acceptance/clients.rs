//! The official clients and suites against the built binary, over every transport, in both protocol eras: the Python SDK's
//! client, rmcp's own, the inspector's command line, and the conformance suites.

mod conformance;
mod inspector;
pub(crate) mod python;
mod rust;

use std::path::PathBuf;

use testkit::repository;
use tokio::process::Command;

/// Says that a test cannot be run here, and what would help. CI has everything.
pub(crate) fn skipped(why: &str) {
    std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {why}; see CONTRIBUTING.md\n").as_bytes())
        .unwrap();
    assert!(std::env::var_os("CI").is_none(), "CI never skips this test");
}

/// What runs a script of an npm package of `tests/clients`, found below its `node_modules`, with the Node.js that is
/// installed there too; `None` if they are not installed. `COUNTERSIGN_TEST_NODE_MODULES` names another folder of the kind.
fn node(script: &str) -> Option<Command> {
    let named = std::env::var_os("COUNTERSIGN_TEST_NODE_MODULES").map(PathBuf::from);
    let installed = || Some(repository().join("tests/clients/node_modules")).filter(|modules| modules.exists());
    let Some(modules) = named.or_else(installed) else {
        skipped("the npm packages of tests/clients are not installed");
        return None;
    };
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    // There is one for Linux; elsewhere it has to be on the PATH.
    let pinned = modules.join(format!("node-{}-{arch}/bin/node", std::env::consts::OS));
    let mut command = Command::new(if pinned.exists() { pinned } else { PathBuf::from("node") });
    command.arg(modules.join(script)).kill_on_drop(true);
    Some(command)
}
