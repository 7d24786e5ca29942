//! The tables that each write tool changes, and whether these changes are recorded (`countersign track`).

use ledger::{Coverage, Ledger};
use manifest::ToolCatalog;

use crate::terminal::undo_way::UndoWay;

/// A heading and a line for each write tool with SQL statements in the manifest; empty if there is none.
pub(super) async fn lines(ledger: &Ledger, catalog: &ToolCatalog) -> anyhow::Result<Vec<String>> {
    let tracking = ledger.tracking();
    let writes: Vec<_> = catalog.tools.iter().filter(|tool| tool.access.writes() && tool.executor.is_none()).collect();
    let widest = writes.iter().map(|tool| tool.name.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for tool in writes {
        let coverage = tracking.coverage(tool.written_tables()).await?;
        lines.push(format!("  {:<widest$}  {}; {}", tool.name, described(&coverage), UndoWay::of(tool, catalog)));
    }
    if !lines.is_empty() {
        lines.insert(0, "Tables whose rows the write tools change:".to_owned());
    }
    Ok(lines)
}

/// For example `shop.orders, shop.items (by foreign key items_order_fkey, not tracked); not seen: what trigger t of
/// shop.orders writes`.
fn described(coverage: &Coverage) -> String {
    let table = |table: &ledger::CoveredTable| {
        let via = table.via.as_ref().map(|via| format!("by foreign key {via}"));
        let remarks: Vec<String> = via.into_iter().chain(table.gap.map(|gap| gap.words().to_owned())).collect();
        if remarks.is_empty() { table.name.clone() } else { format!("{} ({})", table.name, remarks.join(", ")) }
    };
    let tables: Vec<String> = coverage.tables.iter().map(table).collect();
    let mut text = if tables.is_empty() { "no table that a plan shows".to_owned() } else { tables.join(", ") };
    if !coverage.triggers.is_empty() {
        text.push_str(&format!("; not seen: what {} writes", coverage.triggers.join(", ")));
    }
    text
}
