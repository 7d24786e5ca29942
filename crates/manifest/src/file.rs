//! The file format, as serde reads it. The doc comments are the format's documentation: `json_schema.rs` makes
//! `manifests/manifest.schema.json` of them.
//!
//! What is required but can be told apart when missing (it is empty then) has a default here, so that one missing key
//! does not hide the mistakes in the others; `check` asks for it.

mod policy;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_spanned::Spanned;
use types::{Principal, ReasonRule, RowFormat, Tier};

use crate::set_clause::{Assignment, SetClause};
use crate::spec::{Access, Limits, RowExpectation, ValueSource};
use crate::value::{json, json_object};
pub(crate) use policy::{LimitDeclaration, RuleDeclaration};

/// A countersign manifest: declares tools over one domain of a PostgreSQL database.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestFile {
    /// The domain's name.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default)]
    pub(crate) name: Spanned<String>,
    /// The version of these tools, `meta.tool_version` in their answers.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default)]
    pub(crate) version: Spanned<String>,
    /// The tools.
    #[serde(default)]
    #[expect(dead_code, reason = "read tool by tool, so that one broken tool does not hide the others; see parse.rs")]
    pub(crate) tool: Vec<ToolDeclaration>,
    /// For agents, at the end of the server's instructions: what these tools are for, and what to keep in mind with all of
    /// them; 4000 characters at most.
    #[schemars(with = "Option<String>", length(min = 1, max = 4000))]
    pub(crate) instructions: Option<Spanned<String>>,
    /// The built-in tools by name, such as `[builtin.query_database]`.
    #[serde(default)]
    #[expect(dead_code, reason = "read tool by tool, like the tools")]
    pub(crate) builtin: BTreeMap<String, BuiltinDeclaration>,
    /// What agents should know of the schema, shown by `describe_database` with what it is about.
    #[serde(default)]
    #[expect(dead_code, reason = "read note by note, like the tools")]
    pub(crate) note: Vec<NoteDeclaration>,
}

/// A built-in tool: its own words for it, or whether it is served at all. One manifest says it of one tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuiltinDeclaration {
    /// `false`: nobody is served the tool. What the configuration has not switched on (`execute_sql`), `true` does not.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// A name for people, instead of the tool's own.
    #[schemars(with = "Option<String>")]
    pub(crate) title: Option<Spanned<String>>,
    /// For the agent, instead of the tool's own.
    #[schemars(with = "Option<String>")]
    pub(crate) description: Option<Spanned<String>>,
    /// Only for query_database: rows of an answer if neither the call nor the query has a limit, instead of the
    /// server's; at most its max_row_limit.
    #[schemars(with = "Option<u32>", range(min = 1, max = 100_000))]
    pub(crate) row_limit: Option<Spanned<u32>>,
    /// Only for query_database: bytes of an answer, instead of the server's; at most those of the server.
    #[schemars(with = "Option<u32>", range(min = 1024, max = 16_777_216))]
    pub(crate) max_result_bytes: Option<Spanned<u32>>,
    /// Only for query_database: the rows of a call without row_format, `object` (the server's default) or `array`.
    #[schemars(with = "Option<RowFormat>")]
    pub(crate) row_format: Option<Spanned<RowFormat>>,
}

/// A note on a schema, a table or a column.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteDeclaration {
    /// What it is about, as SQL writes it: `social`, `social.tweet`, `social.tweet.text`, `social."My Table"`.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default)]
    pub(crate) on: Spanned<String>,
    /// What to know, for agents; 1000 characters at most.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default)]
    pub(crate) text: Spanned<String>,
    /// The keys whose values were refused.
    #[serde(skip)]
    pub(crate) refused: Vec<String>,
}

impl NoteDeclaration {
    /// Whether the file does not have this key, or it is empty, and that is all that is wrong with it.
    pub(crate) fn lacks(&self, key: &str, empty: bool) -> bool {
        empty && !self.refused.iter().any(|refused| refused == key)
    }
}

/// A tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolDeclaration {
    /// What the agent calls, best as verb_noun.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default, regex(pattern = "^[a-zA-Z0-9_-]{1,64}$"))]
    pub(crate) name: Spanned<String>,
    /// A name for people.
    pub(crate) title: Option<String>,
    /// What one call of a write does, for the person who decides about it: `Set {status} on order {id}`, with the
    /// values of parameters; 200 characters at most.
    #[schemars(with = "Option<String>", length(min = 1, max = 200))]
    pub(crate) summary: Option<Spanned<String>>,
    /// What the tool may do: `read`, `write`, or `admin` (a write for the admin profile only).
    #[schemars(with = "Access")]
    pub(crate) access: Option<Spanned<Access>>,
    /// Who must agree before a write runs: `auto` (nobody), `confirm` (the caller's user) or `approve` (somebody else).
    #[schemars(with = "Option<Tier>")]
    pub(crate) tier: Option<Spanned<Tier>>,
    /// Who must agree before `undo_mutation` or `undo_run` takes a write of the tool back; as `tier` and the
    /// strictest rule unless given.
    #[schemars(with = "Option<Tier>")]
    pub(crate) undo_tier: Option<Spanned<Tier>>,
    /// How many different people must approve a write of tier `approve`, 1 to 10; 1 by default.
    #[schemars(with = "Option<u32>", range(min = 1, max = 10))]
    pub(crate) approvals: Option<Spanned<i64>>,
    /// The group that may approve a write of tier `approve`: a role of PostgreSQL whose members may. Without it, everybody
    /// who may decide on proposals.
    #[schemars(with = "Option<String>", length(min = 1, max = 63))]
    pub(crate) approvers: Option<Spanned<String>>,
    /// Whether a call of a write must say why (`reason`, for people): `optional` by default.
    #[schemars(with = "Option<ReasonRule>")]
    pub(crate) reason: Option<Spanned<ReasonRule>>,
    /// For the agent: what the tool does, what it needs, what makes it fail.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default)]
    pub(crate) description: Spanned<String>,
    /// The statement; or several that run in one transaction, of which the last one's rows are the result. Required
    /// unless there is an `executor`.
    #[serde(default = "missing::<StatementTexts>")]
    #[schemars(with = "OneOrMany")]
    pub(crate) sql: Spanned<StatementTexts>,
    /// The Rust function that carries a write out, instead of `sql`, by the name under which it is registered. It needs
    /// `before`, which gives the parameters their types; `rows` and `max_rows` are its own business.
    #[schemars(with = "Option<String>", regex(pattern = "^[a-zA-Z0-9_-]{1,64}$"))]
    pub(crate) executor: Option<Spanned<String>>,
    /// What a read needs of the database. A tool that lacks it is left out, which is no mistake.
    #[schemars(with = "Option<RequirementsDeclaration>")]
    pub(crate) requires: Option<Spanned<RequirementsDeclaration>>,
    /// How many rows the result must have, else everything is rolled back. `any` for reads, required for writes with `sql`.
    #[schemars(with = "Option<RowExpectation>")]
    pub(crate) rows: Option<Spanned<RowExpectation>>,
    /// The most rows that a write of `some` or `any` rows may affect or return, 1 to 10000; with more, everything is
    /// rolled back. Required there: without it a wrong WHERE would reach a whole table.
    #[schemars(with = "Option<u32>", range(min = 1, max = 10000))]
    pub(crate) max_rows: Option<Spanned<i64>>,
    /// What a write of `one` or `some` rows answers, as error `not_found`, when it found no row: the same words for what is
    /// missing and for what is somebody else's. At most 200 characters. With an `executor`: when `before` captured no row.
    #[schemars(with = "Option<String>", length(min = 1, max = 200))]
    pub(crate) not_found: Option<Spanned<String>>,
    /// A query that captures the rows which the write is about to overwrite (`select .. for update`), for `before.x`.
    /// Required if the tier is above `auto` and the write overwrites rows, and then it locks them: it shows what somebody
    /// agrees to.
    #[schemars(with = "Option<String>")]
    pub(crate) before: Option<Spanned<String>>,
    /// A query that captures the rows as the write left them. Without it `before` runs again, if there is one.
    #[schemars(with = "Option<String>")]
    pub(crate) after: Option<Spanned<String>>,
    /// For how many seconds an identical call without an idempotency key is answered as a duplicate; 300 by default.
    #[schemars(with = "Option<u32>")]
    pub(crate) dedup_window_s: Option<u32>,
    /// MCP tool annotations, passed on as they are.
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) annotations: toml::Table,
    /// MCP `_meta`, passed on as it is.
    #[serde(default, rename = "_meta")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) meta: toml::Table,
    /// The parameters: their order gives `$1`, `$2`, ... of every statement. Their types come from the database.
    #[serde(default)]
    pub(crate) param: Vec<ParamDeclaration>,
    /// How a write is undone, or why it cannot be. Without it, the recorded changes of tracked tables undo it.
    pub(crate) undo: Option<UndoDeclaration>,
    /// Calls that need more agreement than others, or that are refused.
    #[serde(default)]
    pub(crate) rule: Vec<RuleDeclaration>,
    /// The most calls in a period.
    #[schemars(with = "Option<LimitDeclaration>")]
    pub(crate) limit: Option<Spanned<LimitDeclaration>>,
    /// The keys whose values were refused.
    #[serde(skip)]
    pub(crate) refused: Vec<String>,
}

impl ToolDeclaration {
    /// Whether it is a write, or is a read. Unknown if `access` is missing or wrong.
    pub(crate) fn is(&self, writes: bool) -> bool {
        self.access.as_ref().is_some_and(|access| access.get_ref().writes() == writes)
    }

    /// Its statement with `{set}`, if there is one and parameters set columns.
    pub(crate) fn set_clause(&self) -> Option<SetClause> {
        let assignment = |param: &ParamDeclaration| {
            Some(Assignment {
                param: param.name.get_ref().clone(),
                sql: param.sets.as_ref()?.get_ref().trim().to_owned(),
                is_filled: param.from.is_some(),
            })
        };
        let nulls = self.param.iter().find(|param| param.names_null());
        let texts = self.sql.get_ref().texts.iter().map(|(text, _)| text.as_str());
        SetClause::new(
            texts,
            self.param.iter().filter_map(assignment).collect(),
            nulls.map(|param| param.name.get_ref().clone()),
        )
    }

    /// Whether it names an executor, or tried to.
    pub(crate) fn has_executor(&self) -> bool {
        !self.lacks("executor", self.executor.is_none())
    }

    /// Whether the file does not have this key, or it is empty, and that is all that is wrong with it.
    pub(crate) fn lacks(&self, key: &str, empty: bool) -> bool {
        empty && !self.refused.iter().any(|refused| refused == key)
    }
}

/// What a read needs of the database, besides the objects that its statement names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequirementsDeclaration {
    /// An extension. `{extension}` in the statement stands for its schema.
    pub(crate) extension: Option<String>,
    /// A role whose privileges the login that reads must have, such as pg_monitor.
    pub(crate) role: Option<String>,
}

/// A parameter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParamDeclaration {
    /// Its name in the agent's arguments.
    #[serde(default = "missing::<String>")]
    #[schemars(with = "String", !default, regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]{0,63}$"))]
    pub(crate) name: Spanned<String>,
    /// For the agent. Required unless the server fills it.
    #[serde(default)]
    pub(crate) description: String,
    /// Who fills it instead of the agent, such as `principal.account_id`.
    #[schemars(with = "Option<String>")]
    pub(crate) from: Option<Spanned<String>>,
    /// Keep the value out of ledger, logs and later answers: they read `[redacted]`, wherever the value stands.
    #[serde(default)]
    pub(crate) sensitive: bool,
    /// The value when the agent gives none.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) default: Option<Spanned<toml::Value>>,
    /// The agent may leave it out; without a default it is NULL then.
    #[schemars(with = "Option<bool>")]
    pub(crate) optional: Option<Spanned<bool>>,
    /// The only values allowed (of each element, if it is an array).
    #[serde(rename = "enum")]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub(crate) one_of: Option<Spanned<Vec<toml::Value>>>,
    /// The smallest number allowed.
    #[schemars(with = "Option<serde_json::Number>")]
    pub(crate) minimum: Option<Spanned<toml::Value>>,
    /// The largest number allowed.
    #[schemars(with = "Option<serde_json::Number>")]
    pub(crate) maximum: Option<Spanned<toml::Value>>,
    /// The most characters allowed.
    #[schemars(with = "Option<u64>")]
    pub(crate) max_length: Option<Spanned<u64>>,
    /// The most digits after the decimal point of a `numeric`: PostgreSQL would round the others away without a word.
    #[schemars(with = "Option<u32>")]
    pub(crate) scale: Option<Spanned<u32>>,
    /// A regular expression (ECMA 262) that the text must match; anchor it to mean all of the text.
    #[schemars(with = "Option<String>")]
    pub(crate) pattern: Option<Spanned<String>>,
    /// JSON Schema of a `json` or `jsonb` value (of each element, if it is an array): shown to the agent and enforced. One
    /// `type` a property, and no references or alternatives: clients refuse those.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(crate) schema: Option<Spanned<toml::Table>>,
    /// The assignment of a call that gives the parameter, such as `note = $3`: `{set}` in a statement stands for the
    /// assignments of the call. A call without any is refused.
    #[schemars(with = "Option<String>")]
    pub(crate) sets: Option<Spanned<String>>,
    /// Whether the parameter, an array of texts, names parameters with `sets` whose columns become NULL. It has an `enum`.
    #[schemars(with = "Option<bool>")]
    pub(crate) sets_null: Option<Spanned<bool>>,
    /// The keys whose values were refused.
    #[serde(skip)]
    pub(crate) refused: Vec<String>,
}

impl ParamDeclaration {
    /// Whether it names parameters whose columns become NULL.
    pub(crate) fn names_null(&self) -> bool {
        self.sets_null.as_ref().is_some_and(|sets_null| *sets_null.get_ref())
    }

    /// The limits that the file declares. Limits that are not numbers are left out: `check` reports them.
    pub(crate) fn limits(&self) -> Limits {
        let number = |limit: &Option<serde_spanned::Spanned<toml::Value>>| {
            limit.as_ref().and_then(|limit| json(limit.get_ref()).as_number().cloned())
        };
        Limits {
            one_of: self.one_of.iter().flat_map(|values| values.get_ref()).map(json).collect(),
            minimum: number(&self.minimum),
            maximum: number(&self.maximum),
            max_length: self.max_length.as_ref().map(|length| *length.get_ref()),
            scale: self.scale.as_ref().map(|scale| *scale.get_ref()),
            pattern: self.pattern.as_ref().map(|pattern| pattern.get_ref().clone()),
            schema: self.schema.as_ref().map(|schema| json_object(schema.get_ref())),
        }
    }

    /// Whether the file does not have this key, or it is empty, and that is all that is wrong with it.
    pub(crate) fn lacks(&self, key: &str, empty: bool) -> bool {
        empty && !self.refused.iter().any(|refused| refused == key)
    }

    /// Whether the agent must give it.
    pub(crate) fn is_required(&self) -> bool {
        let optional = self.optional.as_ref().is_some_and(|optional| *optional.get_ref());
        self.from.is_none() && self.default.is_none() && !optional
    }
}

/// How a write is undone: `tool` and `params`, or `irreversible`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndoDeclaration {
    /// A write tool that reverses it.
    #[schemars(with = "Option<String>")]
    pub(crate) tool: Option<Spanned<String>>,
    /// That tool's arguments: `result.x` (a result column), `param.x` (a parameter) or `before.x` (a captured column).
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub(crate) params: SpannedMap<Spanned<String>>,
    /// A sentence for people.
    #[schemars(with = "Option<String>")]
    pub(crate) note: Option<Spanned<String>>,
    /// `result`: one call for each result row, the last one first.
    #[schemars(with = "Option<String>")]
    pub(crate) for_each: Option<Spanned<String>>,
    /// Why nothing undoes it.
    #[schemars(with = "Option<String>")]
    pub(crate) irreversible: Option<Spanned<String>>,
    /// The keys whose values were refused.
    #[serde(skip)]
    pub(crate) refused: Vec<String>,
}

/// A table's entries in the order of the file.
#[derive(Debug)]
pub(crate) struct SpannedMap<T>(pub(crate) Vec<(Spanned<String>, T)>);

impl<T> Default for SpannedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// `sql`: the statements in the order in which they run.
#[derive(Debug, Default)]
pub(crate) struct StatementTexts {
    /// The texts. Each has its place if they were written as an array; a single one is at the place of `sql`.
    pub(crate) texts: Vec<(String, Option<std::ops::Range<usize>>)>,
}

/// Only for the format's schema: how [`StatementTexts`] may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "its derived schema is all there is to it")]
pub(crate) enum OneOrMany {
    /// One statement.
    One(String),
    /// Several statements in one transaction.
    Several(Vec<String>),
}

/// A key that is not there: empty, at no place.
fn missing<T: Default>() -> Spanned<T> {
    Spanned::new(0..0, T::default())
}

impl<'de> Deserialize<'de> for StatementTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = StatementTexts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of strings")
            }

            fn visit_str<E: serde::de::Error>(self, sql: &str) -> Result<StatementTexts, E> {
                Ok(StatementTexts { texts: vec![(sql.to_owned(), None)] })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StatementTexts, A::Error> {
                let mut texts = Vec::new();
                while let Some(sql) = seq.next_element::<Spanned<String>>()? {
                    let span = sql.span();
                    texts.push((sql.into_inner(), Some(span)));
                }
                Ok(StatementTexts { texts })
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SpannedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Shape<T> {
            type Value = SpannedMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<SpannedMap<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(SpannedMap(entries))
            }
        }
        deserializer.deserialize_map(Shape(std::marker::PhantomData))
    }
}

/// The field of the principal that `from` names, if there is such a one.
pub(crate) fn principal_field(from: &str) -> Option<&str> {
    from.strip_prefix("principal.").filter(|field| Principal::FIELDS.contains(field))
}

/// `param.x`, `result.x` or `before.x`.
pub(crate) fn value_source(text: &str) -> Option<ValueSource> {
    let (kind, name) = text.split_once('.').filter(|(_, name)| !name.is_empty())?;
    match kind {
        "param" => Some(ValueSource::Param(name.to_owned())),
        "result" => Some(ValueSource::Result(name.to_owned())),
        "before" => Some(ValueSource::Before(name.to_owned())),
        _ => None,
    }
}
