//! Checks the privileges of the servers' logins, of the reader and of the approvers (docs/setup/roles.md).

use ledger::read::{Reader, SearchPath, UntrustedSchema};
use ledger::{ConnectOptions, ExcessPrivileges, Ledger, LoginSetting, ReaderRoleError};

use crate::commands::bootstrap::{self, CallerRole};
use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use review::Finding;

const AREA: &str = "roles";

pub(super) async fn examine(
    ledger: &Ledger,
    target: &ConnectOptions,
    login: &str,
    settings: &DatabaseSettings,
) -> Vec<Finding> {
    let mut findings = servers(ledger, login, settings).await;
    findings.extend(reader(ledger, target, settings).await);
    findings.extend(owner(target).await);
    findings.push(match ledger.doctor().approvers().await {
        Ok(approvers) => people(&approvers),
        Err(error) => Finding::unasked(AREA, "who may approve", &error),
    });
    match ledger.doctor().policies_over_settings().await {
        Ok(policies) if policies.is_empty() => {}
        Ok(policies) => findings.push(Finding::warning(
            AREA,
            format!("policies believe settings that a query may find a way to change: {}", policies.join(", ")),
            "compare with countersign.account() and countersign.claim('..') (docs/topics/row-security.md)",
        )),
        Err(error) => findings.push(Finding::unasked(AREA, "the policies of row level security", &error)),
    }
    findings
}

async fn servers(ledger: &Ledger, login: &str, settings: &DatabaseSettings) -> Vec<Finding> {
    let (known, this) = match (ledger.check_all_server_roles().await, ledger.check_login().await) {
        (Ok(known), Ok(this)) => (known, this),
        (Err(error), _) | (_, Err(error)) => return vec![Finding::unasked(AREA, "the servers' logins", &error)],
    };
    let mut findings: Vec<Finding> = Vec::new();
    if known.is_empty() {
        findings.push(Finding::warning(
            AREA,
            "init made no login for servers, so they own the ledger and can change its records",
            "run `countersign init` as a role that may create roles, and serve as countersign_writer",
        ));
    }
    for ExcessPrivileges { role, powers } in &known {
        findings.push(if powers.is_empty() {
            Finding::ok(AREA, format!("servers log in as \"{role}\", which may do what a server needs, and no more"))
        } else {
            too_much(settings, format!("servers log in as \"{role}\", which {}", powers.join(", ")))
        });
    }
    if let Some(ExcessPrivileges { powers, .. }) = this.filter(|_| known.iter().all(|server| server.role != login)) {
        if ledger.doctor().is_console().await.unwrap_or_default() {
            findings.push(Finding::ok(AREA, format!("this was asked as \"{login}\", a login of the console")));
            return findings;
        }
        let what = if powers.is_empty() { "is not known as a server's login".to_owned() } else { powers.join(", ") };
        findings.push(Finding::warning(
            AREA,
            format!("this was asked as \"{login}\", which {what}"),
            "if servers have the same connection string, give them countersign_writer; else all is well",
        ));
    }
    findings
}

/// A finding about excess privileges. With strict_roles, no server starts with such a login.
fn too_much(settings: &DatabaseSettings, message: String) -> Finding {
    let advice = "take it away from that role, or let servers log in as one without it";
    if settings.strict_roles {
        Finding::problem(AREA, format!("{message}; strict_roles refuses that"), advice)
    } else {
        Finding::warning(AREA, message, advice)
    }
}

/// Checks the owner of the ledger and the role of the approvers.
async fn owner(target: &ConnectOptions) -> Vec<Finding> {
    let report = match ledger::examine_roles(target).await {
        Ok(report) => report,
        Err(error) => return vec![Finding::unasked(AREA, "the roles of the ledger", &error)],
    };
    let problems = report.problems.into_iter().map(|problem| Finding::broken(AREA, problem));
    let members = report.owner_members.map(|members| {
        let message = format!("members of {}, who can change the records: {members}", ledger::OWNER);
        Finding::warning(AREA, message, format!("revoke {} from those who do not administer the ledger", ledger::OWNER))
    });
    problems.chain(members).collect()
}

async fn reader(ledger: &Ledger, target: &ConnectOptions, settings: &DatabaseSettings) -> Vec<Finding> {
    let login = match &settings.read {
        Some(read) => match connection::parse(read, settings) {
            Ok(target) => Ok(target),
            Err(error) => return vec![Finding::problem(AREA, format!("{error:#}"), "correct read_url")],
        },
        None => ledger.reader_login().await,
    };
    let mut findings = login_settings(ledger, target, login.as_ref().ok()).await;
    let checked = match login {
        Ok(login) => {
            findings.extend(search_path(&login).await);
            let reader = Reader::new(login, &SearchPath::default(), settings.read_limits.clone());
            ledger::check_reader(&reader).await
        }
        Err(error) => Err(error),
    };
    findings.push(reader_finding(checked, settings));
    findings
}

/// Checks the roles that statements of callers run as.
pub(super) async fn of_callers(
    ledger: &Ledger,
    target: &ConnectOptions,
    database: &DatabaseSettings,
    settings: &Settings,
    has_ledger: bool,
) -> Vec<Finding> {
    let roles = bootstrap::caller_roles(settings, database);
    if roles.is_empty() {
        return Vec::new();
    }
    let login = match &database.read {
        Some(read) => connection::parse(read, database).ok(),
        None if has_ledger => ledger.reader_login().await.ok(),
        None => Some(target.clone()),
    };
    let mut findings = Vec::new();
    let mut reader = login.map(|login| Reader::new(login, &SearchPath::default(), database.read_limits.clone()));
    if let Some(own) = reader.take_if(|_| has_ledger) {
        match bootstrap::for_callers(own, ledger, settings, database).await {
            Ok(own) => reader = Some(own),
            Err(error) => findings.push(Finding::unasked(AREA, "the login of callers", &error)),
        }
    }
    for CallerRole { role, setting, .. } in roles {
        findings.push(match ledger.check_caller_role(reader.as_ref(), role, has_ledger).await {
            Ok(None) => Finding::ok(AREA, format!("statements of callers can run as the role {role} ({setting})")),
            Ok(Some(why)) => Finding::problem(
                AREA,
                format!("statements of callers cannot run as the role {role} ({setting}): it {why}"),
                "grant it to the logins of the server, and give it no more rights than its callers have (docs/topics/row-security.md)",
            ),
            Err(error) => Finding::unasked(AREA, "the roles of callers", &error),
        });
    }
    if let Some(reader) = &reader {
        match bootstrap::excess_of_callers(reader, settings, database).await {
            Ok(excess) => findings.extend(excess.into_iter().map(|excess| {
                Finding::warning(
                    AREA,
                    format!("{excess}: a query that leaves its role could use that"),
                    "revoke it from that login (docs/topics/row-security.md)",
                )
            })),
            Err(error) => findings.push(Finding::unasked(AREA, "the login of callers", &error)),
        }
    }
    findings
}

/// Checks the reader of a database without a ledger: a login of the operator's own.
pub(super) async fn own_reader(target: &ConnectOptions, settings: &DatabaseSettings) -> Vec<Finding> {
    let login = match &settings.read {
        Some(read) => match connection::parse(read, settings) {
            Ok(login) => login,
            Err(error) => return vec![Finding::problem(AREA, format!("{error:#}"), "correct read_url")],
        },
        None => target.clone(),
    };
    let mut findings = search_path(&login).await;
    let reader = Reader::new(login, &SearchPath::default(), settings.read_limits.clone());
    let checked = ledger::check_reader(&reader).await;
    let excess = if checked.is_ok() { bootstrap::own_login(&reader).await } else { Ok(None) };
    findings.push(match excess {
        Ok(Some(excess)) if settings.strict_roles => {
            Finding::broken(AREA, format!("{excess}; strict_roles refuses that"))
        }
        Ok(Some(excess)) => Finding::broken(AREA, excess).into_warning(),
        Ok(None) => reader_finding(checked, settings),
        Err(error) => Finding::broken(AREA, format!("{error:#}")),
    });
    findings
}

/// The schemas that reads do not search. A reader that cannot log in is reported elsewhere.
async fn search_path(login: &ConnectOptions) -> Vec<Finding> {
    let untrusted = SearchPath::load(login).await.map(|path| path.untrusted).unwrap_or_default();
    let finding = |schema: &UntrustedSchema| Finding::broken(AREA, bootstrap::not_searched(schema)).into_warning();
    untrusted.iter().map(finding).collect()
}

async fn login_settings(ledger: &Ledger, target: &ConnectOptions, reader: Option<&ConnectOptions>) -> Vec<Finding> {
    let logins: Vec<&str> = [Some(target), reader].into_iter().flatten().map(|target| target.user.as_str()).collect();
    match ledger.unexpected_settings(&logins).await {
        Ok(settings) => settings
            .into_iter()
            .map(|found| {
                let LoginSetting { scope, setting } = &found;
                let message = format!("{scope} has the setting {setting}, which a server does not expect");
                match found.breaks() {
                    Some(breaks) => {
                        Finding::problem(AREA, format!("{message}: {breaks}"), format!("alter {scope} reset .."))
                    }
                    None => {
                        let advice = format!("alter {scope} reset .. , unless you have set it on purpose");
                        Finding::warning(AREA, message, advice)
                    }
                }
            })
            .collect(),
        Err(error) => vec![Finding::unasked(AREA, "the settings of the logins", &error)],
    }
}

fn reader_finding(checked: Result<(), ReaderRoleError>, settings: &DatabaseSettings) -> Finding {
    match checked {
        Ok(()) => Finding::ok(AREA, "the reader can log in, and can do no more than read tables"),
        Err(ReaderRoleError::Privileged { role, power }) if settings.allow_privileged_reader => Finding::warning(
            AREA,
            format!("the reader logs in as \"{role}\", which {power}: a hostile query can use that"),
            "use a login with SELECT only (`countersign init` makes one)",
        ),
        Err(error @ (ReaderRoleError::Privileged { .. } | ReaderRoleError::NoLogin)) => {
            Finding::broken(AREA, format!("query_database is not served: {error}"))
        }
        Err(ReaderRoleError::Database(error))
            if error.server_error().is_some_and(|error| error.sqlstate == "42501") =>
        {
            Finding::unchecked(
                AREA,
                "whether the reader can log in: only servers have its password; run this with their connection string",
            )
        }
        Err(ReaderRoleError::Database(error)) => Finding::problem(
            AREA,
            format!("the reader cannot log in: {error}"),
            "let it in (pg_hba.conf), run `countersign init` again for a new password, or give another login with read_url",
        ),
    }
}

/// The maximum number of names in a finding.
const NAMES: usize = 5;

fn people(approvers: &[String]) -> Finding {
    if approvers.is_empty() {
        return Finding::warning(
            AREA,
            "no login has the role countersign_approver or countersign_console, so only superusers and members of countersign_owner \
             can approve proposals of tier approve",
            "grant countersign_approver to the login of each person who may",
        );
    }
    let names: Vec<String> = approvers.iter().take(NAMES).map(|name| format!("\"{name}\"")).collect();
    let more = match approvers.len().saturating_sub(NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Finding::ok(AREA, format!("proposals can be approved by {}{more}", names.join(", ")))
}
