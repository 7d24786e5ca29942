//! Checks undo declarations: whether they exist, whether their tool exists, and whether it gets arguments of the
//! right types.

use std::ops::Range;
use std::sync::Arc;

use serde_spanned::Spanned;
use types::{PgType, Scalar, StatementShape, TypeKind};

use crate::file::{ParamDeclaration, ToolDeclaration, UndoDeclaration, value_source};
use crate::infer::InferredTypes;
use crate::parse::ParsedTool;
use crate::{Diagnostics, RowExpectation, ValueSource};

/// Checks that a write with an executor declares its undo, and that a declaration has one of the two forms.
pub(super) fn check_form(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let mut note = |span: Range<usize>, message: &str| diagnostics.0.push(parsed.diagnostic(span, message));
    let Some(undo) = &tool.undo else {
        // Recorded changes undo all other writes (`crate::UndoSpec::None`); the ledger decides whether that is
        // possible.
        if tool.is(true) && tool.has_executor() && tool.lacks("undo", true) {
            let message = "a write of an executor says how it is undone ([tool.undo] with tool and params), or that it cannot be \
                           (undo = { irreversible = \"why\" }): there is no default";
            note(tool.name.span(), message);
        }
        return;
    };
    if tool.is(false) {
        note(tool.name.span(), "a read changes nothing: undo is for writes");
        return;
    }
    match (&undo.tool, &undo.irreversible) {
        (None, None) if undo.refused.is_empty() => {
            note(tool.name.span(), "undo names a tool, or says why it is irreversible")
        }
        (Some(_), Some(why)) => note(why.span(), "undo names a tool or says why it is irreversible, not both"),
        (None, Some(why)) if why.get_ref().trim().is_empty() => {
            note(why.span(), "say why nothing undoes it: people read this before they let an agent do it");
        }
        (None, Some(why)) if !undo.params.0.is_empty() || undo.for_each.is_some() || undo.note.is_some() => {
            note(why.span(), "an irreversible write has no params, for_each or note");
        }
        _ => {}
    }
    if let Some(empty) = undo.note.as_ref().filter(|text| text.get_ref().trim().is_empty()) {
        note(empty.span(), "note is empty: leave it out for a sentence of ours");
    }
    if let Some(for_each) = undo.for_each.as_ref().filter(|each| each.get_ref() != "result") {
        note(for_each.span(), "for_each takes \"result\" only: one call for each result row");
    }
}

/// Checks the undo calls of all tools against the tools that they call. `inferred` has the types of `parsed_tools`,
/// in the same order.
pub(crate) fn undo(parsed_tools: &[ParsedTool<'_>], inferred: &[Option<InferredTypes>], diagnostics: &mut Diagnostics) {
    for (parsed, own) in parsed_tools.iter().zip(inferred) {
        let Some(tool) = &parsed.tool else { continue };
        let Some((undo, called)) = tool.undo.as_ref().and_then(|undo| Some((undo, undo.tool.as_ref()?))) else {
            continue;
        };
        if !tool.is(true) {
            continue;
        }
        let mut call = UndoCheck { parsed, tool, own: own.as_ref(), undo, name: called, diagnostics };
        call.says_which_row();
        call.sources_exist();
        let target =
            parsed_tools.iter().zip(inferred).find(|(other, _)| other.label.as_ref() == Some(called.get_ref()));
        match target.map(|(other, types)| (&other.tool, other.whole, types)) {
            None => call.note(called.span(), format!("undo: there is no tool {}", called.get_ref())),
            Some((Some(target), whole, types)) => call.fits(target, whole, types.as_ref()),
            // The called tool has mistakes that were reported already.
            Some((None, ..)) => {}
        }
    }
}

struct UndoCheck<'a, 's, 'm> {
    parsed: &'a ParsedTool<'s>,
    tool: &'a ToolDeclaration,
    own: Option<&'a InferredTypes>,
    undo: &'a UndoDeclaration,
    name: &'a Spanned<String>,
    diagnostics: &'m mut Diagnostics,
}

impl<'a> UndoCheck<'a, '_, '_> {
    fn note(&mut self, span: Range<usize>, message: String) {
        self.diagnostics.0.push(self.parsed.diagnostic(span, message));
    }

    fn uses(&self, wanted: fn(&ValueSource) -> bool) -> bool {
        self.undo.params.0.iter().filter_map(|(_, source)| value_source(source.get_ref())).any(|source| wanted(&source))
    }

    /// A value of the result row needs a single row or one call for each row. One call for each row needs a value of
    /// the result row.
    fn says_which_row(&mut self) {
        let from_result = self.uses(|source| matches!(source, ValueSource::Result(_)));
        let several = self
            .tool
            .rows
            .as_ref()
            .is_some_and(|rows| matches!(rows.get_ref(), RowExpectation::Some | RowExpectation::Any));
        if let Some(for_each) = &self.undo.for_each {
            if !from_result {
                self.note(
                    for_each.span(),
                    "undo: for_each, but nothing comes from result: all calls would be the same".into(),
                );
            }
            if self.uses(|source| matches!(source, ValueSource::Before(_))) {
                self.note(
                    for_each.span(),
                    "undo: for_each goes over result rows, and before.x is none of theirs".into(),
                );
            }
        } else if from_result && several {
            let message = "undo: the result may have several rows, so which one is result.x? Add for_each = \"result\"";
            self.note(self.name.span(), message.into());
        }
    }

    fn sources_exist(&mut self) {
        for (_, source) in &self.undo.params.0 {
            match value_source(source.get_ref()) {
                None => {
                    let message = format!("undo: {:?} is not param.x, result.x or before.x", source.get_ref());
                    self.note(source.span(), message);
                }
                Some(ValueSource::Param(name)) => {
                    match self.tool.param.iter().find(|param| *param.name.get_ref() == name) {
                        None if self.parsed.whole => {
                            self.note(source.span(), format!("undo: the tool has no parameter {name}"))
                        }
                        Some(param) if param.sensitive => {
                            let message = format!("undo: {name} is sensitive, and the answer would show it");
                            self.note(source.span(), message);
                        }
                        _ => {}
                    }
                }
                Some(ValueSource::Result(name)) => {
                    if self.tool.has_executor() {
                        let message = format!(
                            "undo: what an executor answers is not known here, so there is no result.{name}: use param.x \
                             or before.x"
                        );
                        self.note(source.span(), message);
                    } else if let Some(shape) = self.own.and_then(InferredTypes::result) {
                        self.column_exists("result", &name, shape, source.span());
                    }
                }
                Some(ValueSource::Before(name)) => match self.own.map(|own| &own.before) {
                    Some(Some(before)) => self.column_exists("before", &name, &before.shape, source.span()),
                    _ if self.tool.before.is_none() && self.parsed.whole => {
                        self.note(source.span(), "undo: before.x needs a before query".into());
                    }
                    _ => {}
                },
            }
        }
    }

    fn column_exists(&mut self, kind: &str, name: &str, shape: &StatementShape, span: Range<usize>) {
        let columns: Vec<&str> = shape.columns.iter().flatten().map(|column| column.name.as_str()).collect();
        // A statement without columns is reported elsewhere.
        if !columns.is_empty() && !columns.contains(&name) {
            self.note(span, format!("undo: {kind}.{name} is not returned; there are {}", columns.join(", ")));
        }
    }

    /// Checks that `target` accepts the call. `whole` says whether all of `target` could be parsed.
    fn fits(&mut self, target: &ToolDeclaration, whole: bool, types: Option<&InferredTypes>) {
        let called = self.name.get_ref();
        if target.is(false) {
            self.note(self.name.span(), format!("undo: {called} is not a write tool"));
            return;
        }
        if !whole {
            return;
        }
        for param in &target.param {
            let name = param.name.get_ref();
            if self.undo.refused.is_empty()
                && param.is_required()
                && !self.undo.params.0.iter().any(|(given, _)| given.get_ref() == name)
            {
                self.note(self.name.span(), format!("undo: {called} needs {name}, which params does not give"));
            }
        }
        for (given, source) in &self.undo.params.0 {
            let index = target.param.iter().position(|param| param.name.get_ref() == given.get_ref());
            match index.and_then(|index| Some((index, target.param.get(index)?))) {
                None => self.note(given.span(), format!("undo: {called} has no parameter {}", given.get_ref())),
                Some((_, param)) if param.from.is_some() => {
                    self.note(given.span(), format!("undo: the server fills {} of {called} itself", given.get_ref()));
                }
                Some((index, param)) => {
                    let wanted = types.and_then(|types| types.params.get(index));
                    self.value_fits(param, wanted, source);
                }
            }
        }
    }

    fn value_fits(&mut self, param: &ParamDeclaration, wanted: Option<&Arc<PgType>>, source: &Spanned<String>) {
        let Some((given, never_null)) = self.given(source.get_ref()) else { return };
        if let Some(wanted) = wanted.filter(|wanted| !widens(given.base(), wanted.base())) {
            let message = format!(
                "undo: {} is {}, but {} of {} takes {}",
                source.get_ref(),
                given.name,
                param.name.get_ref(),
                self.name.get_ref(),
                wanted.name
            );
            self.note(source.span(), message);
        }
        if param.default.is_some() && !never_null {
            let message = format!(
                "undo: where {} is NULL, {} of {} would become its default instead",
                source.get_ref(),
                param.name.get_ref(),
                self.name.get_ref()
            );
            self.note(source.span(), message);
        }
    }

    /// The type of a value's source, and whether the value is known to be never NULL.
    fn given(&self, source: &str) -> Option<(&'a Arc<PgType>, bool)> {
        let own = self.own?;
        let column = |shape: &'a StatementShape, name: &str| {
            let column = shape.columns.as_ref()?.iter().find(|column| column.name == name)?;
            Some((&column.ty, column.not_null))
        };
        match value_source(source)? {
            ValueSource::Param(name) => {
                let index = self.tool.param.iter().position(|param| *param.name.get_ref() == name)?;
                let param = self.tool.param.get(index)?;
                Some((own.params.get(index)?, param.is_required() || param.from.is_some() || param.default.is_some()))
            }
            ValueSource::Result(name) => column(own.result()?, &name),
            ValueSource::Before(name) => column(&own.before.as_ref()?.shape, &name),
        }
    }
}

/// Whether every value of type `given` is valid for `wanted`: the same type, a wider number type, or another text
/// type.
fn widens(given: &PgType, wanted: &PgType) -> bool {
    let is_text = |ty: &PgType| matches!(ty.name.as_str(), "text" | "varchar" | "bpchar" | "name" | "citext");
    let rank = |ty: &PgType| match ty.kind {
        TypeKind::Scalar(Scalar::Int2) => Some(1),
        TypeKind::Scalar(Scalar::Int4) => Some(2),
        TypeKind::Scalar(Scalar::Int8) => Some(3),
        TypeKind::Scalar(Scalar::Numeric) => Some(4),
        _ => None,
    };
    let both_json = given.kind == TypeKind::Scalar(Scalar::Json) && wanted.kind == TypeKind::Scalar(Scalar::Json);
    let larger = matches!((rank(given), rank(wanted)), (Some(given), Some(wanted)) if given <= wanted);
    given.oid == wanted.oid || larger || both_json || (is_text(given) && is_text(wanted))
}
