//! Signing in at an OpenID Connect provider. The table and rules are in `migrations/baseline/69_console_oidc.sql`.

use types::Secret;

use super::{ConsolePerson, ConsoleSessions, array, hash};

const BEGIN_SQL: &str =
    "select countersign.begin_sign_in(decode($1, 'hex'), decode($2, 'hex'), $3, $4, $5, $6::text::boolean)";
const TAKE_SQL: &str = "select t.nonce, t.verifier, t.return_to, t.is_fresh::text \
                        from countersign.take_sign_in(decode($1, 'hex'), decode($2, 'hex')) t";
const LOG_IN_SQL: &str = "select countersign.log_in_with_oidc(decode($1, 'hex'), $2, $3, $4::text::text[], \
                          $5::text::text[], to_timestamp($6::text::double precision))";

/// The sign-in of a browser that was sent to the provider and has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSignIn {
    /// The nonce that the ID token must contain.
    pub nonce: Secret,
    /// The code verifier of PKCE.
    pub verifier: Secret,
    /// The path of the page to return to.
    pub return_to: String,
    /// Whether the person was asked to sign in again before an approval.
    pub is_fresh: bool,
}

impl ConsoleSessions {
    /// Stores a sign-in that begins, for 10 minutes.
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

    /// Takes the sign-in with this state; it can be taken once. Returns `None` if the state is unknown, completed,
    /// older than 10 minutes, or belongs to another browser.
    pub async fn take_sign_in(&self, state: &Secret, browser: &Secret) -> Result<Option<PendingSignIn>, pg::Error> {
        let Some(row) = self.ask(TAKE_SQL, &[hash(state), hash(browser)]).await? else { return Ok(None) };
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (nonce, verifier) = (Secret::new(next()), Secret::new(next()));
        Ok(Some(PendingSignIn { nonce, verifier, return_to: next(), is_fresh: next() == "true" }))
    }

    /// Logs in a person whom the provider has verified. `accounts` are the names under which the person's agents
    /// propose. `signed_in_at` is when the provider verified the person, in seconds since 1970, if the provider
    /// reports it.
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
