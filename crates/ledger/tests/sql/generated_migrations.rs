//! Migrations between a write and its undo.

use crate::generated_tables::Tables;

impl Tables {
    /// A migration of one table: its kind, and a statement that PostgreSQL may refuse.
    pub(crate) fn migration(&mut self, off: &[(&str, &str)]) -> Option<(&'static str, String)> {
        let table = self.random.usize(..self.tables.len());
        let (name, s) = (self.tables[table].name.clone(), self.space.clone());
        let of = self.random.usize(..self.tables[table].columns.len());
        let column = self.tables[table].columns[of].0.clone();
        let number = self.random.u32(..);
        let (kind, sql) = match self.random.u8(..16) {
            0 | 1 => ("new column", format!("alter table {name} add column new_{number} text")),
            2 => (
                "new column with default",
                format!("alter table {name} add column new_{number} text not null default 'new'"),
            ),
            3 => (
                "new column with volatile default",
                format!("alter table {name} add column new_{number} timestamptz not null default clock_timestamp()"),
            ),
            4 => (
                "new generated column",
                format!("alter table {name} add column new_{number} text generated always as ('n' || n) stored"),
            ),
            5 => ("dropped column", format!("alter table {name} drop column {column}")),
            6 => ("renamed column", format!("alter table {name} rename column {column} to renamed_{number}")),
            7 => ("wider text", format!("alter table {name} alter column {column} type text")),
            8 => ("wider number", format!("alter table {name} alter column n type bigint")),
            9 => ("index", format!("create index on {name} (n)")),
            10 => ("unique index", format!("create unique index on {name} (n, id, \"Part\")")),
            11 => ("constraint", format!("alter table {name} add check (n is null or n < 1000)")),
            12 => ("label", format!("alter type {s}.mood add value 'new {number}' before 'sad'")),
            13 => ("renamed table", format!("alter table {name} rename to renamed_{number}")),
            14 => ("new trigger", {
                format!(
                    "alter table {name} add column if not exists updated_at timestamptz default now();
                     create function {s}.late_{number}() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
                     create trigger late_{number} before update on {name} for each row execute function {s}.late_{number}()"
                )
            }),
            _ => ("tracked again", format!("select countersign.track('{name}')")),
        };
        if off.iter().any(|(other, _)| *other == kind) {
            return None;
        }
        // Functions of triggers would look for what is called otherwise now, and nothing would work any more.
        let is_named =
            self.features.iter().any(|name| !["stamp", "version", "login", "lower", "derived"].contains(name));
        let is_own = !["c", "\"C"].iter().any(|start| column.starts_with(start));
        let is_last = self.tables[table].columns.len() == 1;
        if kind == "dropped column" && is_last
            || kind == "renamed table" && is_named
            || is_own && ["dropped column", "renamed column"].contains(&kind)
        {
            return None;
        }
        // Only where the old text is a value of the new type without loss.
        if kind == "wider text" && !self.tables[table].columns[of].1.starts_with("varchar") {
            return None;
        }
        Some((kind, sql))
    }

    /// After a migration that PostgreSQL took.
    pub(crate) fn migrated(&mut self, sql: &str) {
        let s = self.space.clone();
        for table in &mut self.tables {
            let head = format!("alter table {} ", table.name);
            let Some(rest) = sql.strip_prefix(&head) else { continue };
            if let Some(to) = rest.strip_prefix("rename to ") {
                table.name = format!("{s}.{to}");
            } else if let Some(gone) = rest.strip_prefix("drop column ") {
                table.columns.retain(|(name, ..)| name != gone);
            } else if let Some((from, to)) =
                rest.strip_prefix("rename column ").and_then(|rest| rest.split_once(" to "))
            {
                for (name, ..) in table.columns.iter_mut().filter(|(name, ..)| name == from) {
                    to.clone_into(name);
                }
            }
        }
    }
}
