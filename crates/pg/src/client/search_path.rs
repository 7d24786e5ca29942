//! The search path of reads: the schemas of the login's own path in which no other user can create a function that
//! shadows one that an agent calls (PostgreSQL manual, "Schemas", "Usage Patterns").
//!
//! An object that another user creates in front of PostgreSQL's own would run with the rights of the login, and
//! qualified names do not cover operators and casts. So `search_path` is a start-up parameter, to which RESET returns.

use crate::client::connect_options::ConnectOptions;
use crate::client::error::Error;
use crate::client::literal::{identifier, text_array};
use crate::client::session::{PipelineStatement, Session};
use crate::client::session_settings::SessionSettings;

/// The search path of a login, without the schemas that cannot be trusted. PostgreSQL's own schema always comes
/// first, and temporary objects last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchPath {
    /// The schemas that are searched after `pg_catalog`, in order.
    pub schemas: Vec<String>,
    /// The schemas of the login's path that are left out.
    pub untrusted: Vec<UntrustedSchema>,
}

/// A schema in which users other than its owner and superusers may create objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedSchema {
    /// Its name.
    pub name: String,
    /// The roles with CREATE on it, `PUBLIC` for all of them.
    pub creators: Vec<String>,
}

/// The statements after the second one see only PostgreSQL's own schema.
const LOGIN_PATH_SQL: &str = "select pg_catalog.current_schemas(false)";
const PIN_SQL: &str = "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";

/// One row for each of these schemas, in order: its name, and the roles that may create objects in it besides its
/// owner and superusers.
const CREATORS_SQL: &str = "\
select n.nspname, array_to_json(array( \
    select case a.grantee when 0 then 'PUBLIC' else pg_get_userbyid(a.grantee) end \
    from aclexplode(n.nspacl) a left join pg_roles r on r.oid = a.grantee \
    where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner and not coalesce(r.rolsuper, false) order by 1)) \
from unnest($1::name[]) with ordinality as path (name, position) join pg_namespace n on n.nspname = path.name \
where left(n.nspname, 3) <> 'pg_' \
order by path.position";

impl SearchPath {
    /// Asks the database for the search path of the target's login.
    pub async fn load(target: &ConnectOptions) -> Result<Self, Error> {
        // Every name in the two statements that run under the login's own path is qualified.
        let settings = SessionSettings::default().with_login_search_path();
        let mut session = Session::connect(target, &settings).await?;
        let steps = [PipelineStatement::without_params(LOGIN_PATH_SQL)];
        let outcomes = session.run(&steps).await.map_err(|failed| failed.error)?;
        let path = outcomes.into_iter().flat_map(|outcome| outcome.rows).flatten().flatten().next();
        Self::inspect(session, path.unwrap_or_else(|| text_array(&[]))).await
    }

    /// Of these schemas, those that the database has.
    pub async fn of(target: &ConnectOptions, schemas: &[String]) -> Result<Self, Error> {
        if schemas.is_empty() {
            return Ok(Self::default());
        }
        let session = Session::connect(target, &SessionSettings::default()).await?;
        Self::inspect(session, text_array(schemas)).await
    }

    async fn inspect(mut session: Session, schemas: String) -> Result<Self, Error> {
        let params = [Some(schemas)];
        let steps = [PipelineStatement::without_params(PIN_SQL), PipelineStatement::new(CREATORS_SQL, &params)];
        let mut outcomes = session.run(&steps).await.map_err(|failed| failed.error)?;
        session.close().await;
        let mut path = Self::default();
        for row in outcomes.pop().unwrap_or_default().rows {
            let Ok([Some(name), Some(creators)]) = <[Option<String>; 2]>::try_from(row) else { continue };
            let creators: Vec<String> = serde_json::from_str(&creators).unwrap_or_default();
            if creators.is_empty() {
                path.schemas.push(name);
            } else {
                path.untrusted.push(UntrustedSchema { name, creators });
            }
        }
        Ok(path)
    }

    /// The value of the setting `search_path`.
    #[must_use]
    pub fn setting(&self) -> String {
        let schemas = self.schemas.iter().map(|name| identifier(name));
        let all = ["pg_catalog".to_owned()].into_iter().chain(schemas).chain(["pg_temp".to_owned()]);
        all.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_the_system_schema_comes_first() {
        let path = SearchPath { schemas: vec!["shop".to_owned(), "A \"b\", c".to_owned()], untrusted: Vec::new() };
        assert_eq!(path.setting(), r#"pg_catalog, "shop", "A ""b"", c", pg_temp"#);
        assert_eq!(SearchPath::default().setting(), "pg_catalog, pg_temp");
    }
}
