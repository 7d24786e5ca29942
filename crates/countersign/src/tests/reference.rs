//! The pages of `docs/reference` that follow from this crate and from `types`: configuration, command line, errors.
//!
//! `UPDATE_GOLDEN=1 cargo test -p countersign reference` writes them. The pages of metrics and tools need a running server:
//! `metrics/documented.rs` and `tool_list.rs` of `tests/acceptance`.

use std::collections::HashMap;

use clap::{Arg, CommandFactory};
use serde_json::Value;
use testkit::{assert_page, wrapped};
use types::ErrorCode;

use crate::commands::cli::Cli;
use crate::commands::cli::help::MOST_USED;

const SCHEMA: &str = include_str!("../../../../countersign.schema.json");
/// The settings of every command that uses the database.
const CONNECTION: [&str; 7] = [
    "database-url",
    "database-url-file",
    "pooler",
    "password-command",
    "password-lifetime-s",
    "ssh-tunnel",
    "connect-timeout-ms",
];
/// The bytes above which an option is described at the first of its commands only.
const LONG_OPTION: usize = 250;
const ERROR_CODES: &str = include_str!("../../../types/src/error_code.rs");

/// The commands that can be run, with their full names.
fn runnable(command: &clap::Command, above: &str) -> Vec<(String, clap::Command)> {
    let name = format!("{above}{}", command.get_name());
    let mut found = Vec::new();
    if !command.has_subcommands() || command.get_positionals().next().is_some() {
        found.push((name.clone(), command.clone()));
    }
    let below = command.get_subcommands().filter(|one| one.get_name() != "help");
    found.extend(below.flat_map(|one| runnable(one, &format!("{name} "))));
    found
}

/// The text with a full stop, which clap takes off.
fn sentence(text: &str) -> String {
    let text = linked(text.trim_end());
    if text.ends_with(['.', ':']) { text } else { format!("{text}.") }
}

fn command_line() -> clap::Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

/// The arguments of `serve` and `console` with a variable: every setting, by the key of the configuration file.
fn settings() -> HashMap<String, Arg> {
    let cli = command_line();
    let of = |name: &str| cli.find_subcommand(name).unwrap().get_arguments();
    let of_console = of("console").filter(|argument| argument.get_id().as_str().starts_with("console_"));
    let settings = of("serve").filter(|argument| argument.get_env().is_some()).chain(of_console);
    settings.map(|argument| (argument.get_id().to_string(), argument.clone())).collect()
}

/// `1 to 300`, `one of text, json`, `a list of texts`; nothing for a text.
fn values(schema: &Value) -> String {
    let words = |list: &[Value]| {
        list.iter()
            .filter_map(|one| one.get("const").unwrap_or(one).as_str())
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(list) = schema.get("oneOf").or_else(|| schema.get("enum")).and_then(Value::as_array) {
        return format!("one of {}", words(list));
    }
    let number = || format!("{} to {}", schema["minimum"], schema["maximum"]);
    if schema["type"] == serde_json::json!(["integer", "string"]) {
        return format!("{}, or a time", number());
    }
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        return forms.iter().map(values).collect::<Vec<_>>().join(", or ");
    }
    match schema["type"].as_str().unwrap() {
        "integer" => number(),
        "boolean" => "true or false".to_owned(),
        "array" if schema["items"]["type"] == "string" && schema["items"].get("enum").is_none() => "a list".to_owned(),
        "array" => format!("a list, each {}", values(&schema["items"])),
        "object" => "a table of texts".to_owned(),
        "string" => String::new(),
        other => panic!("{other}"),
    }
}

/// The flag of a setting, and the variable if its name does not follow from the flag.
fn names(argument: &Arg) -> String {
    let flag = argument.get_long().unwrap();
    let variable = argument.get_env().unwrap().to_str().unwrap();
    if variable == format!("COUNTERSIGN_{}", flag.replace('-', "_").to_ascii_uppercase()) {
        return format!("`--{flag}`");
    }
    format!("`--{flag}`, `{variable}`")
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_ascii_uppercase().to_string() + rest.as_str()).unwrap_or_default()
}

/// The keys of a table of the file. The ids of its flags begin with `prefix`.
fn keys(table: &Value, flags: Option<&HashMap<String, Arg>>, prefix: &str) -> String {
    let mut page = String::new();
    for (key, schema) in table["properties"].as_object().unwrap() {
        if schema.get("properties").is_some()
            || schema.get("patternProperties").is_some()
            || schema["items"].get("properties").is_some()
        {
            continue;
        }
        let given = flags.and_then(|flags| flags.get(&format!("{prefix}{key}"))).map(names);
        let takes = [given.unwrap_or_default(), values(schema)].into_iter().filter(|part| !part.is_empty());
        let takes = takes.collect::<Vec<_>>().join(": ");
        page.push_str(&format!("### `{key}`\n\n"));
        if !takes.is_empty() {
            page.push_str(&format!("{}\n\n", wrapped(&format!("{}.", capitalized(&takes)), "")));
        }
        page.push_str(&format!("{}\n\n", wrapped(&sentence(schema["description"].as_str().unwrap()), "")));
    }
    page
}

#[test]
fn the_page_of_the_configuration_follows_from_the_keys() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let (top, flags) = (&schema["properties"], settings());
    let mut page = "# Configuration\n\n".to_owned();
    page.push_str(&wrapped(
        "This page is generated from the code: the keys of `countersign.toml`, each with its flag, values and meaning. The environment \
         variable of `--row-limit` is `COUNTERSIGN_ROW_LIMIT`, unless another one is named. Values are texts unless stated \
         otherwise; a time is such as `90s`. [Configure](../setup/configure.md) has a complete example.",
        "",
    ));
    let most_used = MOST_USED.map(|id| format!("[`--{}`](#{id})", flags[id].get_long().unwrap()));
    page.push_str(&format!("\n\n{}\n", wrapped(&format!("Most people need {}.", most_used.join(", ")), "")));
    page.push_str("\n## Top level\n\n");
    page.push_str(&keys(&schema, Some(&flags), ""));
    let tables = [
        ("limits", ""),
        ("reads", "reads_"),
        ("notify", "notify_"),
        ("otel", "otel_"),
        ("http", ""),
        ("console", "console_"),
    ];
    for (table, prefix) in tables {
        page.push_str(&format!("## `[{table}]`\n\n{}", keys(&top[table], Some(&flags), prefix)));
    }
    let oidc = &top["console"]["properties"]["oidc"];
    page.push_str(&format!("## `[console.oidc]`\n\n{}", keys(oidc, Some(&flags), "console_oidc_")));
    let own = top["profiles"]["patternProperties"].as_object().unwrap().values().next().unwrap();
    page.push_str(&format!("## `[profiles.NAME]`\n\n{}", keys(own, None, "")));
    page.push_str(&format!("## `[[tokens]]`\n\n{}", keys(&top["tokens"]["items"], None, "")));
    page.push_str(&format!("## `[oauth]`\n\n{}", keys(&top["oauth"], None, "")));
    assert_page("configuration", &format!("{}\n", page.trim_end()));
}

/// `--limit N`, `TABLE..`.
fn named(argument: &Arg) -> String {
    let value =
        argument.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let value = value.filter(|_| argument.get_action().takes_values()).unwrap_or_default();
    match argument.get_long() {
        Some(long) => format!("--{long} {value}").trim_end().to_owned(),
        None => value,
    }
}

fn option(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("`{}`: {}", named(argument), sentence(&help));
    let possible = argument.get_possible_values();
    if argument.get_action().takes_values() && !possible.is_empty() {
        let one = |value: &clap::builder::PossibleValue| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), help.to_string().trim_end_matches('.')),
            None => format!("`{}`", value.get_name()),
        };
        text.push_str(&format!(" One of {}.", possible.iter().map(one).collect::<Vec<_>>().join(", ")));
    }
    format!("- {}\n", wrapped(&text, "  "))
}

#[test]
fn the_page_of_the_command_line_follows_from_its_definition() {
    let settings = settings();
    let is_setting = |argument: &Arg| {
        settings.get(argument.get_id().as_str()).is_some_and(|setting| setting.get_env() == argument.get_env())
    };
    let cli = command_line();
    let mut page = "# Command line\n\n".to_owned();
    page.push_str(&wrapped(
        "This page is generated from the code. Every command takes `--config FILE` (the configuration file), `--help` and, unless it says \
         otherwise, `--database NAME` (a database of that file; by default the only one, or all, where the command works on all) and these [settings](configuration.md): `--database-url`, `--database-url-file`, `--pooler`, `--password-command`, `--password-lifetime-s`, `--ssh-tunnel`, `--connect-timeout-ms`.",
        "",
    ));
    page.push_str("\n\n");
    // The paragraphs of the front ends' help, and the options, that the page has so far.
    let (mut shown, mut long) = (Vec::<String>::new(), HashMap::<String, String>::new());
    for (name, command) in runnable(&cli, "") {
        page.push_str(&format!("## `{name}`\n\n"));
        let about = command.get_long_about().or_else(|| command.get_about()).unwrap().to_string();
        let front_end = agent_cli::FrontEnd::parse(command.get_name());
        // The second paragraph of a front end refers to the help, which follows.
        for paragraph in about.split("\n\n").take(if front_end.is_some() { 1 } else { usize::MAX }) {
            page.push_str(&format!("{}\n\n", wrapped(&sentence(paragraph), "")));
        }
        if let Some(front_end) = front_end {
            let help = agent_cli::parse(front_end, &["--help".to_owned()], HashMap::new()).unwrap_err().stdout;
            let lines: Vec<String> =
                String::from_utf8(help).unwrap().lines().map(|line| line.trim_end().to_owned()).collect();
            let help = lines.join("\n");
            let (same, own): (Vec<&str>, Vec<&str>) =
                help.trim_end().split("\n\n").partition(|paragraph| shown.iter().any(|one| one == paragraph));
            page.push_str(&format!("```text\n{}\n```\n\n", own.join("\n\n")));
            let same = same.iter().filter_map(|one| one.trim_start().split([' ', '[', '\n']).next());
            let same: Vec<String> = same.filter(|one| one.starts_with("--")).map(|one| format!("`{one}`")).collect();
            if !same.is_empty() {
                page.push_str(&format!("{}\n\n", wrapped(&format!("As for `query`: {}.", same.join(", ")), "")));
            }
            shown.extend(own.into_iter().map(str::to_owned));
            continue;
        }
        let arguments = || {
            command
                .get_arguments()
                .filter(|one| !matches!(one.get_id().as_str(), "help" | "version" | "config" | "database"))
        };
        let (shared, own): (Vec<&Arg>, Vec<&Arg>) = arguments().partition(|one| is_setting(one));
        for argument in &own {
            let text = option(argument);
            match long.get(&text) {
                Some(first) => page.push_str(&format!("- `{}`: As for `{first}`.\n", named(argument))),
                None => page.push_str(&text),
            }
            if text.len() > LONG_OPTION {
                long.entry(text).or_insert_with(|| name.clone());
            }
        }
        if !own.is_empty() {
            page.push('\n');
        }
        let shared = shared.iter().filter(|one| !one.get_id().as_str().starts_with("log"));
        let shared: Vec<&str> = shared.map(|one| one.get_long().unwrap()).collect();
        let others = shared.iter().filter(|one| !CONNECTION.contains(one));
        let others: Vec<String> = others.map(|one| format!("`--{one}`")).collect();
        let settings = match (shared.len(), others.len()) {
            (0, _) => "It takes no settings.".to_owned(),
            (_, 0) => continue,
            (1..10, _) => wrapped(&format!("Also: {}.", others.join(", ")), ""),
            _ => "All settings of [Configuration](configuration.md).".to_owned(),
        };
        page.push_str(&format!("{settings}\n\n"));
    }
    assert_page("command-line", &format!("{}\n", page.trim_end()));
}

#[test]
fn the_page_of_error_codes_follows_from_their_definition() {
    // docs/reference/errors.md is the published list of codes.
    let (_, variants) = ERROR_CODES.split_once("pub enum ErrorCode {").unwrap();
    let (variants, _) = variants.split_once("\n}\n").unwrap();
    let mut entries = HashMap::new();
    let mut text = String::new();
    for line in variants.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            text.push_str(comment);
            text.push('\n');
        } else if let Some(variant) = line.strip_suffix(',') {
            entries.insert(variant.to_owned(), std::mem::take(&mut text));
        }
    }
    let mut page = "# Error codes\n\n".to_owned();
    page.push_str(&wrapped(
        "This page is generated from the code. Every failed answer has `error.code`, one of the codes below. `error.retryable` is true \
         only if exactly the same call may succeed later: a code says so, or its text names exceptions. `error.message` says what is wrong, and `error.hint` what to do. \
         `error.sqlstate`, `detail` and `position` are PostgreSQL's, if the error came from PostgreSQL. Unless a code says otherwise, \
         nothing was written.",
        "",
    ));
    page.push('\n');
    for code in ErrorCode::ALL {
        let text = entries.remove(&format!("{code:?}")).unwrap();
        page.push_str(&format!("\n## `{code}`\n"));
        if code.retryable() {
            page.push_str("\nRetryable.\n");
        }
        for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
            page.push_str(&format!("\n{}\n", wrapped(&linked(paragraph), "")));
        }
    }
    assert!(entries.is_empty(), "not in ErrorCode::ALL: {entries:?}");
    assert_page("errors", &page);
}

/// A text in which paths of pages (`docs/topics/undo.md`) are links from `docs/reference`.
fn linked(text: &str) -> String {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '.');
    let mut words = Vec::new();
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let at = word.find("docs/");
        words.push(match at {
            None => word.to_owned(),
            Some(at) => {
                let (before, rest) = word.split_at(at);
                let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
                let (path, after) = rest.split_at(end);
                let path = path.trim_start_matches("docs/");
                format!("{before}[{path}](../{path}){after}")
            }
        });
    }
    words.join(" ")
}
