//! Signing in at an OpenID Connect provider. The table and rules are in `migrations/baseline/69_console_oidc.sql`.

use types::Secret;

use super::{ConsolePerson, ConsoleSessions, array, hash};

const BEGIN_SQL: &str =
    "select countersign.begin_sign_in(decode($1, 'hex'), decode($2, 'hex'), $3, $4, $5, $6::text::boolean)";
const TAKE_SQL: &str = "select t.nonce, t.verifier, t.return_to, t.is_fresh::text \
                        from countersign.take_sign_in(decode($1, 'hex'), decode($2, 'hex')) t";
const LOG_IN_SQL: &str = "select countersign.log_in_with_oidc(decode($1, 'hex'), $2, $3, $4::text::text[], \
                          $5::text::text[], to_timestamp($6::text::double precision))";

/// A browser that was sent to the provider and has not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSignIn {
    /// The value that the ID token must have.
    pub nonce: Secret,
    /// The secret of PKCE.
    pub verifier: Secret,
    /// Path of the page where the person wants to go.
    pub return_to: String,
    /// The person was asked to sign in again, in order to approve.
    pub is_fresh: bool,
}

impl ConsoleSessions {
    /// Remembers a browser that is sent to the provider, for 10 minutes.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn begin_sign_in(
        &self,
        state: &Secret,
        browser: &Secret,
        pending: &PendingSignIn,
    ) -> Result<(), pg::Error> {
        let PendingSignIn { nonce, verifier, return_to, is_fresh } = pending;
        let params = [
            hash(state),
            hash(browser),
            nonce.expose().to_owned(),
            verifier.expose().to_owned(),
            return_to.clone(),
            is_fresh.to_string(),
        ];
        self.ask(BEGIN_SQL, &params).await.map(drop)
    }

    /// What this browser has begun with this state, once. `None` if that is unknown, completed, older than 10 minutes, or
    /// of another browser.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn take_sign_in(&self, state: &Secret, browser: &Secret) -> Result<Option<PendingSignIn>, pg::Error> {
        let Some(row) = self.ask(TAKE_SQL, &[hash(state), hash(browser)]).await? else { return Ok(None) };
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (nonce, verifier) = (Secret::new(next()), Secret::new(next()));
        Ok(Some(PendingSignIn { nonce, verifier, return_to: next(), is_fresh: next() == "true" }))
    }

    /// Logs in a person whom the provider has verified. `accounts` are the names under which their agents propose, and
    /// `signed_in_at` is when the provider has verified them, in seconds since 1970, if it says so.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn log_in_with_oidc(
        &self,
        session: &Secret,
        person: &ConsolePerson,
        accounts: &[String],
        signed_in_at: Option<f64>,
    ) -> Result<(), pg::Error> {
        let params = [
            Some(hash(session)),
            Some(person.name.clone()),
            Some(person.role.as_str().to_owned()),
            Some(array(&person.groups)),
            Some(array(accounts)),
            signed_in_at.map(|seconds| seconds.to_string()),
        ];
        self.ask_with_nulls(LOG_IN_SQL, &params).await.map(drop)
    }
}
