//! `[console]`: where browsers reach the console, and who signs in to it.

use std::path::Path;
use std::time::Duration;

use ::console::{APPROVE_WITHIN, AccountClaims, PersonRules};
use anyhow::bail;
use auth::is_label;
use http_client::HttpsUrl;
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::addresses::ConsoleUrl;
use super::console_keys::{CONSOLE_OIDC, ConsoleKeys, OIDC, OidcKeys, OidcSecretKeys};
use super::http_auth::{IssuerConfig, is_scope};
use super::reader::Reader;
use super::schema;
use super::secrets::{SecretLocation, SecretNames, locate};

/// The table that maps groups of the provider to those that `approvers` names.
const GROUPS: &str = "groups";

/// Everything that is configured of the console.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsoleSettings {
    pub(crate) url: Option<String>,
    /// `None`: as long as the session.
    pub(crate) approve_within: Option<Duration>,
    pub(crate) oidc: Option<OidcSettings>,
}

/// The provider where people sign in. Its secret is read by the console only: other commands may not be able to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OidcSettings {
    pub(crate) config: OidcConfig,
    pub(crate) client_secret: Option<SecretLocation>,
}

/// The provider of the file, without the secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OidcConfig {
    pub(crate) issuer: HttpsUrl,
    pub(crate) client_id: String,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) rules: PersonRules,
}

impl ConsoleSettings {
    /// Keys and secrets are those of flags and variables, and those of the file.
    pub(super) fn new(
        [given, below]: [ConsoleKeys; 2],
        oidc: Option<OidcConfig>,
        config: Option<&Path>,
        secrets: [&OidcSecretKeys; 2],
        oauth: Option<&IssuerConfig>,
    ) -> anyhow::Result<Self> {
        let keys = given.or(below);
        let names = SecretNames {
            flag: "oidc-client-secret",
            variable: "COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET",
            key: "client_secret",
        };
        let secret = locate(&names, config, secrets.map(|keys| (&keys.client_secret, &keys.client_secret_file)))?;
        if oidc.is_none() && secret.is_some() {
            bail!(
                "there is a secret of the console (--{}, {}), and no provider: [{CONSOLE_OIDC}] of the configuration file",
                names.flag,
                names.variable
            );
        }
        let oidc = oidc.map(|mut config| {
            // Agents with tokens of this provider propose under names that follow from the same claims.
            config.rules.accounts = oauth.and_then(|oauth| oauth.account_claims(&config.issuer));
            OidcSettings { config, client_secret: secret }
        });
        Ok(Self {
            url: keys.url.map(ConsoleUrl::into_text),
            approve_within: keys.approve_within.map_or(Some(APPROVE_WITHIN), |within| within.time()),
            oidc,
        })
    }
}

impl IssuerConfig {
    /// How servers name the accounts of this issuer's people; `None` if it is another issuer.
    fn account_claims(&self, issuer: &HttpsUrl) -> Option<AccountClaims> {
        let own = self.issuer();
        (own.issuer == *issuer).then(|| AccountClaims {
            account_claim: own.account_claim.clone(),
            account_prefix: own.account_prefix.clone(),
            label_claim: own.label_claim.clone(),
        })
    }
}

impl<'s> Reader<'s> {
    /// The provider, if there is one, and its secret.
    pub(super) fn oidc(&mut self, console: &mut DeTable<'s>) -> (OidcSecretKeys, Option<OidcConfig>) {
        let Some(start) = console.get(OIDC).map(|value| value.span().start) else { return Default::default() };
        let mut table = self.table(console, OIDC);
        let before = self.mistakes.len();
        let groups = self.approver_groups(&mut table);
        let secret = self.group(&mut table, OidcSecretKeys::NAMES);
        let keys: OidcKeys = self.group(&mut table, OidcKeys::NAMES);
        self.refuse_rest(&table, "console.oidc.", &schema::names(Some(CONSOLE_OIDC)));
        let was_read = self.mistakes.len() == before;
        (secret, self.provider(keys, groups, was_read, start))
    }

    /// `was_read`: what is not there was not given, either.
    fn provider(
        &mut self,
        keys: OidcKeys,
        groups: Vec<(String, String)>,
        was_read: bool,
        start: usize,
    ) -> Option<OidcConfig> {
        for (name, is_there) in [("issuer", keys.issuer.is_some()), ("client_id", keys.client_id.is_some())] {
            if was_read && !is_there {
                self.mistake(start..start, format!("{CONSOLE_OIDC}: {name} is missing"));
            }
        }
        let texts = [
            ("client_id", &keys.client_id),
            ("person_claim", &keys.person_claim),
            ("groups_claim", &keys.groups_claim),
        ];
        for (name, text) in texts {
            if let Some(text) = text.as_ref().filter(|text| text.get_ref().is_empty()) {
                self.mistake(text.span(), format!("{name}: it is empty"));
            }
        }
        if let Some(name) = keys.name.as_ref().filter(|name| !is_label(name.get_ref())) {
            self.mistake(name.span(), "name: a name takes 1 to 255 bytes without control characters");
        }
        for scope in keys.scopes.iter().flatten().filter(|scope| !is_scope(scope.get_ref())) {
            self.mistake(
                scope.span(),
                format!("scopes: {:?} is no scope: these have no spaces, quotes or backslashes", scope.get_ref()),
            );
        }
        let lists = [&keys.reviewers, &keys.reviewer_groups, &keys.auditors, &keys.auditor_groups];
        if was_read && lists.into_iter().flatten().all(Vec::is_empty) {
            let message = "nobody could use the console: name people (reviewers, auditors), or groups of the provider (reviewer_groups, \
                           auditor_groups)";
            self.mistake(start..start, format!("{CONSOLE_OIDC}: {message}"));
        }
        let issuer = keys.issuer.and_then(|issuer| self.issuer(&issuer))?;
        let text =
            |given: Option<Spanned<String>>, usual: &str| given.map_or_else(|| usual.to_owned(), Spanned::into_inner);
        let list = |given: Option<Vec<Spanned<String>>>| {
            given.into_iter().flatten().map(Spanned::into_inner).collect::<Vec<_>>()
        };
        let scopes = match keys.scopes {
            Some(scopes) => list(Some(scopes)),
            None => ["openid", "email", "profile"].map(str::to_owned).to_vec(),
        };
        let place = issuer.as_str().trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
        Some(OidcConfig {
            client_id: keys.client_id?.into_inner(),
            name: text(keys.name, place),
            scopes,
            rules: PersonRules {
                person_claim: text(keys.person_claim, "email"),
                groups_claim: text(keys.groups_claim, "groups"),
                reviewers: list(keys.reviewers),
                auditors: list(keys.auditors),
                reviewer_groups: list(keys.reviewer_groups),
                auditor_groups: list(keys.auditor_groups),
                groups,
                accounts: None,
            },
            issuer,
        })
    }

    fn issuer(&mut self, text: &Spanned<String>) -> Option<HttpsUrl> {
        if text.get_ref().contains('?') {
            self.mistake(text.span(), "issuer: an issuer has no query");
            return None;
        }
        self.web_url("issuer", text)
    }

    /// Which group of the provider is which one of `approvers`.
    fn approver_groups(&mut self, oidc: &mut DeTable<'s>) -> Vec<(String, String)> {
        let mut groups = Vec::new();
        for (theirs, ours) in self.table(oidc, GROUPS) {
            let (name, span) = (theirs.get_ref().to_string(), ours.span());
            match ours.into_inner() {
                DeValue::String(ours) if !ours.is_empty() => groups.push((name, ours.into_owned())),
                _ => self.mistake(span, format!("groups: {name:?} gives the name of a group, in quotes")),
            }
        }
        groups
    }
}
