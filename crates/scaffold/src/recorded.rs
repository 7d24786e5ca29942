//! Tools for statements that agents have executed several times with `execute_sql`. Statements that differ in
//! literals and parameters only are one tool, whose parameters are what has differed.

use std::collections::{BTreeMap, HashMap};

use read::ConnectOptions;
use serde::Deserialize;
use types::{Tier, visible};

use crate::columns::Param;
use crate::discover::{CatalogReader, DiscoverError};
use crate::names::{Names, noun};
use crate::shape::Shape;
use crate::statement::{StatementToken, TokenKind, statement_tokens};
use crate::tools::{ExpectedRows, Tool};
use crate::write::Scaffold;

/// The newest first, since the oldest are left out if there are too many.
const RECORDS: &str = "\
select r.params ->> 'sql' as sql, coalesce(r.rows_affected, 0) as rows_affected from countersign.record r \
where r.tool_name = 'execute_sql' and r.status = 'success' order by r.completed_at desc, r.id desc";

const HEAD: &str = "\
# Written by `countersign scaffold --from-records` from statements that agents have executed with
# execute_sql. Edit it: give tools and arguments the names of your business, and limit the values.
";

/// The maximum length of a statement in a list of what is left out, in characters.
const MAX_SHOWN: usize = 120;

#[derive(Debug, Deserialize)]
struct Execution {
    sql: String,
    rows_affected: i64,
}

/// The statements that were executed often enough, as tools.
#[derive(Debug, Default)]
pub struct RecordedTools {
    /// With names that may occur several times.
    tools: Vec<Tool>,
    left_out: Vec<String>,
}

/// Reads the records of `execute_sql`, and makes a tool of each statement that was executed `at_least` so many times.
pub async fn from_records(target: &ConnectOptions, at_least: usize) -> Result<RecordedTools, DiscoverError> {
    let executions: Vec<Execution> = CatalogReader::new(target).rows(RECORDS, &[]).await?;
    Ok(RecordedTools::new(&executions, at_least))
}

impl RecordedTools {
    fn new(executions: &[Execution], at_least: usize) -> Self {
        let mut same: BTreeMap<Vec<String>, Vec<(&Execution, Vec<StatementToken<'_>>)>> = BTreeMap::new();
        for execution in executions {
            if let Some(tokens) = statement_tokens(&execution.sql) {
                let normalized = tokens.iter().map(StatementToken::normalized).collect();
                same.entry(normalized).or_default().push((execution, tokens));
            }
        }
        let mut often: Vec<_> = same.into_values().filter(|executions| executions.len() >= at_least).collect();
        // The sort is stable: the result is the same in each run.
        often.sort_by_key(|executions| std::cmp::Reverse(executions.len()));
        let mut made = Self::default();
        for executions in often {
            match tool(&executions) {
                Ok(tool) => made.tools.push(tool),
                Err(why) => made.left_out.extend(executions.first().map(|(first, _)| left_out(&first.sql, why))),
            }
        }
        made
    }

    /// Leaves out tools of the [`manifest`](Self::manifest) that do not fit the database: the name of each, and the
    /// reason.
    pub fn leave_out(&mut self, unfit: &BTreeMap<String, String>) {
        let named = self.named();
        let left = &mut self.left_out;
        self.tools = std::mem::take(&mut self.tools)
            .into_iter()
            .zip(&named)
            .filter_map(|(tool, named)| match unfit.get(&named.name) {
                Some(why) => {
                    left.push(left_out(&named.sql, why));
                    None
                }
                None => Some(tool),
            })
            .collect();
    }

    #[must_use]
    pub fn manifest(&self) -> Scaffold {
        Scaffold::new(HEAD, "from_records", &self.named(), Vec::new(), self.left_out.clone())
    }

    /// The tools. Those that do the same with the same table are numbered.
    fn named(&self) -> Vec<Tool> {
        let mut names = Names::default();
        self.tools.iter().map(|tool| Tool { name: names.tool(&tool.name), ..tool.clone() }).collect()
    }
}

fn left_out(sql: &str, why: &str) -> String {
    let words: String = sql.split(char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let end = if words.chars().count() > MAX_SHOWN { " .." } else { "" };
    let shown: String = words.chars().take(MAX_SHOWN).collect();
    format!("{}{end}: {}", visible(&shown), visible(why))
}

/// The tool for statements that differ in slots only.
fn tool(executions: &[(&Execution, Vec<StatementToken<'_>>)]) -> Result<Tool, &'static str> {
    let (_, tokens) = executions.first().ok_or("never executed")?;
    let shape = Shape::of(tokens).ok_or(
        "only an INSERT without ON CONFLICT, an UPDATE without FROM and a DELETE without USING become a tool, without WITH",
    )?;
    let mut numbers = Numbers::default();
    // The query for the rows before takes the first parameters, so that it has all up to its last one.
    let order = shape.condition.clone().chain(0..shape.condition.start).chain(shape.condition.end..tokens.len());
    for at in order.filter(|at| tokens.get(*at).is_some_and(StatementToken::is_slot)) {
        numbers.add(at, executions);
    }
    let mut of_params = Names::of_params();
    let params = numbers.first_slots.iter().map(|at| {
        let column = shape.column_of(tokens, *at).unwrap_or_else(|| "value".to_owned());
        let name = of_params.param(&column);
        let description = format!("The {}.", visible(&column.replace('_', " ")));
        Param::required(name, description, crate::constraint::Rules::default())
    });
    let params: Vec<Param> = params.collect();
    let print = |range: std::ops::Range<usize>| printed(tokens, range, &numbers.by_slot);
    let table = print(shape.table.clone());
    let mut sql = print(0..tokens.len());
    if !shape.returns {
        sql.push_str(" returning 1 as changed");
    }
    if sql.chars().any(is_hidden) {
        return Err("it has hidden characters");
    }
    let counts = || executions.iter().map(|(execution, _)| execution.rows_affected);
    let rows = match counts().all(|rows| rows == 1) {
        true => ExpectedRows::One,
        false => ExpectedRows::AtMost(counts().max().unwrap_or_default().clamp(1, MAX_ROWS)),
    };
    let changes_rows = shape.verb != "insert";
    let description = vec![
        format!("{} as agents have done {} times:", shape.summary(&visible(&table)), executions.len()),
        visible(&sql),
    ];
    Ok(Tool {
        name: format!("{}_{}", shape.verb, noun(&shape.noun(tokens))),
        description,
        tier: Tier::Confirm,
        is_destructive: changes_rows,
        before: changes_rows.then(|| {
            let condition = print(shape.condition.clone());
            format!("select * from {} {condition}{}for update", print(shape.target.clone()), gap(&condition))
        }),
        not_found: (changes_rows && rows == ExpectedRows::One).then(|| "No row matches.".to_owned()),
        sql,
        rows,
        irreversible: None,
        params,
    })
}

/// The most rows that a manifest lets a write change.
const MAX_ROWS: i64 = 10_000;

fn gap(text: &str) -> &'static str {
    if text.is_empty() { "" } else { " " }
}

/// Whether a reader of the manifest would not see the character as it is. Line breaks become spaces outside of
/// literals.
fn is_hidden(c: char) -> bool {
    !matches!(c, '\n' | '\t' | '\r') && visible(c.encode_utf8(&mut [0; 4])) != c.to_string()
}

/// The tokens of a range, with the numbers of parameters in the slots that have one.
fn printed(tokens: &[StatementToken<'_>], range: std::ops::Range<usize>, numbers: &HashMap<usize, usize>) -> String {
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate().take(range.end).skip(range.start) {
        if token.is_apart && !text.is_empty() {
            text.push(' ');
        }
        match numbers.get(&at) {
            Some(number) => text.push_str(&format!("${number}")),
            None => text.push_str(token.text),
        }
    }
    text
}

/// The numbers of parameters.
#[derive(Default)]
struct Numbers {
    /// By the slot.
    by_slot: HashMap<usize, usize>,
    /// The first slot of each parameter.
    first_slots: Vec<usize>,
    /// The numbers of slots that every execution has filled from one parameter.
    by_given: HashMap<Vec<usize>, usize>,
}

impl Numbers {
    /// Gives a slot a number, unless it is the same literal in all executions.
    fn add(&mut self, at: usize, executions: &[(&Execution, Vec<StatementToken<'_>>)]) {
        let fillings: Vec<_> = executions.iter().filter_map(|(_, tokens)| tokens.get(at)).collect();
        let given: Option<Vec<usize>> = fillings
            .iter()
            .map(|token| match token.kind {
                TokenKind::Parameter(number) => Some(number),
                _ => None,
            })
            .collect();
        let is_constant = given.is_none() && fillings.windows(2).all(|pair| matches!(pair, [a, b] if a.text == b.text));
        if is_constant {
            return;
        }
        let next = self.first_slots.len() + 1;
        let number = given.map_or(next, |given| *self.by_given.entry(given).or_insert(next));
        if number == next {
            self.first_slots.push(at);
        }
        self.by_slot.insert(at, number);
    }
}
