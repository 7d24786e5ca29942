//! The logins of the read path and their privileges.
//!
//! `init` remembers which relations existed (`countersign.reader_relation`). So if an administrator revokes SELECT
//! from the reader, a later `init` does not grant it again.

use pg::value::identifier;
use pg::{ConnectError, ConnectOptions, Session, SessionSettings, scram_verifier};

use super::{InitReport, ReaderTables, Setup, SkippedRelation, literal};
use crate::setup::schema::SchemaError;

/// A login of the read path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderKind {
    /// It has SELECT, and reads for callers without a role.
    Own,
    /// It has no rights, and reads as the roles of callers that are granted to it.
    Callers,
}

impl ReaderKind {
    /// The name, unless another database of the cluster has it already.
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "countersign_reader",
            Self::Callers => "countersign_caller",
        }
    }

    const fn for_callers(self) -> bool {
        matches!(self, Self::Callers)
    }
}

/// The number of names to try.
const MAX_NAMES: u32 = 100;

/// The relations outside of the system's schemas and the ledger: name, whether this login may grant SELECT, owner,
/// schema, whether they existed at an earlier `init`, and whether the reader ($1) can read any column of them.
const RELATIONS_SQL: &str = "\
select format('%I.%I', n.nspname, c.relname), has_table_privilege(c.oid, 'select with grant option')::text, \
       pg_get_userbyid(c.relowner), n.nspname, \
       exists (select from countersign.reader_relation r where r.relation = c.oid)::text, \
       (has_schema_privilege($1, n.oid, 'usage') and has_any_column_privilege($1, c.oid, 'select'))::text \
from pg_class c join pg_namespace n on n.oid = c.relnamespace \
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not in ('countersign', 'information_schema') \
  and left(n.nspname, 3) <> 'pg_' \
order by 1";

/// The schemas of these relations: name, whether this login may grant USAGE, whether they existed at an earlier
/// `init`, and whether the reader ($1) has USAGE.
const SCHEMAS_SQL: &str = "\
select n.nspname, has_schema_privilege(n.oid, 'usage with grant option')::text, \
       exists (select from countersign.reader_schema s where s.schema_name = n.nspname)::text, \
       has_schema_privilege($1, n.oid, 'usage')::text \
from pg_namespace n where n.nspname not in ('countersign', 'information_schema') and left(n.nspname, 3) <> 'pg_' order by 1";

const REMEMBER: [&str; 4] = [
    "delete from countersign.reader_relation r where not exists (select from pg_class c where c.oid = r.relation)",
    "insert into countersign.reader_relation select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace \
     where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not in ('countersign', 'information_schema') \
       and left(n.nspname, 3) <> 'pg_' on conflict do nothing",
    "delete from countersign.reader_schema s where not exists (select from pg_namespace n where n.nspname = s.schema_name)",
    "insert into countersign.reader_schema select n.nspname from pg_namespace n \
     where n.nspname not in ('countersign', 'information_schema') and left(n.nspname, 3) <> 'pg_' on conflict do nothing",
];

impl Setup {
    /// Creates the logins of the read path that do not exist, and grants the reader SELECT in the named schemas; in all if
    /// none is named.
    pub(super) async fn set_up_reader(&mut self, tables: ReaderTables, named: &[&str]) -> Result<(), SchemaError> {
        let Some(reader) = self.login_of(ReaderKind::Own).await? else {
            self.report.warnings.push(format!(
                "there is no login for reading, since {} may not create roles: query_database needs --read-url",
                self.user
            ));
            return Ok(());
        };
        self.login_of(ReaderKind::Callers).await?;
        self.grant_reads(&reader, tables, named).await?;
        for sql in REMEMBER {
            self.execute(sql.to_owned()).await?;
        }
        self.report.reader = Some(reader);
        Ok(())
    }

    /// The login of this kind, created if it does not exist; `None` if it cannot be created.
    async fn login_of(&mut self, kind: ReaderKind) -> Result<Option<String>, SchemaError> {
        let known =
            format!("select l.role_name from countersign.reader_login l where l.for_callers = {}", kind.for_callers());
        let known: Option<String> = self.rows::<1>(&known, &[]).await?.into_iter().flatten().next();
        let login = match known {
            Some(role) if self.role_exists(&role).await? => role,
            _ if !self.creates_roles => return Ok(None),
            _ => self.create_reader(kind).await?,
        };
        self.grant_connect(&login).await?;
        Ok(Some(login))
    }

    /// Creates a role with an unused name. An existing role may have members, who could read with the reader's
    /// privileges.
    async fn create_reader(&mut self, kind: ReaderKind) -> Result<String, SchemaError> {
        let oid = "select d.oid::text from pg_database d where d.datname = current_database()";
        let oid = self.rows::<1>(oid, &[]).await?.concat().concat();
        let name = kind.name();
        let mut role = name.to_owned();
        for number in 1..MAX_NAMES {
            if !self.role_exists(&role).await? {
                break;
            }
            role = if number == 1 { format!("{name}_{oid}") } else { format!("{name}_{oid}_{number}") };
        }
        let password = self.new_password(&role, kind).await?;
        let inherits = if kind.for_callers() { "noinherit" } else { "inherit" };
        let rights = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls";
        let create =
            |password: &str| format!("create role {} login password {password} {inherits} {rights}", identifier(&role));
        let verifier = literal(&scram_verifier(&password));
        self.execute_secret(&create(&verifier), create("'SCRAM-SHA-256$..'")).await?;
        self.report.roles.push(role.clone());
        Ok(role)
    }

    /// Lets the database generate and store a password of 244 random bits for the login. Neither this statement nor
    /// the verifier that the login gets reveals the password in the server's log, in its statistics or in
    /// `pg_stat_activity`.
    async fn new_password(&mut self, role: &str, kind: ReaderKind) -> Result<String, SchemaError> {
        let for_callers = kind.for_callers();
        self.execute(format!("delete from countersign.reader_login l where l.for_callers = {for_callers}")).await?;
        let sql = format!(
            "insert into countersign.reader_login (role_name, password, for_callers) \
             values ({}, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), {for_callers})",
            literal(role)
        );
        let password = self.rows::<1>(&format!("{sql} returning password"), &[]).await?.concat().concat();
        self.report.statements.push(sql);
        Ok(password)
    }

    async fn grant_reads(&mut self, reader: &str, tables: ReaderTables, named: &[&str]) -> Result<(), SchemaError> {
        let role = identifier(reader);
        let of_reader = [Some(reader.to_owned())];
        let schemas = self.rows::<4>(SCHEMAS_SQL, &of_reader).await?;
        if let Some(missing) = named.iter().find(|named| !schemas.iter().any(|[name, ..]| name == *named)) {
            return Err(self.no_schema(missing, &schemas.into_iter().map(|[name, ..]| name).collect::<Vec<_>>()));
        }
        let is_named = |name: &String| named.contains(&name.as_str());
        // The names, and whether the reader had USAGE before.
        let mut open = Vec::new();
        for [name, may_grant, is_known, is_granted] in schemas {
            let wanted = match tables {
                ReaderTables::All => named.is_empty() || is_named(&name),
                ReaderTables::New if named.is_empty() => is_known != "true" || is_granted == "true",
                ReaderTables::New => is_named(&name),
                ReaderTables::None => false,
            };
            if wanted && (may_grant == "true" || is_granted == "true") {
                open.push((name, is_granted == "true"));
            }
        }
        let mut granted: Vec<(String, Vec<String>)> = Vec::new();
        for [relation, may_grant, owner, schema, is_known, is_readable] in self.rows(RELATIONS_SQL, &of_reader).await? {
            let had_usage = open.iter().find(|(name, _)| *name == schema).map(|(_, had_usage)| *had_usage);
            let is_opened = !named.is_empty() && had_usage == Some(false);
            let is_wanted =
                tables == ReaderTables::All || tables == ReaderTables::New && (is_known != "true" || is_opened);
            if is_readable == "true" && is_known == "true" && tables != ReaderTables::All {
                continue;
            }
            if !is_wanted || had_usage.is_none() {
                let is_of_closed = !named.is_empty() && !is_named(&schema);
                if is_readable != "true" && !is_of_closed {
                    self.report.unreadable.push(relation);
                } else if is_readable != "true" && self.report.closed_schemas.last() != Some(&schema) {
                    self.report.closed_schemas.push(schema);
                }
            } else if may_grant == "true" {
                match granted.last_mut().filter(|(last, _)| *last == schema) {
                    Some((_, relations)) => relations.push(relation),
                    None => granted.push((schema, vec![relation])),
                }
            } else if is_readable != "true" {
                self.report.skipped.push(SkippedRelation { relation, owner });
            }
        }
        for (schema, relations) in granted {
            if open.iter().any(|(name, has_usage)| *name == schema && !has_usage) {
                self.execute(format!("grant usage on schema {} to {role}", identifier(&schema))).await?;
            }
            self.execute(format!("grant select on {} to {role}", relations.join(", "))).await?;
            self.report.granted.extend(relations);
        }
        Ok(())
    }
}

/// Gives each login of the read path a new password if PostgreSQL does not accept the stored one. If a login cannot
/// connect for another reason, the report gets a warning.
pub(super) async fn repair_logins(target: &ConnectOptions, report: &mut InitReport) -> Result<(), SchemaError> {
    for (kind, missed) in
        [(ReaderKind::Own, "query_database is not served"), (ReaderKind::Callers, "callers with a role cannot read")]
    {
        if let Some((login, error)) = repair_login(target, kind, report).await? {
            report.warnings.push(format!("{login} cannot log in, so {missed}: {error}"));
        }
    }
    Ok(())
}

/// The login of this kind, and why it cannot connect even with a new password, if it cannot.
async fn repair_login(
    target: &ConnectOptions,
    kind: ReaderKind,
    report: &mut InitReport,
) -> Result<Option<(String, ConnectError)>, SchemaError> {
    if report.reader.is_none() {
        return Ok(None);
    }
    let mut setup = Setup::begin(target).await?;
    let stored = format!(
        "select l.role_name, l.password from countersign.reader_login l where l.for_callers = {}",
        kind.for_callers()
    );
    let Some([login, stored]) = setup.rows::<2>(&stored, &[]).await?.into_iter().next() else { return Ok(None) };
    let mut refusal = refusal(target, &login, &stored).await;
    if let Some(ConnectError::Authentication(reason)) = &refusal {
        let reason = reason.clone();
        let password = setup.new_password(&login, kind).await?;
        let verifier = scram_verifier(&password);
        let alter = |password: &str| {
            format!("alter role {} login password {password} valid until 'infinity'", identifier(&login))
        };
        let altered = setup.execute_secret(&alter(&literal(&verifier)), alter("'SCRAM-SHA-256$..'")).await;
        if altered.is_ok() {
            setup.session.batch_execute("commit").await?;
            report.statements.append(&mut setup.report.statements);
            refusal = self::refusal(target, &login, &password).await;
            if refusal.is_none() {
                report.changes.push(format!("gave {login} a new password, since it could not log in ({reason})"));
            }
        }
    }
    setup.session.close().await;
    Ok(refusal.map(|error| (login, error)))
}

/// The reason why a login cannot connect.
pub(super) async fn refusal(target: &ConnectOptions, login: &str, password: &str) -> Option<ConnectError> {
    let target = target.as_role(login, Some(types::Secret::new(password.to_owned())));
    match Session::connect(&target, &SessionSettings::default()).await {
        Ok(session) => {
            session.close().await;
            None
        }
        Err(error) => Some(error),
    }
}
