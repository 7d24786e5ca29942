//! What holds for any line of input. The property tests below and the fuzz target (`fuzz/fuzz_targets/line.rs`) share it.

use countersign_agent_cli::events::Event;
use countersign_agent_cli::output::Output;
use countersign_agent_cli::request::{Command, MAX_NAME_BYTES, MAX_PARAMS, MAX_SQL_BYTES, parse};
use serde_json::Value;

/// A line gives a command, which says what the line says, or one error, which is one line itself.
pub(crate) fn holds(line: &[u8]) {
    match parse(line) {
        Ok(command) => is_what_the_line_says(&command, &serde_json::from_slice(line).unwrap()),
        Err(rejected) => {
            assert!(!rejected.problem.message.is_empty() && !rejected.problem.retryable);
            assert!(rejected.id.as_ref().is_none_or(|id| id.len() <= MAX_NAME_BYTES));
            let id = rejected.id.clone();
            let event = Output::Json.render(&Event::error(rejected.id, rejected.problem, 0));
            let (end, text) = event.split_last().unwrap();
            assert!(*end == b'\n' && !text.contains(&b'\n'));
            assert_eq!(serde_json::from_slice::<Value>(text).unwrap()["id"].as_str(), id.as_deref());
        }
    }
}

fn is_what_the_line_says(command: &Command, line: &Value) {
    let (code, id) = match command {
        Command::Query(query) => {
            assert_eq!(line["sql"], query.sql.as_str());
            assert!(query.sql.len() <= MAX_SQL_BYTES && !query.sql.contains('\0'));
            assert_eq!(
                line.get("params").cloned().unwrap_or_else(|| Value::Array(Vec::new())),
                Value::from(query.params.clone())
            );
            assert!(query.params.len() <= MAX_PARAMS);
            assert_eq!(line["session"].as_str(), query.session.as_deref());
            assert_eq!(line["options"]["read_only"].as_bool(), query.options.read_only);
            ("query", Some(&query.id))
        }
        Command::Cancel { id } => ("cancel", Some(id)),
        Command::Config(_) => ("config", None),
        Command::Ping => ("ping", None),
        Command::Close => ("close", None),
        Command::Begin { id, begin, .. } => {
            assert_eq!(line["options"]["read_only"].as_bool().unwrap_or(true), begin.read_only);
            ("begin", Some(id))
        }
        Command::Commit { id, .. } => ("commit", Some(id)),
        Command::Rollback { id, .. } => ("rollback", Some(id)),
    };
    assert_eq!(line["code"], code);
    assert_eq!(line["id"].as_str(), id.map(String::as_str));
    assert!(id.is_none_or(|id| (1..=MAX_NAME_BYTES).contains(&id.len())));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of every kind, to be mutated.
    const LINES: [&str; 6] = [
        r#"{"code":"query","id":"q1","session":"s","sql":"select $1","params":[1,"a",{"k":[null]}],"options":{"read_only":true}}"#,
        r#"{"code":"config","default_session":"s","sessions":{"s":{"host":"h","port":1}},"log":["all"]}"#,
        r#"{"code":"begin","id":"t","options":{"transaction_timeout_ms":5}}"#,
        r#"{"code":"cancel","id":"q1"}"#,
        r#"{"code":"ping"}"#,
        r#"{"code":"commit","id":"\u00e9\n"}"#,
    ];

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(2000))]

        #[test]
        fn any_line_of_bytes_gives_a_command_or_one_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            holds(&bytes);
        }

        #[test]
        fn a_line_with_a_piece_changed_gives_a_command_or_one_error(
            line in 0..LINES.len(), at in 0..100_usize, drop in 0..6_usize, piece in proptest::collection::vec(proptest::num::u8::ANY, 0..4),
        ) {
            let mut bytes = LINES[line].as_bytes().to_vec();
            let at = at.min(bytes.len());
            bytes.splice(at..(at + drop).min(bytes.len()), piece);
            holds(&bytes);
        }
    }

    /// The seeds of the fuzz target, and what it has found before.
    #[test]
    fn the_seeds_of_the_fuzz_target_pass() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/line");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            holds(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= LINES.len(), "{count}");
    }
}
