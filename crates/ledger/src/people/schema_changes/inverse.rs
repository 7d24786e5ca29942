//! The statements that would take a change back, from the difference in the catalog.

use serde::Serialize;

use super::catalog_difference::{Difference, ObjectChange};

/// How a change could be taken back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inverse {
    /// The statements, in order. They restore definitions, and no values.
    pub statements: Vec<String>,
    /// The objects whose values are lost.
    pub lost_values: Vec<String>,
}

impl Inverse {
    /// The inverse; `None` if a part of the change has none.
    pub(super) fn of(differences: &[Difference]) -> Option<Self> {
        let mut inverse = Self::default();
        let changed = |table: u32, change| {
            differences.iter().any(|one| one.id == table && one.parent == 0 && one.change() == Some(change))
        };
        for one in differences.iter().rev() {
            let Some(change) = one.change() else { continue };
            // What belongs to a new table goes with it, and so it does with one that is dropped.
            if one.parent != 0 && changed(one.parent, change) {
                continue;
            }
            inverse.add(one, change)?;
        }
        (!inverse.statements.is_empty()).then_some(inverse)
    }

    fn add(&mut self, one: &Difference, change: ObjectChange) -> Option<()> {
        let (table, part) = (one.of_table.as_str(), one.name());
        let ddl = one.ddl_before.as_deref().unwrap_or_default();
        let statement = match (change, one.kind.as_str()) {
            (_, "default privileges") => return None,
            (ObjectChange::Added, "column") => format!("alter table {table} drop column {part}"),
            (ObjectChange::Added, "constraint") => format!("alter table {table} drop constraint {part}"),
            (ObjectChange::Added, "trigger" | "policy" | "rule") => format!("drop {} {part} on {table}", one.kind),
            (ObjectChange::Added, kind) => format!("drop {kind} {}", one.name()),
            (ObjectChange::Dropped, "column") => {
                self.lost_values.push(one.label());
                format!("alter table {table} add column {part} {ddl}")
            }
            (ObjectChange::Dropped, "constraint") => format!("alter table {table} add constraint {part} {ddl}"),
            (ObjectChange::Dropped, "index" | "trigger" | "rule" | "function" | "procedure") => ddl.to_owned(),
            (ObjectChange::Dropped, "view") => format!("create view {} as {ddl}", one.name()),
            _ => return None,
        };
        self.statements.push(format!("{};", statement.trim_end_matches(';')));
        Some(())
    }
}
