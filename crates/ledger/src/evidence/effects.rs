//! Reads the effects of a write, by table and key, with the columns before and after.

use std::collections::HashMap;

use pg::{PipelineStatement, PooledSession, Session, StatementResult, WriterPool};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::Instant;
use types::{
    CallerContext, Cell, ChangeKind, ColumnEffect, Columns, CorrelationId, EffectCount, Effects, Principal, RowEffect,
};

use crate::evidence::guarded_rows::{GuardedRows, is_guarded};

/// The maximum number of effects in one answer, which also has their total number.
pub(crate) const MAX_SHOWN: u32 = 100;

/// The maximum number of effects that a proposal lists.
pub(crate) const MAX_PROPOSED: u32 = 10_000;

// What is the same for all effects, or for those of one shape, stands in the first of them.
const EFFECTS_SQL: &str = "\
with net as materialized (select * from countersign.net_effects($1)) \
select t.name, e.op::pg_catalog.text, coalesce(e.key_before, e.key), case when e.bytes <= 1048576 or e.place > 100 then e.before end, \
    case when e.bytes <= 1048576 or e.place > 100 then e.after end, e.bytes operator(pg_catalog.>) 1048576 and e.place <= 100, \
    e.op operator(pg_catalog.<>) 'N' and e.secret_before is distinct from e.secret_after, pg_catalog.array_to_json(coalesce(e.unchanged, '{}')), \
    case when e.place_in_shape operator(pg_catalog.=) 1 then pg_catalog.array_to_json(t.columns) end, \
    case when e.place_in_shape operator(pg_catalog.=) 1 then pg_catalog.array_to_json(t.sensitive) end, \
    case when e.place_in_shape operator(pg_catalog.=) 1 then pg_catalog.array_to_json(t.types) end, e.by_trigger, \
    case when e.place operator(pg_catalog.=) 1 then \
    (select pg_catalog.count(*) from net) end, \
    case when e.place operator(pg_catalog.=) 1 then \
    (select pg_catalog.json_agg(pg_catalog.json_build_object('table', n.name, 'change', \
        case when n.op operator(pg_catalog.=) 'I' then 'insert' when n.op operator(pg_catalog.=) 'D' then 'delete' else 'update' end, \
        'by_trigger', n.by_trigger, 'count', n.count) order by n.first) \
     from (select c.shape, ct.name, c.op, c.by_trigger, pg_catalog.count(*) as count, pg_catalog.min(c.position) as first \
           from net c join countersign.tracked ct on ct.shape operator(pg_catalog.=) c.shape \
           where c.op operator(pg_catalog.<>) 'N' \
           group by c.shape, ct.name, c.op, c.by_trigger) n) end, t.shape, \
    case when exists (select from pg_catalog.pg_class r where r.oid operator(pg_catalog.=) t.relation) then pg_catalog.row_security_active(t.relation) end, \
    pg_catalog.array_to_json(coalesce(e.erased, '{}')) \
from (select l.*, pg_catalog.row_number() over (partition by l.shape order by l.position) as place_in_shape \
      from (select f.*, pg_catalog.row_number() over (order by f.position) as place, \
                pg_catalog.sum(coalesce(pg_catalog.octet_length(f.before), 0) operator(pg_catalog.+) \
                coalesce(pg_catalog.octet_length(f.after), 0)) over (order by f.position) as bytes \
            from net f order by f.position limit $2::pg_catalog.int8) l) e \
join countersign.tracked t on t.shape operator(pg_catalog.=) e.shape \
where e.place <= 100 or e.bytes <= 4194304 order by e.position";

/// The effects of a write, one for each row however often it was changed: the first [`MAX_SHOWN`] in the order in which
/// they were made. Beyond 1 MiB of row images, effects have no columns. Those of a proposal beyond the first
/// [`MAX_SHOWN`] end with 4 MiB. `None` if no effects are recorded.
pub(crate) async fn of_write(
    writer: &WriterPool,
    write: CorrelationId,
    deadline: Instant,
) -> Result<Option<Effects>, pg::Error> {
    let outcome = writer.run_one(EFFECTS_SQL, &params(write, MAX_SHOWN), deadline).await?;
    Ok(parse_effects(outcome.rows))
}

/// Like [`of_write`], for the caller: rows that it cannot read now are only counted.
pub(crate) async fn of_write_for(
    writer: &WriterPool,
    write: CorrelationId,
    caller: &Principal,
    deadline: Instant,
) -> Result<Option<Effects>, pg::Error> {
    let outcome = writer.run_one(EFFECTS_SQL, &params(write, MAX_SHOWN), deadline).await?;
    let Some(recorded) = RecordedEffects::parse(outcome.rows, &caller.context) else { return Ok(None) };
    recorded.seen(writer, caller, deadline, Current::After).await.map(Some)
}

/// Which image of an effect has the key that the row has now.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Current {
    /// The effects were made.
    After,
    /// The effects are those of an undo that was not made.
    Before,
}

/// The query for the effects of a write, for use within its own transaction; [`parse_effects`] parses the result.
pub(crate) fn step(params: &[Option<String>]) -> PipelineStatement<'_> {
    PipelineStatement::new(EFFECTS_SQL, params)
}

/// The arguments of [`step`], for at most this number of effects.
pub(crate) fn params(write: CorrelationId, limit: u32) -> [Option<String>; 2] {
    [Some(write.to_string()), Some(limit.to_string())]
}

/// Effects, and which of them are of tables that may hide rows from a caller.
#[derive(Debug)]
pub(crate) struct RecordedEffects {
    pub(crate) effects: Effects,
    guarded: Vec<GuardedEffect>,
}

/// An effect on a row of a table that may hide rows from a caller.
#[derive(Debug)]
struct GuardedEffect {
    /// The index in [`Effects::rows`].
    at: usize,
    shape: String,
    before: Option<String>,
    after: Option<String>,
}

/// Parses the result of [`step`], in the form of [`of_write`].
pub(crate) fn parse_effects(answer: Vec<Vec<Option<String>>>) -> Option<Effects> {
    RecordedEffects::parse(answer, &CallerContext::default()).map(|recorded| recorded.effects)
}

impl RecordedEffects {
    /// Parses the result of [`step`] for a caller with this context.
    pub(crate) fn parse(answer: Vec<Vec<Option<String>>>, caller: &CallerContext) -> Option<Self> {
        let (mut count, mut rows, mut guarded) = (0, Vec::new(), Vec::new());
        let mut shapes: HashMap<String, [Vec<String>; 3]> = HashMap::new();
        let mut by_table: Vec<EffectCount> = Vec::new();
        for row in answer {
            let Ok(
                [
                    table,
                    op,
                    key,
                    before,
                    after,
                    is_cut,
                    is_hidden,
                    unchanged,
                    columns,
                    sensitive,
                    types,
                    by_trigger,
                    all,
                    counts,
                    shape,
                    has_policy,
                    erased,
                ],
            ) = <[Option<String>; 17]>::try_from(row)
            else {
                continue;
            };
            count = all.and_then(|all| all.parse::<u64>().ok()).unwrap_or(count);
            if by_table.is_empty() {
                by_table = list(counts);
            }
            let shape = shape.unwrap_or_default();
            let of_shape = || [columns, sensitive, types].map(list);
            let [columns, sensitive, types] = shapes.entry(shape.clone()).or_insert_with(of_shape).clone();
            if is_guarded(caller, has_policy.as_deref() == Some("t")) {
                let (before, after) = (before.clone(), after.clone());
                guarded.push(GuardedEffect { at: rows.len(), shape, before, after });
            }
            let change = RecordedChange {
                name: table.unwrap_or_default(),
                op: op.unwrap_or_default(),
                key,
                before,
                after,
                has_sensitive_changes: is_hidden.as_deref() == Some("t"),
                unchanged: list(unchanged),
                erased: list(erased),
                columns,
                sensitive,
                types,
            };
            let [is_cut, by_trigger] = [is_cut, by_trigger].map(|flag| flag.as_deref() == Some("t"));
            rows.push(RowEffect { is_cut, by_trigger, ..change.effect() });
        }
        // The rows of a proposal beyond the first ones are stored elsewhere, and may be missing there.
        if count <= rows.len() as u64 && count <= u64::from(MAX_SHOWN) {
            by_table.clear();
        }
        (count > 0).then_some(Self { effects: Effects { count, rows, by_table }, guarded })
    }

    /// Marks the rows that the caller cannot read as the trial leaves them, in the session of the trial.
    pub(crate) async fn mark_after(&mut self, session: &mut Session, caller: &Principal) -> Result<(), pg::Error> {
        let asked = self.asked(|effect| effect.after.as_ref(), ChangeKind::Delete);
        if !asked.is_empty() {
            let params = asked.params(caller);
            let outcomes = session.run(&[GuardedRows::step(&params)]).await.map_err(|failed| failed.error)?;
            self.mark(&asked, outcomes.into_iter().next_back().unwrap_or_default());
        }
        Ok(())
    }

    /// Marks the rows that the caller cannot read as they are without the trial, which is rolled back.
    pub(crate) async fn mark_before(&mut self, lease: &mut PooledSession, caller: &Principal, deadline: Instant) {
        let asked = self.asked(|effect| effect.before.as_ref(), ChangeKind::Insert);
        if !asked.is_empty() {
            let found = asked.read(lease, caller, deadline).await;
            self.mark(&asked, found.unwrap_or_default());
        }
    }

    /// The effects without the rows that the caller cannot read now, such as deleted ones.
    pub(crate) async fn seen(
        mut self,
        writer: &WriterPool,
        caller: &Principal,
        deadline: Instant,
        current: Current,
    ) -> Result<Effects, pg::Error> {
        let asked: GuardedRows = self
            .guarded
            .iter()
            .map(|effect| {
                let (now, other) = match current {
                    Current::After => (&effect.after, &effect.before),
                    Current::Before => (&effect.before, &effect.after),
                };
                (effect.at, effect.shape.clone(), now.clone().or_else(|| other.clone()))
            })
            .collect();
        if !asked.is_empty() {
            let found = asked.read(&mut writer.acquire(deadline).await?, caller, deadline).await?;
            self.mark(&asked, found);
        }
        Ok(self.effects.seen())
    }

    /// The rows on one side of the write; effects of kind `absent` have none there.
    fn asked(&self, image: impl Fn(&GuardedEffect) -> Option<&String>, absent: ChangeKind) -> GuardedRows {
        let is_there =
            |effect: &&GuardedEffect| self.effects.rows.get(effect.at).is_some_and(|row| row.change != absent);
        let row = |effect: &GuardedEffect| (effect.at, effect.shape.clone(), image(effect).cloned());
        self.guarded.iter().filter(is_there).map(row).collect()
    }

    fn mark(&mut self, asked: &GuardedRows, found: StatementResult) {
        let found = asked.images(found);
        for at in asked.ids() {
            if let Some(row) = self.effects.rows.get_mut(at).filter(|_| !found.contains_key(&at)) {
                row.is_unseen = true;
            }
        }
    }
}

fn list<T: DeserializeOwned>(json: Option<String>) -> Vec<T> {
    json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
}

/// The maximum length of a value in a preview, in characters.
const MAX_VALUE_CHARS: usize = 500;

/// Effects for a preview. People read it, so long values are cut and marked.
pub(crate) fn shortened(effects: Effects) -> Effects {
    effects.map(|_, cell| match beginning(cell.stored()) {
        Some(beginning) => Value::from(beginning).into(),
        None => cell,
    })
}

/// The marked beginning of a long text; `None` for every other value.
pub(crate) fn beginning(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| text.chars().count() > MAX_VALUE_CHARS)?;
    Some(text.chars().take(MAX_VALUE_CHARS).chain(['…']).collect())
}

/// Whether this is a [`beginning`]: no other value is as long.
pub(crate) fn is_beginning(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() > MAX_VALUE_CHARS)
}

/// A row of `countersign.effect`, with the name of its table.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedChange {
    name: String,
    op: String,
    key: Option<String>,
    before: Option<String>,
    after: Option<String>,
    has_sensitive_changes: bool,
    /// The numbers, from 1, of large columns that an update did not change. The image before the update omits them.
    unchanged: Vec<usize>,
    /// The numbers, from 1, of the columns that the change set and whose values were erased: `[erased]` in both images.
    erased: Vec<usize>,
    columns: Vec<String>,
    /// The sensitive columns, which no image contains.
    sensitive: Vec<String>,
    /// The types of the columns; empty if nobody needs a label.
    #[serde(default)]
    types: Vec<String>,
}

/// The maximum length of a label, in characters.
const MAX_LABEL_CHARS: usize = 40;

fn is_text(ty: &str) -> bool {
    matches!(ty, "text" | "name" | "bpchar") || ty.starts_with("character") || ty.ends_with("citext")
}

impl RecordedChange {
    /// An image with the key that the row has since.
    pub(crate) fn image(&self) -> Option<&str> {
        self.after.as_deref().or(self.before.as_deref())
    }

    /// The table and the key.
    pub(crate) fn place(&self) -> (String, Option<String>) {
        (self.name.clone(), self.key.clone())
    }

    /// Takes the row as it is now for what the change left.
    pub(crate) fn set_current(&mut self, image: String) {
        if self.after.is_some() {
            self.after = Some(image);
        }
    }

    pub(crate) fn effect(self) -> RowEffect {
        let (change, columns) = match self.op.as_str() {
            "I" => (ChangeKind::Insert, self.present(self.after.as_deref())),
            "D" => (ChangeKind::Delete, self.present(self.before.as_deref())),
            _ => (ChangeKind::Update, self.changed(self.before.as_deref(), self.after.as_deref())),
        };
        // A changed column is shown beside the key anyway.
        let is_shown = |name: &String| change == ChangeKind::Update && columns.contains_key(name);
        let label = self.label().filter(|(name, _)| !is_shown(name));
        RowEffect {
            label,
            key: self.key.and_then(|key| serde_json::from_str(&key).ok()),
            table: self.name,
            change,
            by_trigger: false,
            columns,
            is_cut: false,
            has_sensitive_changes: self.has_sensitive_changes,
            generated: Vec::new(),
            is_unseen: false,
        }
    }

    /// The first text of a row that was there before, unless it is part of the key or sensitive.
    fn label(&self) -> Option<(String, Cell)> {
        let key: Map<String, Value> =
            self.key.as_ref().and_then(|key| serde_json::from_str(key).ok()).unwrap_or_default();
        let is_label = |(_, (name, ty)): &(usize, (&String, &String))| {
            is_text(ty) && !key.contains_key(*name) && !self.sensitive.contains(name)
        };
        let mut columns = self.columns.iter().zip(&self.types).enumerate().filter(is_label).peekable();
        columns.peek().filter(|_| self.op != "I")?;
        let [before, after] = [&self.before, &self.after].map(|image| image.as_deref().map(fields).unwrap_or_default());
        columns.find_map(|(at, (name, _))| {
            let image = if self.unchanged.contains(&(at + 1)) { &after } else { &before };
            let text = image.get(at)?.as_deref().filter(|text| !text.trim().is_empty())?;
            Some((name.clone(), Value::from(types::beginning(text, MAX_LABEL_CHARS)).into()))
        })
    }

    fn values(&self, image: Option<&str>) -> Vec<(&String, Option<String>)> {
        let values = image.map(fields).unwrap_or_default();
        self.columns.iter().zip(values).filter(|(name, _)| !self.sensitive.contains(name)).collect()
    }

    fn present(&self, image: Option<&str>) -> Columns<ColumnEffect> {
        let values = self.values(image).into_iter();
        values
            .filter_map(|(name, value)| Some((name.clone(), ColumnEffect::Whole(Value::from(value?).into()))))
            .collect()
    }

    fn changed(&self, before: Option<&str>, after: Option<&str>) -> Columns<ColumnEffect> {
        let is_in = |numbers: &[usize], name: &String| {
            let number = self.columns.iter().position(|one| one == name).map(|at| at + 1);
            number.is_some_and(|number| numbers.contains(&number))
        };
        let is_changed =
            |name: &String, differs: bool| (differs || is_in(&self.erased, name)) && !is_in(&self.unchanged, name);
        let cell = |value: Option<String>| Value::from(value).into();
        let both = self.values(before).into_iter().zip(self.values(after));
        both.filter(|((name, before), (_, after))| is_changed(name, before != after))
            .map(|((name, before), (_, after))| {
                (name.clone(), ColumnEffect::Changed { before: cell(before), after: cell(after) })
            })
            .collect()
    }
}

/// The values in a row image, the text form of a composite value (PostgreSQL manual, section 8.16.6): `(1,"a
/// ""b""",)`.
pub(crate) fn fields(image: &str) -> Vec<Option<String>> {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_image_has_the_values_of_its_columns() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(fields(r#"(1,"a ""b"" \\ c,d",,"")"#), [text("1"), text(r#"a "b" \ c,d"#), None, text("")]);
        assert_eq!(fields("()"), [None]);
    }

    #[test]
    fn an_update_shows_the_columns_that_changed() {
        let change = |op: &str, before: &str, after: Option<&str>| RecordedChange {
            name: "shop.orders".to_owned(),
            op: op.to_owned(),
            key: Some(r#"{"id": 1}"#.to_owned()),
            before: Some(before.to_owned()),
            after: after.map(str::to_owned),
            has_sensitive_changes: false,
            unchanged: vec![3],
            erased: Vec::new(),
            columns: ["id", "status", "note", "secret"].map(str::to_owned).to_vec(),
            sensitive: vec!["secret".to_owned()],
            types: ["integer", "character varying(9)", "text", "text"].map(str::to_owned).to_vec(),
        };
        let columns = |change: RecordedChange| json!(change.effect().map(|_, cell| cell.stored().clone()).columns);
        let update = change("U", "(1,open,,x)", Some("(1,paid,long,y)"));
        assert_eq!(columns(update), json!({"status": {"before": "open", "after": "paid"}}));
        assert_eq!(columns(change("D", "(1,open,,)", None)), json!({"id": "1", "status": "open"}));
        let label = |op: &str, before: &str, after: Option<&str>| {
            change(op, before, after).effect().label.map(|(name, cell)| (name, cell.stored().clone()))
        };
        assert_eq!(label("U", "(1,open,,x)", Some("(1,open,long,y)")), Some(("status".to_owned(), json!("open"))));
        assert_eq!(label("U", "(1,open,,x)", Some("(1,paid,long,y)")), None, "its change is shown");
        assert_eq!(label("U", "(1,,,x)", Some("(1,paid,long,y)")), Some(("note".to_owned(), json!("long"))));
        assert_eq!(label("D", "(1,,,x)", None), None, "a sensitive column is no label");
    }
}
