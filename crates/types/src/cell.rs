//! Values of rows, and the masks that are applied before a caller sees them.
//!
//! No code can show a [`Cell`] by accident: its value is private, it implements neither `Serialize` nor `Display`,
//! and `Debug` omits the value. [`CellMasks`] converts it to a JSON value, so code that skips the masks does not
//! compile:
//!
//! ```compile_fail,E0277
//! let conflict: countersign_types::Conflict = serde_json::from_str(r#"{"code": "changed_since", "key": {"email": "a@x.org"}}"#)?;
//! println!("{}", serde_json::to_string(&conflict)?);
//! # Ok::<(), serde_json::Error>(())
//! ```
//! ```compile_fail,E0616
//! let cell: countersign_types::Cell = serde_json::from_str(r#""a@x.org""#)?;
//! println!("{}", cell.0);
//! # Ok::<(), serde_json::Error>(())
//! ```
//! With the viewer's masks it compiles:
//! ```
//! let conflict: countersign_types::Conflict = serde_json::from_str(r#"{"code": "changed_since", "key": {"email": "a@x.org"}}"#)?;
//! let shown = conflict.shown(&mut countersign_types::CellMasks::new(None));
//! assert_eq!(serde_json::to_string(&shown)?, r#"{"code":"changed_since","key":{"email":"a@x.org"}}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::HashMap;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{ColumnOrigin, Mask, MaskKey, Masks, REDACTED, Redaction, ToolResults};

/// The columns of a row, in order.
pub type Columns<V = Cell> = IndexMap<String, V>;

/// The value of a column of a row, as the ledger found it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Cell(Value);

impl Cell {
    /// The unmasked value, for the ledger to store. No other crate may call this; an architecture test checks it.
    #[must_use]
    pub const fn stored(&self) -> &Value {
        &self.0
    }

    pub(crate) fn redacted(&self, redaction: &Redaction) -> Self {
        Self(redaction.value(&self.0))
    }
}

impl From<Value> for Cell {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cell(..)")
    }
}

/// The viewer's masks by column name. Rows are shown without the name of their table, so a value is masked if any
/// table has a masked column of that name.
#[derive(Debug)]
pub struct CellMasks<'a> {
    columns: HashMap<&'a str, (Mask, &'a MaskKey)>,
    results: Option<&'a ToolResults>,
    /// The original values that were replaced and are strings.
    masked: Vec<Value>,
}

impl<'a> CellMasks<'a> {
    /// The masks of a viewer. `None` means that the viewer may see every column.
    #[must_use]
    pub fn new(masks: Option<&'a Masks>) -> Self {
        let mut columns: HashMap<&str, (Mask, &MaskKey)> = HashMap::new();
        for (masks, column) in masks.into_iter().flat_map(|masks| masks.columns.iter().map(move |it| (masks, it))) {
            let (mask, _) = columns.entry(&column.column).or_insert((column.mask, &masks.key));
            *mask = column.mask.max(*mask);
        }
        Self { columns, results: masks.map(|masks| masks.results.as_ref()), masked: Vec::new() }
    }

    /// Whether any column is masked.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Whether a column of this name is masked.
    #[must_use]
    pub fn masks_column(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The value of this column, masked if the column has a mask.
    pub fn cell(&mut self, column: &str, Cell(value): Cell) -> Value {
        self.value(column, value)
    }

    /// Like [`cell`](Self::cell), for a value that a tool returned.
    pub fn value(&mut self, column: &str, value: Value) -> Value {
        match self.columns.get(column) {
            Some((mask, key)) => {
                let shown = key.masked_json(*mask, &value);
                self.replaced(value, shown)
            }
            None => value,
        }
    }

    /// The value of a result column of a tool, which may show a masked column under another name, or an expression
    /// over one. Of several statements of the tool with a column of this name, the strictest counts.
    pub fn result(&mut self, tool: &str, column: &str, value: Value) -> Value {
        if self.masks_column(column) {
            return self.value(column, value);
        }
        let of_tool = self.results.and_then(|results| results.get(tool)).into_iter().flatten();
        let origins = of_tool.filter(|(name, _)| name == column).map(|(_, origin)| origin);
        let (mut columns, mut is_redacted) = (Vec::new(), false);
        for origin in origins {
            match origin {
                ColumnOrigin::Column(names) => columns.extend(names),
                ColumnOrigin::Expression(names) => is_redacted |= names.iter().any(|name| self.masks_column(name)),
                ColumnOrigin::Any => is_redacted |= self.has_any(),
            }
        }
        let mask = columns.into_iter().filter_map(|name| self.columns.get(name.as_str())).max_by_key(|it| it.0);
        let shown = match mask {
            _ if is_redacted && value.is_string() => REDACTED.into(),
            _ if is_redacted => Value::Null,
            Some((mask, key)) => key.masked_json(*mask, &value),
            None => return value,
        };
        self.replaced(value, shown)
    }

    fn replaced(&mut self, value: Value, shown: Value) -> Value {
        if value.is_string() {
            self.masked.push(value);
        }
        shown
    }

    /// A redaction that replaces the masked texts wherever else they occur.
    #[must_use]
    pub fn redaction(&self) -> Redaction {
        Redaction::of_values(&self.masked)
    }
}

/// A member of a JSON object that distinguishes absent from null, so that an answer repeats exactly what the ledger
/// wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Member<T> {
    /// The object does not have this member.
    #[default]
    Absent,
    /// The member is null.
    Null,
    /// The member has this value.
    Value(T),
}

impl<T> Member<T> {
    /// The value, unless it is absent or null.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Whether the object does not have this member.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Applies a function to the value; absent and null stay as they are.
    pub fn map<U>(self, value: impl FnOnce(T) -> U) -> Member<U> {
        match self {
            Self::Absent => Member::Absent,
            Self::Null => Member::Null,
            Self::Value(old) => Member::Value(value(old)),
        }
    }
}

impl<T> From<Option<T>> for Member<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Member<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::from)
    }
}

impl<T: Serialize> Serialize for Member<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{MaskedColumn, Secret};

    #[test]
    fn the_strictest_statement_of_a_tool_decides_what_its_column_shows() {
        let pin = |mask| MaskedColumn { schema: "s".to_owned(), table: "t".to_owned(), column: "pin".to_owned(), mask };
        let names = || vec!["pin".to_owned()];
        let column = |name: &str, origin| (name.to_owned(), origin);
        let results = ToolResults::from([(
            "tool".to_owned(),
            vec![
                column("code", ColumnOrigin::Column(names())),
                column("line", ColumnOrigin::Column(names())),
                column("line", ColumnOrigin::Expression(names())),
                column("row", ColumnOrigin::Any),
                column("id", ColumnOrigin::Column(vec!["id".to_owned()])),
            ],
        )]);
        let masks = Masks::new(vec![pin(Mask::Partial)], MaskKey::new(Secret::new("key")));
        let masks = Masks { results: results.into(), ..masks };
        let mut cells = CellMasks::new(Some(&masks));
        for (name, shown) in [
            ("code", json!("4***")),
            ("line", json!("[redacted]")),
            ("row", json!("[redacted]")),
            ("id", json!("4711")),
        ] {
            assert_eq!(cells.result("tool", name, json!("4711")), shown, "{name}");
        }
        assert_eq!(cells.result("tool", "line", json!(4711)), Value::Null);
        assert_eq!(cells.result("another", "code", json!("4711")), "4711");
    }

    #[test]
    fn a_cell_prints_nothing_and_is_shown_with_its_mask() {
        // S-1
        let column =
            |mask| MaskedColumn { schema: "shop".to_owned(), table: "pins".to_owned(), column: "pin".to_owned(), mask };
        let key = MaskKey::new(Secret::new("key"));
        let masks = Masks::new(vec![column(Mask::Partial), column(Mask::Null)], key);
        let cell = || Cell::from(json!("4711"));
        assert_eq!(format!("{:?}", cell()), "Cell(..)");
        let mut masks = CellMasks::new(Some(&masks));
        assert_eq!((masks.cell("id", cell()), masks.cell("pin", cell())), (json!("4711"), Value::Null));
        assert_eq!(masks.redaction().text("the pin 4711"), "the pin [redacted]");
    }
}
