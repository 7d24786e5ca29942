//! `requires`: what a tool needs that a database may lack. Such a tool is left out, without a mistake.
//!
//! It is for manifests that many databases share, with tools over extensions and over views that only some roles see.
//! An extension may be in any schema, so the statement names that schema by `{extension}`.

use types::{DescribeError, DescribeStatement, Requirements, RequirementsCheck};

use crate::infer::UnavailableError;
use crate::parse::ParsedTool;
use crate::{Diagnostic, Diagnostics};

/// Removes the tools whose requirements are not met, and returns the reasons. The others learn the schemas of their
/// extensions.
pub(crate) async fn leave_out(
    tools: &mut Vec<ParsedTool<'_>>,
    database: &impl DescribeStatement,
    diagnostics: &mut Diagnostics,
) -> Result<Vec<Diagnostic>, UnavailableError> {
    let mut left_out = Vec::new();
    for mut parsed in std::mem::take(tools) {
        match check(&parsed, database).await {
            None => tools.push(parsed),
            Some((_, Ok(RequirementsCheck::Met { extension_schema }))) => {
                parsed.extension_schema = extension_schema;
                tools.push(parsed);
            }
            Some((at, Ok(RequirementsCheck::Missing(why)))) => left_out.push(Diagnostic { message: why, ..at }),
            Some((at, Err(error))) => {
                let message = format!("the database could not be asked what this requires: {error}");
                diagnostics.0.push(Diagnostic { message, ..at });
                return Err(UnavailableError);
            }
        }
    }
    Ok(left_out)
}

/// The answer of the database, and a diagnostic for it; `None` if the tool requires nothing.
async fn check(
    parsed: &ParsedTool<'_>,
    database: &impl DescribeStatement,
) -> Option<(Diagnostic, Result<RequirementsCheck, DescribeError>)> {
    let declared = parsed.tool.as_ref()?.requires.as_ref()?;
    let required = declared.get_ref();
    let requirements = Requirements { extension: required.extension.clone(), role: required.role.clone() };
    Some((parsed.diagnostic(declared.span(), ""), database.check_requirements(&requirements).await))
}
