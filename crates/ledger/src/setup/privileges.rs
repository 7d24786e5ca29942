//! Who owns the ledger, and who may do what to it: by an explicit list. Everything else is taken back.

use pg::Session;
use pg::value::identifier;

use super::grants::{GRANTS, Grant, WRITER};
use super::{Setup, literal, rows};
use crate::roles::{APPROVER, OPERATOR};
use crate::schema::SchemaError;

const WRITERS_SQL: &str = "select w.role_name from countersign.writer_login w";

/// What belongs to another role than $1, as `ALTER .. OWNER` names it. A sequence of an identity column follows its table.
const NOT_OWNED_SQL: &str = "\
select 'schema countersign' from pg_namespace n where n.nspname = 'countersign' and pg_get_userbyid(n.nspowner) <> $1 \
union all \
select case c.relkind when 'S' then 'sequence ' when 'c' then 'type ' else 'table ' end || c.oid::regclass from pg_class c \
where c.relnamespace = 'countersign'::regnamespace and c.relkind in ('r', 'v', 'c', 'S') and pg_get_userbyid(c.relowner) <> $1 \
  and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i' \
                  and c.relkind = 'S') \
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
    /// Whether it is one that `init` grants, or one that an administrator may grant, to auditors: USAGE of the schema, and SELECT
    /// on a table that others may read.
    fn is_expected(&self, writers: &[String]) -> bool {
        if self.role == "PUBLIC" {
            return false;
        }
        let role = if writers.contains(&self.role) { WRITER } else { &self.role };
        GRANTS.iter().any(|grant| {
            let is_same = grant.kind == self.kind && grant.name == self.name && grant.privilege == self.privilege;
            is_same && (grant.role == role || ["USAGE", "SELECT"].contains(&&*grant.privilege))
        })
    }

    /// Whether it gives this role what the grant says.
    fn gives(&self, role: &str, grant: &Grant) -> bool {
        self.kind == grant.kind && self.name == grant.name && self.privilege == grant.privilege && self.role == role
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

    /// Grants servers, approvers and operators what they need, and takes back what nobody should have.
    pub(super) async fn set_privileges(&mut self, writer: &str) -> Result<(), SchemaError> {
        let mut writers = self.rows::<1>(WRITERS_SQL, &[]).await?.concat();
        let mut given = Vec::new();
        if self.role_exists(writer).await? {
            given.push((writer.to_owned(), WRITER));
            if !writers.iter().any(|known| known == writer) {
                self.execute(format!("insert into countersign.writer_login values ({})", literal(writer))).await?;
                writers.push(writer.to_owned());
            }
        }
        for role in [APPROVER, OPERATOR] {
            if self.role_exists(role).await? {
                given.push((role.to_owned(), role));
            }
        }
        let known = privileges(&mut self.session).await?;
        for grant in known.iter().filter(|grant| !grant.is_expected(&writers)) {
            let role = if grant.role == "PUBLIC" { "public".to_owned() } else { identifier(&grant.role) };
            self.execute(format!("revoke all on {} from {role} cascade", grant.object())).await?;
            if !self.report.is_new {
                let change = format!("revoked {} on {} from {}", grant.privilege, grant.object(), grant.role);
                self.report.changes.push(change);
            }
        }
        for (role, listed_as) in given {
            self.grant(&role, listed_as, &known).await?;
        }
        Ok(())
    }

    /// Grants a role what the list has for `listed_as`, as far as it is not among what is `known`: one statement for each
    /// privilege.
    async fn grant(&mut self, role: &str, listed_as: &str, known: &[Privilege]) -> Result<(), SchemaError> {
        let mut missing: Vec<(&str, &str, Vec<String>)> = Vec::new();
        for grant in GRANTS.iter().filter(|grant| grant.role == listed_as) {
            if known.iter().any(|privilege| privilege.gives(role, grant)) {
                continue;
            }
            let name = match grant.kind {
                "schema" => grant.name.clone(),
                _ => format!("countersign.{}", grant.name),
            };
            match missing.iter_mut().find(|(kind, privilege, _)| (*kind, *privilege) == (grant.kind, &*grant.privilege))
            {
                Some((_, _, names)) => names.push(name),
                None => missing.push((grant.kind, &grant.privilege, vec![name])),
            }
        }
        for (kind, privilege, names) in missing {
            let privilege = privilege.to_lowercase();
            self.execute(format!("grant {privilege} on {kind} {} to {}", names.join(", "), identifier(role))).await?;
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
