//! `countersign doctor`: reports problems, their causes and remedies. The ledger answers queries (`ledger::Doctor`);
//! the modules `pooler`, `roles`, `stuck`, `manifests` and others interpret the answers. To add a check, add a
//! finding in one of them.

mod drill;
mod evidence;
mod manifests;
mod pooler;
mod replication;
mod roles;
mod stuck;
mod writes;

use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::Arc;

use ::console::HealthCheck;
use ledger::read::{ConnectError, Error};
use ledger::{ConnectOptions, Ledger, ServerFacts};
use review::{Finding, FindingLevel};
use tools::READS_ONLY;

use crate::commands::bootstrap;
use crate::commands::cli::DoctorArgs;
use crate::commands::several::on_each;
use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::{Style, print_json, print_line};

pub(crate) async fn run(arguments: &DoctorArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    on_each(settings, arguments.json, async |database| one(arguments, database, settings).await).await
}

async fn one(arguments: &DoctorArgs, database: &DatabaseSettings, settings: &Settings) -> anyhow::Result<ExitCode> {
    let target = connection::configured(database)?;
    let mut findings = examine(&target, database, settings).await;
    if arguments.undo_drill {
        let ledger = Ledger::new(target.clone(), database.ledger.clone());
        findings.extend(drill::examine(&ledger).await);
        unchecked_last(&mut findings);
    }
    if arguments.json {
        findings.iter().for_each(print_json);
    } else {
        print(&findings);
    }
    let is_well = findings.iter().all(|finding| finding.level != FindingLevel::Problem);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The findings for the console, the worst first.
pub(crate) fn health_check(target: &ConnectOptions, database: &DatabaseSettings, settings: &Settings) -> HealthCheck {
    let (target, settings) = (target.clone(), Arc::new((database.clone(), settings.clone())));
    HealthCheck::new(move || {
        let (target, settings) = (target.clone(), Arc::clone(&settings));
        Box::pin(async move { health(&target, &settings.0, &settings.1).await })
    })
}

async fn health(target: &ConnectOptions, database: &DatabaseSettings, settings: &Settings) -> Vec<Finding> {
    let mut findings = examine(target, database, settings).await;
    findings.sort_by_key(|finding| Reverse(finding.level));
    findings
}

/// Runs all checks in order. Checks that depend on a failed one are left out.
async fn examine(target: &ConnectOptions, database: &DatabaseSettings, settings: &Settings) -> Vec<Finding> {
    let ledger = Ledger::new(target.clone(), database.ledger.clone());
    let mut findings = Vec::new();
    let login = match connection(&ledger, target).await {
        Ok((finding, login)) => {
            findings.push(finding);
            login
        }
        Err(finding) => return vec![finding],
    };
    findings.extend(pooler::examine(target).await);
    findings.extend(replication::examine(&ledger.doctor(), database).await);
    if bootstrap::needing_a_ledger(settings, database, false).is_empty() && matches!(ledger.is_open().await, Ok(false))
    {
        findings.push(Finding::broken("ledger", READS_ONLY).into_warning());
        findings.extend(roles::own_reader(target, database).await);
        findings.extend(roles::of_callers(&ledger, target, database, settings, false).await);
        return findings;
    }
    match ledger.check().await {
        Ok(version) => findings
            .push(Finding::ok("ledger", format!("the schema countersign has version {version}, as this program"))),
        Err(error) => {
            findings.push(Finding::broken("ledger", error.to_string()));
            return findings;
        }
    }
    match ledger.check_identity().await {
        Ok(()) => findings.push(Finding::ok(
            "ledger",
            "it was made for this database, and its log goes on from what was signed here",
        )),
        Err(error) => findings.push(Finding::broken("ledger", error.to_string())),
    }
    findings.extend(deviations(target).await);
    findings.extend(roles::examine(&ledger, target, &login, database).await);
    findings.extend(roles::of_callers(&ledger, target, database, settings, true).await);
    findings.extend(stuck::examine(&ledger.doctor()).await);
    findings.extend(writes::examine(&ledger).await);
    findings.extend(evidence::examine(&ledger.audit(), &ledger.doctor(), database).await);
    findings.extend(manifests::examine(&ledger, target, database, settings).await);
    findings
        .push(Finding::unchecked("servers", "whether the servers answer: ask each for /readyz (docs/setup/http.md)"));
    unchecked_last(&mut findings);
    findings
}

fn unchecked_last(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| finding.level == FindingLevel::Unchecked);
}

/// Whether the ledger's schema is the one that this program creates.
async fn deviations(target: &ConnectOptions) -> Vec<Finding> {
    const AREA: &str = "ledger";
    match ledger::deviations(target).await {
        Ok(deviations) if deviations.is_empty() => {
            vec![Finding::ok(
                AREA,
                "its tables, functions, triggers and privileges are as `countersign init` makes them",
            )]
        }
        Ok(deviations) => deviations
            .iter()
            .map(|deviation| {
                let advice = "if you do not know who did this, treat the ledger as compromised (docs/topics/security-model.md); \
                    `countersign init` revokes privileges";
                Finding::problem(AREA, deviation.to_string(), advice)
            })
            .collect(),
        Err(error) => vec![Finding::unasked(AREA, "its tables and functions", &error)],
    }
}

/// The oldest PostgreSQL version on which the ledger's functions run.
const OLDEST: i64 = 140_000;

/// Checks the server and the login.
async fn connection(ledger: &Ledger, target: &ConnectOptions) -> Result<(Finding, String), Finding> {
    let server = ledger.doctor().server().await.map_err(|error| match error {
        Error::Connect(ConnectError::Pooled { .. }) => Finding::broken("connection", error.to_string()),
        error => Finding::problem(
            "connection",
            format!("{error}; connecting to {}", target.described()),
            "check that PostgreSQL runs there, and the connection string (docs/setup/connect.md)",
        ),
    })?;
    let ServerFacts { version, number, database, login, is_standby } = server;
    let message =
        format!("PostgreSQL {version} at {}, database \"{database}\", logged in as \"{login}\"", target.address());
    if number < OLDEST {
        return Err(Finding::problem("connection", message, "use PostgreSQL 14 or later"));
    }
    if is_standby {
        let advice = "servers write to the ledger: connect to the primary (a standby can be read with read_url)";
        return Ok((Finding::problem("connection", format!("{message}, which is a standby"), advice), login));
    }
    Ok((Finding::ok("connection", message), login))
}

fn print(findings: &[Finding]) {
    const LEVEL: usize = 11;
    let style = Style::of_stdout();
    let area = findings.iter().map(|finding| finding.area.len()).max().unwrap_or_default();
    for finding in findings {
        let level = match finding.level {
            FindingLevel::Ok => style.good(&format!("{:<LEVEL$}", "ok")),
            FindingLevel::Unchecked => style.faint(&format!("{:<LEVEL$}", "unchecked")),
            FindingLevel::Warning => style.bold(&format!("{:<LEVEL$}", "warning")),
            FindingLevel::Problem => style.bad(&format!("{:<LEVEL$}", "problem")),
        };
        print_line(&format!("{level}{:<area$}  {}", finding.area, types::visible(&finding.message)));
        if let Some(advice) = &finding.advice {
            print_line(&format!("{:<indent$}do: {}", "", types::visible(advice), indent = LEVEL + area + 2));
        }
    }
    let count = |level: FindingLevel| findings.iter().filter(|finding| finding.level == level).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    print_line(&match (count(FindingLevel::Problem), count(FindingLevel::Warning)) {
        (0, 0) => "Nothing is wrong with what was checked.".to_owned(),
        (problems, warnings) => format!("{}, {}.", plural(problems, "problem"), plural(warnings, "warning")),
    });
}
