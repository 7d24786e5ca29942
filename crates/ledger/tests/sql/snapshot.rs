//! Every row of a database, or of one of its schemas, in a form that outlives a migration: columns by number, rows by key.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;

use crate::support::run;

/// What lists the rows. Of each: table, column numbers, columns of the key, name, how it is tracked, image.
pub(crate) const FUNCTION: &str = r#"create schema law;
create function law.state(spaces text[]) returns table (line text) language plpgsql set search_path = pg_catalog as $$
declare
    t record;
begin
    for t in
        select c.oid, c.oid::regclass as leaf, r.root, format('%I.%I', n.nspname, o.relname) as name, k.is_log,
               case when k.shape is null then '' when k.is_log then 'log' else 'rows' end as tracking, k.maintained,
               (select array_agg(p.attnum order by a.attnum) from pg_attribute a
                join pg_attribute p on p.attrelid = r.root and p.attname = a.attname
                where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as numbers,
               array(select p.attnum from unnest(k.key_columns) u join pg_attribute p on p.attrelid = r.root and p.attname = u) as keys,
               array(select p.attnum from pg_attribute p where p.attrelid = r.root and p.attnum > 0 and p.attgenerated <> '') as computed,
               (select json_object_agg(p.attnum, p.attname) from pg_attribute p
                where p.attrelid = r.root and p.attnum > 0 and not p.attisdropped) as columns
        from pg_class c
        cross join lateral (select coalesce(pg_partition_root(c.oid)::oid, c.oid) as root) r
        join pg_class o on o.oid = r.root join pg_namespace n on n.oid = o.relnamespace
        left join countersign.tracked k on k.relation = r.root and k.is_current
        where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname !~ '^(pg_|information_schema|countersign|law)'
          and (spaces is null or n.nspname = any (spaces))
        order by 3, 1
    loop
        return query execute format('select %L || textin(record_out(t)) from only %s t',
            json_build_object('table', t.root::int, 'name', t.name, 'tracking', t.tracking, 'maintained', t.maintained,
                'numbers', t.numbers, 'keys', t.keys, 'computed', t.computed, 'columns', t.columns)::text || E'\n', t.leaf);
    end loop;
end $$"#;

/// The number of a column and the text of its value.
pub(crate) type Row = BTreeMap<i16, Option<String>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    None,
    Rows,
    Log,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) tracking: Tracking,
    pub(crate) maintained: BTreeSet<String>,
    pub(crate) columns: BTreeMap<i16, String>,
    /// Generated columns.
    pub(crate) computed: Vec<i16>,
    keys: Vec<i16>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// A table that a state does not have, or that has no row in it.
    pub(crate) const fn empty() -> Self {
        Self {
            name: String::new(),
            tracking: Tracking::None,
            maintained: BTreeSet::new(),
            columns: BTreeMap::new(),
            computed: Vec::new(),
            keys: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Rows by key; by all of their columns where the table has no key.
    pub(crate) fn by_key(&self) -> BTreeMap<Vec<Option<String>>, &Row> {
        self.rows.iter().map(|row| (self.key_of(row), row)).collect()
    }

    fn key_of(&self, row: &Row) -> Vec<Option<String>> {
        if self.keys.is_empty() {
            return row.values().cloned().collect();
        }
        self.keys.iter().map(|number| row.get(number).cloned().flatten()).collect()
    }

    /// How often each row is there.
    pub(crate) fn counted(&self) -> BTreeMap<&Row, usize> {
        self.rows.iter().fold(BTreeMap::new(), |mut counted, row| {
            *counted.entry(row).or_default() += 1;
            counted
        })
    }

    pub(crate) fn column(&self, number: i16) -> &str {
        self.columns.get(&number).map_or("a dropped column", String::as_str)
    }
}

/// The tables that have rows, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot(pub(crate) BTreeMap<i64, Table>);

impl Snapshot {
    /// All tables; or those of a schema.
    pub(crate) async fn take(session: &Client, space: Option<&str>) -> Self {
        let spaces = space.map_or_else(|| "null".to_owned(), |space| format!("array['{space}']"));
        let mut tables = BTreeMap::<i64, Table>::new();
        for line in run(session, &format!("select line from law.state({spaces})")).await.unwrap() {
            let (head, image) = line.split_once('\n').unwrap();
            let head: serde_json::Value = serde_json::from_str(head).unwrap();
            let numbers = |name: &str| -> Vec<i16> { serde_json::from_value(head[name].clone()).unwrap_or_default() };
            let row = numbers("numbers").into_iter().zip(fields(image)).collect();
            let table = tables.entry(head["table"].as_i64().unwrap()).or_insert_with(|| Table {
                name: head["name"].as_str().unwrap().to_owned(),
                tracking: match head["tracking"].as_str().unwrap() {
                    "rows" => Tracking::Rows,
                    "log" => Tracking::Log,
                    _ => Tracking::None,
                },
                maintained: serde_json::from_value(head["maintained"].clone()).unwrap_or_default(),
                columns: serde_json::from_value(head["columns"].clone()).unwrap(),
                computed: numbers("computed"),
                keys: numbers("keys"),
                rows: Vec::new(),
            });
            table.rows.push(row);
        }
        Self(tables)
    }

    /// The differences in words; none where they are the same.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let numbers: BTreeSet<i64> = self.0.keys().chain(other.0.keys()).copied().collect();
        for number in numbers {
            let (here, there) = (self.0.get(&number), other.0.get(&number));
            let name = here.or(there).map_or("", |table| &table.name);
            let here = here.map(Table::counted).unwrap_or_default();
            let there = there.map(Table::counted).unwrap_or_default();
            let missing = there.iter().filter(|(row, times)| here.get(*row).unwrap_or(&0) < times);
            let extra = here.iter().filter(|(row, times)| there.get(*row).unwrap_or(&0) < times);
            all.extend(missing.map(|(row, _)| format!("{name} has lost {}", words(row))));
            all.extend(extra.map(|(row, _)| format!("{name} has also {}", words(row))));
        }
        all
    }
}

pub(crate) fn words(row: &Row) -> String {
    let values: Vec<&str> = row.values().map(|value| value.as_deref().unwrap_or("null")).collect();
    format!("({})", values.join(", "))
}

/// The fields of the text of a row.
fn fields(image: &str) -> Vec<Option<String>> {
    let mut all = Vec::new();
    let mut characters = image[1..].chars().peekable();
    let (mut field, mut is_quoted, mut is_null) = (String::new(), false, true);
    while let Some(character) = characters.next() {
        match character {
            '\\' => field.extend(characters.next()),
            '"' if is_quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => (is_quoted, is_null) = (!is_quoted, false),
            ',' | ')' if !is_quoted => {
                all.push((!is_null).then(|| std::mem::take(&mut field)));
                is_null = true;
            }
            other => {
                field.push(other);
                is_null = false;
            }
        }
    }
    all
}

#[test]
fn fields_of_an_image_are_read_as_postgresql_writes_them() {
    let wanted = [Some("1"), None, Some(""), Some("a \"b\", \\c)"), Some("x")].map(|value| value.map(str::to_owned));
    assert_eq!(fields(r#"(1,,"","a ""b"", \\c)",x)"#), wanted);
}
