//! Tables with random names, types and keys: the tools of each work, and their undo restores every table.

use fastrand::Rng;
use serde_json::{Map, Value, json};
use testkit::{database, long_form};

use super::Scaffolded;

/// A type, a value as a literal of SQL, and two values as arguments: of another row, and one that differs from the literal.
type Kind = (&'static str, &'static str, [fn() -> Value; 2]);

const KINDS: [Kind; 12] = [
    ("integer", "1", [|| json!(2), || json!(-3)]),
    ("bigint", "9007199254740993", [|| json!("9007199254740995"), || json!(0)]),
    ("numeric(12,3)", "1.500", [|| json!("2.250"), || json!("-0.001")]),
    ("double precision", "1e300", [|| json!(0.1), || json!(-2.5)]),
    ("text", "'it''s'", [|| json!("\"quoted\" \\ $1"), || json!("")]),
    ("varchar(12)", "'short'", [|| json!("twelve chars"), || json!("é表")]),
    ("boolean", "true", [|| json!(true), || json!(false)]),
    ("date", "'2026-01-31'", [|| json!("1999-12-31"), || json!("0001-01-01")]),
    (
        "timestamptz",
        "'2026-01-31 12:00+00'",
        [|| json!("2026-02-01T00:00:00Z"), || json!("2000-01-01T01:02:03.000004Z")],
    ),
    ("jsonb", "'{\"a\": [1, null]}'", [|| json!({"b": 1.50}), || json!([true])]),
    (
        "uuid",
        "'5a4e3c2b-0000-4000-8000-000000000001'",
        [|| json!("5a4e3c2b-0000-4000-8000-000000000002"), || json!("5a4e3c2b-0000-4000-8000-000000000003")],
    ),
    ("text[]", "'{a,\"b c\"}'", [|| json!(["x", "y\"z"]), || json!([])]),
];

/// Parts of names that need quotes, mean something to SQL, or are long.
const PARTS: [&str; 10] = ["order", "Group", "a b", "select", "naïve", "x.y", "quote\"d", "user", "_1", "tools"];

/// Types that can be in a key here.
fn is_key(kind: &Kind) -> bool {
    !matches!(kind.0, "jsonb" | "double precision" | "boolean")
}

struct Column {
    name: String,
    kind: &'static Kind,
    is_nullable: bool,
}

struct RandomTable {
    name: String,
    key: Vec<Column>,
    others: Vec<Column>,
}

impl RandomTable {
    fn new(rng: &mut Rng, number: usize) -> Self {
        let mut names = 0;
        let mut column = |rng: &mut Rng, in_key: bool| {
            names += 1;
            let kinds: Vec<&Kind> = KINDS.iter().filter(|kind| !in_key || is_key(kind)).collect();
            Column {
                name: format!("{}{names}", PARTS[rng.usize(..PARTS.len())]),
                kind: kinds[rng.usize(..kinds.len())],
                is_nullable: !in_key && rng.bool(),
            }
        };
        let key = (0..rng.usize(1..=3)).map(|_| column(rng, true)).collect();
        let others = (0..rng.usize(1..=6)).map(|_| column(rng, false)).collect();
        Self { name: format!("{} {number}", PARTS[rng.usize(..PARTS.len())]), key, others }
    }

    fn columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().chain(&self.others)
    }

    /// The table, with one row.
    fn sql(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let columns = self.columns().map(|column| {
            let null = if column.is_nullable { "" } else { " not null" };
            format!("{} {}{null}", quoted(&column.name), column.kind.0)
        });
        let key: Vec<String> = self.key.iter().map(|column| quoted(&column.name)).collect();
        let values: Vec<&str> = self.columns().map(|column| column.kind.1).collect();
        format!(
            "create table random.{name} ({}, primary key ({})); insert into random.{name} values ({});",
            columns.collect::<Vec<_>>().join(", "),
            key.join(", "),
            values.join(", "),
            name = quoted(&self.name)
        )
    }
}

/// The names of a tool's arguments, in order.
fn arguments(tools: &[Value], tool: &str) -> Vec<String> {
    let tool = tools.iter().find(|listed| listed["name"] == tool).unwrap_or_else(|| panic!("no {tool}"));
    tool["inputSchema"]["properties"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_random_tables_work_and_their_undo_restores_every_table() {
    let seed = long_form::variable("COUNTERSIGN_SCAFFOLD_SEED").unwrap_or_else(|| Rng::new().u64(..));
    println!("COUNTERSIGN_SCAFFOLD_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let tables: Vec<RandomTable> =
        (0..long_form::choose(6, 24)).map(|number| RandomTable::new(&mut rng, number)).collect();
    let db = database().await;
    db.run("create schema random").await;
    for table in &tables {
        db.run(&table.sql()).await;
    }
    let shop = Scaffolded::edited(&db, "random", |text| text.replace("tier = \"approve\"\n", "")).await;
    let tools = shop.server.client().list_tools().await.unwrap();
    let inserts: Vec<String> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str().filter(|name| name.starts_with("insert_")).map(str::to_owned))
        .collect();
    assert_eq!(inserts.len(), tables.len(), "{inserts:?}");
    for table in &tables {
        // The tools are named after the tables, whose names end with different numbers.
        let number = table.name.rsplit(' ').next().unwrap();
        let insert = inserts.iter().find(|tool| tool.rsplit('_').next() == Some(number)).unwrap();
        let noun = insert.trim_start_matches("insert_");
        let new =
            arguments(&tools, insert).into_iter().zip(table.columns()).map(|(name, column)| (name, column.kind.2[0]()));
        let new: Map<String, Value> = new.collect();
        shop.written_and_undone(insert, Value::Object(new)).await;

        let literals = table.columns().map(|column| format!("to_jsonb({}::{})", column.kind.1, column.kind.0));
        let row = db.value(&format!("select jsonb_build_array({})", literals.collect::<Vec<_>>().join(", "))).await;
        let row: Vec<Value> = serde_json::from_str(&row).unwrap();
        // A number that JavaScript would change is sent as text.
        let sent = |value: Value| match value.as_i64() {
            Some(number) if number.unsigned_abs() >= 1 << 53 => number.to_string().into(),
            _ => value,
        };
        let update = format!("update_{noun}");
        let names = arguments(&tools, &update);
        let key: Map<String, Value> =
            names.iter().cloned().zip(row.into_iter().map(sent)).take(table.key.len()).collect();
        let others = || names.iter().skip(table.key.len()).zip(&table.others);
        let mut changed = key.clone();
        changed.extend(others().map(|(name, column)| (name.clone(), column.kind.2[1]())));
        shop.written_and_undone(&update, Value::Object(changed)).await;
        let nullable: Vec<&String> = others().filter(|(_, column)| column.is_nullable).map(|(name, _)| name).collect();
        if !nullable.is_empty() {
            let mut emptied = key.clone();
            emptied.insert(names[table.columns().count()].clone(), json!(nullable));
            shop.written_and_undone(&update, Value::Object(emptied)).await;
        }
        shop.written_and_undone(&format!("delete_{noun}"), Value::Object(key)).await;
    }
}
