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
    pub(super) role: String,
    /// `SELECT` and the like.
    pub(super) privilege: String,
}

/// Every grant, in the order of the file.
pub(super) static GRANTS: LazyLock<Vec<Grant>> = LazyLock::new(|| {
    let lines = BASELINE_GRANTS.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join(" ");
    // The migration runner makes this one.
    let history = "grant select on countersign.schema_history to {writer}, countersign_approver, countersign_operator";
    text.split(';').chain([history]).flat_map(|statement| statement_grants(statement.trim())).collect()
});

fn statement_grants(statement: &str) -> Vec<Grant> {
    let parts = || {
        let (privilege, rest) = statement.strip_prefix("grant ")?.split_once(" on ")?;
        let (objects, roles) = rest.rsplit_once(" to ")?;
        Some((privilege, objects.trim(), roles))
    };
    let Some((privilege, objects, roles)) = parts() else { return Vec::new() };
    let (kind, objects) = match objects.split_once(' ') {
        Some(("function", functions)) => ("function", functions),
        Some(("schema", schema)) => ("schema", schema),
        _ => ("table", objects),
    };
    let mut grants = Vec::new();
    for object in split_list(objects) {
        let name = object.strip_prefix("countersign.").unwrap_or(object);
        let name = name.replace("timestamptz", "timestamp with time zone");
        for role in roles.split(',').map(|role| role.trim().to_owned()) {
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
            GRANTS.iter().any(|it| (it.kind, &*it.name, &*it.role, &*it.privilege) == (kind, name, role, privilege))
        };
        assert!(has("schema", "countersign", WRITER, "USAGE"));
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
        assert!(GRANTS.iter().all(|it| [WRITER, APPROVER, OPERATOR].contains(&&*it.role)));
    }
}
