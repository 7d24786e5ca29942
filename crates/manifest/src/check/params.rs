//! Parameters: their names, who fills them, and whether default and limits fit their types.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

use types::{PgType, Principal};

use super::{is_name, principal_field};
use crate::compile::{Inferred, limits};
use crate::file::{Param, Tool};
use crate::read::Draft;
use crate::schema::{IDEMPOTENCY_KEY, allowed};
use crate::value::{
    compare, is_json, is_number, is_pattern, is_text, json, json_object, limited, misfit, misfit_of_own,
};
use crate::{Limits, Mistakes};

/// Checks what the declarations alone say.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    let mut names = HashSet::new();
    for param in &tool.param {
        let mut notes = Notes { draft, param, mistakes };
        notes.name(&mut names);
        match &param.from {
            Some(from) => notes.filled_by_the_server(from.get_ref(), from.span()),
            None if param.lacks("from", true) => notes.described(),
            None => {}
        }
        notes.limits_are_limits();
        notes.is_a_secret_of_the_agents();
    }
}

/// Checks the declarations against the types that the statements gave the parameters.
pub(super) fn check_types(draft: &Draft<'_>, tool: &Tool, inferred: &Inferred, mistakes: &mut Mistakes) {
    for (param, ty) in tool.param.iter().zip(&inferred.params) {
        let mut notes = Notes { draft, param, mistakes };
        if let Some(from) = &param.from {
            notes.takes_text(from.span(), ty);
            continue;
        }
        let limits = limits(param);
        notes.limits_fit(ty);
        notes.enum_fits(ty);
        notes.default_fits(ty, &limits);
    }
}

/// Notes the mistakes of one parameter.
struct Notes<'a, 's, 'm> {
    draft: &'a Draft<'s>,
    param: &'a Param,
    mistakes: &'m mut Mistakes,
}

impl<'a> Notes<'a, '_, '_> {
    fn note(&mut self, span: Range<usize>, message: &str) {
        let span = if span.is_empty() { self.param.name.span() } else { span };
        let message = format!("parameter {}: {message}", self.param.name.get_ref());
        self.mistakes.0.push(self.draft.mistake(span, message));
    }

    fn name(&mut self, names: &mut HashSet<&'a str>) {
        let (name, span) = (self.param.name.get_ref().as_str(), self.param.name.span());
        if name.is_empty() {
            if self.param.lacks("name", true) {
                self.mistakes.0.push(self.draft.mistake(span, "a parameter needs a name"));
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

    /// The bounds are numbers in the right order, an enum has values, and a pattern is one.
    fn limits_are_limits(&mut self) {
        let param = self.param;
        for (key, limit) in [("minimum", &param.minimum), ("maximum", &param.maximum)] {
            if let Some(limit) = limit.as_ref().filter(|limit| !json(limit.get_ref()).is_number()) {
                self.note(limit.span(), &format!("{key} is a number"));
            }
        }
        let limits = limits(param);
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
            && let Some(problem) = super::schema::problem(&json_object(schema.get_ref()))
        {
            self.note(schema.span(), &problem);
        }
        if let Some(values) = param.one_of.as_ref().filter(|values| values.get_ref().is_empty()) {
            self.note(values.span(), "an empty enum allows nothing");
        }
    }

    /// What the file or the server knows is no secret of the call.
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

    /// The principal's fields are text.
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
            if let Some(why) = misfit(&json(value), allowed(limited(ty), &Limits::default())) {
                self.note(values.span(), &format!("enum: {why}"));
            }
        }
    }

    fn default_fits(&mut self, ty: &PgType, limits: &Limits) {
        let Some(default) = &self.param.default else { return };
        let misfit = if limits.schema.is_some() { misfit_of_own } else { misfit };
        if let Some(why) = misfit(&json(default.get_ref()), allowed(ty, limits)) {
            self.note(default.span(), &format!("default: {why}"));
        }
    }
}
