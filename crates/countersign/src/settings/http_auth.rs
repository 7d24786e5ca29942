//! `[[tokens]]` and `[oauth]`, or `[[oauth]]`: the credentials for HTTP.

use std::collections::BTreeMap;
use std::path::Path;

use auth::{BearerToken, Issuer, JwksSource, LABEL_RULE, is_label};
use http_client::HttpsUrl;
use manifest::{Diagnostic, Diagnostics, Location, Source};
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};
use tools::Profile;
use types::{AccountId, ClaimName, MAX_CLAIMS, RoleName};

use super::database_tables::DatabaseTable;
use super::http_auth_keys::{ClaimKeys, Expiry, OAUTH, OAuthKeys, TOKENS, TokenKeys};
use super::reader::Reader;
use super::schema;

/// The table in `[oauth]` that maps scopes to profiles.
const SCOPES: &str = "scopes";

/// A token and its place in the file.
#[derive(Debug, Clone)]
pub(super) struct TokenConfig {
    pub(super) token: BearerToken,
    at: Location,
    profile_at: Location,
}

/// An issuer of the file, except for what depends on the server's address.
#[derive(Debug, Clone)]
pub(super) struct IssuerConfig {
    issuer: Issuer,
    /// The audience, if it is configured.
    audience: Option<String>,
    at: Location,
    prefix_at: Location,
    is_prefix_configured: bool,
}

impl IssuerConfig {
    /// The issuer for a server at this address; `None` if the audience of its tokens is unknown.
    pub(super) fn of_server(self, public_url: Option<&str>) -> Option<Issuer> {
        let audience = self.audience.or_else(|| public_url.map(mcp_http::resource_uri))?;
        Some(Issuer { audience, ..self.issuer })
    }

    /// Whether an account can be of both issuers, and the file does not say that it is meant.
    fn may_share_accounts(&self, other: &Self) -> bool {
        let (own, others) = (&self.issuer.account_prefix, &other.issuer.account_prefix);
        let is_meant = own == others && self.is_prefix_configured && other.is_prefix_configured;
        !is_meant && (own.starts_with(others.as_str()) || others.starts_with(own.as_str()))
    }

    /// The issuer, without its audience.
    pub(super) const fn issuer(&self) -> &Issuer {
        &self.issuer
    }
}

/// The errors that can be found only when all tokens and profiles are known.
pub(super) fn mistakes<'p>(tokens: &[TokenConfig], profiles: impl Iterator<Item = &'p str> + Clone) -> Vec<Diagnostic> {
    let mistake = |at: &Location, message| Diagnostic { at: at.clone(), tool: None, message };
    let mut found = Vec::new();
    for (index, own) in tokens.iter().enumerate() {
        if let Some(message) = unknown_profile(&own.token.profile, profiles.clone()) {
            found.push(mistake(&own.profile_at, format!("{TOKENS}: {message}")));
        }
        let before = tokens.iter().take(index).find(|before| before.token.hash == own.token.hash);
        if let Some(before) = before {
            found.push(mistake(&own.at, format!("{TOKENS}: this token is at {} already", before.at)));
        }
    }
    found
}

/// The errors that can be found only when all issuers are known.
fn issuer_mistakes(issuers: &[IssuerConfig]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, own) in issuers.iter().enumerate() {
        let mut before = issuers.iter().take(index);
        if let Some(same) = before.clone().find(|before| before.issuer.issuer == own.issuer.issuer) {
            let message = format!("{OAUTH}: this issuer is at {} already", same.at);
            found.push(Diagnostic { at: own.at.clone(), tool: None, message });
        } else if let Some(other) = before.find(|before| before.may_share_accounts(own)) {
            let message = format!(
                "account_prefix: an account of this issuer could be one of the issuer at {}: give each a prefix with \
                 which no other one begins, or both the same one, if the same claim is the same person",
                other.at
            );
            found.push(Diagnostic { at: own.prefix_at.clone(), tool: None, message });
        }
    }
    found
}

fn unknown_profile<'p>(name: &str, profiles: impl Iterator<Item = &'p str>) -> Option<String> {
    let known: Vec<&str> = Profile::BUILTIN.into_iter().chain(profiles).collect();
    (!known.contains(&name)).then(|| format!("there is no profile \"{name}\": it is one of {}", known.join(", ")))
}

/// The tokens of a file that contains nothing else.
///
/// # Errors
/// The file cannot be read, or a list of all errors in it. `others` are the tokens that are already configured.
pub(super) fn read_file<'p>(
    path: &Path,
    others: Vec<TokenConfig>,
    profiles: impl Iterator<Item = &'p str> + Clone,
    databases: &[DatabaseTable],
) -> anyhow::Result<Vec<TokenConfig>> {
    let source = Source::read(path).map_err(|error| anyhow::anyhow!("the tokens (tokens_file) {error}"))?;
    let mut reader = Reader::new(&source, super::schema::elsewhere);
    let mut tokens = others;
    if let Some(mut top) = reader.top() {
        tokens.extend(reader.tokens(&mut top, databases));
        reader.refuse_rest(&top, "", &[TOKENS.to_owned()]);
    }
    let mut found = reader.mistakes;
    found.extend(mistakes(&tokens, profiles));
    if found.is_empty() {
        return Ok(tokens);
    }
    found.sort();
    Err(anyhow::anyhow!("the tokens (tokens_file) have mistakes\n{}", Diagnostics(found)))
}

impl<'s> Reader<'s> {
    pub(super) fn tokens(&mut self, top: &mut DeTable<'s>, databases: &[DatabaseTable]) -> Vec<TokenConfig> {
        let Some(value) = top.remove(TOKENS) else { return Vec::new() };
        let form = format!("{TOKENS} is a list of tables, each written as [[{TOKENS}]]");
        if let DeValue::Table(_) = value.get_ref() {
            self.mistake(value.span(), form);
            return Vec::new();
        }
        let tables = self.tables(value, &form);
        tables.into_iter().filter_map(|(start, table)| self.token(table, start, databases)).collect()
    }

    /// The tables in a list of tables, or the one table, each with its place. `form` is the mistake of other values.
    fn tables(&mut self, value: Spanned<DeValue<'s>>, form: &str) -> Vec<(usize, DeTable<'s>)> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => vec![(span.start, table)],
            DeValue::Array(entries) if entries.iter().all(|entry| matches!(entry.get_ref(), DeValue::Table(_))) => {
                entries.into_iter().flat_map(|entry| self.tables(entry, form)).collect()
            }
            _ => {
                self.mistake(span, form);
                Vec::new()
            }
        }
    }

    fn token(&mut self, mut table: DeTable<'s>, start: usize, databases: &[DatabaseTable]) -> Option<TokenConfig> {
        let before = self.mistakes.len();
        let keys: TokenKeys = self.group(&mut table);
        self.refuse_rest(&table, "tokens.", &schema::names(Some(TOKENS)));
        // A key that could not be read is not reported as missing.
        let was_read = self.mistakes.len() == before;
        self.known_databases("tokens.databases", keys.databases.as_deref().unwrap_or_default(), databases);
        for (name, is_there) in [("hash", keys.hash.is_some()), ("account", keys.account.is_some())] {
            if was_read && !is_there {
                self.mistake(start..start, format!("{TOKENS}: {name} is missing"));
            }
        }
        let hash = keys.hash.as_ref().and_then(|hash| {
            let parsed = hash.get_ref().parse();
            parsed.map_err(|error| self.mistake(hash.span(), format!("hash: {error}"))).ok()
        });
        if let Some(label) = keys.label.as_ref().filter(|label| !is_label(label.get_ref())) {
            self.mistake(label.span(), format!("label: a label takes {LABEL_RULE}"));
        }
        let at = self.source.locate(keys.hash.as_ref().map_or(start, |hash| hash.span().start));
        let profile_at = self.source.locate(keys.profile.as_ref().map_or(start, |profile| profile.span().start));
        let token = BearerToken {
            hash: hash?,
            account: keys.account?,
            profile: keys.profile.map_or_else(|| Profile::DEFAULT.to_owned(), Spanned::into_inner),
            databases: Self::database_names(keys.databases),
            label: keys.label.map(Spanned::into_inner),
            expires: keys.expires.map(|Expiry(at)| at),
        };
        Some(TokenConfig { token, at, profile_at })
    }

    /// The issuers of the file. `profiles` are the names of the profiles in the file.
    pub(super) fn oauth(&mut self, top: &mut DeTable<'s>, folder: &Path, profiles: &[String]) -> Vec<IssuerConfig> {
        let Some(value) = top.remove(OAUTH) else { return Vec::new() };
        let form =
            format!("{OAUTH} is a table, written as [{OAUTH}], or a list of tables, each written as [[{OAUTH}]]");
        let tables = self.tables(value, &form);
        let issuer = |(start, table)| self.issuer_config(table, start, folder, profiles);
        let issuers: Vec<IssuerConfig> = tables.into_iter().filter_map(issuer).collect();
        self.mistakes.extend(issuer_mistakes(&issuers));
        issuers
    }

    fn issuer_config(
        &mut self,
        mut table: DeTable<'s>,
        start: usize,
        folder: &Path,
        profiles: &[String],
    ) -> Option<IssuerConfig> {
        let scopes = self.scopes(&mut table, start, profiles);
        let before = self.mistakes.len();
        let keys: OAuthKeys = self.group(&mut table);
        self.refuse_rest(&table, "oauth.", &schema::names(Some(OAUTH)));
        let was_read = self.mistakes.len() == before;
        if was_read && keys.issuer.is_none() {
            self.mistake(start..start, format!("{OAUTH}: issuer is missing"));
        }
        for (name, text) in [
            ("audience", &keys.audience),
            ("account_claim", &keys.account_claim),
            ("label_claim", &keys.label_claim),
            ("role_claim", &keys.role_claim),
        ] {
            if let Some(text) = text.as_ref().filter(|text| text.get_ref().is_empty()) {
                self.mistake(text.span(), format!("{name}: it is empty"));
            }
        }
        let fits = |prefix: &Spanned<String>| AccountId::new(format!("{}x", prefix.get_ref())).is_some();
        if let Some(prefix) = keys.account_prefix.as_ref().filter(|prefix| !fits(prefix)) {
            self.mistake(prefix.span(), "account_prefix: no account can begin with it");
        }
        let request_scopes = self.request_scopes(keys.request_scopes, &scopes);
        let claims = self.claims(keys.claims);
        let roles = self.roles(keys.role_claim.as_ref(), keys.roles);
        let at = self.source.locate(keys.issuer.as_ref().map_or(start, |issuer| issuer.span().start));
        let prefix_at = self.source.locate(keys.account_prefix.as_ref().map_or(start, |prefix| prefix.span().start));
        let is_prefix_configured = keys.account_prefix.is_some();
        let issuer = keys.issuer.and_then(|issuer| self.issuer(&issuer));
        let source = self.key_source(keys.jwks_url, keys.jwks_file, issuer.as_ref(), folder);
        let text =
            |given: Option<Spanned<String>>, usual: &str| given.map_or_else(|| usual.to_owned(), Spanned::into_inner);
        let issuer = Issuer {
            issuer: issuer?,
            audience: String::new(),
            keys: source?,
            account_claim: text(keys.account_claim, "sub"),
            account_prefix: text(keys.account_prefix, "oauth:"),
            label_claim: keys.label_claim.map(Spanned::into_inner),
            claims,
            role_claim: keys.role_claim.map(Spanned::into_inner),
            roles,
            scopes,
            request_scopes,
        };
        let audience = keys.audience.map(Spanned::into_inner);
        Some(IssuerConfig { issuer, audience, at, prefix_at, is_prefix_configured })
    }

    /// The profile of each scope, in the order of the file.
    fn scopes(&mut self, oauth: &mut DeTable<'s>, start: usize, profiles: &[String]) -> Vec<(String, String)> {
        let at = oauth.get(SCOPES).map_or(start, |value| value.span().start);
        let before = self.mistakes.len();
        let table = self.table(oauth, SCOPES);
        if table.is_empty() && self.mistakes.len() == before {
            let form = r#"scopes = { "countersign:write" = "write" }"#;
            self.mistake(at..at, format!("{OAUTH}: no scope gives a profile, so no call could succeed: {form}"));
        }
        let mut scopes = Vec::new();
        for (scope, profile) in table {
            let (name, span) = (scope.get_ref().to_string(), profile.span());
            if !is_scope(&name) {
                self.mistake(
                    scope.span(),
                    format!("scopes: \"{name}\" is no scope: these have no spaces, quotes or backslashes"),
                );
            }
            let DeValue::String(profile) = profile.into_inner() else {
                self.mistake(span, format!("scopes: \"{name}\" gives the name of a profile, in quotes"));
                continue;
            };
            if let Some(message) = unknown_profile(&profile, profiles.iter().map(String::as_str)) {
                self.mistake(span, format!("scopes: {message}"));
            }
            scopes.push((name, profile.into_owned()));
        }
        scopes
    }

    fn request_scopes(&mut self, given: Option<Vec<Spanned<String>>>, scopes: &[(String, String)]) -> Vec<String> {
        let names = || scopes.iter().map(|(scope, _)| scope.clone());
        let Some(given) = given else { return names().collect() };
        for one in given.iter().filter(|one| !names().any(|scope| scope == *one.get_ref())) {
            self.mistake(one.span(), format!("request_scopes: \"{}\" is not in scopes", one.get_ref()));
        }
        given.into_iter().map(Spanned::into_inner).collect()
    }

    /// The claim of each setting.
    fn claims(&mut self, given: Option<Spanned<ClaimKeys>>) -> BTreeMap<ClaimName, String> {
        let Some(given) = given else { return BTreeMap::new() };
        let span = given.span();
        let pairs: Vec<(String, String)> = match given.into_inner() {
            ClaimKeys::Names(names) => names.into_iter().map(|name| (name.clone(), name)).collect(),
            ClaimKeys::Table(table) => table.into_iter().collect(),
        };
        if pairs.len() > MAX_CLAIMS {
            self.mistake(span.clone(), format!("claims: there are {}, and at most {MAX_CLAIMS} are set", pairs.len()));
        }
        let mut claims = BTreeMap::new();
        for (name, claim) in pairs {
            match ClaimName::try_from(name) {
                Ok(name) if !claim.is_empty() => {
                    claims.insert(name, claim);
                }
                Ok(name) => self.mistake(span.clone(), format!("claims: the claim of {} is empty", name.as_str())),
                Err(error) => {
                    let form = r#"claims = { tenant = "https://example.com/tenant" }"#;
                    self.mistake(span.clone(), format!("claims: {error}; a claim can have another name: {form}"));
                }
            }
        }
        claims
    }

    /// The roles that tokens may name: there are some if, and only if, a claim names one.
    fn roles(&mut self, claim: Option<&Spanned<String>>, given: Option<Vec<Spanned<String>>>) -> Vec<RoleName> {
        let given = given.unwrap_or_default();
        match (claim, given.first()) {
            (Some(claim), None) => {
                let form = r#"roles = ["app_eu"]"#;
                self.mistake(
                    claim.span(),
                    format!("role_claim: roles is missing, which has the roles that it may name: {form}"),
                );
            }
            (None, Some(role)) => self.mistake(role.span(), "roles: role_claim is missing, so no token names a role"),
            _ => {}
        }
        given.into_iter().filter_map(|role| self.role(role)).collect()
    }

    /// A role that callers may have.
    fn role(&mut self, given: Spanned<String>) -> Option<RoleName> {
        let span = given.span();
        RoleName::try_from(given.into_inner()).map_err(|error| self.mistake(span, format!("roles: {error}"))).ok()
    }

    /// The source of the keys of this issuer: one of the two keys, or neither.
    fn key_source(
        &mut self,
        url: Option<Spanned<String>>,
        file: Option<Spanned<String>>,
        issuer: Option<&HttpsUrl>,
        folder: &Path,
    ) -> Option<JwksSource> {
        match (url, file) {
            (Some(url), None) => self.web_url("jwks_url", &url).map(JwksSource::Url),
            (None, Some(file)) => Some(JwksSource::File(folder.join(file.into_inner()))),
            (Some(_), Some(file)) => {
                self.mistake(file.span(), "jwks_file: jwks_url is there as well: keep one of them");
                None
            }
            (None, None) => issuer.cloned().map(JwksSource::Metadata),
        }
    }

    pub(super) fn web_url(&mut self, name: &str, text: &Spanned<String>) -> Option<HttpsUrl> {
        let parsed = text.get_ref().parse();
        parsed.map_err(|error| self.mistake(text.span(), format!("{name}: {error}"))).ok()
    }
}

/// `scope-token` of RFC 6749.
pub(super) fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| matches!(b, b'!'..=b'~') && b != b'"' && b != b'\\')
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HASH, parse, sources};

    #[test]
    fn tokens_may_stand_in_a_file_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let config = format!(
            "tokens_file = {path:?}\n[profiles.support]\naccess = [\"read\"]\n[[tokens]]\nhash = \"{HASH}\"\naccount = \"a\"\n"
        );
        let load = || sources().merge(parse(&config).unwrap());
        let other = HASH.replace("ba78", "0000");
        std::fs::write(&path, format!("[[tokens]]\nhash = \"{other}\"\naccount = \"b\"\nprofile = \"support\"\n"))
            .unwrap();
        let accounts: Vec<String> =
            load().unwrap().tokens.iter().map(|token| token.account.as_str().to_owned()).collect();
        assert_eq!(accounts, ["a", "b"]);

        std::fs::write(&path, format!("x = 1\n[[tokens]]\nhash = \"{HASH}\"\naccount = \"b\"\nprofile = \"root\"\n"))
            .unwrap();
        let said = load().unwrap_err().to_string();
        for expected in [
            "tokens.toml:1:1: there is no key x; the keys here are: tokens",
            "tokens.toml:3:8: tokens: this token is at /etc/cs/countersign.toml:5:8 already",
            "tokens.toml:5:11: tokens: there is no profile \"root\": it is one of minimal, readonly, write, admin, support",
        ] {
            assert!(said.contains(expected), "{expected} is missing in:\n{said}");
        }
        std::fs::write(&path, "[[tokens]").unwrap();
        assert!(load().unwrap_err().to_string().contains("tokens.toml:1:"));
        std::fs::remove_file(&path).unwrap();
        let said = load().unwrap_err().to_string();
        assert!(said.contains("(tokens_file)") && said.contains("No such file"), "{said}");
    }
}
