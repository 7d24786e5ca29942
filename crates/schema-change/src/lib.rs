//! The text of a schema change: its statements, the steps in which they are carried out, why a text cannot be carried
//! out, and what a linter finds. This crate must not know a database.
//!
//! ```text
//! text       refuses what is too long, too deeply nested for the parser, or hidden from who reads it
//! statement  the statements of the text, and which of them run alone or not at all
//! finding    what `squawk` finds
//! ```
//! PostgreSQL decides what a statement is: each one is sent alone in the extended protocol, which takes one statement.
//! The parser here only says where a person has to look, and which statements cannot run in a transaction.

mod finding;
mod statement;
mod text;

pub use finding::Finding;
pub use statement::{SchemaChangeStep, Statement};
pub use text::{MAX_BYTES, Position, SchemaChangeError};

/// A text that can be carried out as far as its syntax says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChangeText {
    steps: Vec<SchemaChangeStep>,
    findings: Vec<Finding>,
}

impl SchemaChangeText {
    /// Parses a text. It is bounded in time and memory, and takes a stack of its own.
    ///
    /// # Errors
    /// [`SchemaChangeError`]: the first place for which the text cannot be carried out.
    pub fn parse(sql: &str) -> Result<Self, SchemaChangeError> {
        text::check(sql)?;
        text::on_large_stack(|| {
            let parse = squawk_syntax::SourceFile::parse(sql);
            let steps = statement::steps(sql, &parse)?;
            Ok(Self { steps, findings: finding::find(sql) })
        })
    }

    /// The steps, in order.
    #[must_use]
    pub fn steps(&self) -> &[SchemaChangeStep] {
        &self.steps
    }

    /// What the linter finds, in the order of the text.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(sql: &str) -> String {
        SchemaChangeText::parse(sql).unwrap_err().to_string()
    }

    fn shape(sql: &str) -> Vec<(bool, Vec<String>)> {
        let parsed = SchemaChangeText::parse(sql).unwrap();
        let text = |statement: &Statement| statement.sql.clone();
        parsed.steps().iter().map(|step| (step.is_alone, step.statements.iter().map(text).collect())).collect()
    }

    #[test]
    fn statements_in_a_transaction_are_one_step_and_others_are_steps_of_their_own() {
        let sql = "-- the first\nalter table A.\"Bc\" add d int;\ncreate index on a (b);\n\
                   create index concurrently on a (c); vacuum a;\ndrop index concurrently \"Ä\";;\n\
                   alter table p detach partition q concurrently; reindex (concurrently) table a;\n\
                   create function f() returns int begin atomic select 1; select 2; end; comment on table a is ';'";
        assert_eq!(
            shape(sql),
            [
                (false, vec!["alter table A.\"Bc\" add d int;".to_owned(), "create index on a (b);".to_owned()]),
                (true, vec!["create index concurrently on a (c);".to_owned()]),
                (true, vec!["vacuum a;".to_owned()]),
                (true, vec!["drop index concurrently \"Ä\";".to_owned()]),
                (true, vec!["alter table p detach partition q concurrently;".to_owned()]),
                (true, vec!["reindex (concurrently) table a;".to_owned()]),
                (
                    false,
                    vec![
                        "create function f() returns int begin atomic select 1; select 2; end;".to_owned(),
                        "comment on table a is ';'".to_owned()
                    ]
                ),
            ]
        );
        let parsed = SchemaChangeText::parse(sql).unwrap();
        let lines: Vec<u32> = parsed.steps().iter().flat_map(|step| &step.statements).map(|one| one.line).collect();
        assert_eq!(lines, [2, 3, 4, 4, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn a_text_that_cannot_be_carried_out_is_refused_with_its_place() {
        for (sql, place, word) in [
            ("", "line 1, column 1", "no statement"),
            (" -- nothing\n;", "line 1, column 1", "no statement"),
            ("select 1;\ncommit", "line 2, column 1", "transaction"),
            ("begin; select 1; end", "line 1, column 1", "transaction"),
            ("select 1; savepoint a", "line 1, column 11", "transaction"),
            ("copy a from stdin", "line 1, column 1", "COPY"),
            ("prepare x as select 1", "line 1, column 1", "prepared"),
            ("discard all", "line 1, column 1", "prepared"),
            ("select 1;\n\\d orders", "line 2, column 1", "psql"),
            ("create table t (", "line 1, column 17", "syntax"),
            ("select 'a", "line 1, column", "syntax"),
            ("select 1\0", "line 1, column 9", "U+0000"),
            ("select 1 -- \u{202e}\n", "line 1, column 13", "U+202E"),
            ("select\u{1b}[2J 1", "line 1, column 7", "U+001B"),
        ] {
            let said = refused(sql);
            assert!(said.starts_with(place) && said.contains(word), "{sql:?}: {said}");
        }
        assert!(refused(&format!("select '{}'", "x".repeat(MAX_BYTES))).contains("65536"));
    }

    #[test]
    fn no_spelling_changes_the_role() {
        for sql in [
            "set role x",
            "set local role x",
            "set session role 'x'",
            "set role none",
            "reset role",
            "set role to x",
            "set \"role\" = 'x'",
            "set local \"ROLE\" to x",
            "set session \"role\" = default",
            "reset \"role\"",
            "set session authorization x",
            "set local session authorization default",
            "reset session authorization",
            "set session_authorization = 'x'",
            "set \"Session_Authorization\" to x",
            "reset session_authorization",
            "select set_config('role', 'x', true)",
            "select pg_catalog . set_config ( /* this */ 'Role', 'x', false) from a",
            "with a as (select \"set_config\"('session_authorization', 'x', true)) select * from a",
            "insert into a values (set_config('role', 'x', true))",
        ] {
            let said = refused(&format!("select 1;\n{sql}; drop table a"));
            assert!(said.starts_with("line 2, column 1") && said.contains("cannot change the role"), "{sql}: {said}");
        }
        for sql in [
            "set search_path = shop",
            "reset work_mem",
            "set local time zone 'UTC'",
            "select set_config('search_path', 'role', true)",
            "create function f() returns int language sql set role = 'x' as 'select 1'",
        ] {
            SchemaChangeText::parse(sql).unwrap();
        }
    }

    #[test]
    fn statements_about_the_whole_server_are_refused_and_grants_of_objects_are_not() {
        for sql in [
            "alter system set work_mem = '1GB'",
            "create database x",
            "drop database x",
            "alter database x set role = 'y'",
            "alter database x owner to y",
            "alter tablespace x owner to y",
            "create role x superuser",
            "create user x",
            "create group x",
            "alter role x set role = 'y'",
            "alter user x password 'p'",
            "alter group x add user y",
            "drop role if exists x",
            "drop user x",
            "drop group x",
            "grant a to b",
            "grant countersign_approver to countersign_writer with admin option",
            "grant a, b to public granted by c",
            "revoke a from b",
            "revoke admin option for a from b",
            "grant connect on database x to y",
            "revoke create on tablespace x from y",
            "grant set on parameter work_mem to y",
            "reassign owned by x to y",
            "drop owned by x",
            "comment on role x is 'y'",
            "comment on database x is 'y'",
            "comment on tablespace x is 'y'",
        ] {
            let said = refused(sql);
            assert!(said.contains("more than this database"), "{sql}: {said}");
        }
        for sql in [
            "grant select, insert (a) on shop.orders to b with grant option",
            "grant all on all tables in schema shop to b",
            "grant usage on schema shop to b",
            "grant execute on function f(int) to b",
            "revoke all on shop.orders from public",
            "alter default privileges in schema shop grant select on tables to b",
            "comment on table a is 'role x'",
            "create policy p on a to b using (true)",
            "alter table a owner to b",
        ] {
            SchemaChangeText::parse(sql).unwrap();
        }
    }

    #[test]
    fn the_steps_show_the_whole_text_with_its_comments() {
        let sql = "-- why\ncreate table a (b int); -- of a\n\n/* before\n   the index */\ncreate index on a (b);\n\
                   create index concurrently on a (b); -- after it\n-- the end\n";
        let parsed = SchemaChangeText::parse(sql).unwrap();
        let shown: Vec<&str> = parsed.steps().iter().map(|step| step.source.as_str()).collect();
        assert_eq!(shown.concat(), sql);
        assert!(shown[0].contains("of a") && shown[0].ends_with("create index on a (b);"), "{shown:?}");
        assert!(shown[1].ends_with("-- after it\n-- the end\n"), "{shown:?}");
        assert!(parsed.steps().iter().all(|step| !step.sql().contains("--")), "comments do not run");
    }

    #[test]
    fn a_name_that_may_look_like_another_one_is_found() {
        let sql = "select 1;\ndrop table x.s\u{441}; -- p\u{430}yment";
        let found: Vec<Finding> = SchemaChangeText::parse(sql).unwrap().findings().to_vec();
        let found: Vec<&Finding> = found.iter().filter(|one| one.rule == "mixed-scripts").collect();
        let message = "\"s\\u{441}\" mixes Latin and Cyrillic letters in one word; it may look like another name.";
        assert_eq!((found.len(), found[0].line, found[0].message.as_str()), (2, 2, message));
    }

    #[test]
    fn text_that_would_exhaust_the_parser_is_refused() {
        for part in ["(", "not ", "- ", "a[", "(select ", "array[", "- not ", "+ -- x\n"] {
            let said = refused(&format!("select {}1", part.repeat((MAX_BYTES - 8) / part.len())));
            assert!(said.contains("nested"), "{part}: {said}");
        }
        for part in
            ["case when ", "explain ", "create schema a ", "cast(", "interval ", "prepare p as ", "begin atomic "]
        {
            let said = refused(&part.repeat(MAX_BYTES / part.len()));
            assert!(said.contains("line 1"), "{part}: {said}");
        }
    }

    #[test]
    fn a_linter_finds_what_a_comment_of_the_text_would_silence() {
        let sql = "-- squawk-ignore ban-drop-column\nalter table a\n  drop column b; /* squawk-ignore-file */\n\
                   alter table a add foreign key (c) references d (e);";
        let found: Vec<(String, u32)> = SchemaChangeText::parse(sql)
            .unwrap()
            .findings()
            .iter()
            .map(|finding| (finding.rule.clone(), finding.line))
            .collect();
        assert!(found.contains(&("ban-drop-column".to_owned(), 3)), "{found:?}");
        assert!(found.contains(&("adding-foreign-key-constraint".to_owned(), 4)), "{found:?}");
    }
}
