//! The console: who gets in, what the pages show, what counts as a decision, and what is refused.

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, redirect};
use serde_json::{Value, json};
use testkit::audit::{audit, run_audit};
use testkit::{Database, HttpServer, Server, database, poll, run, run_countersign};
use tokio::process::Command;

/// A console on a free port, over a login that has only its role.
pub(crate) struct Console {
    server: HttpServer,
    pub(crate) url: String,
}

/// A browser without JavaScript: it keeps cookies, and sends what browsers send.
#[derive(Clone)]
pub(crate) struct Browser {
    http: Client,
    base: String,
    cookie: Option<String>,
}

pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Console {
    pub(crate) async fn on(db: &Database) -> Self {
        Self::with(db, &[]).await
    }

    /// With more arguments.
    pub(crate) async fn with(db: &Database, arguments: &[&str]) -> Self {
        let role = format!("console_{}", db.name());
        db.run(&format!("do $$ begin create role {role} login; exception when duplicate_object or unique_violation then null; end $$; grant countersign_console to {role}")).await;
        let mut command = Command::new(testkit::countersign());
        command.env("DATABASE_URL", db.url_as(&role));
        command.args(["--log", "info", "console"]).args(arguments);
        Self::start(command).await
    }

    /// The console of a command.
    pub(crate) async fn start(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]).kill_on_drop(true);
        let server = HttpServer::listening(command).await;
        let url = server.url("");
        Self { server, url }
    }

    pub(crate) async fn link(&self, db: &Database, name: &str, more: &[&str]) -> String {
        let arguments = [&["console", "login", "--as", name, "--url", &self.url], more].concat();
        let made = run_countersign(&db.url(), &arguments).await;
        assert_eq!((made.code, made.err.as_str()), (0, ""));
        made.out.trim().to_owned()
    }

    /// A browser in which this person is logged in.
    pub(crate) async fn browser(&self, db: &Database, name: &str, more: &[&str]) -> Browser {
        self.log_in(&self.link(db, name, more).await).await
    }

    /// A browser in which the person of a link is logged in.
    pub(crate) async fn log_in(&self, link: &str) -> Browser {
        let mut browser = self.stranger();
        let page = browser.get(link.strip_prefix(&self.url).unwrap()).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        let token = link.rsplit('/').next().unwrap();
        let page = browser.post("/login", &[("link", token)]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.body);
        browser
    }

    pub(crate) fn stranger(&self) -> Browser {
        Browser::at(&self.url)
    }
}

impl Browser {
    pub(crate) fn at(base: &str) -> Self {
        let http = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Self { http, base: base.to_owned(), cookie: None }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send(Method::GET, path, &[], &[("sec-fetch-site", "same-origin")]).await
    }

    pub(crate) async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        let origin = self.base.clone();
        self.send(Method::POST, path, form, &[("sec-fetch-site", "same-origin"), ("origin", &origin)]).await
    }

    async fn send(&mut self, method: Method, path: &str, form: &[(&str, &str)], headers: &[(&str, &str)]) -> Page {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if method == Method::POST {
            request = request.form(form);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        if let Some(set) = headers.get("set-cookie") {
            self.cookie = set.to_str().unwrap().split(';').next().map(str::to_owned);
        }
        Page { status, headers, body: response.text().await.unwrap() }
    }
}

/// A server, and a proposal to delete a package.
pub(crate) async fn proposed(db: &Database, title: &str) -> (Server, Value) {
    let insert =
        "insert into studio.package (tenant_id, title, description, price, duration_minutes) values ('default', $t$";
    let package: i64 =
        db.value(&format!("{insert}{title}$t$, '', 10, 60) returning package_id")).await.parse().unwrap();
    let server = Server::studio(db).await;
    let proposal = server.propose("delete_package", json!({"package_id": package})).await;
    (server, proposal)
}

pub(crate) fn path(proposal: &Value) -> String {
    format!("/proposals/{}", proposal["proposal_id"].as_str().unwrap())
}

/// The digest in the form of a page.
pub(crate) fn digest(page: &Page) -> &str {
    let (_, rest) = page.body.split_once("name=\"digest\" value=\"").unwrap_or_else(|| panic!("{}", page.body));
    rest.split('"').next().unwrap()
}

pub(crate) async fn status(db: &Database, proposal: &Value) -> String {
    let id = proposal["proposal_id"].as_str().unwrap();
    db.value(&format!("select status from countersign.proposal where proposal_id = '{id}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_logs_in_once_by_a_link_sees_the_rows_and_approves_exactly_them() {
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset <script>alert(1)</script>\u{202e}").await;
    let mut browser = console.browser(&db, "anna", &[]).await;
    let inbox = browser.get("/").await;
    assert!(inbox.body.contains("<title>(1) Inbox") && inbox.body.contains(&path(&proposal)), "{}", inbox.body);
    let page = browser.get(&path(&proposal)).await;
    assert!(
        page.body.contains("Delete 1 row of studio.package") && page.body.contains("Sunset &#60;script&#62;"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("<script>") && !page.body.contains('\u{202e}'), "{}", page.body);
    let shown = digest(&page).to_owned();
    assert_eq!(shown, proposal["digest"].as_str().unwrap());
    let decided = browser.post(&format!("{}/approve", path(&proposal)), &[("digest", &shown)]).await;
    assert_eq!(decided.status, StatusCode::SEE_OTHER, "{}", decided.body);
    poll::until("the write is executed", async || status(&db, &proposal).await == "executed").await;
    let page = browser.get(&path(&proposal)).await;
    assert!(page.body.contains("anna, via console"), "{}", page.body);
    let by = db.value("select concat(decided_by, ' ', decided_via) from countersign.proposal").await;
    assert_eq!(by, "anna console");

    audit(&db, &["seal"]).await;
    let entries = db.value("select string_agg(entry, '' order by leaf_index) from countersign.leaf").await;
    assert!(
        entries.contains("kind login\n") && entries.contains("person anna\nrole reviewer\nmethod link\n"),
        "{entries}"
    );
    let verified = run_audit(&db.url(), &["verify"]).await;
    assert_eq!(verified.code, 0, "{} {}", verified.out, verified.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_works_once_within_five_minutes_and_only_by_the_button() {
    let db = database().await;
    let console = Console::on(&db).await;
    let link = console.link(&db, "anna", &[]).await;
    let token = link.rsplit('/').next().unwrap();
    let mut browser = console.stranger();
    for _ in 0..2 {
        let page = browser.get(&format!("/login/{token}")).await;
        assert!(page.status == StatusCode::OK && page.headers.get("set-cookie").is_none());
    }
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER, "opening it logs nobody in");
    let page = browser.post("/login", &[("link", token)]).await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    for part in ["__Host-countersign=", "Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    let stored =
        db.value("select count(*) from countersign.console_session where encode(token_hash, 'hex') like '%'").await;
    assert_eq!(stored, "1");
    let mut other = console.stranger();
    for bad in [token, "x", ""] {
        let page = other.post("/login", &[("link", bad)]).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{bad}");
        assert!(page.headers.get("set-cookie").is_none());
    }
    let old = console.link(&db, "anna", &[]).await;
    db.run("update countersign.console_link set made_at = made_at - interval '6 minutes'").await;
    let page = other.post("/login", &[("link", old.rsplit('/').next().unwrap())]).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);

    browser.post("/logout", &[]).await;
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
}

/// N-13.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_leads_to_the_console_that_was_started_last() {
    let db = database().await;
    let login = ["console", "login", "--as", "anna"];
    let before = run_countersign(&db.url(), &login).await;
    assert!(before.out.starts_with("http://127.0.0.1:7788/login/"), "{}", before.out);
    assert!(before.err.contains("no console was started on this ledger yet"), "{}", before.err);
    for _ in 0..2 {
        let console = Console::on(&db).await;
        let made = run_countersign(&db.url(), &login).await;
        assert_eq!(made.err, "");
        let link = made.out;
        assert!(link.starts_with(&format!("{}/login/", console.url)), "{link} of {}", console.url);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_the_session_before() {
    // S-13
    let db = database().await;
    let console = Console::on(&db).await;
    let mut browser = console.browser(&db, "anna", &[]).await;
    let mut before = browser.clone();
    assert_eq!(before.get("/").await.status, StatusCode::OK);
    let link = console.link(&db, "ben", &[]).await;
    // A link that does not count ends nothing.
    assert_eq!(browser.post("/login", &[("link", "cs_wrong")]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(before.get("/").await.status, StatusCode::OK);
    browser.post("/login", &[("link", link.rsplit('/').next().unwrap())]).await;
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    assert_eq!(before.get("/").await.status, StatusCode::SEE_OTHER, "anna's session has ended");
    assert_eq!(db.value("select count(*) from countersign.console_session").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_it_is_idle_old_or_ended_by_an_administrator() {
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    for end in [
        "update countersign.console_session set seen_at = seen_at - interval '16 minutes'",
        "update countersign.console_session set logged_in_at = logged_in_at - interval '13 hours'",
        "select countersign.end_console_sessions('anna')",
    ] {
        let mut browser = console.browser(&db, "anna", &[]).await;
        let page = browser.get(&path(&proposal)).await;
        let shown = digest(&page).to_owned();
        db.run(end).await;
        let page = browser.post(&format!("{}/approve", path(&proposal)), &[("digest", &shown)]).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{end}: {}", page.body);
        assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER, "{end}");
    }
    assert_eq!(status(&db, &proposal).await, "pending");
    let mut browser = console.browser(&db, "anna", &[]).await;
    let ended = run_countersign(&db.url(), &["console", "logout", "--as", "anna"]).await;
    assert!(ended.out.contains("1 sessions of anna have ended"), "{} {}", ended.out, ended.err);
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_from_anywhere_else_changes_nothing() {
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    let mut browser = console.browser(&db, "anna", &[]).await;
    let page = browser.get(&path(&proposal)).await;
    let shown = digest(&page).to_owned();
    let (approve, own) = (format!("{}/approve", path(&proposal)), console.url.clone());
    for headers in [
        &[][..],
        &[("origin", "null")],
        &[("origin", "https://evil.example.com")],
        &[("origin", "https://evil.example.com"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "cross-site"), ("origin", own.as_str())],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
    ] {
        let page = browser.send(Method::POST, &approve, &[("digest", &shown)], headers).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    // S-11: a proxy and the console could take different ones of two.
    let (site, host) = (("sec-fetch-site", "same-origin"), own.strip_prefix("http://").unwrap());
    for headers in [
        &[site, ("origin", own.as_str()), ("origin", "https://evil.example.com")][..],
        &[site, ("sec-fetch-site", "cross-site"), ("origin", own.as_str())],
        &[site, ("origin", own.as_str()), ("host", host), ("host", "evil.example.com")],
    ] {
        let page = browser.send(Method::POST, &approve, &[("digest", &shown)], headers).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{headers:?}");
    }
    let foreign = browser.send(Method::GET, "/", &[], &[("host", "evil.example.com")]).await;
    assert_eq!(foreign.status, StatusCode::MISDIRECTED_REQUEST);
    let get = browser.get(&approve).await;
    assert_eq!(get.status, StatusCode::METHOD_NOT_ALLOWED, "a GET changes nothing");
    assert_eq!(status(&db, &proposal).await, "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_shown_is_not_approved_and_who_may_not_decide_does_not() {
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    let approve = format!("{}/approve", path(&proposal));
    let digest = proposal["digest"].as_str().unwrap();
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.post(&approve, &[("digest", &"0".repeat(64))]).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.body);
    let mut auditor = console.browser(&db, "olga", &["--role", "auditor"]).await;
    assert!(auditor.get(&path(&proposal)).await.body.contains("An auditor reads"));
    for action in ["approve", "reject", "ask"] {
        let page = auditor.post(&format!("{}/{action}", path(&proposal)), &[("digest", digest), ("text", "x")]).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.body);
    }
    let mut proposer = console.browser(&db, "Default", &[]).await;
    let page = proposer.post(&approve, &[("digest", digest)]).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.body.contains("nobody approves their own"), "{}", page.body);
    assert_eq!(status(&db, &proposal).await, "pending");

    let reject = format!("{}/reject", path(&proposal));
    // S-10: as the tool and the command line.
    let page = anna.post(&reject, &[("text", &"\u{e9}".repeat(1_001))]).await;
    assert!(page.status == StatusCode::BAD_REQUEST && page.body.contains("1000 characters"), "{}", page.body);
    assert_eq!(status(&db, &proposal).await, "pending");
    assert_eq!(anna.post(&reject, &[("text", "too early")]).await.status, StatusCode::SEE_OTHER);
    let page = anna.get(&path(&proposal)).await;
    assert!(page.body.contains("too early") && page.body.contains("rejected"), "{}", page.body);
    let page = anna.post(&approve, &[("digest", digest)]).await;
    assert!(page.status == StatusCode::CONFLICT && page.body.contains("rejected"), "{}", page.body);
    // N-33
    assert!(!page.body.contains("Do not propose it again"), "{}", page.body);
    for unknown in ["00000000-0000-4000-8000-000000000000", "x"] {
        let page = anna.get(&format!("/proposals/{unknown}")).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{unknown}");
        // N-33: for a person, who has no tools and no account.
        assert!(
            page.body.contains("there is no such proposal: what was rejected or has expired is removed"),
            "{}",
            page.body
        );
        assert!(!page.body.contains("list_proposals") && !page.body.contains("account"), "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_the_headers_errors_included() {
    let db = database().await;
    let console = Console::on(&db).await;
    let mut browser = console.browser(&db, "anna", &[]).await;
    for path in [
        "/",
        "/login",
        "/login/x",
        "/absent",
        "/static/console-9.css",
        "/static/console-3.js",
        "/proposals/x",
        "/records",
        "/records?status=x",
        "/records.jsonl",
        "/records/x",
        "/rows?table=x&key=1",
        "/undo",
        "/undo/x",
        "/activity",
        "/log",
        "/log/checkpoint",
        "/health",
    ] {
        let page = browser.get(path).await;
        let header = |name: &str| page.headers.get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap());
        assert!(header("content-security-policy").starts_with("default-src 'none'; style-src 'self'"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin", "{path}");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert!(!header("cache-control").is_empty(), "{path}");
        assert!(!page.body.contains("style=") && !page.body.contains("<script>"), "{path}");
    }
    let refused = browser.send(Method::POST, "/logout", &[], &[]).await;
    assert_eq!(refused.headers["cache-control"], "no-store");
    assert_eq!(refused.headers["x-frame-options"], "DENY");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_has_no_other_right_and_only_owners_make_links() {
    let db = database().await;
    let console = Console::on(&db).await;
    let role = format!("console_{}", db.name());
    let url = db.url_as(&role);
    let refused = run_countersign(&url, &["console", "login", "--as", "anna", "--url", &console.url]).await;
    assert!(refused.code == 1 && refused.err.contains("member of countersign_owner"), "{}", refused.err);
    for sql in [
        "select * from countersign.console_session",
        "select countersign.decide_as_reviewer(gen_random_uuid(), 'rejected', 'x', null, null, '')",
        "select countersign.make_console_link('x', 'anna', 'reviewer', '{}')",
        "select * from social.account",
    ] {
        let ran =
            run(Command::new(testkit::countersign()).env("DATABASE_URL", &url).args(["query", "--sql", sql])).await;
        assert!(ran.out.contains("permission denied"), "{sql}: {} {}", ran.out, ran.err);
    }
    let wide = run_countersign(&db.url(), &["console", "--listen", "0.0.0.0:0"]).await;
    assert!(wide.code == 1 && wide.err.contains("--url"), "{}", wide.err);
    let plain =
        run_countersign(&db.url(), &["console", "--listen", "127.0.0.1:0", "--url", "http://c.example.com"]).await;
    assert!(plain.code == 2 && plain.err.contains("https://"), "{}", plain.err);
    console.server.logged("the console is listening on").await;
}
