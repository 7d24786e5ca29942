//! Checks whether there is a pooler, and how it must be configured (docs/setup/pgbouncer.md).

use ledger::{ConnectOptions, Pooler, PoolerReport, probe_pooler};

use review::Finding;

const AREA: &str = "pooler";

/// Returns nothing if no pooler was found and none is configured.
pub(super) async fn examine(target: &ConnectOptions) -> Vec<Finding> {
    if target.pooler == Pooler::None {
        return Vec::new();
    }
    match probe_pooler(target).await {
        Ok(pooled) => findings(pooled),
        Err(error) => vec![Finding::unasked(AREA, "the pooler", &error)],
    }
}

fn findings(PoolerReport { has_pooler, keeps_settings, renames_statements }: PoolerReport) -> Vec<Finding> {
    if !has_pooler {
        return vec![Finding::warning(
            AREA,
            "pooler = \"transaction\" is set, and no pooler is seen: every statement is prepared anew for nothing",
            "take the setting away if PostgreSQL is reached directly",
        )];
    }
    let mut findings = vec![Finding::ok(AREA, "a pooler lends connections, as pooler = \"transaction\" says")];
    if renames_statements {
        findings.push(Finding::problem(
            AREA,
            "the pooler gives prepared statements other names, so queries cannot be looked at before they run",
            "set max_prepared_statements = 0 in pgbouncer.ini",
        ));
    }
    match keeps_settings {
        Some(true) => findings.push(Finding::warning(
            AREA,
            "what a write's own statements leave in a connection (settings, locks of the session) stays for \
             the next user of the connection",
            "set server_reset_query = DISCARD ALL and server_reset_query_always = 1 in pgbouncer.ini",
        )),
        Some(false) => {}
        None => findings.push(Finding::unchecked(
            AREA,
            "whether it resets its connections could not be seen: none was lent twice while this looked",
        )),
    }
    findings
}
