//! Who owns the ledger, and who may do what to it: by an explicit list. Everything else is taken back.

use pg::Session;
use pg::value::identifier;

use super::{Setup, literal, rows};
use crate::roles::APPROVER;
use crate::schema::SchemaError;

/// The functions of the write protocol, which servers call.
const SERVER_FUNCTIONS: [&str; 23] = [
    "admit(uuid, text, text, text, text, text, json, text, json, boolean)",
    "changed_definitions(json)",
    "claim(uuid, integer)",
    "contend(uuid)",
    "current_definitions(text[])",
    "decide_proposal(uuid, text, text, text, text, text, uuid, interval)",
    "end_proposal(uuid, uuid, text, text, text)",
    "finish_failure(uuid, text, text, text)",
    "finish_proposal(uuid, uuid, text, text, text)",
    "finish_success(uuid, json, text, bigint, json, json, json, text[], text[], interval)",
    "hold_proposal(uuid, uuid)",
    "note_fingerprint_key(text)",
    "propose(uuid, text, text, text, text, text, text, text, json, text, text, json, interval, integer, json)",
    "reader_credentials()",
    "record_aborted(uuid, text, text, text, text, text, json, text, json)",
    "release_proposal(uuid, uuid, interval, boolean)",
    "resolve(uuid, integer)",
    "seal_records(integer)",
    "standing_write(text, text, text, text)",
    "state_keys()",
    "sweep(interval, integer)",
    "sweep_proposals(integer)",
    "take_proposal(uuid, uuid, interval)",
];

/// The functions that approvers call.
const APPROVER_FUNCTIONS: [&str; 2] = ["begin_decision(uuid)", "decide_as_person(uuid, text, text, text, text, text)"];

/// The functions that both call: they change nothing.
const SHARED_FUNCTIONS: [&str; 2] = ["current_identity()", "may_run_until(countersign.proposal)"];

/// The tables that neither servers nor approvers read: passwords, keys, and what only `init` needs.
const PRIVATE_TABLES: [&str; 5] = ["decision_nonce", "reader_login", "reader_relation", "reader_schema", "state_key"];

const WRITERS_SQL: &str = "select w.role_name from countersign.writer_login w";

/// What belongs to another role than $1, as `ALTER .. OWNER` names it.
const NOT_OWNED_SQL: &str = "\
select 'schema countersign' from pg_namespace n where n.nspname = 'countersign' and pg_get_userbyid(n.nspowner) <> $1 \
union all \
select 'table ' || c.oid::regclass from pg_class c \
where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'v') and pg_get_userbyid(c.relowner) <> $1 \
union all \
select 'function ' || p.oid::regprocedure from pg_proc p \
where p.pronamespace = 'countersign'::regnamespace and pg_get_userbyid(p.proowner) <> $1";

/// Every privilege on the ledger that its owner has given: the kind and the name of the object, the role, the privilege.
const GRANTS_SQL: &str = "\
select g.kind, g.name, case g.grantee when 0 then 'PUBLIC' else pg_get_userbyid(g.grantee) end, g.privilege from ( \
    select 'schema' as kind, 'countersign'::text as name, n.nspowner as owner, a.grantee, a.privilege_type as privilege \
    from pg_namespace n cross join aclexplode(n.nspacl) a where n.nspname = 'countersign' \
    union all \
    select 'table', c.relname, c.relowner, a.grantee, a.privilege_type \
    from pg_class c cross join aclexplode(c.relacl) a \
    where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'v', 'S') \
    union all \
    select 'table', c.relname, c.relowner, a.grantee, a.privilege_type \
    from pg_class c join pg_attribute t on t.attrelid = c.oid cross join aclexplode(t.attacl) a \
    where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'v') \
    union all \
    select 'function', p.proname || '(' || oidvectortypes(p.proargtypes) || ')', p.proowner, a.grantee, a.privilege_type \
    from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
    where p.pronamespace = 'countersign'::regnamespace \
) g where g.grantee <> g.owner group by 1, 2, 3, 4 order by 1, 2, 3, 4";

/// A privilege on an object of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Privilege {
    kind: String,
    name: String,
    role: String,
    privilege: String,
}

impl Privilege {
    /// Whether it is one that `init` grants, or one that an administrator may grant: SELECT, to auditors.
    fn is_expected(&self, writers: &[String]) -> bool {
        let is_writer = writers.contains(&self.role);
        match self.kind.as_str() {
            _ if self.role == "PUBLIC" => false,
            "schema" => self.privilege == "USAGE",
            "table" => self.privilege == "SELECT" && !PRIVATE_TABLES.contains(&self.name.as_str()),
            _ => {
                let name = self.name.as_str();
                is_writer && (SERVER_FUNCTIONS.contains(&name) || SHARED_FUNCTIONS.contains(&name))
                    || self.role == APPROVER && (APPROVER_FUNCTIONS.contains(&name) || SHARED_FUNCTIONS.contains(&name))
            }
        }
    }

    fn object(&self) -> String {
        match self.kind.as_str() {
            "schema" => "schema countersign".to_owned(),
            "table" => format!("table countersign.{}", identifier(&self.name)),
            // A signature, as PostgreSQL writes it.
            _ => format!("function countersign.{}", self.name),
        }
    }
}

/// The privileges on the ledger that `init` would take back, each as a phrase.
pub(super) async fn unexpected(session: &mut Session) -> Result<Vec<String>, pg::Error> {
    let writers = rows::<1>(session, WRITERS_SQL, &[]).await?.concat();
    let all = privileges(session).await?;
    let unexpected = all.iter().filter(|privilege| !privilege.is_expected(&writers));
    Ok(unexpected.map(|it| format!("{} on {} to {}", it.privilege, it.object(), it.role)).collect())
}

async fn privileges(session: &mut Session) -> Result<Vec<Privilege>, pg::Error> {
    let rows = rows(session, GRANTS_SQL, &[]).await?;
    Ok(rows.into_iter().map(|[kind, name, role, privilege]| Privilege { kind, name, role, privilege }).collect())
}

impl Setup {
    /// Gives the schema and everything in it to this role.
    pub(super) async fn set_owner(&mut self, owner: &str) -> Result<(), SchemaError> {
        for [object] in self.rows(NOT_OWNED_SQL, &[Some(owner.to_owned())]).await? {
            self.execute(format!("alter {object} owner to {}", identifier(owner))).await?;
        }
        Ok(())
    }

    /// Grants servers and approvers what they need, and takes back what nobody should have.
    pub(super) async fn set_privileges(&mut self, writer: &str) -> Result<(), SchemaError> {
        let mut writers = self.rows::<1>(WRITERS_SQL, &[]).await?.concat();
        let mut given = Vec::new();
        if self.role_exists(writer).await? {
            given.push((writer.to_owned(), [&SERVER_FUNCTIONS[..], &SHARED_FUNCTIONS[..]].concat()));
            if !writers.iter().any(|known| known == writer) {
                self.execute(format!("insert into countersign.writer_login values ({})", literal(writer))).await?;
                writers.push(writer.to_owned());
            }
        }
        if self.role_exists(APPROVER).await? {
            given.push((APPROVER.to_owned(), [&APPROVER_FUNCTIONS[..], &SHARED_FUNCTIONS[..]].concat()));
        }
        let grants = privileges(&mut self.session).await?;
        for grant in grants.iter().filter(|grant| !grant.is_expected(&writers)) {
            let role = if grant.role == "PUBLIC" { "public".to_owned() } else { identifier(&grant.role) };
            self.execute(format!("revoke all on {} from {role} cascade", grant.object())).await?;
            if !self.report.is_new {
                let change = format!("revoked {} on {} from {}", grant.privilege, grant.object(), grant.role);
                self.report.changes.push(change);
            }
        }
        let private: Vec<String> = PRIVATE_TABLES.iter().map(|name| literal(name)).collect();
        let tables = format!(
            "select c.relname from pg_class c where c.relnamespace = 'countersign'::regnamespace \
             and c.relkind in ('r', 'v') and c.relname not in ({}) order by 1",
            private.join(", ")
        );
        let tables: Vec<String> = self.rows::<1>(&tables, &[]).await?.into_iter().flatten().collect();
        for (role, functions) in given {
            self.grant(&role, &functions, &tables, &grants).await?;
        }
        Ok(())
    }

    async fn grant(
        &mut self,
        role: &str,
        functions: &[&str],
        tables: &[String],
        known: &[Privilege],
    ) -> Result<(), SchemaError> {
        let has = |kind: &str, name: &str| {
            known.iter().any(|grant| grant.kind == kind && grant.name == name && grant.role == role)
        };
        let to = identifier(role);
        if !has("schema", "countersign") {
            self.execute(format!("grant usage on schema countersign to {to}")).await?;
        }
        let names: Vec<String> = tables
            .iter()
            .filter(|name| !has("table", name))
            .map(|name| format!("countersign.{}", identifier(name)))
            .collect();
        if !names.is_empty() {
            self.execute(format!("grant select on {} to {to}", names.join(", "))).await?;
        }
        let names: Vec<String> =
            functions.iter().filter(|name| !has("function", name)).map(|name| format!("countersign.{name}")).collect();
        if !names.is_empty() {
            self.execute(format!("grant execute on function {} to {to}", names.join(", "))).await?;
        }
        self.grant_connect(role).await
    }

    /// Lets a role connect to this database, where not everybody may.
    pub(super) async fn grant_connect(&mut self, role: &str) -> Result<(), SchemaError> {
        let sql = "select 'yes' from pg_database d where d.datname = current_database() \
                   and not has_database_privilege($1, d.oid, 'connect')";
        if self.rows::<1>(sql, &[Some(role.to_owned())]).await?.is_empty() {
            return Ok(());
        }
        let grant = format!("grant connect on database {} to {}", identifier(&self.dbname), identifier(role));
        // Without the right to grant it this is a warning of PostgreSQL's, and no error.
        self.execute(grant.clone()).await?;
        if !self.rows::<1>(sql, &[Some(role.to_owned())]).await?.is_empty() {
            let warning =
                format!("{role} may not connect to the database, and {} may not change that: {grant}", self.user);
            self.report.warnings.push(warning);
        }
        Ok(())
    }
}
