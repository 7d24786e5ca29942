//! Checks the manifests like `countersign check`.

use std::collections::BTreeMap;

use ledger::{ConnectOptions, Ledger};
use manifest::{Diagnostics, ToolCatalog};

use crate::commands::check;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::undo_way::UndoWay;
use crate::tool_catalog::{self, ServerTools};
use review::Finding;

const AREA: &str = "manifests";

const ADVICE: &str = "repair the manifest or the database; until then servers do not serve a tool that does not fit, and serve \
    the others (docs/topics/migrations.md)";

pub(super) async fn examine(
    ledger: &Ledger,
    target: &ConnectOptions,
    database: &DatabaseSettings,
    settings: &Settings,
) -> Vec<Finding> {
    if database.manifests.is_empty() {
        return vec![Finding::unchecked(AREA, "the manifests: none was given")];
    }
    let sources = match tool_catalog::read_manifests(&database.manifests) {
        Ok(sources) => sources,
        Err(error) => {
            return vec![Finding::problem(AREA, format!("{error:#}"), "give the path of a file that can be read")];
        }
    };
    match tool_catalog::compile(&sources, &ServerTools::new(settings, database), ledger, target).await {
        Ok(catalog) => std::iter::once(Finding::ok(AREA, check::summary(&catalog))).chain(undo(&catalog)).collect(),
        Err(error) => match error.downcast_ref::<Diagnostics>() {
            Some(Diagnostics(mistakes)) => {
                mistakes.iter().map(|mistake| Finding::problem(AREA, mistake.to_string(), ADVICE)).collect()
            }
            None => vec![Finding::broken(AREA, format!("{error:#}"))],
        },
    }
}

/// For each way to undo writes, the tools whose writes are undone in this way.
fn undo(catalog: &ToolCatalog) -> Vec<Finding> {
    let mut ways: BTreeMap<UndoWay<'_>, Vec<&str>> = BTreeMap::new();
    for tool in catalog.tools.iter().filter(|tool| tool.access.writes()) {
        ways.entry(UndoWay::of(tool, catalog)).or_default().push(&tool.name);
    }
    ways.into_iter().map(|(way, tools)| Finding::ok(AREA, format!("{}: {way}", tools.join(", ")))).collect()
}
