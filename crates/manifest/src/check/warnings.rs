//! Warns of valid declarations that are probably mistakes.

use std::sync::Arc;

use types::{PgType, Scalar, TypeKind};

use crate::{Diagnostic, Param, ParamSource, ToolSpec};

pub(crate) fn warnings(tools: &[Arc<ToolSpec>]) -> Vec<Diagnostic> {
    tools.iter().flat_map(|tool| unlikely_types(tool)).collect()
}

fn warning(tool: &ToolSpec, message: String) -> Diagnostic {
    Diagnostic { at: tool.declared_at.clone(), tool: Some(tool.name.clone()), message }
}

/// Words in the name of a parameter whose values have fractions.
const FRACTIONAL: [&str; 7] = ["percent", "percentage", "pct", "rate", "ratio", "factor", "fraction"];

/// PostgreSQL infers that `$2` is an integer in `$2 / 100`, and so is the quotient.
fn unlikely_types(tool: &ToolSpec) -> impl Iterator<Item = Diagnostic> {
    tool.params.iter().enumerate().filter_map(move |(index, param)| {
        let Param { name, ty, .. } = param;
        let likely = param.source == ParamSource::Argument && is_integer(ty) && is_fractional(param);
        likely.then(|| {
            let number = index + 1;
            warning(
                tool,
                format!(
                    "parameter {name} was inferred as {}, so it takes no fractions, and a division of it by a whole \
                     number drops them: write ${number}::numeric if fractions are meant",
                    ty.sql_name()
                ),
            )
        })
    })
}

fn is_integer(ty: &PgType) -> bool {
    matches!(ty.base().kind, TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8))
}

fn is_fractional(param: &Param) -> bool {
    let (name, description) = (param.name.to_lowercase(), param.description.to_lowercase());
    name.split('_').any(|word| FRACTIONAL.contains(&word))
        || description.contains("percent")
        || description.contains('%')
}
