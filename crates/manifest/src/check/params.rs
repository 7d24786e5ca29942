//! Checks parameters: their names and sources, and whether defaults and limits fit their types.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

use types::{PgType, Principal};

use super::is_name;
use crate::file::{ParamDeclaration, ToolDeclaration, principal_field};
use crate::infer::InferredTypes;
use crate::parse::ParsedTool;
use crate::tool_schema::{IDEMPOTENCY_KEY, allowed, compare};
use crate::value::{
    is_json, is_number, is_numeric, is_pattern, is_text, json, json_object, limited, validate, validate_with,
};
use crate::{Diagnostics, Limits};

/// Runs the checks that need only the declarations.
pub(super) fn check(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let mut names = HashSet::new();
    for param in &tool.param {
        let mut check = ParamCheck { parsed, param, diagnostics };
        check.name(&mut names);
        match &param.from {
            Some(from) => check.filled_by_the_server(from.get_ref(), from.span()),
            None if param.lacks("from", true) => check.described(),
            None => {}
        }
        check.limits_are_limits();
        check.is_a_secret_of_the_agents();
    }
}

/// Checks the declarations against the types that PostgreSQL inferred for the parameters.
pub(super) fn check_types(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    inferred: &InferredTypes,
    diagnostics: &mut Diagnostics,
) {
    for (param, ty) in tool.param.iter().zip(&inferred.params) {
        let mut check = ParamCheck { parsed, param, diagnostics };
        if let Some(from) = &param.from {
            check.takes_text(from.span(), ty);
            continue;
        }
        let limits = param.limits();
        check.limits_fit(ty);
        check.enum_fits(ty);
        check.default_fits(ty, &limits);
    }
}

struct ParamCheck<'a, 's, 'm> {
    parsed: &'a ParsedTool<'s>,
    param: &'a ParamDeclaration,
    diagnostics: &'m mut Diagnostics,
}

impl<'a> ParamCheck<'a, '_, '_> {
    fn note(&mut self, span: Range<usize>, message: &str) {
        let span = if span.is_empty() { self.param.name.span() } else { span };
        let message = format!("parameter {}: {message}", self.param.name.get_ref());
        self.diagnostics.0.push(self.parsed.diagnostic(span, message));
    }

    fn name(&mut self, names: &mut HashSet<&'a str>) {
        let (name, span) = (self.param.name.get_ref().as_str(), self.param.name.span());
        if name.is_empty() {
            if self.param.lacks("name", true) {
                self.diagnostics.0.push(self.parsed.diagnostic(span, "a parameter needs a name"));
            }
            return;
        }
        if name == IDEMPOTENCY_KEY {
            self.note(span.clone(), "every write has this argument already: choose another name");
        } else if !is_name(name, 64, "_") || name.starts_with(|c: char| c.is_ascii_digit()) {
            self.note(span.clone(), "clients reject this name: use 1 to 64 of a-z A-Z 0-9 _, and no digit first");
        }
        if !names.insert(name) {
            self.note(span, "two parameters have this name; a statement can use $n several times instead");
        }
    }

    fn filled_by_the_server(&mut self, from: &str, span: Range<usize>) {
        if principal_field(from).is_none() {
            let fields: Vec<String> = Principal::FIELDS.iter().map(|field| format!("principal.{field}")).collect();
            self.note(span, &format!("there is no {from:?}: from takes {}", fields.join(", ")));
        }
        let param = self.param;
        for (key, span) in [
            ("default", param.default.as_ref().map(serde_spanned::Spanned::span)),
            ("optional", param.optional.as_ref().map(serde_spanned::Spanned::span)),
            ("enum", param.one_of.as_ref().map(serde_spanned::Spanned::span)),
            ("minimum", param.minimum.as_ref().map(serde_spanned::Spanned::span)),
            ("maximum", param.maximum.as_ref().map(serde_spanned::Spanned::span)),
            ("max_length", param.max_length.as_ref().map(serde_spanned::Spanned::span)),
            ("scale", param.scale.as_ref().map(serde_spanned::Spanned::span)),
            ("pattern", param.pattern.as_ref().map(serde_spanned::Spanned::span)),
            ("schema", param.schema.as_ref().map(serde_spanned::Spanned::span)),
        ] {
            if let Some(span) = span {
                self.note(span, &format!("the server fills it, so {key} means nothing"));
            }
        }
    }

    fn described(&mut self) {
        if self.param.lacks("description", self.param.description.trim().is_empty()) {
            self.note(self.param.name.span(), "a description is needed: the agent knows nothing else of it");
        }
    }

    /// Checks that the bounds are numbers in the right order, an enum has values, and a pattern is a valid one.
    fn limits_are_limits(&mut self) {
        let param = self.param;
        for (key, limit) in [("minimum", &param.minimum), ("maximum", &param.maximum)] {
            if let Some(limit) = limit.as_ref().filter(|limit| !json(limit.get_ref()).is_number()) {
                self.note(limit.span(), &format!("{key} is a number"));
            }
        }
        let limits = param.limits();
        if let (Some(minimum), Some(maximum), Some(at)) = (&limits.minimum, &limits.maximum, &param.maximum)
            && compare(minimum, maximum) == Some(Ordering::Greater)
        {
            self.note(at.span(), "no number is within minimum and maximum");
        }
        if let Some(pattern) = param.pattern.as_ref().filter(|pattern| !is_pattern(pattern.get_ref())) {
            let message = format!("pattern: {:?} is not a regular expression (ECMA 262)", pattern.get_ref());
            self.note(pattern.span(), &message);
        }
        if let Some(schema) = &param.schema
            && let Some(problem) = super::param_schema::problem(&json_object(schema.get_ref()))
        {
            self.note(schema.span(), &problem);
        }
        if let Some(values) = param.one_of.as_ref().filter(|values| values.get_ref().is_empty()) {
            self.note(values.span(), "an empty enum allows nothing");
        }
    }

    /// Checks that a sensitive parameter gets its value from the agent. A default in the file, or a value from the
    /// server, is not a secret of the call.
    fn is_a_secret_of_the_agents(&mut self) {
        let param = self.param;
        if !param.sensitive {
            return;
        }
        for (key, span) in [
            ("from", param.from.as_ref().map(serde_spanned::Spanned::span)),
            ("default", param.default.as_ref().map(serde_spanned::Spanned::span)),
            ("enum", param.one_of.as_ref().map(serde_spanned::Spanned::span)),
        ] {
            if let Some(span) = span {
                let known = if key == "from" { "the server fills in" } else { "the file says" };
                self.note(span, &format!("a sensitive parameter has no {key}: what {known} is no secret of a call"));
            }
        }
    }

    /// Checks that the parameter is text, as all fields of the principal are.
    fn takes_text(&mut self, span: Range<usize>, ty: &PgType) {
        if !matches!(ty.base().name.as_str(), "text" | "varchar" | "bpchar" | "name" | "citext") {
            let message = format!("the principal's fields are text, but the statement takes {}", ty.name);
            self.note(span, &message);
        }
    }

    fn limits_fit(&mut self, ty: &PgType) {
        let param = self.param;
        for (key, limit) in [("minimum", &param.minimum), ("maximum", &param.maximum)] {
            if let Some(limit) = limit.as_ref().filter(|_| !is_number(ty)) {
                self.note(limit.span(), &format!("{key} is for numbers, and this is {}", ty.name));
            }
        }
        if let Some(schema) = param.schema.as_ref().filter(|_| !is_json(ty)) {
            self.note(schema.span(), &format!("schema is for json and jsonb, and this is {}", ty.name));
        }
        if let Some(scale) = param.scale.as_ref().filter(|_| !is_numeric(ty)) {
            self.note(scale.span(), &format!("scale is for numeric, and this is {}", ty.name));
        }
        for (key, span) in [
            ("max_length", param.max_length.as_ref().map(serde_spanned::Spanned::span)),
            ("pattern", param.pattern.as_ref().map(serde_spanned::Spanned::span)),
        ] {
            if let Some(span) = span.filter(|_| !is_text(ty)) {
                self.note(span, &format!("{key} is for text, and this is {}", ty.name));
            }
        }
    }

    fn enum_fits(&mut self, ty: &PgType) {
        let Some(values) = &self.param.one_of else { return };
        for value in values.get_ref() {
            if let Some(why) = validate(&json(value), allowed(limited(ty), &Limits::default())) {
                self.note(values.span(), &format!("enum: {why}"));
            }
        }
    }

    fn default_fits(&mut self, ty: &PgType, limits: &Limits) {
        let Some(default) = &self.param.default else { return };
        let validate = if limits.schema.is_some() { validate_with } else { validate };
        if let Some(why) = validate(&json(default.get_ref()), allowed(ty, limits)) {
            self.note(default.span(), &format!("default: {why}"));
        }
    }
}
