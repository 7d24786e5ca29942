//! Builds the specification of a parsed tool without mistakes.

use std::sync::Arc;
use std::time::Duration;

use types::{ApprovalRule, PgType, REASON, Rule, Tier};

use crate::file::{ParamDeclaration, UndoDeclaration, principal_field, value_source};
use crate::infer::InferredTypes;
use crate::parse::ParsedTool;
use crate::policy;
use crate::summary::Summary;
use crate::tool_schema::{input_schema, output_schema};
use crate::value::{json, json_object};
use crate::{Param, ParamSource, RowExpectation, ToolSpec, UndoSpec};

const DEDUP_WINDOW_S: u32 = 300;

/// The specification; `None` only if the parsed tool has mistakes.
pub(super) fn spec(parsed: ParsedTool<'_>, inferred: InferredTypes) -> Option<ToolSpec> {
    let declared_at = parsed.locate(parsed.tool.as_ref()?.name.span());
    let executor_at = parsed.tool.as_ref()?.executor.as_ref().map(|executor| parsed.locate(executor.span()));
    let tool = parsed.tool?;
    let set = tool.set_clause();
    let access = tool.access?.into_inner();
    let tier = tool.tier.map(serde_spanned::Spanned::into_inner).unwrap_or_default();
    let rules = tool.rule.iter().map(policy::rule).collect::<Option<Vec<Rule>>>()?;
    let strictest = rules.iter().filter_map(|rule| rule.then.tier()).fold(tier, Tier::max);
    let undo_tier = tool.undo_tier.map_or(strictest, serde_spanned::Spanned::into_inner);
    let reason = tool.reason.map(serde_spanned::Spanned::into_inner).unwrap_or_default();
    let default_rows = if tool.executor.is_some() { RowExpectation::One } else { RowExpectation::Any };
    let rows = tool.rows.map_or(default_rows, serde_spanned::Spanned::into_inner);
    let columns = inferred.result().and_then(|shape| shape.columns.as_deref()).unwrap_or_default();
    let params: Vec<Param> =
        tool.param.iter().zip(&inferred.params).map(|(declared, ty)| param(declared, ty)).collect();
    Some(ToolSpec {
        name: tool.name.into_inner(),
        title: tool.title,
        summary: tool.summary.and_then(|summary| Summary::parse(summary.get_ref()).ok()),
        description: tool.description.into_inner(),
        version: parsed.version,
        declared_at,
        access,
        tier,
        rule: ApprovalRule {
            approvals: tool.approvals.and_then(|count| u32::try_from(count.into_inner()).ok()).unwrap_or(1),
            approvers: tool.approvers.map(serde_spanned::Spanned::into_inner),
        },
        undo_tier,
        reason: (access.writes() && params.iter().all(|param| param.name != REASON)).then_some(reason),
        input_schema: Arc::new(input_schema(access, &params)),
        output_schema: Arc::new(output_schema(access, rows, columns)),
        params,
        after: inferred.after.or_else(|| inferred.before.clone()),
        before: inferred.before,
        statements: inferred.statements,
        set,
        executor: tool.executor.map(serde_spanned::Spanned::into_inner),
        executor_at,
        rows,
        max_rows: tool.max_rows.and_then(|most| u64::try_from(most.into_inner()).ok()),
        not_found: tool.not_found.map(|message| message.into_inner().trim().to_owned()),
        undo: undo(tool.undo)?,
        rules,
        limit: tool.limit.and_then(|limit| policy::tool_limit(limit.get_ref())),
        dedup_window: Duration::from_secs(tool.dedup_window_s.unwrap_or(DEDUP_WINDOW_S).into()),
        annotations: json_object(&tool.annotations),
        meta: json_object(&tool.meta),
    })
}

fn param(declared: &ParamDeclaration, ty: &Arc<PgType>) -> Param {
    let source = declared.from.as_ref().and_then(|from| principal_field(from.get_ref()));
    Param {
        name: declared.name.get_ref().clone(),
        description: declared.description.trim().to_owned(),
        required: source.is_some() || declared.is_required(),
        source: source.map_or(ParamSource::Argument, |field| ParamSource::Principal(field.to_owned())),
        ty: Arc::clone(ty),
        default: declared.default.as_ref().map(|default| json(default.get_ref())),
        sensitive: declared.sensitive,
        limits: declared.limits(),
    }
}

fn undo(declared: Option<UndoDeclaration>) -> Option<UndoSpec> {
    let Some(undo) = declared else { return Some(UndoSpec::None) };
    if let Some(why) = undo.irreversible {
        return Some(UndoSpec::Irreversible { why: why.into_inner().trim().to_owned() });
    }
    let params = undo.params.0.into_iter().map(|(name, source)| {
        let source = value_source(source.get_ref())?;
        Some((name.into_inner(), source))
    });
    Some(UndoSpec::Calls {
        tool: undo.tool?.into_inner(),
        params: params.collect::<Option<_>>()?,
        for_each: undo.for_each.is_some(),
        note: undo.note.map(|note| note.into_inner().trim().to_owned()),
    })
}
