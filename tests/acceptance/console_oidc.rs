//! People sign in to the console at an OpenID Connect provider: who gets in, and what an attacker gets.

mod attacks;
mod fresh;
mod responses;
mod settings;
mod several;

use std::collections::BTreeMap;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode, Url, redirect};
use serde_json::json;
use testkit::audit::{audit, run_audit};
use testkit::{ConfigDir, Database, HttpServer, OidcProvider, Server, TestManifest, database, poll, repository};
use tokio::process::Command;

use crate::console::{path, proposed, status};

const CLIENT: &str = "console";
const SECRET: &str = "only-the-console-knows";

/// A provider, and a console whose people sign in there.
pub(crate) struct World {
    pub(crate) db: Database,
    pub(crate) provider: OidcProvider,
    console: HttpServer,
    /// The origin of the console.
    pub(crate) url: String,
    _folder: ConfigDir,
}

/// A browser that keeps cookies, as browsers do on this machine.
struct Browser {
    http: Client,
    base: String,
    cookies: BTreeMap<String, String>,
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

/// The usual settings of a provider.
fn usual(provider: &OidcProvider) -> String {
    format!(
        "[console.oidc]\nissuer = \"{}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{SECRET}\"\nname = \"Example\"\n\
         reviewer_groups = [\"reviewers\"]\nauditor_groups = [\"audit\"]\n",
        provider.url()
    )
}

impl World {
    /// The usual settings, and more keys of `[console.oidc]`.
    pub(crate) async fn start(more: &str) -> Self {
        let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
        let config = format!("{}{more}", usual(&provider));
        Self::with(provider, &config).await
    }

    async fn with(provider: OidcProvider, config: &str) -> Self {
        Self::changed(provider, config, |_, _| ()).await
    }

    /// A console whose command, or the folder of its configuration, is changed before it starts.
    async fn changed(provider: OidcProvider, config: &str, change: impl FnOnce(&mut Command, &ConfigDir)) -> Self {
        let (db, folder) = (database().await, ConfigDir::new());
        let mut command = folder.command(config);
        command.env("DATABASE_URL", db.login("console", "countersign_console").await);
        command.args(["--log", "info", "console", "--listen", "127.0.0.1:0"]);
        change(&mut command, &folder);
        let console = HttpServer::listening(command).await;
        let url = console.url("");
        Self { db, provider, console, url, _folder: folder }
    }

    fn browser(&self) -> Browser {
        let http = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Browser { http, base: self.url.clone(), cookies: BTreeMap::new() }
    }

    /// Where the provider sends a browser that begins to sign in on this page of the console.
    async fn callback(&self, browser: &mut Browser, page: &str) -> String {
        let begun = browser.get(page).await;
        assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.body);
        let callback = self.provider.authorize(begun.location()).await;
        callback.strip_prefix(&self.url).expect("an address of the console").to_owned()
    }

    /// The last answer of a whole sign-in.
    async fn sign_in(&self, browser: &mut Browser, page: &str) -> Page {
        let callback = self.callback(browser, page).await;
        browser.get(&callback).await
    }

    /// A browser in which the person of the provider is signed in.
    async fn signed_in(&self) -> Browser {
        let mut browser = self.browser();
        let landed = self.sign_in(&mut browser, "/login/oidc").await;
        assert_eq!(landed.status, StatusCode::SEE_OTHER, "{}", landed.body);
        browser
    }

    /// Nobody was signed in, and the page says so.
    async fn assert_nobody(&self, page: &Page, status: StatusCode, says: &str) {
        assert!(page.status == status && page.body.contains(says), "{says}: {} {}", page.status, page.body);
        assert!(page.headers.get("set-cookie").is_none(), "{:?}", page.headers);
        assert!(page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        assert_eq!(self.db.value("select count(*) from countersign.console_session").await, "0", "{says}");
    }
}

impl Browser {
    async fn get(&mut self, path: &str) -> Page {
        self.send(Method::GET, path, &[]).await
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        self.send(Method::POST, path, form).await
    }

    async fn send(&mut self, method: Method, path: &str, form: &[(&str, &str)]) -> Page {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        if method == Method::POST {
            request = request.header("origin", &self.base).header("sec-fetch-site", "same-origin").form(form);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        for set in headers.get_all("set-cookie") {
            let set = set.to_str().unwrap();
            for part in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(set.starts_with("__Host-") && set.contains(part) && !set.contains("Domain"), "{set}");
            }
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            if set.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        Page { status, headers, body: response.text().await.unwrap() }
    }

    /// Approves what a page shows.
    async fn approve(&mut self, proposal: &serde_json::Value) -> Page {
        let digest = proposal["digest"].as_str().unwrap();
        self.post(&format!("{}/approve", path(proposal)), &[("digest", digest)]).await
    }
}

impl Page {
    fn location(&self) -> &str {
        self.headers["location"].to_str().unwrap()
    }
}

/// The parameters of an address.
fn query(url: &str) -> BTreeMap<String, String> {
    Url::parse(url).unwrap().query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_lands_where_they_wanted_to_go_and_approves() {
    let world = World::start("").await;
    let (_server, proposal) = proposed(&world.db, "Sunset").await;
    let mut browser = world.browser();
    let wanted = browser.get(&path(&proposal)).await;
    let login = wanted.location().to_owned();
    assert_eq!(login, format!("/login?next={}", path(&proposal).replace('/', "%2F")));
    let page = browser.get(&login).await;
    let (_, link) = page.body.split_once("<a class=\"button\" href=\"").unwrap_or_else(|| panic!("{}", page.body));
    let (link, rest) = link.split_once("\">").unwrap();
    assert!(rest.starts_with("Sign in with Example</a>"), "{rest}");

    let begun = browser.get(&link.replace("&#38;", "&")).await;
    let sent = query(begun.location());
    assert_eq!((sent["response_type"].as_str(), sent["client_id"].as_str()), ("code", CLIENT));
    assert_eq!(sent["redirect_uri"], format!("{}/login/oidc/callback", world.url));
    assert_eq!((sent["scope"].as_str(), sent["code_challenge_method"].as_str()), ("openid email profile", "S256"));
    assert!(!sent.contains_key("prompt") && !sent.contains_key("max_age"), "{sent:?}");
    let callback = world.provider.authorize(begun.location()).await;
    let landed = browser.get(callback.strip_prefix(&world.url).unwrap()).await;
    assert_eq!(landed.location(), format!("{}{}", world.url, path(&proposal)), "{}", landed.body);
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["__Host-countersign"], "the sign-in has ended");

    // The provider says when she has signed in only where it is asked to.
    assert!(browser.get(&path(&proposal)).await.body.contains("Sign in again with Example"));
    let again = world.sign_in(&mut browser, &format!("/login/oidc?again=1&next={}", path(&proposal))).await;
    assert_eq!(again.location(), format!("{}{}", world.url, path(&proposal)), "{}", again.body);
    assert_eq!(browser.approve(&proposal).await.status, StatusCode::SEE_OTHER);
    poll::until("the write is executed", async || status(&world.db, &proposal).await == "executed").await;
    let decided = "select concat(decided_by, ' ', decided_via) from countersign.proposal";
    assert_eq!(world.db.value(decided).await, "anna@example.com console");

    audit(&world.db, &["seal"]).await;
    let entries = world.db.value("select string_agg(entry, '' order by leaf_index) from countersign.leaf").await;
    assert!(entries.contains("person anna@example.com\nrole reviewer\nmethod oidc\n"), "{entries}");
    let verified = run_audit(&world.db.url(), &["verify"]).await;
    assert_eq!(verified.code, 0, "{} {}", verified.out, verified.err);
    // What began is over, and no token of the provider is in the database or in the log of the console.
    assert_eq!(world.db.value("select count(*) from countersign.console_sign_in").await, "0");
    let sessions = world.db.value("select string_agg(s::text, ' ') from countersign.console_session s").await;
    assert!(!sessions.contains("eyJ") && !world.console.log().contains("eyJ"), "{sessions}");
    assert!(!world.console.log().contains(SECRET) && !world.console.log().contains("code-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_names_say_who_reads_and_who_decides_and_nobody_else_gets_in() {
    let more = "reviewers = [\"Ben@Example.com\"]\nauditors = [\"olga@example.com\"]\n";
    let world = World::start(more).await;
    for (person, role) in [
        (json!({"email": "anna@example.com", "groups": ["audit", "reviewers"]}), "reviewer"),
        (json!({"email": "anna@example.com", "groups": "reviewers"}), "reviewer"),
        (json!({"email": "ben@example.com"}), "reviewer"),
        (json!({"email": "carl@example.com", "groups": ["audit", "Reviewers", "x"]}), "auditor"),
        (json!({"email": "olga@example.com", "groups": []}), "auditor"),
    ] {
        world.provider.set(|provider| {
            provider.person = person.clone();
            provider.person["sub"] = "1f3a".into();
            provider.person["email_verified"] = true.into();
        });
        world.signed_in().await;
        let found = "with s as (delete from countersign.console_session returning person, role) select person || ' ' || role from s";
        assert_eq!(world.db.value(found).await, format!("{} {role}", person["email"].as_str().unwrap()), "{person}");
    }
    for (claims, says) in [
        (json!({"groups": ["sales"]}), "knows you as anna@example.com, who is neither a reviewer nor an auditor"),
        (json!({"groups": null}), "who is neither a reviewer nor an auditor"),
        (json!({"groups": {"reviewers": true}}), "who is neither a reviewer nor an auditor"),
        (json!({"email_verified": false}), "does not say who you are"),
        (json!({"email_verified": null}), "does not say who you are"),
        (json!({"email": null}), "does not say who you are"),
        (json!({"email": ""}), "does not say who you are"),
        (json!({"email": "a\nb"}), "does not say who you are"),
        // S-12: nobody could tell these from other names.
        (json!({"email": " "}), "does not say who you are"),
        (json!({"email": "\u{2800}"}), "does not say who you are"),
        (json!({"email": "anna@example.com "}), "does not say who you are"),
        (json!({"email": "moc.elpmaxe@\u{202e}anna"}), "does not say who you are"),
        (json!({"email": "an\u{200b}na@example.com"}), "does not say who you are"),
        (json!({"email": "<script>alert(1)</script>"}), "knows you as &#60;script&#62;"),
    ] {
        world.provider.set(|provider| {
            provider.person = json!({"sub": "1", "email": "anna@example.com", "email_verified": true, "groups": []});
            for (name, value) in claims.as_object().unwrap() {
                provider.person[name] = value.clone();
            }
        });
        let refused = world.sign_in(&mut world.browser(), "/login/oidc").await;
        world.assert_nobody(&refused, StatusCode::FORBIDDEN, says).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_the_provider_are_groups_of_approvers_and_mapped_if_a_table_says_so() {
    for (more, groups, is_approver) in [
        ("", "{reviewers,finance}", true),
        ("groups = { f00d = \"finance\", reviewers = \"sql\" }\n", "{sql}", false),
        ("groups = { finance = \"money\", reviewers = \"finance\" }\n", "{money,finance}", true),
    ] {
        let world = World::start(&format!("{more}[console]\napprove_within = \"session\"\n")).await;
        world.provider.set(|provider| provider.person["groups"] = json!(["reviewers", "finance"]));
        let text = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
        let tool = "title = \"Delete a package\"\naccess = \"write\"\ntier = \"approve\"\n";
        let text = text.replace(tool, &format!("{tool}approvers = \"finance\"\n"));
        let server = TestManifest::from_text(&text).serve(&world.db).await;
        let proposal = deletion(&world.db, &server, "default").await;
        let mut browser = world.signed_in().await;
        assert_eq!(world.db.value("select groups::text from countersign.console_session").await, groups, "{more}");
        let expected = if is_approver { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN };
        let page = browser.approve(&proposal).await;
        assert_eq!(page.status, expected, "{more}: {}", page.body);
    }
}

/// A proposal to delete a new package of this account.
async fn deletion(db: &Database, server: &Server, account: &str) -> serde_json::Value {
    let insert = format!(
        "insert into studio.package (tenant_id, title, description, price, duration_minutes) \
         values ('{account}', 'Spare', '', 10, 60) returning package_id"
    );
    let package: i64 = db.value(&insert).await.parse().unwrap();
    server.propose("delete_package", json!({"package_id": package})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_approves_what_their_agent_has_proposed_whatever_it_is_called() {
    // The account of an agent with a token of the same provider is named by the subject, and not by the address.
    let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
    let oauth = format!(
        "[oauth]\nissuer = \"{0}\"\naudience = \"mcp\"\njwks_url = \"{0}/keys\"\nlabel_claim = \"nickname\"\n\
         scopes = {{ write = \"write\" }}\n",
        provider.url()
    );
    let config = format!("{}[console]\napprove_within = \"session\"\n{oauth}", usual(&provider));
    let world = World::with(provider, &config).await;
    for (arguments, nickname, is_own) in [
        (&["--account", "oauth:1F3A"][..], "x", true),
        (&["--account", "team", "--actor", "Annie"], "annie", true),
        (&["--account", "ANNA@example.com"], "x", true),
        (&["--account", "oauth:2", "--actor", "ben"], "annie", false),
    ] {
        world.provider.set(|provider| provider.person["nickname"] = nickname.into());
        let mut command = Server::command(&world.db);
        command.args(arguments).arg("--manifest").arg(repository().join("manifests/studio.toml"));
        let server = Server::start(command).await;
        let account = arguments[1];
        let studio = format!(
            "insert into studio.studio select '{account}', name, time_zone, currency from studio.studio limit 1"
        );
        world.db.run(&studio).await;
        let proposal = deletion(&world.db, &server, account).await;
        let mut browser = world.signed_in().await;
        let page = browser.approve(&proposal).await;
        let expected = if is_own { StatusCode::FORBIDDEN } else { StatusCode::SEE_OTHER };
        assert_eq!(page.status, expected, "{arguments:?}: {}", page.body);
        assert!(!is_own || page.body.contains("nobody approves their own"), "{}", page.body);
    }
}
