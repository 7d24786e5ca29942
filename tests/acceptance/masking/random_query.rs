//! Random queries on the tables of `fixture.sql`, in which masked columns come up in every place of a query.

use std::fmt::Write as _;

/// A query made of these choices. Without choices, each decision is the simplest one.
pub(super) fn random_query(choices: &[u8]) -> String {
    let mut generator = Generator { choices: choices.iter().copied(), aliases: 0 };
    generator.query(2, &[]).sql
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
}

/// A column that an expression can refer to.
#[derive(Clone)]
struct Column {
    text: String,
    kind: Kind,
    is_masked: bool,
}

struct Query {
    sql: String,
    /// The columns of the result, each under its name.
    columns: Vec<Column>,
}

/// The name of a column, its kind, and whether it is masked.
type TableColumn = (&'static str, Kind, bool);

const TABLES: [(&str, &[TableColumn]); 9] = [
    (
        "shop.customers",
        &[
            ("id", Kind::Int, false),
            ("name", Kind::Text, false),
            ("email", Kind::Text, true),
            ("age", Kind::Int, true),
            ("note", Kind::Text, false),
        ],
    ),
    (
        "shop.orders",
        &[
            ("id", Kind::Int, false),
            ("customer_id", Kind::Int, false),
            ("note", Kind::Text, false),
            ("age", Kind::Int, false),
        ],
    ),
    ("shop.events", &[("id", Kind::Int, false), ("secret", Kind::Text, true), ("kind", Kind::Text, false)]),
    ("shop.events_2", &[("id", Kind::Int, false), ("secret", Kind::Text, true)]),
    ("shop.party", &[("id", Kind::Int, false), ("secret", Kind::Text, true)]),
    (
        "shop.contacts",
        &[
            ("id", Kind::Int, false),
            ("name", Kind::Text, false),
            ("address", Kind::Text, true),
            ("age", Kind::Int, true),
        ],
    ),
    ("shop.barrier", &[("id", Kind::Int, false), ("address", Kind::Text, true)]),
    ("shop.labels", &[("id", Kind::Int, false), ("label", Kind::Text, true)]),
    ("shop.adults", &[("id", Kind::Int, false), ("name", Kind::Text, false)]),
];

struct Generator<I> {
    choices: I,
    aliases: usize,
}

impl<I: Iterator<Item = u8>> Generator<I> {
    fn choose(&mut self, of: usize) -> usize {
        usize::from(self.choices.next().unwrap_or(0)) % of
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.choose(of) == of - 1
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases)
    }

    /// A query of tables, or of other queries; its parts may refer to the columns of `outer`.
    fn query(&mut self, depth: usize, outer: &[Column]) -> Query {
        let mut with = String::new();
        let mut from = Vec::new();
        let mut scope = Vec::new();
        for _ in 0..=self.choose(2) {
            let alias = self.alias();
            let (text, columns) = self.source(depth, outer, &scope, &alias, &mut with);
            from.push(text);
            scope.extend(columns);
        }
        let mut visible = scope.clone();
        visible.extend_from_slice(outer);
        let is_grouped = self.one_in(10);
        let mut columns = Vec::new();
        let mut list = Vec::new();
        for index in 0..=self.choose(3) {
            let name = format!("c{index}");
            let (text, kind, is_masked) = self.result_column(depth, &scope, &visible, is_grouped);
            list.push(format!("{text} as {name}"));
            columns.push(Column { text: name, kind, is_masked });
        }
        let distinct = if self.one_in(9) { "distinct " } else { "" };
        let mut sql = format!("{with}select {distinct}{} from {}", list.join(", "), from.join(", "));
        if self.one_in(2) {
            let condition = self.condition(depth, &visible);
            let _ = write!(sql, " where {condition}");
        }
        if is_grouped {
            let key = self.column(&scope, 12).map_or_else(|| "()".to_owned(), |column| column.text);
            let _ = write!(sql, " group by {key}");
        }
        if self.one_in(12) {
            let other = self.union(&columns);
            let _ = write!(sql, " {other}");
        }
        match self.choose(6) {
            4 => {
                let position = self.choose(columns.len()) + 1;
                let _ = write!(sql, " order by {position}");
            }
            5 => {
                let count = self.int(depth, outer);
                let _ = write!(sql, " offset 0 limit {count}");
            }
            _ => {}
        }
        Query { sql, columns }
    }

    fn source(
        &mut self,
        depth: usize,
        outer: &[Column],
        beside: &[Column],
        alias: &str,
        with: &mut String,
    ) -> (String, Vec<Column>) {
        let named = |columns: Vec<Column>| -> Vec<Column> {
            columns.into_iter().map(|column| Column { text: format!("{alias}.{}", column.text), ..column }).collect()
        };
        match if depth == 0 { 0 } else { self.choose(8) } {
            4 => {
                let inner = self.query(depth - 1, outer);
                (format!("({}) {alias}", inner.sql), named(inner.columns))
            }
            5 => {
                let mut visible = outer.to_vec();
                visible.extend_from_slice(beside);
                let inner = self.query(depth - 1, &visible);
                (format!("lateral ({}) {alias}", inner.sql), named(inner.columns))
            }
            6 if with.is_empty() => {
                let inner = self.query(depth - 1, outer);
                let materialized = ["", "materialized "][self.choose(2)];
                *with = format!("with q{alias} as {materialized}({}) ", inner.sql);
                (format!("q{alias} {alias}"), named(inner.columns))
            }
            7 => {
                let mut visible = outer.to_vec();
                visible.extend_from_slice(beside);
                let (first, second) = (self.text(depth - 1, &visible), self.text(0, &[]));
                let columns = vec![Column { text: "v".to_owned(), kind: Kind::Text, is_masked: true }];
                (format!("lateral (values ({first}), ({second})) {alias} (v)"), named(columns))
            }
            _ => {
                let (table, columns) = TABLES[self.choose(TABLES.len())];
                if self.one_in(10) {
                    // Other names for the first columns of the table.
                    let names =
                        ["x1", "x2"].map(|name| Column { text: name.to_owned(), kind: Kind::Text, is_masked: true });
                    return (format!("{table} as {alias} (x1, x2)"), named(names.to_vec()));
                }
                let columns = columns.iter().map(|(name, kind, is_masked)| Column {
                    text: (*name).to_owned(),
                    kind: *kind,
                    is_masked: *is_masked,
                });
                (format!("{table} {alias}"), named(columns.collect()))
            }
        }
    }

    fn result_column(
        &mut self,
        depth: usize,
        scope: &[Column],
        visible: &[Column],
        is_grouped: bool,
    ) -> (String, Kind, bool) {
        match self.choose(14) {
            11 => {
                let column = self.column(scope, 12).map_or_else(|| "1".to_owned(), |column| column.text);
                (format!("count({column})"), Kind::Int, false)
            }
            12 if !is_grouped => (self.text(depth, visible), Kind::Text, true),
            13 if !is_grouped => (self.int(depth, visible), Kind::Int, true),
            _ => match self.column(scope, 2) {
                Some(column) if is_grouped => (format!("max({})", column.text), Kind::Int, column.is_masked),
                Some(column) => (column.text, column.kind, column.is_masked),
                None => ("1".to_owned(), Kind::Int, false),
            },
        }
    }

    /// A column; a masked one in one of so many cases.
    fn column(&mut self, scope: &[Column], masked_one_in: usize) -> Option<Column> {
        let wants_masked = self.one_in(masked_one_in);
        let fitting: Vec<&Column> = scope.iter().filter(|column| column.is_masked == wants_masked).collect();
        let fitting = if fitting.is_empty() { scope.iter().collect() } else { fitting };
        if fitting.is_empty() {
            return None;
        }
        let index = self.choose(fitting.len());
        Some(fitting[index].clone())
    }

    fn column_of(&mut self, kind: Kind, visible: &[Column]) -> Option<String> {
        let fitting: Vec<Column> = visible.iter().filter(|column| column.kind == kind).cloned().collect();
        self.column(&fitting, 24).map(|column| column.text)
    }

    fn text(&mut self, depth: usize, visible: &[Column]) -> String {
        match if depth == 0 { self.choose(2) } else { self.choose(7) } {
            2 => format!("upper({})", self.text(depth - 1, visible)),
            3 => format!("({} || {})", self.text(depth - 1, visible), self.text(depth - 1, visible)),
            4 => {
                let (condition, value) = (self.condition(depth - 1, visible), self.text(depth - 1, visible));
                format!("case when {condition} then {value} else 'no' end")
            }
            5 => format!("coalesce({}, 'none')", self.text(depth - 1, visible)),
            6 => format!("({}::text)", self.int(depth - 1, visible)),
            1 => "'note 1'".to_owned(),
            _ => self.column_of(Kind::Text, visible).unwrap_or_else(|| "'a'".to_owned()),
        }
    }

    fn int(&mut self, depth: usize, visible: &[Column]) -> String {
        match if depth == 0 { self.choose(2) } else { self.choose(6) } {
            1 => (self.choose(40) + 1).to_string(),
            2 => format!("({} + {})", self.int(depth - 1, visible), self.int(depth - 1, visible)),
            3 => format!("length({})", self.text(depth - 1, visible)),
            4 => {
                let inner = self.query(depth - 1, visible).sql;
                format!("(select count(*)::int from ({inner}) s)")
            }
            5 => format!("least({}, 5)", self.int(depth - 1, visible)),
            _ => self.column_of(Kind::Int, visible).unwrap_or_else(|| "3".to_owned()),
        }
    }

    fn condition(&mut self, depth: usize, visible: &[Column]) -> String {
        match if depth == 0 { self.choose(3) } else { self.choose(8) } {
            1 => format!("{} like 'n%'", self.text(depth, visible)),
            2 => format!("{} = {}", self.int(depth, visible), self.int(depth, visible)),
            3 => format!("({} and {})", self.condition(depth - 1, visible), self.condition(depth - 1, visible)),
            4 => format!("not {}", self.condition(depth - 1, visible)),
            5 => format!("exists ({})", self.query(depth - 1, visible).sql),
            6 | 7 => {
                let value = self.int(depth - 1, visible);
                let alias = self.alias();
                let (source, columns) = self.source(0, &[], &[], &alias, &mut String::new());
                let inner = self.column_of(Kind::Int, &columns).unwrap_or_else(|| "1".to_owned());
                let negated = ["", "not "][self.choose(2)];
                format!("{value} {negated}in (select {inner} from {source})")
            }
            _ => format!("{} < {}", self.int(depth, visible), self.int(depth, visible)),
        }
    }

    /// The rest of a set operation with a query of these columns.
    fn union(&mut self, columns: &[Column]) -> String {
        let operation = ["union all", "union", "intersect", "except"][self.choose(4)];
        let alias = self.alias();
        let (source, scope) = self.source(0, &[], &[], &alias, &mut String::new());
        let mut list = Vec::new();
        for column in columns {
            let fitting = self.column_of(column.kind, &scope);
            list.push(fitting.unwrap_or_else(|| ["1", "'a'"][usize::from(column.kind == Kind::Text)].to_owned()));
        }
        format!("{operation} select {} from {source}", list.join(", "))
    }
}
