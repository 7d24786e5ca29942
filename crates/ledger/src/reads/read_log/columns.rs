//! Sends the rows of a batch in PostgreSQL's fastest form: one array for each column.

use pg::value::push_array_element;

use super::entry::Row;

/// The number of columns, in the order of `countersign.log_reads`.
const COLUMNS: usize = 19;

/// A PostgreSQL array for each column.
#[derive(Debug, Default)]
pub(super) struct ColumnArrays {
    columns: [String; COLUMNS],
    /// Whether a column has a value other than NULL.
    has_values: [bool; COLUMNS],
}

impl ColumnArrays {
    pub(super) fn push(&mut self, row: &Row<'_>) {
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let count = |count: Option<usize>| count.map(|count| count.to_string());
        let [read_at, duration_us] = [Some(row.read_at), row.duration_us].map(number);
        let [first_at, last_at] = [row.first_at, row.last_at].map(number);
        let [row_count, row_bytes] = [row.row_count, row.row_bytes].map(count);
        let entries = row.entries.map(|entries| entries.to_string());
        let tables = row.tables.as_ref().map(|tables| array(tables.iter().map(|table| Some(*table))));
        let cells: [Option<&str>; COLUMNS] = [
            read_at.as_deref(),
            row.account_id,
            row.actor,
            row.session_id,
            row.client_name,
            row.client_version,
            row.trace_id,
            row.tool_name,
            Some(row.outcome),
            tables.as_deref(),
            row_count.as_deref(),
            row_bytes.as_deref(),
            duration_us.as_deref(),
            row.is_truncated.map(|is_truncated| if is_truncated { "t" } else { "f" }),
            row.fingerprint.as_deref(),
            row.query,
            entries.as_deref(),
            first_at.as_deref(),
            last_at.as_deref(),
        ];
        for ((column, has_values), cell) in self.columns.iter_mut().zip(&mut self.has_values).zip(cells) {
            *has_values |= cell.is_some();
            column.push(if column.is_empty() { '{' } else { ',' });
            push_array_element(column, cell);
        }
    }

    /// The columns as an array of texts, each of which is an array; empty without rows. A column with only NULLs is
    /// sent as an empty array, which `unnest` fills up: parsing the arrays is a third of the work of a batch.
    pub(super) fn into_array(self) -> String {
        let columns = self.columns.into_iter().zip(self.has_values).filter(|(column, _)| !column.is_empty());
        let columns = columns.map(|(column, has_values)| if has_values { column + "}" } else { "{}".to_owned() });
        let columns: Vec<String> = columns.collect();
        array(columns.iter().map(|column| Some(column.as_str())))
    }
}

fn array<'a>(elements: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut array = String::from("{");
    for (index, element) in elements.enumerate() {
        if index > 0 {
            array.push(',');
        }
        push_array_element(&mut array, element);
    }
    array.push('}');
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_an_array_of_its_own() {
        let mut columns = ColumnArrays::default();
        let tables = Some(vec!["shop.orders", "shop.\"odd\""]);
        columns.push(&Row { read_at: 7, outcome: "ok", tables, ..Row::default() });
        columns.push(&Row { read_at: 8, outcome: "lost", entries: Some(3), ..Row::default() });
        let array = columns.into_array();
        assert!(array.starts_with(r#"{"{\"7\",\"8\"}","{}","#), "{array}");
        assert!(array.contains(r#""{\"ok\",\"lost\"}""#) && array.contains(r#""{NULL,\"3\"}""#), "{array}");
        assert_eq!(ColumnArrays::default().into_array(), "{}");
    }
}
