//! The newest records that a list looks at. Few filters have an index. The others read one record after the other, so a
//! query looks at a bounded number of them, and says where it stopped: a list costs the same in a ledger of any size.

/// The number of records that one query of a list searches.
pub(crate) const SEARCHED: u32 = 2000;

/// The parameters of a statement that is put together.
#[derive(Debug, Default)]
pub(crate) struct Params(pub(crate) Vec<Option<String>>);

impl Params {
    /// Adds a value, and returns its name.
    pub(crate) fn add(&mut self, value: impl Into<String>) -> String {
        self.0.push(Some(value.into()));
        format!("${}", self.0.len())
    }
}

/// Chooses the records, newest first, running writes before them.
pub(crate) struct Newest {
    conditions: Vec<String>,
    order: String,
}

impl Newest {
    /// `by` is a column that an index has before the record's number, and the parameter with its value. As `= any`, the
    /// value is not taken for a constant: otherwise PostgreSQL may read all records by their number, if it knows of one
    /// account only.
    /// `condition`: the words of a partial index, or of the table's CHECK, of which a parameter would not be recognised.
    pub(crate) fn new(by: Option<(&str, String)>, condition: Option<&str>) -> Self {
        let mut conditions: Vec<String> = condition.iter().map(|&condition| condition.to_owned()).collect();
        let mut order = "m.id desc nulls first, m.admitted_at desc".to_owned();
        if let Some((column, value)) = by {
            conditions.push(format!("{column} = any (array[{value}])"));
            order.insert_str(0, &format!("{column} desc, "));
        }
        Self { conditions, order }
    }

    pub(crate) fn and(mut self, condition: impl Into<String>) -> Self {
        self.conditions.push(condition.into());
        self
    }

    /// The records to look at, as `m` of a FROM clause.
    pub(crate) fn records(&self) -> String {
        format!("(select m.* {} limit {SEARCHED}) m", self.chosen())
    }

    /// As [`Newest::records`], all of them.
    pub(crate) fn all(&self) -> String {
        format!("(select m.* {}) m", self.chosen())
    }

    pub(crate) fn order(&self) -> &str {
        &self.order
    }

    /// The last record that was looked at, as `m` of a FROM clause. Empty if there were fewer.
    pub(crate) fn last(&self) -> String {
        format!("(select m.id, m.correlation_id, m.completed_at {} limit 1 offset {}) m", self.chosen(), SEARCHED - 1)
    }

    fn chosen(&self) -> String {
        let condition = if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" and ") };
        format!("from countersign.mutation m where {condition} order by {}", self.order)
    }
}
