//! The reasons why an undo is refused, as the functions of the ledger report them.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::{Cell, CellMasks, Columns, CorrelationId, Masks, Member, REDACTED, Redaction};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $code:literal $words:literal $remedy:literal)*) => {
        /// The kinds of conflicts (docs/internals/ledger.md), in the order in which messages count them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ConflictKind {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl ConflictKind {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The value of `code` in JSON.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The words that follow the number of rows in a message: "2 rows changed since".
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// What a person can do to remove the conflict.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

kinds! {
    /// The row differs from what the write left.
    ChangedSince "changed_since" "changed since" "undo the later change first, or write what the row should be now"
    /// The row no longer exists.
    DeletedSince "deleted_since" "deleted since" "undo the deletion first"
    /// Another row has the key of a row that the undo would insert.
    KeyTaken "key_taken" "whose key is taken" "remove or renumber the row that has the key now"
    /// The undo would keep later writes on the row.
    NeededBy "needed_by" "needed by later writes"
        "undo those as well (mode cascade), or leave the write out (mode skip)"
    /// Other rows refer to a row that the undo would delete.
    Referenced "referenced" "that other rows refer to" "remove what refers to the row first"
    /// The row refers to a row that no longer exists.
    ParentMissing "parent_missing" "whose parent is missing" "bring the parent back first"
    /// The row would violate a constraint.
    Constraint "constraint" "against a constraint" "see which rows violate it"
    /// The columns of the table differ from those of the recorded image.
    SchemaChanged "schema_changed" "of a table whose columns have changed" "write what the row should be now"
    /// The ledger has no image of the row from before the write.
    ImageMissing "image_missing" "without an image of what was there before"
        "call the undo tool that the write names (countersign audit show), if it names one"
    /// The values of the row were erased.
    Erased "erased" "whose values were erased" "write what the row should be now"
    /// A trigger or an action of a foreign key would change the restored row.
    SideEffects "side_effects" "that a trigger or an action of a foreign key changed otherwise"
        "declare the column as maintained, if a trigger sets it, or the table with --is-log or --not-log, if one fills it (countersign track)"
    /// The login lacks a privilege that the undo needs.
    NotPermitted "not_permitted" "not permitted" "grant the login what the write needed"
    /// Another undo has already undone the write.
    AlreadyReversed "already_reversed" "undone before" "undo what has made it again; or, to have it back, undo its undo"
    /// The write cannot be undone.
    Irreversible "irreversible" "that cannot be undone" "only a success on tables with a key can be undone"
    /// The outcome of the write is not known yet.
    InDoubt "in_doubt" "in doubt" "wait until the write has ended"
}

impl ConflictKind {
    /// The kinds that occur in these conflicts, each with its number of conflicts.
    #[must_use]
    pub fn counted<V>(conflicts: &[Conflict<V>]) -> Vec<(Self, usize)> {
        let count = |kind: &Self| (*kind, conflicts.iter().filter(|conflict| conflict.kind == *kind).count());
        Self::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// [`counted`](Self::counted) in words: `3 rows changed since, 1 write undone before`.
    #[must_use]
    pub fn counted_words<V>(conflicts: &[Conflict<V>]) -> String {
        let words = |(kind, count): (Self, usize)| {
            let of_rows = conflicts.iter().any(|conflict| conflict.kind == kind && !conflict.table.is_absent());
            let noun = if of_rows { "row" } else { "write" };
            format!("{count} {noun}{} {}", if count == 1 { "" } else { "s" }, kind.words())
        };
        Self::counted(conflicts).into_iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// A row or a write that prevents an undo. With [`Cell`] values it is what the ledger found, and cannot be
/// serialized; with [`Value`] values it has passed the viewer's masks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "V: Deserialize<'de>"))]
pub struct Conflict<V = Cell> {
    #[serde(rename = "code")]
    pub kind: ConflictKind,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub table: Member<String>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub key: Member<Columns<V>>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub constraint: Member<String>,
    /// The write whose undo this conflict prevents.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub write: Member<ConflictWrite>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub columns: Member<Vec<ConflictColumn<V>>>,
    /// The message of PostgreSQL or of the ledger.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub message: Member<String>,
    /// The write, or the other change, that changed the row.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub changed_by: Member<RowChanger>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "V: Deserialize<'de>"))]
pub struct ConflictColumn<V = Cell> {
    pub name: String,
    /// The value that the undo would put back.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub to_restore: Member<V>,
    /// The value that the write left.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub left: Member<V>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub now: Member<V>,
}

/// A write that a conflict refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictWrite {
    pub correlation_id: CorrelationId,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub completed_at: Member<String>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub tool_name: Member<String>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub account_id: Member<String>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub actor: Member<String>,
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub session_id: Member<String>,
}

/// The origin of a change to a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RowChanger {
    Write(ConflictWrite),
    /// A change from outside countersign.
    Outside {
        /// What the ledger knows about the origin.
        outside: Option<String>,
        #[serde(default, skip_serializing_if = "Member::is_absent")]
        at: Member<String>,
    },
}

impl<V> Conflict<V> {
    /// A conflict with nothing but its kind.
    #[must_use]
    pub const fn new(kind: ConflictKind) -> Self {
        Self {
            kind,
            table: Member::Absent,
            key: Member::Absent,
            constraint: Member::Absent,
            write: Member::Absent,
            columns: Member::Absent,
            message: Member::Absent,
            changed_by: Member::Absent,
        }
    }

    /// Sets the message.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: Member::Value(message.into()), ..self }
    }

    /// The id of the write whose undo this conflict prevents.
    #[must_use]
    pub fn write_id(&self) -> Option<CorrelationId> {
        self.write.get().map(|write| write.correlation_id)
    }

    fn map<W>(self, mut value: impl FnMut(&str, V) -> W) -> Conflict<W> {
        let Self { kind, table, key, constraint, write, columns, message, changed_by } = self;
        let key = key.map(|key| {
            let part = |(name, part): (String, V)| (value(&name, part), name);
            key.into_iter().map(part).map(|(part, name)| (name, part)).collect()
        });
        let column = |ConflictColumn { name, to_restore, left, now }| ConflictColumn {
            to_restore: to_restore.map(|it| value(&name, it)),
            left: left.map(|it| value(&name, it)),
            now: now.map(|it| value(&name, it)),
            name,
        };
        let columns = columns.map(|columns: Vec<ConflictColumn<V>>| columns.into_iter().map(column).collect());
        Conflict { kind, table, key, constraint, write, columns, message, changed_by }
    }

    /// Applies `text` to all texts; ids and codes stay as they are.
    fn with_texts(self, text: &dyn Fn(String) -> String) -> Self {
        let Self { kind, table, key, constraint, write, columns, message, changed_by } = self;
        let column = |column: ConflictColumn<V>| ConflictColumn { name: text(column.name), ..column };
        Self {
            kind,
            table: table.map(text),
            key,
            constraint: constraint.map(text),
            write: write.map(|write| write.with_texts(text)),
            columns: columns.map(|columns| columns.into_iter().map(column).collect()),
            message: message.map(text),
            changed_by: changed_by.map(|by| match by {
                RowChanger::Write(write) => RowChanger::Write(write.with_texts(text)),
                RowChanger::Outside { outside, at } => {
                    RowChanger::Outside { outside: outside.map(text), at: at.map(text) }
                }
            }),
        }
    }
}

impl ConflictWrite {
    fn with_texts(self, text: &dyn Fn(String) -> String) -> Self {
        Self {
            correlation_id: self.correlation_id,
            completed_at: self.completed_at.map(text),
            tool_name: self.tool_name.map(text),
            account_id: self.account_id.map(text),
            actor: self.actor.map(text),
            session_id: self.session_id.map(text),
        }
    }
}

impl Conflict {
    /// The conflict with the viewer's masks. Masked values may still occur in its texts: [`Conflict::redacted`]
    /// replaces them there.
    #[must_use]
    pub fn shown(self, masks: &mut CellMasks<'_>) -> Conflict<Value> {
        self.map(|column, cell| masks.cell(column, cell))
    }

    /// The unmasked conflict, for the ledger to store. No other crate may call this; an architecture test checks it.
    #[must_use]
    pub fn stored(&self) -> Conflict<Value> {
        self.clone().map(|_, cell| cell.stored().clone())
    }
}

impl Conflict<Value> {
    /// The conflict with sensitive values replaced in all of its texts.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        if redaction.is_empty() {
            return self;
        }
        self.map(|_, value| redaction.value(&value)).with_texts(&|text| redaction.whole_text(text))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Conflicts {
    /// As the ledger found them. Serialization omits the values, in case no code has applied the masks.
    Found(Vec<Conflict>),
    /// After the viewer's masks.
    Shown(Vec<Conflict<Value>>),
}

impl Conflicts {
    /// The conflicts as the ledger found them; `None` if masks were applied already.
    #[must_use]
    pub fn found(self) -> Option<Vec<Conflict>> {
        match self {
            Self::Found(found) => Some(found),
            Self::Shown(_) => None,
        }
    }

    /// Applies the masks, unless they were applied already.
    #[must_use]
    pub fn shown(self, masks: &mut CellMasks<'_>) -> Self {
        match self {
            Self::Found(found) => Self::Shown(found.into_iter().map(|conflict| conflict.shown(masks)).collect()),
            Self::Shown(shown) => Self::Shown(shown),
        }
    }

    /// The conflicts with sensitive values replaced in all of their texts.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        let text = |text| redaction.whole_text(text);
        match self {
            Self::Found(found) => {
                let redacted = |one: Conflict| one.map(|_, cell| cell.redacted(redaction)).with_texts(&text);
                Self::Found(found.into_iter().map(redacted).collect())
            }
            Self::Shown(shown) => Self::Shown(shown.into_iter().map(|conflict| conflict.redacted(redaction)).collect()),
        }
    }
}

impl Serialize for Conflicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Found(found) => {
                let withheld = |conflict: &Conflict| conflict.clone().map(|_, _| Value::from(REDACTED));
                found.iter().map(withheld).collect::<Vec<_>>().serialize(serializer)
            }
            Self::Shown(shown) => shown.serialize(serializer),
        }
    }
}

/// Applies the viewer's masks and replaces the masked texts everywhere else. With `None` the viewer may see every
/// column.
#[must_use]
pub fn shown_conflicts(masks: Option<&Masks>, conflicts: Vec<Conflict>) -> Vec<Conflict<Value>> {
    let mut masks = CellMasks::new(masks);
    let shown: Vec<_> = conflicts.into_iter().map(|conflict| conflict.shown(&mut masks)).collect();
    let redaction = masks.redaction();
    shown.into_iter().map(|conflict| conflict.redacted(&redaction)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_conflict_is_kept_whole_on_the_wire() {
        let text = include_str!("../../../tests/golden/review/conflicts.json");
        let conflicts: Vec<Conflict> = serde_json::from_str(text).unwrap();
        let stored: Vec<_> = conflicts.iter().map(Conflict::stored).collect();
        assert_eq!(json!(stored).to_string(), serde_json::from_str::<Value>(text).unwrap().to_string());
        for kind in ConflictKind::ALL {
            assert_eq!(json!(kind), kind.code());
        }
    }

    #[test]
    fn conflicts_that_passed_no_mask_have_no_values_in_json() {
        // S-1
        let found = json!([{"code": "changed_since", "key": {"email": "a@x.org"}, "columns": [{"name": "email", "now": "b@x.org"}]}]);
        let conflicts = Conflicts::Found(serde_json::from_value(found).unwrap());
        let withheld = json!([{"code": "changed_since", "key": {"email": "[redacted]"}, "columns": [{"name": "email", "now": "[redacted]"}]}]);
        assert_eq!(json!(conflicts), withheld);
        let Conflicts::Shown(shown) = conflicts.shown(&mut CellMasks::new(None)) else { panic!("not shown") };
        assert_eq!(json!(shown)[0]["columns"][0]["now"], "b@x.org");
    }
}
