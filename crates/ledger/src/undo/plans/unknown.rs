//! Detects a selection with a name that the ledger does not know. This is treated as a mistake, not as a plan without
//! writes.

use types::{EmptyRange, nearest_names, visible};

use super::{PlanScope, Plans};

const KNOWN_SQL: &str = "select n as name from countersign.known_names($1, $2) n order by n";

/// The reason why a selection cannot match any write.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// The range of time is empty.
    #[error(transparent)]
    Range(#[from] EmptyRange),
    /// No record has this name.
    #[error("{}", message(.kind, .name, .nearest))]
    Unknown {
        /// `tool`, `table`, `account`, `actor`, `session` or `client`.
        kind: &'static str,
        /// The given name.
        name: String,
        /// The recorded names that are most similar.
        nearest: Vec<String>,
    },
}

fn message(kind: &str, name: &str, nearest: &[String]) -> String {
    let seen = if kind == "table" { "is not tracked and never was" } else { "is on no record" };
    let nearest: Vec<String> = nearest.iter().map(|name| visible(name)).collect();
    let hint = match nearest.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [most @ .., last] => format!("; did you mean {} or {last}?", most.join(", ")),
    };
    format!("the {kind} {} {seen}{hint}", visible(name))
}

impl Plans {
    /// The first name in the scope that the ledger does not know.
    pub(super) async fn unknown(
        &self,
        scope: &PlanScope,
        of_account: Option<&str>,
    ) -> Result<Option<SelectionError>, pg::Error> {
        let PlanScope { account, actor, session, client, tool, table } = scope;
        let named = [
            // The account of a caller always counts as known, even if it has no records.
            ("account", account.as_ref().filter(|account| of_account != Some(account.as_str()))),
            ("actor", actor.as_ref()),
            ("session", session.as_ref()),
            ("client", client.as_ref()),
            ("tool", tool.as_ref()),
            ("table", table.as_ref()),
        ];
        for (kind, name) in named {
            let Some(name) = name else { continue };
            let known = self.known(kind, of_account).await?;
            if !known.contains(name) {
                let begun = if kind == "session" { beginning_with(name, &known) } else { Vec::new() };
                let nearest = if begun.is_empty() { nearest_names(name, &known) } else { begun };
                return Ok(Some(SelectionError::Unknown { kind, name: name.clone(), nearest }));
            }
        }
        Ok(None)
    }

    /// The only session whose id begins with that of the scope. Lists show the beginning of an id.
    pub(super) async fn session(
        &self,
        scope: &PlanScope,
        of_account: Option<&str>,
    ) -> Result<Option<String>, pg::Error> {
        let Some(prefix) = scope.session.as_ref().filter(|prefix| !prefix.is_empty()) else { return Ok(None) };
        let mut found = beginning_with(prefix, &self.known("session", of_account).await?);
        Ok(found.pop().filter(|_| found.is_empty()))
    }

    /// The names of this kind that the ledger knows.
    async fn known(&self, kind: &str, of_account: Option<&str>) -> Result<Vec<String>, pg::Error> {
        let params = [Some(kind.to_owned()), of_account.map(str::to_owned)];
        let rows = self.records.objects(KNOWN_SQL, &params).await?;
        Ok(rows.iter().filter_map(|row| Some(row.get("name")?.as_str()?.to_owned())).collect())
    }
}

/// The first three names that begin with this prefix.
fn beginning_with(prefix: &str, known: &[String]) -> Vec<String> {
    known.iter().filter(|name| name.starts_with(prefix)).take(3).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered() {
        let message = |nearest: &[&str]| {
            message("tool", "set_stauts", &nearest.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(message(&[]), "the tool set_stauts is on no record");
        assert_eq!(message(&["set_status"]), "the tool set_stauts is on no record; did you mean set_status?");
        assert!(message(&["a", "b", "c"]).ends_with("; did you mean a, b or c?"));
    }
}
