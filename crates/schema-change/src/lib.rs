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
            ("set role x; select 1", "line 1, column 1", "role"),
            ("set session authorization x", "line 1, column 1", "role"),
            ("reset role", "line 1, column 1", "role"),
            ("copy a from stdin", "line 1, column 1", "COPY"),
            ("alter system set work_mem = '1GB'", "line 1, column 1", "database"),
            ("create database x", "line 1, column 1", "database"),
            ("drop database x", "line 1, column 1", "database"),
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
