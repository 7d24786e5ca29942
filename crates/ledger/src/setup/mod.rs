//! `init`: the ledger's schema, its roles and its grants, in one transaction; then the tables of schemas, in portions.
//!
//! ```text
//! inspect      refuse a schema or roles that another user has prepared
//! migrate      create the schema, or update it
//! roles        the owner, the approvers' and the operators' role, the servers' login
//! privileges   ownership and grants, by an explicit list
//! reader       the logins of the read path, and SELECT on relations that are new
//! citus        keep the ledger on this node; revoke functions of Citus that act on other nodes from PUBLIC
//! verify       compare the schema with the one that this binary creates; a difference rolls everything back
//! tracking     tell the triggers of tracked tables which logins servers have
//! schemas      on request, grant the servers' login the tables of schemas
//! track_new    in transactions of their own: track these tables
//! ```
//! `init` usually runs as a superuser, in a database where other users may create objects. Three rules protect it.
//! Its `search_path` contains only PostgreSQL's own objects (`pg::SessionSettings`). It calls no function of the
//! database before it has verified it. It writes to a table only after it has checked, under a lock, that the table
//! has no trigger or rule.

pub(crate) mod identity;
pub(crate) mod login_settings;
pub(crate) mod schema;

mod citus;
mod inspect;
mod privileges;
mod reader;
mod removal;
mod roles;
mod tables;
mod track;
mod write_schemas;
mod writer_login;

use std::collections::{BTreeMap, BTreeSet};

use pg::value::{identifier, sql_literal};
use pg::{ConnectOptions, PipelineStatement, Session, SessionSettings};
use types::Secret;

pub use inspect::{Deviation, deviations};
pub use removal::{RemovalReport, remove};
pub use roles::{RoleReport, examine_roles};
pub use tables::TableNames;
pub use track::{Progress, TrackOptions, TrackReport, TrackedTable, track, untrack};
pub use write_schemas::{GrantedObjects, OwnerStatements, SchemaReport, track_new};

use self::schema::SchemaError;

/// The key of the advisory lock of `init`. No other application may use it.
const LOCK_KEY: i64 = 1_668_641_650;

/// How long `init` waits for another `init`, or for a lock on a table.
const LOCK_TIMEOUT: &str = "60s";

/// The maximum number of attempts while the `init` of another database creates the same roles.
const MAX_ATTEMPTS: usize = 5;

/// Relations on which `init` may grant SELECT to the reader's login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReaderTables {
    /// The relations that were created since the last `init`.
    #[default]
    New,
    /// All relations, including those for which an administrator has revoked it.
    All,
    /// No relation.
    None,
}

/// Options of `init`.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// The login of the servers.
    pub writer: String,
    /// The password of this login. `init` refuses a login that has another one.
    pub writer_password: Option<Secret>,
    /// The schemas whose tables the login may write, and are tracked.
    pub schemas: Vec<String>,
    /// The privileges of the reader's login.
    pub reader_tables: ReaderTables,
    /// The schemas that the reader's login may read besides `schemas`. With none of both it may read every schema.
    pub reader_schemas: Vec<String>,
    /// Whether the transaction is rolled back at the end.
    pub dry_run: bool,
}

/// A relation for which the reader's login was not granted SELECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRelation {
    /// Schema and name, quoted as in SQL.
    pub relation: String,
    /// The owner of the relation, who can grant it.
    pub owner: String,
}

/// The changes that `init` made, or would make in a dry run.
#[derive(Debug, Clone, Default)]
pub struct InitReport {
    /// Whether this `init` created the ledger.
    pub is_new: bool,
    pub version: i32,
    pub roles: Vec<String>,
    /// The reader's login, if there is one.
    pub reader: Option<String>,
    /// The relations for which the reader's login was granted SELECT: schema and name, quoted as in SQL.
    pub granted: Vec<String>,
    /// The relations for which the role of this `init` may not grant SELECT.
    pub skipped: Vec<SkippedRelation>,
    /// Relations that existed at an earlier `init` and that the reader's login cannot read. `init` does not change
    /// this.
    pub unreadable: Vec<String>,
    /// The schemas with tables that were not named, and that the reader's login cannot read.
    pub closed_schemas: Vec<String>,
    /// Other changes, each a sentence without a full stop.
    pub changes: Vec<String>,
    /// Warnings for the administrator, each a sentence without a full stop.
    pub warnings: Vec<String>,
    /// The statements that change something, in order, without secrets.
    pub statements: Vec<String>,
    /// The changes of the schemas of [`InitOptions::schemas`].
    pub schemas: Vec<SchemaReport>,
    /// The statements that the role of this `init` may not run, by the owner of their objects.
    pub for_owners: BTreeMap<String, OwnerStatements>,
}

impl Default for InitOptions {
    fn default() -> Self {
        let writer = crate::roles::DEFAULT_WRITER.to_owned();
        let reader_tables = ReaderTables::default();
        let [schemas, reader_schemas] = [Vec::new(), Vec::new()];
        Self { writer, writer_password: None, schemas, reader_tables, reader_schemas, dry_run: false }
    }
}

/// Creates the schema of the ledger, or updates it, with its owner, the servers' login and the reader's login.
/// Several processes may call this at the same time.
pub async fn init(target: &ConnectOptions, options: &InitOptions) -> Result<InitReport, SchemaError> {
    schema::refuse_pooler(target)?;
    let mut attempt = 1;
    let mut report = loop {
        match init_once(target, options).await {
            Err(SchemaError::Database(error)) if attempt < MAX_ATTEMPTS && is_conflict(&error) => attempt += 1,
            outcome => break outcome?,
        }
    };
    if !options.dry_run {
        // The ledger exists now, and its logins can be repaired later.
        if let Err(error) = reader::repair_logins(target, &mut report).await {
            report.warnings.push(format!("the login of reads was not checked: {error}"));
        }
        writer_login::check(target, options, &mut report).await;
    }
    Ok(report)
}

/// Whether another transaction has created the same role, or has changed the same row of a shared catalog.
fn is_conflict(error: &pg::Error) -> bool {
    // unique_violation, duplicate_object, and "tuple concurrently updated".
    let codes = ["23505", "42710", "XX000"];
    error.server_error().is_some_and(|error| codes.contains(&error.sqlstate.as_str()))
}

async fn init_once(target: &ConnectOptions, options: &InitOptions) -> Result<InitReport, SchemaError> {
    let mut setup = Setup::begin(target).await?;
    let report = setup.run(options).await.map_err(|error| setup.explained(error));
    setup.end(report, options.dry_run).await
}

/// Runs constant SQL texts (the demo's schema and data) in one transaction, unless the schema exists. Returns whether
/// they ran. Several processes may call this at the same time.
pub async fn load_once(target: &ConnectOptions, schema: &str, own_texts: &[&str]) -> Result<bool, SchemaError> {
    schema::refuse_pooler(target)?;
    let mut setup = Setup::begin(target).await?;
    let loaded = setup.load(schema, own_texts).await;
    setup.end(loaded, false).await
}

pub(crate) struct Setup {
    pub(crate) session: Session,
    /// The role that runs all statements.
    pub(crate) user: String,
    /// Whether that role may create roles.
    creates_roles: bool,
    dbname: String,
    report: InitReport,
}

const LOGIN_SQL: &str = "\
select current_user, (r.rolsuper or r.rolcreaterole)::text, pg_catalog.current_database() from pg_catalog.pg_roles r \
where r.rolname = current_user";

impl Setup {
    /// Opens the transaction, and waits while another one sets up the same database.
    async fn begin(target: &ConnectOptions) -> Result<Self, SchemaError> {
        // Without this, objects would be owned by a role that `ALTER DATABASE SET role` gives to sessions.
        let settings = SessionSettings::default().with("role", "none").with("lock_timeout", LOCK_TIMEOUT);
        let mut session = Session::connect(target, &settings).await.map_err(pg::Error::from)?;
        schema::refuse_engine(&session, &target.dbname)?;
        session.batch_execute("begin").await?;
        session.batch_execute(&format!("select pg_advisory_xact_lock({LOCK_KEY})")).await?;
        Self::new(session).await
    }

    /// Ends the transaction and the session: what worked is kept, unless it was only tried.
    async fn end<T>(mut self, worked: Result<T, SchemaError>, is_dry_run: bool) -> Result<T, SchemaError> {
        // COMMIT of a failed transaction rolls it back, too.
        let end = if worked.is_ok() && !is_dry_run { "commit" } else { "rollback" };
        let ended = self.session.batch_execute(end).await;
        self.session.close().await;
        let worked = worked?;
        ended?;
        Ok(worked)
    }

    /// A set-up in a session of the caller.
    pub(crate) async fn new(session: Session) -> Result<Self, SchemaError> {
        let mut setup = Self {
            session,
            user: String::new(),
            creates_roles: false,
            dbname: String::new(),
            report: InitReport::default(),
        };
        for [user, creates_roles, dbname] in setup.rows(LOGIN_SQL, &[]).await? {
            (setup.user, setup.creates_roles, setup.dbname) = (user, creates_roles == "true", dbname);
        }
        Ok(setup)
    }

    async fn run(&mut self, options: &InitOptions) -> Result<InitReport, SchemaError> {
        self.inspect_roles(&options.writer).await?;
        schema::refuse_old_format(&mut self.session).await?;
        let exists = self.inspect_schema().await?;
        self.report.is_new = !exists;
        self.keep_from_nodes().await?;
        if !exists {
            self.execute("create schema countersign".to_owned()).await?;
        }
        self.report.version = schema::migrate(&mut self.session, &mut self.report.statements).await?;
        self.share_with_nodes().await?;
        let owner = self.create_roles(&options.writer).await?;
        if let Some(password) = &options.writer_password {
            self.set_writer_password(&options.writer, password).await?;
        }
        self.set_owner(&owner).await?;
        self.set_privileges(&options.writer).await?;
        let named: Vec<&str> = options.schemas.iter().chain(&options.reader_schemas).map(String::as_str).collect();
        self.set_up_reader(options.reader_tables, &named).await?;
        self.revoke_citus().await?;
        self.name_members(&options.writer).await?;
        self.inspect_schema().await?;
        self.refuse_altered_ledger().await?;
        self.renew_tracking().await?;
        for schema in &options.schemas {
            self.open_schema(schema, &options.writer).await?;
        }
        if options.dry_run {
            let mut schemas = std::mem::take(&mut self.report.schemas);
            for schema in &mut schemas {
                self.track_new(schema, &mut BTreeSet::new(), usize::MAX, &|_, _| ()).await?;
                self.add_problems(&mut schema.tracked).await?;
            }
            self.report.schemas = schemas;
        }
        Ok(std::mem::take(&mut self.report))
    }

    /// Adds what to do to an error about a missing privilege.
    fn explained(&self, error: SchemaError) -> SchemaError {
        match error {
            SchemaError::Database(pg::Error::Server(error)) if error.sqlstate == "42501" => SchemaError::NotAllowed {
                user: self.user.clone(),
                database: self.dbname.clone(),
                reason: error.message,
            },
            error => error,
        }
    }

    async fn load(&mut self, schema: &str, own_texts: &[&str]) -> Result<bool, SchemaError> {
        let known = self.rows::<1>("select to_regnamespace($1)::text", &[Some(identifier(schema))]).await?;
        if !known.is_empty() {
            return Ok(false);
        }
        self.inspect_schema().await?;
        for text in own_texts {
            self.session.batch_execute(text).await?;
        }
        for [writer] in self.rows("select w.role_name from countersign.writer_login w", &[]).await? {
            let (space, writer) = (identifier(schema), identifier(&writer));
            self.execute(format!("grant usage on schema {space} to {writer}")).await?;
            let all = "select, insert, update, delete on all tables";
            self.execute(format!("grant {all} in schema {space} to {writer}")).await?;
            self.execute(format!("grant usage on all sequences in schema {space} to {writer}")).await?;
        }
        self.set_up_reader(ReaderTables::New, &[schema]).await?;
        Ok(true)
    }

    /// Runs a constant statement that changes something, and adds it to the report.
    async fn execute(&mut self, sql: String) -> Result<(), SchemaError> {
        self.session.batch_execute(&sql).await?;
        self.report.statements.push(sql);
        Ok(())
    }

    /// Runs a statement that contains a secret, and adds `shown` to the report instead.
    async fn execute_secret(&mut self, sql: &str, shown: String) -> Result<(), SchemaError> {
        self.session.batch_execute(sql).await?;
        self.report.statements.push(shown);
        Ok(())
    }

    /// The rows of a constant query, except rows that contain a NULL.
    async fn rows<const N: usize>(
        &mut self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Vec<[String; N]>, SchemaError> {
        Ok(rows(&mut self.session, sql, params).await?)
    }

    async fn role_exists(&mut self, name: &str) -> Result<bool, SchemaError> {
        let sql = "select r.rolname from pg_roles r where r.rolname = $1";
        Ok(!self.rows::<1>(sql, &[Some(name.to_owned())]).await?.is_empty())
    }
}

/// The rows of a constant query, except rows that contain a NULL.
pub(crate) async fn rows<const N: usize>(
    session: &mut Session,
    sql: &str,
    params: &[Option<String>],
) -> Result<Vec<[String; N]>, pg::Error> {
    let step = PipelineStatement::new(sql, params);
    let outcomes = session.run(&[step]).await.map_err(|failed| failed.error)?;
    let rows = outcomes.into_iter().flat_map(|outcome| outcome.rows);
    Ok(rows
        .filter_map(|row| row.into_iter().collect::<Option<Vec<String>>>())
        .filter_map(|row| <[String; N]>::try_from(row).ok())
        .collect())
}

fn literal(text: &str) -> String {
    sql_literal(Some(text))
}
