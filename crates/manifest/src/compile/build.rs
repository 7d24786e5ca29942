//! A draft without mistakes becomes a specification.

use std::sync::Arc;
use std::time::Duration;

use types::PgType;

use super::Inferred;
use crate::check::{principal_field, value_source};
use crate::read::Draft;
use crate::schema::{input_schema, output_schema};
use crate::value::{json, json_object};
use crate::{Limits, Param, ParamSource, RowsRule, ToolSpec, Undo, file};

const DEDUP_WINDOW_S: u32 = 300;

/// The specification. `None` only for a draft with mistakes.
pub(super) fn spec(draft: Draft<'_>, inferred: Inferred) -> Option<ToolSpec> {
    let declared_at = draft.locate(draft.tool.as_ref()?.name.span());
    let executor_at = draft.tool.as_ref()?.executor.as_ref().map(|executor| draft.locate(executor.span()));
    let tool = draft.tool?;
    let access = tool.access?.into_inner();
    let tier = tool.tier.map(serde_spanned::Spanned::into_inner).unwrap_or_default();
    let undo_tier = tool.undo_tier.map_or(tier, serde_spanned::Spanned::into_inner);
    let unless_said = if tool.executor.is_some() { RowsRule::One } else { RowsRule::Any };
    let rows = tool.rows.map_or(unless_said, serde_spanned::Spanned::into_inner);
    let columns = inferred.result().and_then(|shape| shape.columns.as_deref()).unwrap_or_default();
    let params: Vec<Param> =
        tool.param.iter().zip(&inferred.params).map(|(declared, ty)| param(declared, ty)).collect();
    Some(ToolSpec {
        name: tool.name.into_inner(),
        title: tool.title,
        description: tool.description.into_inner(),
        version: draft.version,
        declared_at,
        access,
        tier,
        undo_tier,
        input_schema: input_schema(access, &params),
        output_schema: output_schema(access, rows, columns),
        params,
        after: inferred.after.or_else(|| inferred.before.clone()),
        before: inferred.before,
        statements: inferred.statements,
        executor: tool.executor.map(serde_spanned::Spanned::into_inner),
        executor_at,
        rows,
        max_rows: tool.max_rows.and_then(|most| u64::try_from(most.into_inner()).ok()),
        not_found: tool.not_found.map(|message| message.into_inner().trim().to_owned()),
        undo: undo(tool.undo)?,
        dedup_window: Duration::from_secs(tool.dedup_window_s.unwrap_or(DEDUP_WINDOW_S).into()),
        annotations: json_object(&tool.annotations),
        meta: json_object(&tool.meta),
    })
}

fn param(declared: &file::Param, ty: &Arc<PgType>) -> Param {
    let source = declared.from.as_ref().and_then(|from| principal_field(from.get_ref()));
    Param {
        name: declared.name.get_ref().clone(),
        description: declared.description.trim().to_owned(),
        required: source.is_some() || declared.is_required(),
        source: source.map_or(ParamSource::Argument, |field| ParamSource::Principal(field.to_owned())),
        ty: Arc::clone(ty),
        default: declared.default.as_ref().map(|default| json(default.get_ref())),
        sensitive: declared.sensitive,
        limits: limits(declared),
    }
}

/// What the file allows. Limits that are not numbers are left out: `check` has named them.
pub(crate) fn limits(declared: &file::Param) -> Limits {
    let number = |limit: &Option<serde_spanned::Spanned<toml::Value>>| {
        limit.as_ref().and_then(|limit| json(limit.get_ref()).as_number().cloned())
    };
    Limits {
        one_of: declared.one_of.iter().flat_map(|values| values.get_ref()).map(json).collect(),
        minimum: number(&declared.minimum),
        maximum: number(&declared.maximum),
        max_length: declared.max_length.as_ref().map(|length| *length.get_ref()),
        pattern: declared.pattern.as_ref().map(|pattern| pattern.get_ref().clone()),
        schema: declared.schema.as_ref().map(|schema| json_object(schema.get_ref())),
    }
}

fn undo(declared: Option<file::Undo>) -> Option<Undo> {
    let Some(undo) = declared else { return Some(Undo::None) };
    if let Some(why) = undo.irreversible {
        return Some(Undo::Irreversible { why: why.into_inner().trim().to_owned() });
    }
    let params = undo.params.0.into_iter().map(|(name, source)| {
        let source = value_source(source.get_ref())?;
        Some((name.into_inner(), source))
    });
    Some(Undo::Calls {
        tool: undo.tool?.into_inner(),
        params: params.collect::<Option<_>>()?,
        for_each: undo.for_each.is_some(),
        note: undo.note.map(|note| note.into_inner().trim().to_owned()),
    })
}
