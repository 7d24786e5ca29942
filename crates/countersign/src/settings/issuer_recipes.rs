//! The keys that `docs/setup/auth.md` has for an issuer accept the access tokens of that issuer. The payloads have the
//! members of the samples in the documentation of each, and are signed with a key of the test.

use auth::{AuthError, Authentication, Authenticator, Issuer, JwksSource};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use testkit::{SigningKey, now_s};

use super::tests::{parse, sources};

const RESOURCE: &str = "https://mcp.example.com/mcp";

struct Recipe {
    name: &'static str,
    /// What the operator writes for the words in capitals.
    names: &'static [(&'static str, &'static str)],
    token: Value,
    account: &'static str,
    label: Option<&'static str>,
    profile: &'static str,
    /// Changed claims of tokens that are not accepted, such as those of an issuer that is configured otherwise, each
    /// with a part of the reason.
    refused: Vec<(Value, &'static str)>,
}

/// The issuer of these keys; its JWKS has the key of the test.
struct Configured {
    issuer: Issuer,
    known: Authenticator,
    key: SigningKey,
}

impl Configured {
    fn new(keys: &str) -> Self {
        let config = format!("[http]\npublic_url = \"https://mcp.example.com\"\n[oauth]\n{keys}\n");
        let mut settings = sources().merge(parse(&config).unwrap()).unwrap();
        let issuer = settings.oauth.remove(0);
        let key = SigningKey::new("k1");
        let jwks = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(jwks.path(), json!({"keys": [key.jwk()]}).to_string()).unwrap();
        let source = JwksSource::File(jwks.path().to_owned());
        let known = Authenticator::new(Vec::new(), vec![Issuer { keys: source, ..issuer.clone() }]).unwrap();
        Self { issuer, known, key }
    }

    fn of(recipe: &Recipe) -> Self {
        let mut keys: Vec<String> = keys_of_page(recipe.name);
        if !keys.iter().any(|key| key.starts_with("scopes = ")) {
            let page = include_str!("../../../../docs/setup/configure.md");
            keys.extend(page.lines().find(|line| line.starts_with("scopes = {")).map(str::to_owned));
        }
        let named = |keys: String, (word, name): &(&str, &str)| keys.replace(word, name);
        Self::new(&recipe.names.iter().fold(keys.join("\n"), named))
    }

    /// Identifies a caller with a token of these claims, issued now.
    async fn identify(&self, claims: &Value) -> Result<Authentication, AuthError> {
        let mut claims = claims.clone();
        claims["iat"] = json!(now_s());
        claims["exp"] = json!(now_s() + 600);
        self.identify_bearer(&self.key.token_with(&json!({"alg": "ES256", "kid": "k1", "typ": "JWT"}), &claims)).await
    }

    async fn identify_bearer(&self, token: &str) -> Result<Authentication, AuthError> {
        let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
        self.known.identify(&HeaderMap::from_iter([(header::AUTHORIZATION, value)])).await
    }
}

/// The rows of the page: the name of an issuer, and its keys.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let page = include_str!("../../../../docs/setup/auth.md");
    let (_, section) = page.split_once("### Issuers").expect("the section");
    let (_, table) = section.split_once("|---|---|---|\n").expect("the table");
    table.lines().take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        (cells.next().unwrap(), cells.next().unwrap())
    })
}

/// The keys of an issuer in the page, each as a line of the configuration.
fn keys_of_page(name: &str) -> Vec<String> {
    let (_, keys) = rows().find(|(row, _)| *row == name).unwrap_or_else(|| panic!("{name} has no row"));
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Claims with some changed; null removes one.
fn with(mut claims: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn recipes() -> Vec<Recipe> {
    vec![
        Recipe {
            name: "Keycloak",
            names: &[("KEYCLOAK", "keycloak.example.com"), ("REALM", "acme")],
            token: json!({
                "jti": "onrtac:d58f5dc8-fd8f-462b-8a19-716f8f83985b", "iss": "https://keycloak.example.com/realms/acme",
                "aud": [RESOURCE, "account"], "sub": "36fa0f91-f94d-4a0c-afed-6b7d952e47da", "typ": "Bearer",
                "azp": "claude", "sid": "2a88c258-f73a-4103-b862-e1fbd8f4e04e", "acr": "1",
                "allowed-origins": ["https://claude.ai"],
                "realm_access": {"roles": ["offline_access", "default-roles-acme", "uma_authorization"]},
                "resource_access": {"account": {"roles": ["manage-account", "view-profile"]}},
                "scope": "email countersign:read countersign:write profile", "email_verified": true,
                "name": "Anna Example", "preferred_username": "anna", "given_name": "Anna", "family_name": "Example",
                "email": "anna@example.com",
            }),
            account: "oauth:36fa0f91-f94d-4a0c-afed-6b7d952e47da",
            label: Some("anna"),
            profile: "write",
            // Without the audience mapper.
            refused: vec![(json!({"aud": "account"}), "(aud)"), (json!({"aud": null}), "(aud)")],
        },
        Recipe {
            name: "Entra ID",
            names: &[
                ("TENANT", "72f988bf-86f1-41af-91ab-2d7cd011db47"),
                ("CLIENT", "6e74172b-be56-4843-9ff4-e66a39bb12e3"),
            ],
            token: json!({
                "aud": "6e74172b-be56-4843-9ff4-e66a39bb12e3",
                "iss": "https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/v2.0",
                "nbf": 1_537_231_048, "aio": "AXQAi/8IAAAAtAaZLo3ChMif6KOnttRB7eBq4/DccQzjcJGxPYy",
                "azp": "b41d9e6f-0a83-4c25-91d7-5e8a4f60b3c2", "azpacr": "0", "name": "Abe Lincoln",
                "oid": "690222be-ff1a-4d56-abd1-7e4f7d38e474", "preferred_username": "abeli@microsoft.com", "rh": "I",
                "scp": "read write", "sub": "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ",
                "tid": "72f988bf-86f1-41af-91ab-2d7cd011db47", "uti": "fqiBqXLPj0eQa82S-IYFAA", "ver": "2.0",
            }),
            account: "oauth:690222be-ff1a-4d56-abd1-7e4f7d38e474",
            label: Some("abeli@microsoft.com"),
            profile: "write",
            // The tokens of version 1, and of another tenant.
            refused: vec![
                (
                    json!({"ver": "1.0", "iss": "https://sts.windows.net/72f988bf-86f1-41af-91ab-2d7cd011db47/"}),
                    "(iss)",
                ),
                (json!({"aud": RESOURCE}), "(aud)"),
                (
                    json!({"iss": "https://login.microsoftonline.com/8a0671e2-3a30-4d30-9cb9-ad709b9c744a/v2.0"}),
                    "(iss)",
                ),
            ],
        },
        Recipe {
            name: "Auth0",
            names: &[("TENANT", "my-domain")],
            token: json!({
                "iss": "https://my-domain.auth0.com/", "sub": "auth0|6553da60a54af58e29493993",
                "aud": [RESOURCE, "https://my-domain.auth0.com/userinfo"], "azp": "K1AUPhZq8mRi0Q0pjhkfu1D7y6KjDQja",
                "scope": "openid profile countersign:read", "permissions": ["countersign:read", "countersign:admin"],
            }),
            account: "oauth:auth0|6553da60a54af58e29493993",
            label: None,
            profile: "readonly",
            // Without the compatibility profile.
            refused: vec![(json!({"aud": "https://my-domain.auth0.com/userinfo"}), "(aud)")],
        },
        Recipe {
            name: "Okta",
            names: &[("ORG", "integrator-1741022"), ("SERVER", "default")],
            token: json!({
                "ver": 1, "jti": "AT.BD_sfLzShWmrnaHt3kX6CI0hhehOMyuaYOWK4EegfsQ",
                "iss": "https://integrator-1741022.okta.com/oauth2/default", "aud": RESOURCE,
                "cid": "0oa15d4jr5oIR5Eel698", "uid": "00u15c6ukel5jXEd0698",
                "scp": ["openid", "countersign:read", "countersign:write"], "auth_time": 1_784_432_545,
                "sub": "anna@example.com",
            }),
            account: "oauth:00u15c6ukel5jXEd0698",
            label: Some("anna@example.com"),
            profile: "write",
            // The default audience, and the authorization server of the organization.
            refused: vec![
                (json!({"aud": "api://default"}), "(aud)"),
                (
                    json!({"iss": "https://integrator-1741022.okta.com", "aud": "https://integrator-1741022.okta.com"}),
                    "(iss)",
                ),
            ],
        },
        Recipe {
            name: "Cognito",
            names: &[("REGION", "us-west-2"), ("POOL", "us-west-2_example")],
            token: json!({
                "sub": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "cognito:groups": ["testgroup"],
                "iss": "https://cognito-idp.us-west-2.amazonaws.com/us-west-2_example", "version": 2,
                "client_id": "xxxxxxxxxxxxexample", "aud": RESOURCE,
                "origin_jti": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
                "event_id": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
                "token_use": "access", "scope": format!("openid profile {RESOURCE}/read {RESOURCE}/write"),
                "auth_time": 1_676_312_777, "jti": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "username": "my-test-user",
            }),
            account: "oauth:aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
            label: Some("my-test-user"),
            profile: "write",
            // Of a client that sends no resource; and an ID token, which has the client as audience.
            refused: vec![
                (json!({"aud": null}), "(aud)"),
                (json!({"token_use": "id", "aud": "xxxxxxxxxxxxexample", "client_id": null, "scope": null}), "(aud)"),
            ],
        },
        Recipe {
            name: "WorkOS",
            names: &[("NAME", "imaginative-palm-54")],
            token: json!({
                "iss": "https://imaginative-palm-54.authkit.app", "aud": RESOURCE,
                "sub": "user_01HXYZ123456789ABCDEFGHIJ", "client_id": "client_01JP8BD0CZ401TDF9X54NT5ZEK",
                "org_id": "org_01HRDMC6CM357W30QMHMQ96Q0S", "sid": "app_consent_01HW7X2V4PFQ4KXKDQ1W8E3M5A",
                "scope": "openid profile email", "jti": "01JMGA70GA2W47M7Z53JG355GW",
            }),
            account: "oauth:user_01HXYZ123456789ABCDEFGHIJ",
            label: None,
            profile: "write",
            // Without a resource indicator the audience is the environment.
            refused: vec![(json!({"aud": "client_01JP8BD0CZ401TDF9X54NT5ZEK"}), "(aud)")],
        },
    ]
}

#[tokio::test]
async fn the_keys_of_the_page_accept_the_tokens_of_each_issuer_and_no_others() {
    let recipes = recipes();
    let (names, rows): (Vec<&str>, Vec<&str>) =
        (recipes.iter().map(|recipe| recipe.name).collect(), rows().map(|(name, _)| name).collect());
    assert_eq!(names, rows);
    for recipe in recipes {
        let configured = Configured::of(&recipe);
        let metadata = JwksSource::Metadata(configured.issuer.issuer.clone());
        assert_eq!(configured.issuer.keys, metadata, "{}", recipe.name);
        let identity = configured.identify(&recipe.token).await.unwrap().identity;
        assert_eq!(identity.principal.account_id.as_str(), recipe.account, "{}", recipe.name);
        assert_eq!(identity.principal.actor.as_deref(), recipe.label, "{}", recipe.name);
        assert_eq!(identity.profile, recipe.profile, "{}", recipe.name);
        for (changes, why) in &recipe.refused {
            let refusal = configured.identify(&with(recipe.token.clone(), changes)).await.unwrap_err();
            let AuthError::Invalid { description, .. } = &refusal else {
                panic!("{} {changes}: {refusal:?}", recipe.name)
            };
            assert!(description.contains(why), "{} {changes}: {description}", recipe.name);
        }
        // Without a scope of this server the client is told which one to request.
        let none = with(recipe.token.clone(), &json!({"scope": "email", "scp": null}));
        let refusal = configured.identify(&none).await.unwrap_err();
        let AuthError::InsufficientScope { needed, .. } = refusal else { panic!("{}: {refusal:?}", recipe.name) };
        assert_eq!(needed, configured.issuer.request_scopes, "{}", recipe.name);
    }
}

#[tokio::test]
async fn clients_of_entra_are_told_the_long_name_of_a_scope_that_tokens_have_under_the_short_one() {
    let recipe = recipes().remove(1);
    let configured = Configured::of(&recipe);
    let long = |name: &str| format!("{RESOURCE}/{name}");
    assert_eq!(configured.known.metadata(RESOURCE).unwrap()["scopes_supported"], json!([long("read")]));
    let reading = configured.identify(&with(recipe.token, &json!({"scp": "read"}))).await.unwrap();
    assert_eq!(reading.identity.profile, "readonly");
    assert_eq!(reading.stronger.weakest(|profile| profile == "write"), Some(long("write").as_str()));
}

#[tokio::test]
async fn tokens_of_google_say_nothing_of_access() {
    let client = "9150833677096-example.apps.googleusercontent.com";
    let configured = Configured::new(&format!(
        "issuer = \"https://accounts.google.com\"\naudience = \"{client}\"\nscopes = {{ openid = \"readonly\" }}"
    ));
    let id_token = json!({
        "iss": "https://accounts.google.com", "azp": client, "aud": client, "sub": "10769150350006150715113082367",
        "hd": "example.com", "email": "jsmith@example.com", "email_verified": true, "at_hash": "HK6E_P6Dh8Y93mRNtsDB1Q",
        "nonce": "0394852-3190485-2490358",
    });
    let refusal = configured.identify(&id_token).await.unwrap_err();
    assert!(matches!(refusal, AuthError::InsufficientScope { .. }), "{refusal:?}");
    let opaque = "ya29.a0AfH6SMBx1yZ-example_of_an_opaque_access_token";
    let refusal = configured.identify_bearer(opaque).await.unwrap_err();
    assert!(
        matches!(&refusal, AuthError::Invalid { description, .. } if description.contains("unknown")),
        "{refusal:?}"
    );
}
