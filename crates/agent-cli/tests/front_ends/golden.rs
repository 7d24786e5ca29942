//! Whole sessions over an executor that is not PostgreSQL, line by line: `> ` is sent, `< ` is what must come next,
//! `# ` says what for. `UPDATE_GOLDEN=1` writes what came into the place of what is expected (as many lines as there
//! are).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use countersign_agent_cli::error::EventErrorCode;
use serde_json::Value;

use crate::harness::{Pipe, in_time, settled};

const NAMES: [&str; 4] = ["queries", "failures", "commands", "transactions"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.jsonl"))
}

async fn check(name: &str) {
    let path = path(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut pipe = Pipe::start(&["--log", "query.sql_error"]);
    let mut came = String::new();
    for line in text.lines() {
        if let Some(sent) = line.strip_prefix("> ") {
            pipe.send(sent).await;
        }
        if line.starts_with('<') {
            let event = in_time(pipe.output.next_line()).await.unwrap().expect("an event");
            came.push_str(&format!("< {}\n", settled(&event)));
        } else {
            came.push_str(&format!("{line}\n"));
        }
    }
    let (left, code, _) = pipe.finish().await;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, came).unwrap();
    } else {
        for (number, (came, expected)) in came.lines().zip(text.lines()).enumerate() {
            assert_eq!(came, expected, "{name}.jsonl, line {}", number + 1);
        }
    }
    assert_eq!((left, code), (if text.contains("\"code\":\"close\"}") { vec![] } else { vec!["close".to_owned()] }, 0));
}

#[tokio::test]
async fn queries_and_their_results() {
    check("queries").await;
}

#[tokio::test]
async fn each_failure_has_its_golden_output() {
    check("failures").await;
}

#[tokio::test]
async fn the_configuration_and_the_other_commands() {
    check("commands").await;
}

#[tokio::test]
async fn transactions() {
    check("transactions").await;
}

/// The events of all these sessions.
fn events() -> Vec<Value> {
    let texts = NAMES.map(|name| std::fs::read_to_string(path(name)).unwrap());
    let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("< "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_failure_has_a_code_for_programs_and_every_code_is_reached() {
    let mut reached = BTreeSet::new();
    for event in events() {
        match event["code"].as_str().unwrap() {
            "error" => {
                reached.insert(event["error_code"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned());
            }
            "sql_error" => assert_eq!(event["sqlstate"].as_str().map(str::len), Some(5), "{event}"),
            _ => {}
        }
    }
    let word = |code: EventErrorCode| serde_json::to_value(code).unwrap().as_str().unwrap().to_owned();
    assert_eq!(reached, BTreeSet::from(EventErrorCode::ALL.map(word)));
}

/// What a number is, is the end of its name; these say it themselves.
const UNITS: [&str; 6] = ["_ms", "_s", "_bytes", "_rows", "_count", "_total"];
const NUMBERS: [&str; 2] = ["in_flight", "port"];

fn says_what_it_is(key: &str, value: &Value, event: &Value) {
    match value {
        // Rows are the caller's own.
        _ if key == "rows" => {}
        Value::Object(fields) => fields.iter().for_each(|(key, value)| says_what_it_is(key, value, event)),
        Value::Array(values) => values.iter().for_each(|value| says_what_it_is(key, value, event)),
        Value::Number(_) => {
            let has_unit = UNITS.iter().any(|unit| key.ends_with(unit)) || NUMBERS.contains(&key);
            assert!(has_unit, "{key} does not say what it counts: {event}");
        }
        Value::String(text) => assert_eq!(text == "***", key.ends_with("_secret"), "{key}: {event}"),
        Value::Null | Value::Bool(_) => {}
    }
}

#[test]
fn every_numeric_key_names_its_unit_and_every_secret_is_marked() {
    let events = events();
    events.iter().for_each(|event| says_what_it_is("", event, event));
    let all: String = events.iter().map(Value::to_string).collect();
    for key in ["duration_ms", "payload_bytes", "uptime_s", "dsn_secret", "password_secret"] {
        assert!(all.contains(&format!("\"{key}\":")), "{key}");
    }
}
