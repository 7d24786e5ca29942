//! The report of `init`, for people, and its SQL.

use ledger::read::SearchPath;
use ledger::{InitReport, SchemaReport};
use types::visible;

use crate::commands::cli::InitArgs;
use crate::terminal::shell_word::shell_word;
use crate::terminal::{print_line, print_lines};

const MAX_NAMES: usize = 12;

pub(super) fn print_sql(report: &InitReport) {
    for statement in &report.statements {
        let end = if statement.starts_with("--") { "" } else { ";" };
        print_line(&format!("{statement}{end}"));
    }
    for warning in &report.warnings {
        print_line(&format!("-- warning: {}", visible(warning)));
    }
    for reason in report.schemas.iter().flat_map(|schema| &schema.untracked) {
        print_line(&format!("-- not tracked: {}", visible(reason)));
    }
    for line in for_owners(report) {
        print_line(&format!("-- {}", line.trim_start_matches("-- ")));
    }
}

pub(super) fn print(report: &InitReport, dbname: &str, arguments: &InitArgs) {
    let InitArgs { writer, config, .. } = arguments;
    print_line(&format!(
        "The ledger (schema countersign, version {}) in database \"{dbname}\" is ready.",
        report.version
    ));
    for role in &report.roles {
        let what = match role.as_str() {
            ledger::OWNER => "owns the ledger, without login",
            ledger::APPROVER => "approves proposals, without login: grant it to people",
            ledger::CONSOLE => "decides for people, without login: grant it to the console",
            ledger::OPERATOR => "undoes writes of any account, without login: grant it to people",
            role if role == writer && config.is_some() => "the login of servers",
            role if role == writer => "the login of servers, without a password yet",
            role if Some(role) == report.reader.as_deref() => "the login of reads, its password in the ledger",
            _ => "the login of reads as the roles of callers, its password in the ledger",
        };
        print_line(&format!("  created  {role}: {what}"));
    }
    if let Some(config) = config {
        print_line(&format!("  wrote    {}, with a new password of {writer}", visible(&config.to_string_lossy())));
    }
    let reader = report.reader.as_deref().unwrap_or_default();
    list("granted", &format!("SELECT to {reader} on"), &report.granted);
    let skipped: Vec<String> =
        report.skipped.iter().map(|skipped| format!("{} (of {})", skipped.relation, skipped.owner)).collect();
    list("skipped", "this login may not grant SELECT on", &skipped);
    list("left", &format!("{reader} cannot read, as after the last init:"), &report.unreadable);
    list("left", "agents cannot read the other schemas (--reader-schema opens one):", &report.closed_schemas);
    for schema in &report.schemas {
        print_schema(schema, writer);
    }
    for change in &report.changes {
        print_line(&format!("  changed  {}", visible(change)));
    }
    for warning in &report.warnings {
        print_line(&format!("  warning  {}", visible(warning)));
    }
}

fn print_schema(report: &SchemaReport, writer: &str) {
    for granted in &report.granted {
        let what = format!("{} to {writer} on {}", granted.privileges, granted.kind);
        list("granted", &what, &granted.objects);
    }
    let new: Vec<String> = report.tracked.iter().map(|table| table.name.clone()).collect();
    let tables = if new.len() == 1 { "table" } else { "tables" };
    let sentence = match report.tracked_before {
        0 => format!("{} {tables} of {}", new.len(), visible(&report.schema)),
        before => format!("{} new {tables} of {}, {before} as before", new.len(), visible(&report.schema)),
    };
    if new.is_empty() {
        print_line(&format!("  tracked  {sentence}"));
    }
    list("tracked", &format!("{sentence}:"), &new);
    for table in &report.tracked {
        for problem in &table.problems {
            print_line(&format!("  warning  {}: {}", visible(&table.name), visible(problem)));
        }
        if table.key.is_empty() && table.is_log != Some(true) {
            let command = format!("countersign track --is-log {}", shell_word(&table.name));
            print_line(&format!("           If rows are only added to it, make it a log: {command}"));
        }
    }
    for reason in &report.untracked {
        print_line(&format!("  skipped  {}", visible(reason)));
    }
}

/// What the functions of triggers need that have no search path of their own.
pub(super) fn search_path(report: &InitReport, path: &SearchPath, is_configured: bool) -> Vec<String> {
    let line = |schema: &SchemaReport| {
        let (name, count) = (visible(&schema.schema), schema.unpinned_functions);
        let functions = if count == 1 { "1 function" } else { &format!("{count} functions") };
        let others = path.untrusted.iter().find(|untrusted| untrusted.name == schema.schema);
        let remedy = match others {
            Some(others) => format!(
                "revoke create on schema {name} from {}, then set write_search_path = [\"{name}\"]",
                visible(&others.creators.join(", "))
            ),
            None if is_configured && path.schemas.contains(&schema.schema) => {
                "write_search_path has the schema".to_owned()
            }
            None => format!("set write_search_path = [\"{name}\"] where servers are configured"),
        };
        format!("  triggers {functions} of triggers of {name} may use names without a schema: {remedy}")
    };
    report.schemas.iter().filter(|schema| schema.unpinned_functions > 0).map(line).collect()
}

/// Prints the SQL that this login may not run.
pub(super) fn print_for_owners(report: &InitReport) {
    print_lines(for_owners(report));
}

/// The SQL that this login may not run, with comments that say who may.
fn for_owners(report: &InitReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (owner, statements) in &report.for_owners {
        lines.push(format!("-- SQL for {}, who owns these objects, or for a superuser:", visible(owner)));
        lines.extend(statements.grants.iter().map(|sql| format!("{sql};")));
        if !statements.tracking.is_empty() {
            lines.push(format!("-- The next lines also need membership in {}:", ledger::OWNER));
        }
        lines.extend(statements.tracking.iter().map(|sql| format!("{sql};")));
    }
    lines.iter().map(|line| visible(line)).collect()
}

fn list(what: &str, sentence: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| visible(name).to_string()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    print_line(&format!("  {what:<7}  {sentence} {}{more}", shown.join(", ")));
}
