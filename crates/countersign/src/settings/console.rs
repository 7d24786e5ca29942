//! `[console]`: the address of the console, and who may sign in to it.

use std::path::Path;
use std::time::Duration;

use ::console::{APPROVE_WITHIN, AccountClaims, PersonRules};
use anyhow::bail;
use auth::{LABEL_RULE, is_label};
use http_client::HttpsUrl;
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::addresses::ConsoleUrl;
use super::console_keys::{CONSOLE_OIDC, ConsoleKeys, OIDC, OidcKeys, OidcSecretKeys};
use super::http_auth::{IssuerConfig, is_scope};
use super::reader::Reader;
use super::schema;
use super::secrets::{SecretLayer, SecretLocation, SecretNames, locate};

/// The table that maps groups of the provider to those that `approvers` names.
const GROUPS: &str = "groups";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsoleSettings {
    pub(crate) url: Option<String>,
    /// `None`: the whole session.
    pub(crate) approve_within: Option<Duration>,
    pub(crate) oidc: Option<OidcSettings>,
}

/// The provider where people sign in. Only the console reads its secret: other commands may have no access to it.
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
        oauth: &[IssuerConfig],
    ) -> anyhow::Result<Self> {
        let keys = given.or(below);
        let names = SecretNames {
            flag: "oidc-client-secret",
            variable: "COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET",
            key: "client_secret",
        };
        let [given, below] = secrets.map(|keys| (&keys.client_secret, &keys.client_secret_file));
        let secret = locate(
            &names,
            [SecretLayer::new(None, given), SecretLayer::new(config.map(|path| path.display().to_string()), below)],
        )?;
        if oidc.is_none() && secret.is_some() {
            bail!(
                "there is a secret of the console (--{}, {}), and no provider: [{CONSOLE_OIDC}] of the configuration file",
                names.flag,
                names.variable
            );
        }
        let oidc = oidc.map(|mut config| {
            // Agents with tokens of this provider propose writes under accounts that are derived from the same
            // claims.
            config.rules.accounts = oauth.iter().find_map(|oauth| oauth.account_claims(&config.issuer));
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
    /// How servers derive accounts from the tokens of this issuer; `None` if the issuer differs.
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
    /// The provider, if one is configured, and the keys of its secret.
    pub(super) fn oidc(&mut self, console: &mut DeTable<'s>) -> (OidcSecretKeys, Option<OidcConfig>) {
        let Some(start) = console.get(OIDC).map(|value| value.span().start) else { return Default::default() };
        let mut table = self.table(console, OIDC);
        let before = self.mistakes.len();
        let groups = self.approver_groups(&mut table);
        let secret = self.group(&mut table);
        let keys: OidcKeys = self.group(&mut table);
        self.refuse_rest(&table, "console.oidc.", &schema::names(Some(CONSOLE_OIDC)));
        let was_read = self.mistakes.len() == before;
        (secret, self.provider(keys, groups, was_read, start))
    }

    /// The provider. With `was_read` false, missing keys are not reported: they may be present with an error.
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
            self.mistake(name.span(), format!("name: a name takes {LABEL_RULE}"));
        }
        for scope in keys.scopes.iter().flatten().filter(|scope| !is_scope(scope.get_ref())) {
            self.mistake(
                scope.span(),
                format!("scopes: {:?} is no scope: these have no spaces, quotes or backslashes", scope.get_ref()),
            );
        }
        let people = [&keys.operators, &keys.reviewers, &keys.auditors];
        let members = [&keys.operator_groups, &keys.reviewer_groups, &keys.auditor_groups];
        if was_read && people.into_iter().chain(members).flatten().all(Vec::is_empty) {
            let message = "no person could use the console: name people (operators, reviewers, auditors), or groups of the provider \
                           (operator_groups, reviewer_groups, auditor_groups)";
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
                operators: list(keys.operators),
                operator_groups: list(keys.operator_groups),
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

    pub(super) fn issuer(&mut self, text: &Spanned<String>) -> Option<HttpsUrl> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, sources};
    use super::*;

    const OIDC: &str = "[console.oidc]\nissuer = \"https://login.example.com/\"\nclient_id = \"console\"\n";

    fn settings(text: &str) -> ConsoleSettings {
        sources().merge(parse(text).unwrap()).unwrap().console
    }

    #[test]
    fn the_provider_is_read_and_its_secret_is_left_where_it_is() {
        let console = settings("");
        assert_eq!((console.url, console.approve_within, console.oidc), (None, Some(APPROVE_WITHIN), None));
        let text = format!(
            "[console]\nurl = \"https://Console.Example.com\"\napprove_within = \"15m\"\n{OIDC}client_secret_file = \"secret\"\n\
             reviewer_groups = [\"sql\"]\nauditors = [\"olga@example.com\"]\ngroups = {{ \"f00\" = \"finance\" }}\n"
        );
        let console = settings(&text);
        assert_eq!(console.url.as_deref(), Some("https://console.example.com"));
        assert_eq!(console.approve_within, Some(Duration::from_secs(900)));
        let OidcSettings { config, client_secret } = console.oidc.unwrap();
        assert_eq!((config.issuer.as_str(), config.name.as_str()), ("https://login.example.com/", "login.example.com"));
        assert_eq!(config.scopes, ["openid", "email", "profile"]);
        let rules = config.rules;
        assert_eq!((rules.person_claim.as_str(), rules.groups_claim.as_str()), ("email", "groups"));
        assert_eq!(
            (rules.reviewer_groups, rules.auditors),
            (vec!["sql".to_owned()], vec!["olga@example.com".to_owned()])
        );
        assert_eq!(rules.groups, [("f00".to_owned(), "finance".to_owned())]);
        // Servers with the same file may not be able to read it.
        let said = format!("{:#}", client_secret.unwrap().read().unwrap_err());
        assert!(said.contains("/etc/cs/secret (client_secret_file) cannot be read"), "{said}");
        let session = settings("[console]\napprove_within = \"session\"\n");
        assert_eq!(session.approve_within, None);
    }

    #[test]
    fn agents_of_the_same_issuer_propose_under_names_of_the_person() {
        let oauth = |issuer: &str| {
            format!(
                "{OIDC}reviewers = [\"a\"]\n[oauth]\nissuer = \"{issuer}\"\njwks_file = \"k\"\nlabel_claim = \"name\"\n\
                 scopes = {{ a = \"write\" }}\n"
            )
        };
        let accounts = |issuer: &str| settings(&oauth(issuer)).oidc.unwrap().config.rules.accounts;
        let expected = AccountClaims {
            account_claim: "sub".to_owned(),
            account_prefix: "oauth:".to_owned(),
            label_claim: Some("name".to_owned()),
        };
        assert_eq!(accounts("https://login.example.com/"), Some(expected));
        assert_eq!(accounts("https://login.example.com"), None);
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        let text = "[console]\nurl = \"http://console.example.com\"\napprove_within = \"13h\"\nsecret = 1\n[console.oidc]\n\
                    issuer = \"http://login.example.com\"\nclient_id = \"\"\nname = \"\"\nscopes = [\"a b\"]\n\
                    person_claim = \"\"\nreviewers = \"anna\"\ngroups = { a = 7, b = \"\" }\nsecret = 1\n";
        let said = parse(text).unwrap_err();
        for expected in [
            "toml:2:7: url: \"http://console.example.com\" is not the address of the console: https://name",
            "toml:3:18: approve_within: \"13h\" is out of bounds: it takes 1m to 12h, or session",
            "toml:4:1: there is no key console.secret; the keys here are: url, approve_within, oidc",
            "toml:6:10: issuer: it must begin with https://",
            "toml:7:13: client_id: it is empty",
            "toml:8:8: name: a name takes 1 to 255 bytes",
            "toml:9:11: scopes: \"a b\" is no scope",
            "toml:10:16: person_claim: it is empty",
            "toml:11:13: reviewers: invalid type: string \"anna\", expected a list",
            "toml:12:16: groups: \"a\" gives the name of a group, in quotes",
            "toml:12:23: groups: \"b\" gives the name of a group, in quotes",
            "toml:13:1: there is no key console.oidc.secret",
        ] {
            assert!(said.contains(expected), "{expected} is missing in:\n{said}");
        }
        assert_eq!(said.lines().count(), 12, "{said}");
        let said = parse("[console.oidc]\nname = \"x\"\n").unwrap_err();
        for expected in [
            "toml:1:1: console.oidc: issuer is missing",
            "toml:1:1: console.oidc: client_id is missing",
            "toml:1:1: console.oidc: no person could use the console: name people (operators, reviewers, auditors), or groups",
        ] {
            assert!(said.contains(expected), "{expected} is missing in:\n{said}");
        }
        assert!(parse("console = 3").unwrap_err().contains("written as [console]"));
        assert!(parse("[console]\noidc = 3").unwrap_err().contains("written as [oidc]"));
        let query = OIDC.replace("example.com/", "example.com/?x=1");
        assert!(parse(&query).unwrap_err().contains("issuer: an issuer has no query"));
        for time in ["", "1", "h", "0m", "0h", "1d", "1.5h", "-1h", "721m", "99999999999999999999m", "Session"] {
            assert!(parse(&format!("[console]\napprove_within = \"{time}\"\n")).is_err(), "{time}");
        }
    }

    #[test]
    fn a_secret_is_given_in_one_way_has_a_provider_and_is_never_shown() {
        let both = format!("{OIDC}reviewers = [\"a\"]\nclient_secret = \"hunter2\"\nclient_secret_file = \"x\"\n");
        let said = sources().merge(parse(&both).unwrap()).unwrap_err().to_string();
        assert!(
            said.contains("client_secret in /etc/cs/countersign.toml and client_secret_file are both given"),
            "{said}"
        );
        let one = settings(&both.replace("client_secret_file = \"x\"\n", ""));
        assert!(!format!("{one:?}").contains("hunter2"), "{one:?}");
        let secret = one.oidc.unwrap().client_secret.unwrap().read().unwrap();
        assert_eq!(secret.text.expose(), "hunter2");
        let mut given = sources();
        given.given.server.oidc_secret.client_secret = Some(types::Secret::new("hunter2"));
        let said = given.merge(parse("").unwrap()).unwrap_err().to_string();
        assert!(said.contains("COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET") && said.contains("no provider"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let text = format!("{OIDC}reviewers = [\"a\"]\nclient_secret = 4711\n");
        assert!(!parse(&text).unwrap_err().contains("4711"));
    }
}
