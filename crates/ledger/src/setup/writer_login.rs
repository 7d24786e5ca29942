//! The password of the servers' login. `init` knows only its verifier afterwards, and writes the password nowhere: the
//! caller puts it into a configuration file.

use pg::value::identifier;
use pg::{ConnectOptions, scram_verifier};
use types::Secret;

use super::{InitOptions, InitReport, Setup, literal, reader};
use crate::setup::schema::SchemaError;

/// Whether this role may read the passwords of roles. Only superusers may, unless they have granted it.
const MAY_SEE_SQL: &str = "select has_table_privilege('pg_authid', 'select')::text";

const HAS_PASSWORD_SQL: &str = "select (a.rolpassword is not null)::text from pg_authid a where a.rolname = $1";

impl Setup {
    /// Gives the servers' login a password. The statement contains only its verifier, so the server's log and
    /// statistics do not reveal it.
    pub(super) async fn set_writer_password(&mut self, writer: &str, password: &Secret) -> Result<(), SchemaError> {
        if !self.report.roles.iter().any(|created| created == writer)
            && let Some(problem) = self.password_problem(writer).await?
        {
            return Err(SchemaError::WriterLogin { problem });
        }
        let alter = |password: &str| format!("alter role {} password {password}", identifier(writer));
        let verifier = literal(&scram_verifier(password.expose()));
        self.execute_secret(&alter(&verifier), alter("'SCRAM-SHA-256$..'")).await
    }

    /// The reason why a login that this `init` has not created gets no password.
    async fn password_problem(&mut self, writer: &str) -> Result<Option<String>, SchemaError> {
        const REMEDY: &str = "name another login with --writer, which init creates (each database of a cluster needs its own), or leave --config out";
        if !self.role_exists(writer).await? {
            return Ok(Some(format!(
                "the role {user} may not create the login {writer}, so no configuration file can be written: run init as a \
                 role with CREATEROLE, or leave --config out",
                user = self.user
            )));
        }
        if self.rows::<1>(MAY_SEE_SQL, &[]).await?.concat() != ["true"] {
            return Ok(Some(format!(
                "the login {writer} exists already, and the role {} may not see whether it has a password: {REMEDY}",
                self.user
            )));
        }
        let has_password = self.rows::<1>(HAS_PASSWORD_SQL, &[Some(writer.to_owned())]).await?.concat() == ["true"];
        let why = format!("the login {writer} has a password already, which init does not change: {REMEDY}");
        Ok(has_password.then_some(why))
    }
}

/// Warns if the servers' login cannot connect with its new password.
pub(super) async fn check(target: &ConnectOptions, options: &InitOptions, report: &mut InitReport) {
    let InitOptions { writer, writer_password: Some(password), .. } = options else { return };
    if let Some(error) = reader::refusal(target, writer, password.expose()).await {
        report.warnings.push(format!("{writer} cannot log in with its new password: {error}"));
    }
}
