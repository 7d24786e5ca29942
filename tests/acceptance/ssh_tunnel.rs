//! `ssh_tunnel`: the server reaches its database through a bastion, with the user's own `ssh` (docs/setup/connect.md).

mod through_a_bastion;

use testkit::{FrontEndOutput, bare_front_end, countersign, run};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn what_no_tunnel_leads_to_is_refused_before_ssh_runs() {
    for (url, destination, said) in [
        ("postgresql:///shop?host=/nowhere", "bastion", "ssh_tunnel leads to a host that the bastion can reach"),
        ("postgresql://h/shop", "-oProxyCommand=touch /tmp/countersign-was-here", "ssh_tunnel: it is a destination"),
        ("postgresql://h/shop", "two words", "ssh_tunnel: it is a destination"),
    ] {
        let variables = [("DATABASE_URL", url), ("COUNTERSIGN_SSH_TUNNEL", destination)];
        // An `ssh` that ran would not be found.
        let nowhere = ("PATH", "/nowhere");
        let output = run(Command::new(countersign()).arg("init").envs(variables).envs([nowhere])).await;
        assert!(output.code == 1 && output.err.contains(said), "{}", output.err);
        assert!(!output.err.contains("No such file"), "{}", output.err);
        let mut query = bare_front_end("query");
        let event =
            FrontEndOutput::of(query.args(["--sql", "select 1"]).envs(variables).envs([nowhere])).await.single_event();
        assert!(event["error"].to_string().contains(said) || event.to_string().contains(said), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_ssh_is_named() {
    let mut command = Command::new(countersign());
    command.arg("init").env("DATABASE_URL", "postgresql://h/shop").env("COUNTERSIGN_SSH_TUNNEL", "bastion");
    let output = run(command.env("PATH", "/nowhere")).await;
    assert!(output.code == 1 && output.err.contains("ssh cannot be run: No such file"), "{}", output.err);
    assert!(output.err.contains("the SSH tunnel is not open"), "{}", output.err);
}
