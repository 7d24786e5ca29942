//! The effects of a write, for people and agents: by table and key, with the columns before and after.

use pg::{PipelineStatement, WriterPool};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::CorrelationId;

/// The most effects that one answer has; it says how many there are.
pub(crate) const MOST_SHOWN: u32 = 100;

const EFFECTS_SQL: &str = "\
select t.name, e.op::pg_catalog.text, coalesce(e.key_before, e.key), case when e.bytes <= 1048576 then e.before end, \
    case when e.bytes <= 1048576 then e.after end, e.bytes operator(pg_catalog.>) 1048576, \
    e.secret_before is distinct from e.secret_after, pg_catalog.array_to_json(coalesce(e.unchanged, '{}')), pg_catalog.array_to_json(t.columns), pg_catalog.array_to_json(t.sensitive), \
    (select pg_catalog.count(*) from countersign.effect c where c.correlation_id operator(pg_catalog.=) $1) \
from (select f.*, pg_catalog.sum(coalesce(pg_catalog.octet_length(f.before), 0) operator(pg_catalog.+) \
          coalesce(pg_catalog.octet_length(f.after), 0)) over (order by f.position) as bytes \
      from countersign.effect f where f.correlation_id operator(pg_catalog.=) $1 order by f.position limit $2::pg_catalog.int8) e \
join countersign.tracked t on t.shape operator(pg_catalog.=) e.shape order by e.position";

/// The effects of a write as JSON: `{"count": 2, "rows": [{"table", "key", "change": "update", "columns": {"status": {"before", "after"}}}]}`,
/// the first [`MOST_SHOWN`] in the order in which they were made. Of an update `columns` has those that changed; of an insert or a delete
/// those that are not null, each with its value. Values are PostgreSQL's text. Beyond 1 MiB of row images `columns` is empty and
/// `is_cut` true; `has_sensitive_changes` stands for the columns that are not shown. `None`: none is on record.
///
/// # Errors
/// Whatever the database says.
pub(crate) async fn of_write(
    writer: &WriterPool,
    write: CorrelationId,
    deadline: Instant,
) -> Result<Option<Value>, pg::Error> {
    let outcome = writer.run_one(EFFECTS_SQL, &params(write), deadline).await?;
    Ok(shown(outcome.rows))
}

/// The query for the effects of a write within its own transaction; [`shown`] parses the answer.
pub(crate) fn step(params: &[Option<String>]) -> PipelineStatement<'_> {
    PipelineStatement { sql: EFFECTS_SQL, params, param_types: &[] }
}

/// The arguments of [`step`].
pub(crate) fn params(write: CorrelationId) -> [Option<String>; 2] {
    [Some(write.to_string()), Some(MOST_SHOWN.to_string())]
}

/// The answer to [`step`] as [`of_write`] has it.
pub(crate) fn shown(answer: Vec<Vec<Option<String>>>) -> Option<Value> {
    let (mut count, mut rows) = (0, Vec::new());
    for row in answer {
        let Ok([table, op, key, before, after, is_cut, is_hidden, unchanged, columns, sensitive, all]) =
            <[Option<String>; 11]>::try_from(row)
        else {
            continue;
        };
        count = all.and_then(|all| all.parse::<u64>().ok()).unwrap_or_default();
        let json =
            |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
        let flag = |text: Option<String>| Value::Bool(text.as_deref() == Some("t"));
        let row = [
            ("name", table.into()),
            ("op", op.into()),
            ("key", key.into()),
            ("before", before.into()),
            ("after", after.into()),
            ("is_cut", flag(is_cut)),
            ("has_sensitive_changes", flag(is_hidden)),
            ("unchanged", json(unchanged)),
            ("columns", json(columns)),
            ("sensitive", json(sensitive)),
        ];
        rows.push(of_row(row.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()));
    }
    (count > 0).then(|| json!({"count": count, "rows": rows}))
}

/// The longest value that a preview shows, in characters.
const MOST_PREVIEWED: usize = 500;

/// Effects for a preview, which a person looks at: long values are cut, with a mark.
pub(crate) fn shortened(effects: Value) -> Value {
    match effects {
        Value::String(text) if text.chars().count() > MOST_PREVIEWED => {
            text.chars().take(MOST_PREVIEWED).chain(['…']).collect::<String>().into()
        }
        Value::Array(items) => items.into_iter().map(shortened).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, shortened(value))).collect(),
        value => value,
    }
}

/// A row of `countersign.effect` with its table, as an object: what its images say instead of them.
pub(crate) fn of_row(mut row: Map<String, Value>) -> Map<String, Value> {
    let mut take = |name: &str| row.remove(name).filter(|value| !value.is_null());
    let list = |value: Option<Value>| value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
    let columns = Columns {
        names: list(take("columns")),
        sensitive: list(take("sensitive")),
        unchanged: take("unchanged").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default(),
    };
    let image = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let (before, after, op) = (image(take("before")), image(take("after")), image(take("op")));
    let key = image(take("key")).and_then(|key| serde_json::from_str::<Value>(&key).ok()).unwrap_or_default();
    let table = take("name").unwrap_or_default();
    let flags = ["is_cut", "has_sensitive_changes"].map(|flag| (flag.to_owned(), take(flag).unwrap_or_default()));
    let (change, columns) = columns.change(op.as_deref(), before.as_deref(), after.as_deref());
    row.extend([
        ("table".to_owned(), table),
        ("key".to_owned(), key),
        ("change".to_owned(), change.into()),
        ("columns".to_owned(), columns.into()),
    ]);
    row.extend(flags.into_iter().filter(|(_, is_set)| *is_set == Value::Bool(true)));
    row
}

/// The columns of a row image.
struct Columns {
    names: Vec<String>,
    /// Those that no image has.
    sensitive: Vec<String>,
    /// The numbers, from 1, of large columns that an update left alone: the image before it is without them.
    unchanged: Vec<usize>,
}

impl Columns {
    fn change(
        &self,
        op: Option<&str>,
        before: Option<&str>,
        after: Option<&str>,
    ) -> (&'static str, Map<String, Value>) {
        match op {
            Some("I") => ("insert", self.present(after)),
            Some("D") => ("delete", self.present(before)),
            _ => ("update", self.changed(before, after)),
        }
    }

    fn values(&self, image: Option<&str>) -> Vec<(&String, Option<String>)> {
        let values = image.map(fields).unwrap_or_default();
        self.names.iter().zip(values).filter(|(name, _)| !self.sensitive.contains(name)).collect()
    }

    fn present(&self, image: Option<&str>) -> Map<String, Value> {
        let values = self.values(image).into_iter();
        values.filter_map(|(name, value)| Some((name.clone(), Value::from(value?)))).collect()
    }

    fn changed(&self, before: Option<&str>, after: Option<&str>) -> Map<String, Value> {
        let is_unchanged = |name: &String| {
            let number = self.names.iter().position(|one| one == name).map(|at| at + 1);
            number.is_some_and(|number| self.unchanged.contains(&number))
        };
        let both = self.values(before).into_iter().zip(self.values(after));
        both.filter(|((name, before), (_, after))| before != after && !is_unchanged(name))
            .map(|((name, before), (_, after))| (name.clone(), json!({"before": before, "after": after})))
            .collect()
    }
}

/// The values of a row image, which is the text of a row as PostgreSQL writes it (manual, section 8.16.6): `(1,"a ""b""",)`.
fn fields(image: &str) -> Vec<Option<String>> {
    let mut fields = Vec::new();
    let inner = image.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
    let mut characters = inner.chars().peekable();
    let (mut field, mut is_quoted, mut inside) = (String::new(), false, false);
    while let Some(character) = characters.next() {
        match character {
            '"' if inside && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => {
                inside = !inside;
                is_quoted = true;
            }
            '\\' if inside => field.extend(characters.next()),
            ',' if !inside => {
                let value = std::mem::take(&mut field);
                fields.push((is_quoted || !value.is_empty()).then_some(value));
                is_quoted = false;
            }
            character => field.push(character),
        }
    }
    fields.push((is_quoted || !field.is_empty()).then_some(field));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_image_has_the_values_of_its_columns() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(fields(r#"(1,"a ""b"" \\ c,d",,"")"#), [text("1"), text(r#"a "b" \ c,d"#), None, text("")]);
        assert_eq!(fields("()"), [None]);
    }

    #[test]
    fn an_update_shows_the_columns_that_changed() {
        let names = ["id", "status", "note", "secret"].map(str::to_owned).to_vec();
        let columns = Columns { names, sensitive: vec!["secret".to_owned()], unchanged: vec![3] };
        let changed = columns.changed(Some("(1,open,,x)"), Some("(1,paid,long,y)"));
        assert_eq!(Value::Object(changed), json!({"status": {"before": "open", "after": "paid"}}));
        assert_eq!(Value::Object(columns.present(Some("(1,open,,)"))), json!({"id": "1", "status": "open"}));
    }
}
