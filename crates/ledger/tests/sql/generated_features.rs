//! What ordinary databases have beside tables: triggers of each kind, history, counters, hidden rows, tables that are not tracked.

use crate::generated_tables::{Style, Table, Tables};

type Feature = fn(&mut Tables, usize, &str);

/// Each with its name, how often ordinary databases have it, and what makes it: for a table, with a name for what it makes.
const FEATURES: &[(&str, u8, Feature)] = &[
    ("stamp", 8, Tables::stamp),
    ("version", 3, Tables::version),
    ("login", 2, Tables::login),
    ("lower", 2, Tables::lower),
    ("derived", 1, Tables::derived),
    ("guard", 1, Tables::guard),
    ("history", 3, Tables::history),
    ("counter", 2, Tables::counter),
    ("soft delete", 1, Tables::soft_delete),
    ("profile", 2, Tables::profile),
    ("mirror", 1, Tables::mirror),
    ("redirect", 1, Tables::redirect),
    ("untracked child", 2, Tables::untracked_child),
    ("deleting trigger", 1, Tables::deleting_trigger),
    ("default of a group", 2, Tables::default_of_a_group),
    ("bookings", 1, Tables::bookings),
    ("heir", 1, Tables::heir),
    ("policy", 1, Tables::policy),
    ("sideways", 1, Tables::sideways),
    ("statement trigger", 1, Tables::statement_trigger),
    ("deferred trigger", 1, Tables::deferred_trigger),
    ("identity", 1, Tables::identity),
    ("cycle", 1, Tables::cycle),
    ("track option", 1, Tables::track_option),
    ("old rows", 1, Tables::old_rows),
    ("old domain", 1, Tables::old_domain),
    ("asking check", 1, Tables::asking_check),
    ("sum", 1, Tables::sum),
    ("moving parent", 1, Tables::moving_parent),
    ("fills and empties", 1, Tables::fills_and_empties),
];

const ROW_TRIGGER: &str = "for each row execute function";

impl Tables {
    /// One at most in an ordinary database, several in a wild one.
    pub(crate) fn add_features(&mut self, off: &[(&str, &str)]) {
        let number = match self.style {
            Style::Plain => 0,
            Style::Ordinary => usize::from(!self.chance(5)),
            Style::Wild => self.random.usize(1..=4),
        };
        let bag: Vec<usize> = FEATURES
            .iter()
            .enumerate()
            .filter(|(_, (name, ..))| off.iter().all(|(other, _)| other != name))
            .flat_map(|(place, (_, weight, _))| {
                vec![place; if self.style == Style::Wild { 1 } else { usize::from(*weight) }]
            })
            .collect();
        for place in 0..number {
            if bag.is_empty() {
                return;
            }
            let (name, _, make) = FEATURES[self.one(&bag)];
            let table = self.random.usize(..self.tables.len());
            self.features.insert(name);
            make(self, table, &format!("{}_{place}", name.replace(' ', "_")));
        }
    }

    fn name(&self, table: usize) -> String {
        self.tables[table].name.clone()
    }

    fn has_key(&self, table: usize) -> bool {
        self.tables[table].key == "id"
    }

    /// A function for a trigger.
    fn function(&mut self, name: &str, body: &str) -> String {
        let function = format!("{}.{name}", self.space);
        self.make(format!("create function {function}() returns trigger language plpgsql as $$ begin {body} end $$"));
        function
    }

    fn column(&mut self, table: usize, name: &str, kind: &str, rest: &str, values: &'static [&'static str]) {
        let of = self.name(table);
        self.make(format!("alter table {of} add column if not exists {name} {kind} {rest}"));
        if !values.is_empty() && self.tables[table].columns.iter().all(|(other, ..)| other != name) {
            self.tables[table].columns.push((name.to_owned(), kind.to_owned(), values));
        }
    }

    fn trigger(&mut self, name: &str, when: &str, table: usize, rest: &str, function: &str) {
        let of = self.name(table);
        self.make(format!("create trigger {name} {when} on {of} {rest} {function}()"));
    }

    /// How another table is tracked: as rows, as a log, or not.
    fn track(&mut self, table: &str, ways: &[&str]) -> bool {
        let way = self.one(ways);
        if way != "not" {
            self.tracked.push(format!("'{table}'{way}"));
        }
        way != "not"
    }

    fn before(&mut self, name: &str, table: usize, body: &str) {
        let function = self.function(name, &format!("{body}; return new;"));
        let sorted = self.one(&["a", "!a", "~z", "touch", "Touch Me"]);
        let (events, condition) = self.one(&[
            ("update", ""),
            ("update", ""),
            ("update", "when (old.* is distinct from new.*)"),
            ("insert or update", ""),
            ("update of n", ""),
        ]);
        let rest = format!("for each row {condition} execute function");
        self.trigger(&format!("\"{sorted} {name}\""), &format!("before {events}"), table, &rest, &function);
    }

    fn stamp(&mut self, table: usize, name: &str) {
        let default = self.one(&["not null default now()", "", "not null default 'epoch'"]);
        // Some writes set it themselves.
        let values: &[&str] = if self.chance(6) { &["2026-01-01 00:00:00+00", "epoch"] } else { &[] };
        self.column(table, "updated_at", "timestamptz", default, values);
        let clock = self.one(&["now()", "clock_timestamp()", "statement_timestamp()"]);
        self.before(name, table, &format!("new.updated_at := {clock}"));
    }

    fn version(&mut self, table: usize, name: &str) {
        self.column(table, "version", "int", "not null default 1", &[]);
        self.before(name, table, "new.version := coalesce(new.version, 0) + 1");
    }

    fn login(&mut self, table: usize, name: &str) {
        self.column(table, "modified_by", "text", "", &[]);
        let value = self.one(&[
            "current_user",
            "session_user || ' ' || clock_timestamp()",
            "current_setting('countersign.account_id', true)",
        ]);
        self.before(name, table, &format!("new.modified_by := {value}"));
    }

    fn lower(&mut self, table: usize, name: &str) {
        let default = self.one(&["", "default 'Old@X'"]);
        self.column(table, "mail", "text", default, &["Ab@X", "cd@y", "EF@z"]);
        self.before(name, table, "new.mail := lower(new.mail)");
    }

    fn derived(&mut self, table: usize, name: &str) {
        self.column(table, "derived", "text", "", &[]);
        self.before(name, table, "new.derived := 'n is ' || new.n");
    }

    fn guard(&mut self, table: usize, name: &str) {
        self.column(table, "state", "text", "default 'open'", &["open", "closed", "draft"]);
        let (when, condition) = self.one(&[
            ("update", "old.state = 'closed'"),
            ("update or delete", "old.state = 'closed'"),
            ("delete", "old.n > 10"),
            ("update", "new.n < old.n"),
        ]);
        let function = self.function(name, "raise exception 'the guard stops this';");
        let rest = format!("for each row when ({condition}) execute function");
        self.trigger(name, &format!("before {when}"), table, &rest, &function);
    }

    fn history(&mut self, table: usize, name: &str) {
        let of = format!("{}.{name}", self.space);
        self.make(format!(
            "create table {of} (id int generated always as identity primary key, what text, n int, at timestamptz default clock_timestamp())"
        ));
        self.track(&of, &["", ", is_log => true", "not"]);
        let function = self.function(
            &format!("write_{name}"),
            &format!("insert into {of} (what, n) values (tg_op, case when tg_op = 'INSERT' then new.n else old.n end); return null;"),
        );
        let when = self.one(&["after insert or update or delete", "after update or delete", "after update"]);
        self.trigger(name, when, table, ROW_TRIGGER, &function);
        self.outside.push(format!("insert into {of} (what) values ('by hand')"));
    }

    fn counter(&mut self, table: usize, name: &str) {
        let of = format!("{}.{name}", self.space);
        self.make(format!("create table {of} (part int primary key, total bigint not null default 0, updated_at timestamptz default now())"));
        self.make(format!("insert into {of} (part) values (1), (2), (3)"));
        if self.chance(3) {
            let stamp = self.function(&format!("stamp_{name}"), "new.updated_at := clock_timestamp(); return new;");
            self.make(format!("create trigger stamp before update on {of} for each row execute function {stamp}()"));
        }
        self.track(&of, &["", "", "not"]);
        let function = self.function(
            &format!("keep_{name}"),
            &format!(
                "if tg_op <> 'INSERT' then update {of} set total = total - 1 where part = old.\"Part\"; end if;
                 if tg_op <> 'DELETE' then update {of} set total = total + 1 where part = new.\"Part\"; end if; return null;"
            ),
        );
        let when = self.one(&[
            "after insert or delete",
            "after insert or update or delete",
            "after insert or delete or update of \"Part\"",
        ]);
        self.trigger(name, when, table, ROW_TRIGGER, &function);
        self.outside.push(format!("update {of} set total = total + 100 where part = 2"));
    }

    fn soft_delete(&mut self, table: usize, name: &str) {
        self.column(table, "deleted_at", "timestamptz", "", &[]);
        let of = self.name(table);
        let clock = self.one(&["now()", "clock_timestamp()"]);
        let function = self.function(
            name,
            &format!(
                "update {of} set deleted_at = {clock} where id = old.id and \"Part\" = old.\"Part\"; return null;"
            ),
        );
        self.trigger(name, "before delete", table, ROW_TRIGGER, &function);
    }

    fn profile(&mut self, table: usize, name: &str) {
        if !self.has_key(table) {
            return self.stamp(table, name);
        }
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        let refers = self
            .one(&["references T (id) on delete cascade on update cascade", "references T (id)", ""])
            .replace('T', &of);
        self.make(format!(
            "create table {made} (id int primary key {refers}, \"Part\" int not null default 1, n int, bio text default '')"
        ));
        self.make(format!("insert into {made} (id, n) select id, 5 from {of}"));
        let function = self.function(
            &format!("make_{name}"),
            &format!("insert into {made} (id, n) values (new.id, new.n) on conflict do nothing; return null;"),
        );
        self.trigger(name, "after insert", table, ROW_TRIGGER, &function);
        if self.track(&made, &["", "", "", "not"]) {
            let columns = vec![("bio".to_owned(), "text".to_owned(), &["hello", "I'm \"x\""][..])];
            self.tables.push(Table { name: made, key: "id", is_always: false, is_partitioned: false, columns });
        }
    }

    fn mirror(&mut self, table: usize, name: &str) {
        let made = format!("{}.{name}", self.space);
        self.make(format!("create table {made} (id int, part int, n int, primary key (id, part))"));
        self.track(&made, &["", "", "not"]);
        let body = self.one(&[
            "if tg_op <> 'INSERT' then delete from M where id = old.id and part = old.\"Part\"; end if;
             if tg_op <> 'DELETE' then insert into M values (new.id, new.\"Part\", new.n); end if; return null;",
            "if tg_op = 'INSERT' then insert into M values (new.id, new.\"Part\", new.n);
             elsif tg_op = 'UPDATE' then update M set n = new.n, id = new.id, part = new.\"Part\" where id = old.id and part = old.\"Part\";
             else delete from M where id = old.id and part = old.\"Part\"; end if; return null;",
        ]);
        let of = self.name(table);
        self.make(format!("insert into {made} select id, \"Part\", n from {of}"));
        let function = self.function(&format!("copy_{name}"), &body.replace('M', &made));
        self.trigger(name, "after insert or update or delete", table, ROW_TRIGGER, &function);
    }

    fn redirect(&mut self, table: usize, name: &str) {
        let (of, door) = (self.name(table), format!("{}.{name}", self.space));
        self.make(format!("create table {door} (id int primary key, \"Part\" int not null default 1, n int)"));
        let overriding = if self.tables[table].is_always { "overriding system value" } else { "" };
        let function = self.function(
            &format!("go_{name}"),
            &format!("insert into {of} (id, \"Part\", n) {overriding} values (new.id, new.\"Part\", new.n) on conflict do nothing; return null;"),
        );
        self.make(format!("create trigger {name} before insert on {door} {ROW_TRIGGER} {function}()"));
        self.track(&door, &["", "not"]);
        for id in [3, 14, 21] {
            self.statements.push(format!("insert into {door} values ({id}, 1, {id})"));
        }
    }

    fn untracked_child(&mut self, table: usize, name: &str) {
        if !self.has_key(table) {
            return self.deleting_trigger(table, name);
        }
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        let action = self.one(&[
            "on delete cascade",
            "on delete cascade on update cascade",
            "on delete set null",
            "on delete set null on update set null",
            "",
            "on delete set default",
        ]);
        self.make(format!(
            "create table {made} (id int generated by default as identity primary key, up int references {of} (id) {action}, note text)"
        ));
        self.make(format!("insert into {made} (up, note) select id, 'first' from {of} where id % 2 = 0"));
        for condition in ["true", "id > 5", "id % 2 = 1"] {
            self.outside.push(format!("insert into {made} (up, note) select id, 'later' from {of} where {condition}"));
        }
        self.statements.push(format!("insert into {made} (note) values ('by a tool')"));
    }

    fn deleting_trigger(&mut self, table: usize, name: &str) {
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        self.make(format!("create table {made} (up int, note text)"));
        self.make(format!("insert into {made} select g, 'note' from generate_series(1, 4) g"));
        let (when, result) = self.one(&[("before delete", "old"), ("after delete", "null")]);
        let function =
            self.function(&format!("clean_{name}"), &format!("delete from {made} where up = old.id; return {result};"));
        self.trigger(name, when, table, ROW_TRIGGER, &function);
        self.outside.push(format!("insert into {made} select id, 'later' from {of}"));
    }

    fn default_of_a_group(&mut self, table: usize, name: &str) {
        let of = self.name(table);
        self.column(table, "is_default", "boolean", "not null default false", &[]);
        let place = if self.tables[table].is_partitioned { "id, \"Part\"" } else { "\"Part\"" };
        self.make(format!("create unique index {name} on {of} ({place}) where is_default"));
        self.make(format!("update {of} set is_default = true where id = (select min(id) from {of})"));
        for number in ["1", "2", "(select max(id) from T)"] {
            let number = number.replace('T', &of);
            self.statements.push(format!(
                "update {of} set is_default = false where is_default; update {of} set is_default = true where id = {number}"
            ));
        }
        self.statements.push(format!(
            "update {of} set is_default = id = (select max(id) from {of} where not is_default) where \"Part\" = 1"
        ));
    }

    fn bookings(&mut self, table: usize, name: &str) {
        if self.tables[table].is_partitioned {
            return self.default_of_a_group(table, name);
        }
        let of = self.name(table);
        self.column(table, "during", "int4range", "", &["[1,5)", "[3,8)", "[5,9)", "[20,30)", "empty"]);
        self.make(format!("alter table {of} add constraint {name} exclude using gist (during with &&)"));
        self.make(format!("update {of} set during = int4range(id::int * 100, id::int * 100 + 50)"));
        self.statements.push(format!(
            "update {of} set during = '[1,2)' where id = 1; update {of} set during = '[100,150)' where id = 2; update {of} set during = '[200,250)' where id = 1"
        ));
    }

    fn heir(&mut self, table: usize, name: &str) {
        if self.tables[table].is_partitioned {
            return self.history(table, name);
        }
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        self.make(format!("create table {made} () inherits ({of})"));
        self.make(format!("insert into {made} (id, n) {} select g, g from generate_series(1, 14) g", ""));
        self.make(format!("alter table {made} add primary key (id)"));
        self.track(&made, &["not", "not", ""]);
        self.statements.push(format!("update only {of} set n = 77 where id < 4"));
        self.statements.push(format!("delete from only {of} where id in (1, 5)"));
    }

    fn policy(&mut self, table: usize, name: &str) {
        let of = self.name(table);
        let condition = self.one(&["\"Part\" <> 3", "n is distinct from 5", "true"]);
        self.make(format!("alter table {of} enable row level security"));
        self.make(format!("create policy {name} on {of} using ({condition})"));
    }

    fn sideways(&mut self, table: usize, name: &str) {
        let of = self.name(table);
        self.column(table, "touched", "int", "not null default 0", &[]);
        let function = self.function(
            &format!("next_{name}"),
            &format!("if pg_trigger_depth() < 2 then update {of} set touched = touched + 1 where id = new.id % 5 + 1; end if; return null;"),
        );
        let when = self.one(&["after update of n", "after insert", "after insert or update"]);
        self.trigger(name, when, table, ROW_TRIGGER, &function);
    }

    fn statement_trigger(&mut self, table: usize, name: &str) {
        let made = format!("{}.{name}", self.space);
        self.make(format!("create table {made} (what text, at timestamptz default clock_timestamp())"));
        let function =
            self.function(&format!("say_{name}"), &format!("insert into {made} (what) values (tg_op); return null;"));
        let when = self.one(&["after insert or update or delete", "before update", "after delete"]);
        self.trigger(name, when, table, "for each statement execute function", &function);
    }

    fn deferred_trigger(&mut self, table: usize, name: &str) {
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        self.make(format!("create table {made} (one int primary key, total bigint)"));
        self.make(format!("insert into {made} values (1, 0)"));
        self.track(&made, &["", "", "not"]);
        let function = self.function(
            &format!("sum_{name}"),
            &format!("update {made} set total = (select sum(n) from {of}) where total is distinct from (select sum(n) from {of}); return null;"),
        );
        self.make(format!(
            "create constraint trigger {name} after insert or update or delete on {of} deferrable initially deferred for each row execute function {function}()"
        ));
    }

    fn identity(&mut self, table: usize, name: &str) {
        let of = self.name(table);
        if self.tables[table].is_partitioned || self.tables[table].is_always {
            return self.history(table, name);
        }
        self.make(format!("alter table {of} add column no int generated always as identity"));
        self.statements.push(format!("update {of} set no = default where id < 4"));
    }

    fn cycle(&mut self, table: usize, _name: &str) {
        let keyed: Vec<usize> = (0..self.tables.len()).filter(|other| self.has_key(*other)).collect();
        if !self.has_key(table) || keyed.is_empty() {
            return;
        }
        let (one, other) = (self.name(table), self.one(&keyed));
        let two = self.name(other);
        self.make(format!("alter table {one} add column buddy int references {two} (id)"));
        self.make(format!("alter table {two} add column friend int references {one} (id)"));
        self.tables[table].columns.push(("buddy".to_owned(), "int".to_owned(), &[]));
        self.tables[other].columns.push(("friend".to_owned(), "int".to_owned(), &[]));
        if !self.tables[table].is_always && !self.tables[other].is_always {
            self.statements.push(format!(
                "insert into {one} (id) values (51) on conflict do nothing; insert into {two} (id, friend) values (52, 51); update {one} set buddy = 52 where id = 51"
            ));
        }
        self.statements.push(format!(
            "update {one} set buddy = null; update {two} set friend = null; delete from {one} where id > 3"
        ));
    }

    fn track_option(&mut self, table: usize, _name: &str) {
        let (column, ..) = self.tables[table].columns[0].clone();
        let option = self.one(&["maintained", "sensitive"]);
        let quoted = format!("'{}'", self.name(table));
        let column = column.trim_matches('"').to_owned();
        if let Some(tracked) = self.tracked.iter_mut().find(|tracked| **tracked == quoted) {
            tracked.push_str(&format!(", {option} => array['{column}']"));
        }
    }

    fn old_rows(&mut self, table: usize, name: &str) {
        let of = self.name(table);
        self.make(format!("alter table {of} add constraint {name} check (n is null or n < 30) not valid"));
    }

    /// R-6 (a).
    fn old_domain(&mut self, table: usize, name: &str) {
        let domain = format!("{}.{name}", self.space);
        self.make(format!("create domain {domain} as int"));
        let (of, is_array) = (self.name(table), self.chance(3));
        let (kind, value) = if is_array { (format!("{domain}[]"), "'{55}'") } else { (domain.clone(), "55") };
        self.column(table, "bounded", &kind, "", if is_array { &["{1}", "{2,3}"] } else { &["1", "7"] });
        self.make(format!("update {of} set bounded = {value} where id < 5"));
        self.make(format!("alter domain {domain} add constraint {name}_small check (value < 30) not valid"));
    }

    /// R-6 (b).
    fn asking_check(&mut self, table: usize, name: &str) {
        let (of, limit) = (self.name(table), format!("{}.{name}", self.space));
        self.make(format!("create table {limit} (most int)"));
        self.make(format!("insert into {limit} values (1000000)"));
        self.make(format!(
            "create function {limit}_holds(int) returns boolean language sql stable as $$ select coalesce($1 <= max(most), true) from {limit} $$"
        ));
        self.make(format!("alter table {of} add constraint {name} check ({limit}_holds(n))"));
        self.make(format!("update {limit} set most = 20"));
        self.outside.push(format!("update {limit} set most = 10"));
    }

    ///
    fn sum(&mut self, table: usize, name: &str) {
        self.column(table, "balance", "bigint", "not null default 100", &[]);
        self.before(name, table, "new.balance := new.balance + coalesce(new.n, 0)");
    }

    ///
    fn moving_parent(&mut self, _table: usize, name: &str) {
        let (up, down) = (format!("{}.{name}_up", self.space), format!("{}.{name}_down", self.space));
        self.make(format!("create table {up} (a int primary key) partition by list (a)"));
        for part in 1..=4 {
            self.make(format!("create table {up}{part} partition of {up} for values in ({part})"));
        }
        let key = self.one(&["a int primary key", "id int generated by default as identity primary key, a int"]);
        self.make(format!("create table {down} ({key} references {up} (a) on update cascade on delete cascade)"));
        self.make(format!("insert into {up} values (1), (3)"));
        self.make(format!("insert into {down} (a) values (1), (3)"));
        for of in [up.clone(), down] {
            self.track(&of, &[""]);
        }
        for change in ["update T set a = a + 1", "update T set a = 5 - a", "delete from T where a = 3"] {
            self.statements.push(change.replace('T', &up));
        }
    }

    ///
    fn fills_and_empties(&mut self, table: usize, name: &str) {
        let (of, made) = (self.name(table), format!("{}.{name}", self.space));
        self.column(table, "saved", "date", "", &["2026-01-01", "2026-02-02"]);
        self.make(format!(
            "create table {made} (id int generated always as identity primary key, up int, saved date not null)"
        ));
        let function = self.function(
            &format!("keep_{name}"),
            &format!(
                "if new.saved is not null then insert into {made} (up, saved) values (new.id, new.saved);
                 else delete from {made} where up = new.id; end if; return null;"
            ),
        );
        self.trigger(name, "after insert or update", table, ROW_TRIGGER, &function);
        self.track(&made, &["", "", ", is_log => true", "not"]);
        self.statements.push(format!("update {of} set saved = null where id < 4"));
    }
}
