//! The command line by itself. That this file exists makes `cargo test --workspace` build the binary, which the
//! acceptance tests then run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

fn countersign(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_countersign")).args(arguments).output().unwrap()
}

#[test]
fn without_a_command_it_prints_its_help() {
    let output = countersign(&[]);
    let help = String::from_utf8(output.stderr).unwrap();
    for command in ["demo", "serve", "init", "check"] {
        assert!(help.contains(&format!("  {command}")), "{help}");
    }
}

#[test]
fn an_unknown_option_is_named_and_exits_with_2() {
    let output = countersign(&["serve", "--databse-url", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--databse-url"));
}

#[test]
fn an_unknown_profile_is_named_with_those_that_exist() {
    let output = countersign(&["serve", "--profile", "root"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("minimal, readonly, write, admin"));
}

#[test]
fn an_invalid_log_filter_is_named() {
    let output = countersign(&["check", "--log", "pg=loud=very"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("log (--log, COUNTERSIGN_LOG) is \"pg=loud=very\""));
}
