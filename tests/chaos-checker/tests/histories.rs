//! Histories that are broken in one place, each found for the right promise: `histories/broken` has them as edits of
//! `histories/whole.jsonl`, which is a part of a real run. And the history of a long run, with what the checker says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed, and says where")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use chaos_checker::{History, Promise, Verdict, judge, report};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("histories")
}

fn whole() -> String {
    std::fs::read_to_string(folder().join("whole.jsonl")).unwrap()
}

/// What each edit breaks.
const BROKEN: [(&str, &[Promise]); 33] = [
    ("added_twice", &[Promise::Once]),
    ("approved_and_forgotten", &[Promise::Approval]),
    ("disagreement", &[Promise::Log]),
    ("done_after_undo", &[Promise::Repeated]),
    ("executed_rejected", &[Promise::Approval]),
    ("executed_too_early", &[Promise::Approval]),
    ("executed_twice", &[Promise::Approval]),
    ("executed_unapproved", &[Promise::Approval]),
    ("in_doubt_and_written", &[Promise::Refused, Promise::Log]),
    ("logged_differently", &[Promise::Log]),
    ("logged_out_of_order", &[Promise::Log]),
    ("lost", &[Promise::Acknowledged]),
    ("lost_addition", &[Promise::Acknowledged]),
    ("lost_row", &[Promise::Acknowledged, Promise::Log]),
    ("marked_only", &[Promise::Undo]),
    ("numbered_out_of_order", &[Promise::Log]),
    ("other_data", &[Promise::Acknowledged, Promise::Repeated]),
    ("posted_twice", &[Promise::Once]),
    ("read_that_wrote", &[Promise::Reads]),
    ("refused_and_there", &[Promise::Refused]),
    ("refused_and_written", &[Promise::Refused]),
    ("still_pending", &[Promise::Log]),
    ("stray_change", &[Promise::Log]),
    ("two_answers", &[Promise::Once, Promise::Repeated]),
    ("unasked_undo", &[Promise::Undo]),
    ("undone_and_there", &[Promise::Undo, Promise::Log]),
    ("undone_too_much", &[Promise::Undo]),
    ("undone_twice", &[Promise::Undo]),
    ("unlogged", &[Promise::Log]),
    ("unrecorded_change", &[Promise::Log]),
    ("unrecorded_row", &[Promise::Log]),
    ("unreported_undo", &[Promise::Undo]),
    ("writing_read_answered", &[Promise::Reads]),
];

/// The history with an edit.
fn edited(name: &str) -> Vec<u8> {
    let mut sed = Command::new("sed");
    sed.arg("-f").arg(folder().join("broken").join(format!("{name}.sed"))).arg(folder().join("whole.jsonl"));
    let output = sed.output().unwrap();
    assert!(output.status.success() && output.stdout != whole().into_bytes(), "{name}: {output:?}");
    output.stdout
}

/// Runs the program on a history.
fn checked(history: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos-checker"));
    let mut child =
        command.arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(history).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_broken_history_is_found_for_the_promise_that_it_breaks() {
    for (name, expected) in BROKEN {
        let history = edited(name);
        let verdicts = judge(&History::read(history.as_slice()).unwrap());
        let is_broken = |promise: &Promise| {
            verdicts.iter().any(|(other, verdict)| other == promise && matches!(verdict, Verdict::Broken { .. }))
        };
        let broken: Vec<Promise> = Promise::ALL.into_iter().filter(is_broken).collect();
        assert_eq!(broken, expected, "{name}: {verdicts:?}");
        assert_eq!(checked(&history).status.code(), Some(1), "{name}");
    }
    let mut files: Vec<_> =
        std::fs::read_dir(folder().join("broken")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let names: Vec<_> = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, BROKEN.map(|(name, _)| name), "each edit is in the table");
    for promise in Promise::ALL {
        assert!(BROKEN.iter().any(|(_, broken)| broken.contains(&promise)), "{promise:?} has no broken history");
    }
}

#[test]
fn the_whole_history_keeps_every_promise() {
    let output = checked(whole().as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("held ")).count(), Promise::ALL.len(), "{said}");
}

#[test]
fn a_history_without_cases_is_not_checked() {
    let whole = whole();
    let header = whole.lines().next().unwrap();
    let output =
        checked(format!("{header}\n{{\"end\":{{\"records\":0,\"strays\":0,\"leaves\":0,\"rows\":0}}}}\n").as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("not checked ")).count(), Promise::ALL.len(), "{said}");
    assert!(!said.contains("held"), "{said}");
}

#[test]
fn a_history_that_ends_early_is_said_to_do_so() {
    // In the middle of a line of the load, and in that of the final state, where rows are missing.
    let whole = whole();
    for lines in [100, 230] {
        let end: usize = whole.split_inclusive('\n').take(lines).map(str::len).sum();
        let output = checked(&whole.as_bytes()[..end + 20]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("ends early, after {lines} lines")), "{said}");
        // Answers alone can be compared.
        assert!(said.contains("held         a repeated call gets the first answer"), "{said}");
        assert_eq!(said.matches("not checked ").count(), Promise::ALL.len() - 1, "{said}");
    }
}

#[test]
fn what_is_no_history_is_refused_with_the_line() {
    let whole = whole();
    let header = whole.lines().next().unwrap();
    let cases = [
        (String::new(), "line 1 is not the header"),
        (whole.replacen("\"format\":1", "\"format\":2", 1), "the format 2"),
        (format!("{header}\n{{\"guess\":1}}\n"), "line 2: unknown variant `guess`"),
        (
            format!("{header}\n{{\"answer\":{{\"op\":7,\"t\":1,\"outcome\":\"lost\"}}}}\n"),
            "line 2 answers no open operation",
        ),
        (whole.replacen("\"leaves\":47", "\"leaves\":48", 1), "line 233: the final state has"),
        (whole.clone() + header + "\n", "line 234 is behind the end"),
    ];
    for (history, reason) in cases {
        let output = checked(history.as_bytes());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(reason), "{reason}: {said}");
    }
}

#[test]
fn the_checker_says_of_the_long_run_what_is_beside_it() {
    let history = History::read(std::fs::File::open(folder().join("long.jsonl.gz")).unwrap()).unwrap();
    let said = report(&history, &judge(&history));
    assert_eq!(said, std::fs::read_to_string(folder().join("long.txt")).unwrap());
    assert_eq!(said.lines().filter(|line| line.starts_with("held ")).count(), Promise::ALL.len(), "{said}");
}
