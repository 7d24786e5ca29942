//! The frozen accounts, and whether all changes of writes to tracked tables are recorded.

use ledger::Ledger;
use types::visible;

use crate::commands::freeze;
use review::Finding;

pub(super) async fn examine(ledger: &Ledger) -> Vec<Finding> {
    let mut findings = freezes(ledger).await;
    findings.extend(tracking(ledger).await);
    findings
}

async fn freezes(ledger: &Ledger) -> Vec<Finding> {
    const AREA: &str = "freezes";
    match ledger.freezes().current().await {
        Ok(current) if current.is_empty() => vec![Finding::ok(AREA, "nothing is frozen")],
        Ok(current) => current
            .into_iter()
            .map(|row| {
                let message = format!("{} are refused", freeze::whose(&row));
                let advice = format!("frozen {}; `countersign unfreeze` lets them go on", freeze::since(&row));
                Finding::warning(AREA, message, advice).with(&row)
            })
            .collect(),
        Err(error) => vec![Finding::unasked(AREA, "what is frozen", &error)],
    }
}

async fn tracking(ledger: &Ledger) -> Vec<Finding> {
    const AREA: &str = "tracking";
    let tracking = ledger.tracking();
    let (count, problems) = match (tracking.count().await, tracking.problems().await) {
        (Ok(count), Ok(problems)) => (count, problems),
        // Only servers, operators and owners may call the functions of tracking.
        (_, Err(error)) | (Err(error), _) if error.server_error().is_some_and(|error| error.sqlstate == "42501") => {
            return vec![Finding::unchecked(AREA, "whether tracked tables are recorded: this login may not ask")];
        }
        (_, Err(error)) | (Err(error), _) => return vec![Finding::unasked(AREA, "the tracked tables", &error)],
    };
    if problems.is_empty() {
        let message = match count {
            0 => "no table is tracked: only a declared undo tool undoes a write".to_owned(),
            1 => "the changes that writes make to 1 tracked table are recorded".to_owned(),
            count => format!("the changes that writes make to {count} tracked tables are recorded"),
        };
        return vec![Finding::ok(AREA, message)];
    }
    problems
        .into_iter()
        .map(|row| {
            let message = format!("{}: {}", visible(&row.name), visible(&row.problem));
            if row.is_limit {
                return Finding::ok(AREA, message);
            }
            Finding::warning(AREA, message, "see docs/topics/tracking.md, \"Limits\"").with(&row)
        })
        .collect()
}
