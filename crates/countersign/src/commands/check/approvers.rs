//! The groups that have to approve. A group without a role has no members, so nobody could approve.

use manifest::ToolCatalog;
use serde::Deserialize;
use serde_json::json;
use types::visible;

use super::CatalogQueries;

const SQL: &str = "select r.rolname::text as role from pg_catalog.pg_roles r where r.rolname = any ($1::text[])";

#[derive(Deserialize)]
struct Found {
    role: String,
}

/// A warning for each tool whose group of approvers does not exist.
pub(super) async fn warnings(questions: &CatalogQueries, catalog: &ToolCatalog) -> anyhow::Result<Vec<String>> {
    let groups: Vec<(&str, &str)> =
        catalog.tools.iter().filter_map(|tool| Some((tool.name.as_str(), tool.rule.approvers.as_deref()?))).collect();
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = groups.iter().map(|(_, group)| *group).collect();
    let found: Vec<Found> = questions.ask(SQL, &[json!(names)]).await?;
    let missing = groups.iter().filter(|(_, group)| !found.iter().any(|found| found.role == *group));
    let warning = |(tool, group): &(&str, &str)| {
        let group = visible(group);
        format!(
            "warning: {tool}: there is no role \"{group}\", so nobody on the command line can approve its proposals"
        )
    };
    Ok(missing.map(warning).collect())
}
