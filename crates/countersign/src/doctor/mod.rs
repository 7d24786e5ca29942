//! `countersign doctor`: what is stuck or wrong, why, and what to do. The ledger answers (`ledger::Doctor`); what the answers
//! mean is here: `pooler`, `roles`, `stuck`, `manifests`. To add a question: a finding in one of these.

mod evidence;
mod manifests;
mod pooler;
mod roles;
mod stuck;
mod writes;

use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::Arc;

use ::console::{HealthCheck, HealthFinding, HealthLevel};
use ledger::read::{ConnectError, Error};
use ledger::{ConnectOptions, Ledger};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::DoctorArgs;
use crate::connection;
use crate::settings::Settings;
use crate::table::json_line;
use crate::terminal::{Style, print_line};

/// The level of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// It was not looked at.
    Unchecked,
    /// It works, and an operator should look at it.
    Warning,
    /// Something does not work, or waits for ever.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// The subject, in one word.
    area: &'static str,
    /// The finding.
    message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// The id for programs, if the finding is about one record or proposal.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Map<String, Value>>,
}

impl Finding {
    fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Ok, area, message: message.into(), advice: None, details: None }
    }

    /// A finding that was not checked, and how it can be.
    fn unchecked(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Unchecked, ..Self::ok(area, message) }
    }

    fn warning(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warning, advice: Some(advice.into()), ..Self::ok(area, message) }
    }

    fn problem(area: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::warning(area, message, advice) }
    }

    /// A problem whose message says what to do, or where nothing can be done from here.
    fn broken(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::ok(area, message) }
    }

    /// The finding that a query failed.
    fn unasked(area: &'static str, what: &str, error: &ledger::read::Error) -> Self {
        Self::broken(area, format!("{what} cannot be asked: {error}"))
    }

    /// The finding as a warning, for something that works all the same.
    fn into_warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }

    fn with(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(details);
        self
    }
}

pub(crate) async fn run(arguments: &DoctorArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let target = connection::configured(settings)?;
    let findings = examine(&target, settings).await;
    if arguments.json {
        for finding in &findings {
            print_line(&json_line(&serde_json::to_value(finding)?));
        }
    } else {
        print(&findings);
    }
    let is_well = findings.iter().all(|finding| finding.level != Level::Problem);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The findings for the console, the worst first.
pub(crate) fn health_check(target: &ConnectOptions, settings: &Settings) -> HealthCheck {
    let (target, settings) = (target.clone(), Arc::new(settings.clone()));
    HealthCheck::new(move || {
        let (target, settings) = (target.clone(), Arc::clone(&settings));
        Box::pin(async move { health(&target, &settings).await })
    })
}

async fn health(target: &ConnectOptions, settings: &Settings) -> Vec<HealthFinding> {
    let shown = |finding: Finding| HealthFinding {
        level: match finding.level {
            Level::Ok => HealthLevel::Ok,
            Level::Unchecked => HealthLevel::Unchecked,
            Level::Warning => HealthLevel::Warning,
            Level::Problem => HealthLevel::Problem,
        },
        area: finding.area.to_owned(),
        message: finding.message,
        advice: finding.advice,
    };
    let mut findings = examine(target, settings).await;
    findings.sort_by_key(|finding| Reverse(finding.level));
    findings.into_iter().map(shown).collect()
}

/// Everything in order; what needs what is broken is left out.
async fn examine(target: &ConnectOptions, settings: &Settings) -> Vec<Finding> {
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    let mut findings = Vec::new();
    let login = match connection(&ledger, target).await {
        Ok((finding, login)) => {
            findings.push(finding);
            login
        }
        Err(finding) => return vec![finding],
    };
    findings.extend(pooler::examine(target).await);
    match ledger::check(target).await {
        Ok(version) => findings
            .push(Finding::ok("ledger", format!("the schema countersign has version {version}, as this program"))),
        Err(error) => {
            findings.push(Finding::broken("ledger", error.to_string()));
            return findings;
        }
    }
    match ledger::check_identity(target, &settings.ledger).await {
        Ok(()) => findings.push(Finding::ok(
            "ledger",
            "it was made for this database, and its log goes on from what was signed here",
        )),
        Err(error) => findings.push(Finding::broken("ledger", error.to_string())),
    }
    findings.extend(deviations(target).await);
    findings.extend(roles::examine(&ledger, target, &login, settings).await);
    findings.extend(stuck::examine(&ledger.doctor()).await);
    findings.extend(writes::examine(&ledger).await);
    findings.extend(evidence::examine(&ledger.audit(), &ledger.doctor(), settings).await);
    findings.extend(manifests::examine(&ledger, target, settings).await);
    findings
        .push(Finding::unchecked("servers", "whether the servers answer: ask each for /readyz (docs/setup/http.md)"));
    // Unchecked findings come last.
    findings.sort_by_key(|finding| finding.level == Level::Unchecked);
    findings
}

/// Whether the ledger's schema is what this program makes.
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

/// The oldest PostgreSQL that the ledger's functions run on.
const OLDEST: i64 = 140_000;

/// The server that answers, and the login.
async fn connection(ledger: &Ledger, target: &ConnectOptions) -> Result<(Finding, String), Finding> {
    let server = ledger.doctor().server().await.map_err(|error| match error {
        Error::Connect(ConnectError::Pooled { .. }) => Finding::broken("connection", error.to_string()),
        error => Finding::problem(
            "connection",
            format!("{error}; connecting to {}", target.described()),
            "check that PostgreSQL runs there, and the connection string (docs/setup/connect.md)",
        ),
    })?;
    let text = |key: &str| server.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let login = text("login");
    let message = format!(
        "PostgreSQL {} at {}, database \"{}\", logged in as \"{login}\"",
        text("version"),
        target.address(),
        text("database")
    );
    if server.get("number").and_then(Value::as_i64).is_some_and(|number| number < OLDEST) {
        return Err(Finding::problem("connection", message, "use PostgreSQL 14 or later"));
    }
    if server.get("is_standby") == Some(&Value::Bool(true)) {
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
            Level::Ok => style.good(&format!("{:<LEVEL$}", "ok")),
            Level::Unchecked => style.faint(&format!("{:<LEVEL$}", "unchecked")),
            Level::Warning => style.bold(&format!("{:<LEVEL$}", "warning")),
            Level::Problem => style.bad(&format!("{:<LEVEL$}", "problem")),
        };
        print_line(&format!("{level}{:<area$}  {}", finding.area, types::visible(&finding.message)));
        if let Some(advice) = &finding.advice {
            print_line(&format!("{:<indent$}do: {}", "", types::visible(advice), indent = LEVEL + area + 2));
        }
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    print_line(&match (count(Level::Problem), count(Level::Warning)) {
        (0, 0) => "Nothing is wrong with what was checked.".to_owned(),
        (problems, warnings) => format!("{}, {}.", plural(problems, "problem"), plural(warnings, "warning")),
    });
}
