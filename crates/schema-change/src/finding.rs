//! What `squawk` finds in a text, and words that may look like others.

use serde::Serialize;
use squawk_lexer::{TokenKind, tokenize};
use squawk_linter::{Linter, Rule};
use squawk_syntax::SourceFile;
use types::mixed_words;

use crate::text::Position;

/// The maximum number of findings.
const MAX_FINDINGS: usize = 100;

/// The rule about words that mix scripts: a table's name with one Cyrillic letter looks like that of another table.
const MIXED_SCRIPTS: &str = "mixed-scripts";

/// Something that the linter advises against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the rule, as squawk's documentation has it, or `mixed-scripts`.
    pub rule: String,
    /// The line, from 1.
    pub line: u32,
    pub message: String,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Rules about what countersign does itself: time limits, transactions, and going on after a failure.
const OWN: [Rule; 6] = [
    Rule::RequireLockTimeout,
    Rule::RequireStatementTimeout,
    Rule::PreferRobustStmts,
    Rule::TransactionNesting,
    Rule::BanUncommittedTransaction,
    Rule::BanConcurrentIndexCreationInTransaction,
];

pub(crate) fn find(sql: &str) -> Vec<Finding> {
    let mixed = sql.lines().zip(1..).flat_map(|(text, line)| {
        mixed_words(text).map(move |word| Finding {
            rule: MIXED_SCRIPTS.to_owned(),
            line,
            message: format!(
                "\"{}\" mixes {} in one word; it may look like another name.",
                word.escaped(),
                word.letters()
            ),
            help: None,
        })
    });
    let without_comments = blank_comments(sql);
    let parse = SourceFile::parse(&without_comments);
    let mut linter = Linter::with_rules(&[], &OWN);
    let linted = linter.lint(&parse, &without_comments).into_iter().map(|violation| Finding {
        rule: violation.code.to_string(),
        line: Position::of(sql, usize::from(violation.text_range.start())).line,
        message: violation.message,
        help: violation.help,
    });
    mixed.chain(linted).take(MAX_FINDINGS).collect()
}

/// The text with spaces instead of comments: a comment of the text could turn rules off.
fn blank_comments(sql: &str) -> String {
    let (mut out, mut offset) = (String::with_capacity(sql.len()), 0);
    for token in tokenize(sql) {
        let end = offset + usize::try_from(token.len).unwrap_or_default();
        let text = sql.get(offset..end).unwrap_or_default();
        offset = end;
        match token.kind {
            TokenKind::LineComment | TokenKind::BlockComment { .. } => {
                out.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            }
            _ => out.push_str(text),
        }
    }
    out
}
