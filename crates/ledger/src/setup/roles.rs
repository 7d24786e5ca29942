//! The roles of the ledger. `init` creates missing roles, and refuses existing ones with excess privileges.

use pg::value::{identifier, text_array};
use pg::{ConnectOptions, Session, SessionSettings};

use super::{Setup, literal, rows};
use crate::roles::{APPROVER, CONSOLE, OPERATOR, OWNER};
use crate::setup::schema::SchemaError;

/// The attributes that the ledger's roles must not have; $1: the roles without login.
const ATTRIBUTES_SQL: &str = "\
select r.rolname, concat_ws(', ', case when r.rolcanlogin then 'LOGIN' end, case when r.rolsuper then 'SUPERUSER' end, \
    case when r.rolcreaterole then 'CREATEROLE' end, case when r.rolcreatedb then 'CREATEDB' end, \
    case when r.rolreplication then 'REPLICATION' end, case when r.rolbypassrls then 'BYPASSRLS' end) \
from pg_roles r where r.rolname = any ($1::name[]) order by 1";

/// The roles that ours are members of; a member of the owner that becomes one is not of interest here.
const GROUPS_SQL: &str = "\
select r.rolname, string_agg(g.rolname, ', ' order by g.rolname) from pg_roles r \
join pg_auth_members m on m.member = r.oid join pg_roles g on g.oid = m.roleid \
where r.rolname = any ($1::name[]) group by r.rolname order by 1";

/// The members of the ledger's roles, except superusers and the role that runs `init`.
const MEMBERS_SQL: &str = "\
select m.role, string_agg(m.member || case when m.admin then ' (with ADMIN OPTION)' else '' end, ', ' order by m.member) \
from (select g.rolname as role, r.rolname as member, bool_or(m.admin_option) as admin \
      from pg_roles g join pg_auth_members m on m.roleid = g.oid join pg_roles r on r.oid = m.member \
      where g.rolname = any ($1::name[]) and not r.rolsuper and r.rolname <> current_user group by 1, 2) m \
group by m.role order by m.role";

/// The attributes that the ledger's roles without login must not have, each with a statement that removes it.
async fn problems(session: &mut Session) -> Result<Vec<String>, pg::Error> {
    let params = [Some(text_array(&[OWNER, APPROVER, CONSOLE, OPERATOR].map(str::to_owned)))];
    let mut problems = Vec::new();
    for [role, attributes] in rows(session, ATTRIBUTES_SQL, &params).await? {
        if !attributes.is_empty() {
            let without: Vec<String> = attributes.split(", ").map(|name| format!("NO{name}")).collect();
            let fix = format!("alter role {} {}", identifier(&role), without.join(" "));
            problems.push(format!("the role {role} has {attributes}: run `{fix}`"));
        }
    }
    for [role, groups] in rows(session, GROUPS_SQL, &params).await? {
        problems.push(format!("the role {role} is a member of {groups}: run `revoke {groups} from {role}`"));
    }
    Ok(problems)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleReport {
    /// The problems, each with a statement that fixes it.
    pub problems: Vec<String>,
    /// The members of the ledger's owner, except superusers and the login of this connection.
    pub owner_members: Option<String>,
}

/// Checks the roles of the ledger.
pub async fn examine_roles(target: &ConnectOptions) -> Result<RoleReport, pg::Error> {
    let mut session = Session::connect(target, &SessionSettings::default()).await?;
    let problems = problems(&mut session).await?;
    let members = rows(&mut session, MEMBERS_SQL, &[Some(text_array(&[OWNER.to_owned()]))]).await?;
    session.close().await;
    let owner_members = members.into_iter().next().map(|[_, members]| members);
    Ok(RoleReport { problems, owner_members })
}

impl Setup {
    /// Refuses existing roles of these names that have privileges which they must not have. Another user may have
    /// created them.
    pub(super) async fn inspect_roles(&mut self, writer: &str) -> Result<(), SchemaError> {
        let mut problems = problems(&mut self.session).await?;
        if [OWNER, APPROVER, CONSOLE, OPERATOR].contains(&writer) {
            problems.push(format!("{writer} is not a login for servers: give another name with --writer"));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(SchemaError::Untrusted { database: self.dbname.clone(), problems })
        }
    }

    /// Creates the missing roles, and returns the role that will own the ledger. If this role may not create roles,
    /// `init` adds a warning, and the role itself owns the ledger, unless the owner exists and has this role as a
    /// member.
    pub(super) async fn create_roles(&mut self, writer: &str) -> Result<String, SchemaError> {
        let no_rights = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls";
        let mut missing = Vec::new();
        // The writer has no password yet: `init --config`, an administrator, or nobody (pg_hba.conf) gives it one.
        let groups = [OWNER, APPROVER, CONSOLE, OPERATOR].map(|role| (role, "nologin"));
        for (role, login) in groups.into_iter().chain([(writer, "login")]) {
            if self.role_exists(role).await? {
                continue;
            }
            if !self.creates_roles {
                missing.push(role.to_owned());
                continue;
            }
            self.execute(format!("create role {} {login} {no_rights}", identifier(role))).await?;
            self.report.roles.push(role.to_owned());
        }
        if !missing.is_empty() {
            self.report.warnings.push(format!(
                "the role {} may not create roles, so there is no {}: run init as a role with CREATEROLE to get them",
                self.user,
                missing.join(", ")
            ));
        }
        if missing.iter().any(|role| role == OWNER) {
            return Ok(self.own_ledger());
        }
        if self.may_act_as(OWNER).await? {
            return Ok(OWNER.to_owned());
        }
        if self.creates_roles {
            let user = identifier(&self.user);
            return match self.execute(format!("grant {OWNER} to {user}")).await {
                Ok(()) => Ok(OWNER.to_owned()),
                // Since PostgreSQL 16, CREATEROLE alone does not permit changes to a role that another role has
                // created.
                Err(SchemaError::Database(error))
                    if error.server_error().is_some_and(|error| error.sqlstate == "42501") =>
                {
                    Err(SchemaError::NotAMember { user: self.user.clone() })
                }
                Err(error) => Err(error),
            };
        }
        Ok(self.own_ledger())
    }

    /// Makes the role that runs `init` the owner of the ledger.
    fn own_ledger(&mut self) -> String {
        let user = self.user.clone();
        self.report
            .warnings
            .push(format!("the ledger belongs to {user}: a server that logs in as {user} can change its records"));
        user
    }

    async fn may_act_as(&mut self, role: &str) -> Result<bool, SchemaError> {
        let sql = format!("select pg_has_role(current_user, {}, 'usage')::text", literal(role));
        Ok(self.rows::<1>(&sql, &[]).await?.concat() == ["true"])
    }

    /// Warns of other members of the ledger's roles.
    pub(super) async fn name_members(&mut self, writer: &str) -> Result<(), SchemaError> {
        let mut roles = vec![OWNER.to_owned(), writer.to_owned()];
        roles.extend(self.report.reader.clone());
        for [role, members] in self.rows(MEMBERS_SQL, &[Some(text_array(&roles))]).await? {
            let can = match role.as_str() {
                OWNER => "change the ledger",
                role if role == writer => "write as a server does",
                _ => "read what agents read",
            };
            self.report.warnings.push(format!("members of {role}, who can {can}: {members}"));
        }
        Ok(())
    }
}
