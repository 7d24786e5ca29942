//! The owner of the ledger, and the privileges on it from an explicit list. All other privileges are revoked.

use pg::Session;
use pg::value::identifier;

use super::{Setup, literal, rows};
use crate::baseline::BASELINE_GRANTS;
use crate::roles::{APPROVER, CONSOLE, OPERATOR};
use crate::setup::schema::SchemaError;

/// The placeholder for the login of a server in the list of grants.
const WRITER: &str = "{writer}";

/// PostgreSQL's name for all roles, which no role can have.
const EVERYBODY: &str = "public";

/// A table that the migration runner creates. Every reader of the ledger reads its version.
const HISTORY: &str = "schema_history";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grant<'a> {
    /// The kind of object: schema, table or function.
    kind: &'static str,
    /// The name without the schema; a function's name includes the types of its arguments.
    name: &'a str,
    privilege: &'static str,
    /// The role, or [`WRITER`].
    role: &'a str,
}

/// Parses the statements of the list.
fn grants() -> Vec<Grant<'static>> {
    let text = BASELINE_GRANTS.split(";\n").map(|statement| {
        // A statement may begin with comments.
        let start = statement.rfind("grant ").unwrap_or(statement.len());
        statement.get(start..).unwrap_or_default()
    });
    let mut grants: Vec<Grant<'static>> = text.flat_map(statement_grants).collect();
    let readers = [WRITER, APPROVER, CONSOLE, OPERATOR];
    grants.extend(readers.map(|role| Grant { kind: "table", name: HISTORY, privilege: "SELECT", role }));
    grants
}

fn statement_grants(statement: &'static str) -> Vec<Grant<'static>> {
    let statement = statement.trim().trim_end_matches(';');
    let kinds = [
        ("grant usage on schema", "schema", "USAGE"),
        ("grant select on", "table", "SELECT"),
        ("grant insert on", "table", "INSERT"),
        ("grant execute on function", "function", "EXECUTE"),
    ];
    let Some((objects, kind, privilege)) =
        kinds.into_iter().find_map(|(start, kind, privilege)| Some((statement.strip_prefix(start)?, kind, privilege)))
    else {
        return Vec::new();
    };
    let Some((objects, roles)) = objects.rsplit_once(" to ") else { return Vec::new() };
    let names = top_level(objects);
    let roles = roles.split(',').map(str::trim);
    roles.flat_map(|role| names.iter().map(move |name| Grant { kind, name, privilege, role })).collect()
}

/// Splits a list at its commas outside of parentheses, and removes the ledger's schema.
fn top_level(list: &'static str) -> Vec<&'static str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let name = list.get(start..at).unwrap_or_default().trim();
                names.push(name.strip_prefix("countersign.").unwrap_or(name));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

const WRITERS_SQL: &str = "select w.role_name from countersign.writer_login w";

/// The objects that are not owned by the role $1, in the form of `ALTER .. OWNER`. The sequence of an identity column
/// follows its table.
const NOT_OWNED_SQL: &str = "\
select 'schema countersign' from pg_namespace n where n.nspname = 'countersign' and pg_get_userbyid(n.nspowner) <> $1 \
union all \
select case c.relkind when 'S' then 'sequence ' when 'c' then 'type ' else 'table ' end || c.oid::regclass from pg_class c \
where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'p', 'v', 'c', 'S') and pg_get_userbyid(c.relowner) <> $1 \
  and not (c.relkind = 'S' and exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')) \
union all \
select 'function ' || p.oid::regprocedure from pg_proc p \
where p.pronamespace = 'countersign'::regnamespace and pg_get_userbyid(p.proowner) <> $1";

/// Every privilege on the ledger that its owner has granted: kind and name of the object, role, and privilege.
const GRANTS_SQL: &str = "\
select g.kind, g.name, case g.grantee when 0 then 'public' else pg_get_userbyid(g.grantee) end, g.privilege from ( \
    select 'schema' as kind, 'countersign'::text as name, n.nspowner as owner, a.grantee, a.privilege_type as privilege \
    from pg_namespace n cross join aclexplode(n.nspacl) a where n.nspname = 'countersign' \
    union all \
    select 'table', c.relname, c.relowner, a.grantee, a.privilege_type \
    from pg_class c cross join aclexplode(c.relacl) a \
    where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') \
    union all \
    select 'table', c.relname, c.relowner, a.grantee, a.privilege_type \
    from pg_class c join pg_attribute t on t.attrelid = c.oid cross join aclexplode(t.attacl) a \
    where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'p', 'v') \
    union all \
    select 'function', p.proname || '(' || oidvectortypes(p.proargtypes) || ')', p.proowner, a.grantee, a.privilege_type \
    from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
    where p.pronamespace = 'countersign'::regnamespace \
) g where g.grantee <> g.owner group by 1, 2, 3, 4 order by 1, 2, 3, 4";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrantedPrivilege {
    kind: String,
    name: String,
    role: String,
    privilege: String,
}

impl GrantedPrivilege {
    /// Whether `init` grants the privilege, or an administrator may grant it: SELECT to auditors, on objects that
    /// every reader of the ledger may read.
    fn is_expected(&self, writers: &[String]) -> bool {
        let role = if writers.contains(&self.role) { WRITER } else { self.role.as_str() };
        let listed = grants();
        let same = |grant: &&Grant<'_>| {
            grant.kind == self.kind && grant.name == self.name && grant.privilege == self.privilege
        };
        let is_readable = self.kind == "schema" && self.privilege == "USAGE"
            || self.kind == "table" && self.privilege == "SELECT" && listed.iter().any(|grant| same(&grant));
        listed.iter().filter(same).any(|grant| grant.role == role)
            || role != EVERYBODY && (self.is_restoring(role) || is_readable)
    }

    /// Whether `track` has granted the privilege: EXECUTE on the function that restores rows of a tracked table.
    fn is_restoring(&self, role: &str) -> bool {
        let of_table =
            self.name.strip_prefix("restore_of_").and_then(|rest| rest.strip_suffix("(integer, text, text, text)"));
        self.kind == "function"
            && of_table.is_some_and(|oid| oid.bytes().all(|byte| byte.is_ascii_digit()))
            && (role == WRITER || role == OPERATOR)
    }

    fn object(&self) -> String {
        match self.kind.as_str() {
            "schema" => "schema countersign".to_owned(),
            "table" => format!("table countersign.{}", identifier(&self.name)),
            // The name includes the argument types, in PostgreSQL's form.
            _ => format!("function countersign.{}", self.name),
        }
    }
}

/// The privileges on the ledger that `init` would revoke, each as a phrase.
pub(super) async fn unexpected(session: &mut Session) -> Result<Vec<String>, pg::Error> {
    let writers = rows::<1>(session, WRITERS_SQL, &[]).await?.concat();
    let all = privileges(session).await?;
    let unexpected = all.iter().filter(|privilege| !privilege.is_expected(&writers));
    Ok(unexpected.map(|it| format!("{} on {} to {}", it.privilege, it.object(), it.role)).collect())
}

async fn privileges(session: &mut Session) -> Result<Vec<GrantedPrivilege>, pg::Error> {
    let rows = rows(session, GRANTS_SQL, &[]).await?;
    Ok(rows.into_iter().map(|[kind, name, role, privilege]| GrantedPrivilege { kind, name, role, privilege }).collect())
}

impl Setup {
    /// Makes this role the owner of the schema and of all objects in it.
    pub(super) async fn set_owner(&mut self, owner: &str) -> Result<(), SchemaError> {
        for [object] in self.rows(NOT_OWNED_SQL, &[Some(owner.to_owned())]).await? {
            self.execute(format!("alter {object} owner to {}", identifier(owner))).await?;
        }
        Ok(())
    }

    /// Grants servers, approvers, the console and operators the privileges of the list, and revokes all others.
    pub(super) async fn set_privileges(&mut self, writer: &str) -> Result<(), SchemaError> {
        let mut writers = self.rows::<1>(WRITERS_SQL, &[]).await?.concat();
        let mut given = Vec::new();
        if self.role_exists(writer).await? {
            given.push((writer, WRITER));
            if !writers.iter().any(|known| known == writer) {
                self.execute(format!("insert into countersign.writer_login values ({})", literal(writer))).await?;
                writers.push(writer.to_owned());
            }
        }
        for role in [APPROVER, CONSOLE, OPERATOR] {
            if self.role_exists(role).await? {
                given.push((role, role));
            }
        }
        let grants = privileges(&mut self.session).await?;
        for grant in grants.iter().filter(|grant| !grant.is_expected(&writers)) {
            self.execute(format!("revoke all on {} from {} cascade", grant.object(), identifier(&grant.role))).await?;
            if !self.report.is_new {
                let change = format!("revoked {} on {} from {}", grant.privilege, grant.object(), grant.role);
                self.report.changes.push(change);
            }
        }
        self.grant(EVERYBODY, EVERYBODY, &grants).await?;
        for (role, listed_as) in given {
            self.grant(role, listed_as, &grants).await?;
            self.grant_connect(role).await?;
        }
        Ok(())
    }

    /// Grants a role the privileges in the list that it does not have yet.
    async fn grant(&mut self, role: &str, listed_as: &str, known: &[GrantedPrivilege]) -> Result<(), SchemaError> {
        let listed = grants();
        let missing: Vec<&Grant<'_>> = listed
            .iter()
            .filter(|grant| grant.role == listed_as)
            .filter(|grant| {
                !known.iter().any(|it| {
                    it.role == role
                        && (it.kind.as_str(), it.name.as_str(), it.privilege.as_str())
                            == (grant.kind, grant.name, grant.privilege)
                })
            })
            .collect();
        let to = identifier(role);
        for (kind, privilege) in
            [("schema", "USAGE"), ("table", "SELECT"), ("table", "INSERT"), ("function", "EXECUTE")]
        {
            let of_kind = missing.iter().filter(|grant| (grant.kind, grant.privilege) == (kind, privilege));
            let names: Vec<String> = of_kind
                .map(
                    |grant| {
                        if kind == "schema" { grant.name.to_owned() } else { format!("countersign.{}", grant.name) }
                    },
                )
                .collect();
            if !names.is_empty() {
                let (privilege, names) = (privilege.to_lowercase(), names.join(", "));
                self.execute(format!("grant {privilege} on {kind} {names} to {to}")).await?;
            }
        }
        Ok(())
    }

    /// Grants a role CONNECT on this database, if PUBLIC does not have it.
    pub(super) async fn grant_connect(&mut self, role: &str) -> Result<(), SchemaError> {
        let sql = "select 'yes' from pg_database d where d.datname = current_database() \
                   and not has_database_privilege($1, d.oid, 'connect')";
        if self.rows::<1>(sql, &[Some(role.to_owned())]).await?.is_empty() {
            return Ok(());
        }
        let grant = format!("grant connect on database {} to {}", identifier(&self.dbname), identifier(role));
        // Without the grant option, GRANT only raises a warning.
        self.execute(grant.clone()).await?;
        if !self.rows::<1>(sql, &[Some(role.to_owned())]).await?.is_empty() {
            let warning =
                format!("{role} may not connect to the database, and {} may not change that: {grant}", self.user);
            self.report.warnings.push(warning);
        }
        Ok(())
    }
}
