//! What `init` grants, as `grants.sql` has it: the only list of it.

use std::sync::LazyLock;

use crate::baseline::BASELINE_GRANTS;

/// What stands for the login of a server in `grants.sql`.
pub(super) const WRITER: &str = "{writer}";

/// One privilege on one object for one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// `schema`, `table` or `function`.
    pub(super) kind: &'static str,
    /// Without the schema; a function with the types of its parameters, as `oidvectortypes` writes them.
    pub(super) name: String,
    /// [`WRITER`] for each login of a server.
    pub(super) role: &'static str,
    /// `SELECT` and the like.
    pub(super) privilege: String,
}

/// Every grant, in the order of the file.
pub(super) static GRANTS: LazyLock<Vec<Grant>> = LazyLock::new(|| {
    // The migration runner makes this one.
    let history = "grant select on countersign.schema_history to {writer}, countersign_approver, countersign_operator";
    BASELINE_GRANTS.split(';').chain([history]).flat_map(statement_grants).collect()
});

fn statement_grants(statement: &'static str) -> Vec<Grant> {
    let lines = statement.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let Some((privilege, rest)) = text.strip_prefix("grant ").and_then(|text| text.split_once(" on ")) else {
        return Vec::new();
    };
    let Some((objects, _)) = rest.rsplit_once(" to ") else { return Vec::new() };
    let (kind, objects) = match objects.split_once(' ') {
        Some(("function", functions)) => ("function", functions),
        Some(("schema", schema)) => ("schema", schema),
        _ => ("table", objects),
    };
    let roles = statement.rsplit_once(" to ").map_or("", |(_, roles)| roles);
    let mut grants = Vec::new();
    for object in split_list(objects) {
        let name =
            object.strip_prefix("countersign.").unwrap_or(object).replace("timestamptz", "timestamp with time zone");
        for role in roles.split(',').map(str::trim) {
            grants.push(Grant { kind, name: name.clone(), role, privilege: privilege.to_uppercase() });
        }
    }
    grants
}

/// The items of a list, at the commas that are not within parentheses.
fn split_list(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let items = list.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    items.map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::{APPROVER, OPERATOR};

    #[test]
    fn the_file_of_grants_is_read_as_it_is_written() {
        let has = |kind: &str, name: &str, role: &str, privilege: &str| {
            GRANTS.iter().any(|it| (it.kind, &*it.name, it.role, &*it.privilege) == (kind, name, role, privilege))
        };
        assert!(has("schema", "countersign", "countersign_approver", "USAGE"));
        assert!(has("table", "record", WRITER, "SELECT"));
        assert!(has("table", "schema_history", "countersign_operator", "SELECT"));
        assert!(has("table", "admission", WRITER, "INSERT"));
        assert!(!has("table", "attempt", WRITER, "SELECT"));
        assert!(has("function", "net_of(uuid[])", "countersign_operator", "EXECUTE"));
        let selected =
            "selected_writes(text, text, text, text, text, text, timestamp with time zone, timestamp with time zone)";
        assert!(has("function", selected, "countersign_operator", "EXECUTE"));
        assert!(!has("function", selected, WRITER, "EXECUTE"));
        assert!(GRANTS.iter().all(|it| [WRITER, APPROVER, OPERATOR].contains(&it.role)));
    }
}
