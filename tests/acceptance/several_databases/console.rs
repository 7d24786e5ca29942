//! One console of several databases: one inbox, one login, and the pages of each.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use testkit::{ConfigDir, Database, Proxy, Server, database, poll, run};

use crate::console::{Browser, Console, digest, path, proposed, status};
use crate::console_pages::leads_to;
use crate::copied::copy_of;
use crate::shop::{self, SET_STATUS};

/// A production and a staging database, and a console of both.
pub(crate) struct World {
    pub(crate) production: Database,
    pub(crate) staging: Database,
    /// A server on production whose writes can be undone.
    server: Server,
    pub(crate) proxy: Proxy,
    folder: ConfigDir,
    config: String,
    pub(crate) console: Console,
}

impl World {
    /// The console reaches staging through a proxy, which is changed first.
    pub(crate) async fn new(change: impl Fn(&Proxy)) -> Self {
        let (production, server, operator) = shop::with_operator(SET_STATUS).await;
        let (staging, folder) = (database().await, ConfigDir::new());
        let proxy = Proxy::before(&staging);
        change(&proxy);
        let staging_login = staging.login("console", "countersign_console").await;
        let staging_url = proxy.url().replace("user=postgres", &format!("user=console_{}", staging.name()));
        assert_ne!(staging_url, proxy.url(), "{staging_login}");
        let config = format!(
            "[database.shop]\nenvironment = \"production\"\ndatabase_url = {:?}\noperator_url = {operator:?}\n\
             [database.shop_staging]\nenvironment = \"staging\"\ndatabase_url = {staging_url:?}\n",
            production.login("console", "countersign_console").await,
        );
        let mut command = folder.command(&config);
        command.args(["--log", "info", "console"]);
        let console = Console::start(command).await;
        Self { production, staging, server, proxy, folder, config, console }
    }

    /// The exit code and the messages of `console login` by the owners, and the link.
    pub(crate) async fn login(&self, name: &str, role: &str) -> (i32, String, String) {
        let folder = ConfigDir::new();
        let owners = format!(
            "[database.shop]\ndatabase_url = {:?}\n[database.shop_staging]\ndatabase_url = {:?}\n",
            self.production.url(),
            self.proxy.url()
        );
        let made = run(folder.command(&owners).args(["console", "login", "--as", name, "--role", role])).await;
        (made.code, made.err, made.out.trim().to_owned())
    }

    async fn browser(&self, name: &str, role: &str) -> Browser {
        let (code, err, link) = self.login(name, role).await;
        assert_eq!((code, err.as_str()), (0, ""));
        self.console.log_in(&link).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_inbox_has_the_proposals_of_all_and_each_is_decided_where_it_is() {
    let world = World::new(|_| ()).await;
    let (_first, production) = proposed(&world.production, "Sunset").await;
    let (_second, staging) = proposed(&world.staging, "Sunrise").await;
    let mut anna = world.browser("anna", "operator").await;
    let inbox = anna.get("/").await;
    for expected in [
        "<title>(2) Inbox",
        "shop (production)",
        "shop_staging (staging)",
        "1 waits",
        &format!("/databases/shop{}", path(&production)),
        &format!("/databases/shop_staging{}", path(&staging)),
    ] {
        assert!(inbox.body.contains(expected), "{expected} {}", inbox.body);
    }
    // The links of notices do not name a database.
    let found = anna.get(&path(&staging)).await;
    let page = leads_to(&found).to_owned();
    assert_eq!(page, format!("/databases/shop_staging{}", path(&staging)));
    let shown = anna.get(&page).await;
    assert!(shown.body.contains("Sunrise") && shown.body.contains("· shop_staging (staging) ·"), "{}", shown.body);
    let elsewhere = anna.get(&format!("/databases/shop{}", path(&staging))).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
    let decided = anna.post(&format!("{page}/approve"), &[("digest", digest(&shown))]).await;
    let id = staging["proposal_id"].as_str().unwrap();
    assert_eq!(leads_to(&decided), format!("/databases/shop_staging/?decided={id}"));
    poll::until("the write is executed", async || status(&world.staging, &staging).await == "executed").await;
    assert_eq!(status(&world.production, &production).await, "pending");

    let write = world.server.succeed("set_status", json!({"id": 1, "status": "shipped"})).await;
    let id = write["meta"]["correlation_id"].as_str().unwrap();
    let records = anna.get("/databases/shop/records").await;
    assert!(records.body.contains(&format!("/databases/shop/records/{id}")), "{}", records.body);
    let undone = anna.post(&format!("/databases/shop/records/{id}/undo"), &[]).await;
    assert!(leads_to(&undone).starts_with("/databases/shop/records/"), "{}", undone.body);
    // Nobody undoes without a login for it.
    let page = anna.get("/databases/shop_staging/undo").await;
    assert!(page.body.contains("operator_url"), "{}", page.body);
    for page in ["", "/records", "/rows", "/undo", "/activity", "/log", "/health"] {
        for database in ["shop", "shop_staging"] {
            let address = format!("/databases/{database}{page}");
            let address = if page.is_empty() { format!("{address}/") } else { address };
            let shown = anna.get(&address).await;
            assert_eq!(shown.status, StatusCode::OK, "{address} {}", shown.body);
            let links = shown.body.split(" href=\"/").skip(1).map(|rest| rest.split('"').next().unwrap());
            for link in links.filter(|link| !link.is_empty() && !link.starts_with("static/")) {
                assert!(link.starts_with(&format!("databases/{database}/")), "{address}: /{link}");
            }
        }
    }
    for unknown in ["/records", "/undo", "/databases/other/", "/proposals/x"] {
        assert_eq!(anna.get(unknown).await.status, StatusCode::NOT_FOUND, "{unknown}");
    }
    anna.post("/logout", &[]).await;
    for page in ["/".to_owned(), path(&production), "/databases/shop/records".to_owned()] {
        let login = anna.get(&page).await;
        assert!(leads_to(&login).starts_with("/login"), "{page}");
    }
    for database in [&world.production, &world.staging] {
        assert_eq!(database.value("select count(*) from countersign.console_session").await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_one_database_keeps_the_session_in_the_others() {
    let world = World::new(|_| ()).await;
    let mut anna = world.browser("anna", "reviewer").await;
    for database in [&world.production, &world.staging] {
        database.run("update countersign.console_session set seen_at = seen_at - interval '14 minutes'").await;
    }
    assert_eq!(anna.get("/databases/shop/records").await.status, StatusCode::OK);
    let fresh = "select count(*) from countersign.console_session where seen_at > now() - interval '5 minutes'";
    poll::until("staging has seen the person", async || world.staging.value(fresh).await == "1").await;
    // A session of another database does not count.
    world.staging.run("delete from countersign.console_session").await;
    let refused = anna.get("/databases/shop_staging/records").await;
    assert_eq!(leads_to(&refused), "/login?next=%2Fdatabases%2Fshop_staging%2Frecords");
    let refused = anna.post("/databases/shop_staging/freeze", &[("kind", "all")]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let inbox = anna.get("/").await;
    assert!(inbox.body.contains("you are not logged in there"), "{}", inbox.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_leaves_the_pages_of_the_others() {
    let world = World::new(Proxy::refuse).await;
    let (_server, production) = proposed(&world.production, "Sunset").await;
    let (code, err, link) = world.login("anna", "reviewer").await;
    assert!(code == 1 && err.contains("shop_staging: ") && err.contains("annot connect"), "{err}");
    let mut anna = world.console.log_in(&link).await;
    let inbox = anna.get("/").await;
    assert!(inbox.body.contains("does not answer") && inbox.body.contains(&path(&production)), "{}", inbox.body);
    let page = format!("/databases/shop{}", path(&production));
    let shown = anna.get(&page).await;
    let decided = anna.post(&format!("{page}/approve"), &[("digest", digest(&shown))]).await;
    assert_eq!(decided.status, StatusCode::SEE_OTHER, "{}", decided.body);
    let away = anna.get("/databases/shop_staging/records").await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE, "{}", away.body);
    let unknown = anna.get("/proposals/00000000-0000-4000-8000-000000000000").await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE, "{}", unknown.body);

    world.proxy.accept_connections();
    let until_there = async |anna: &Browser| {
        let there = "you are not logged in there";
        poll::until("staging answers", async || anna.clone().get("/").await.body.contains(there)).await;
    };
    until_there(&anna).await;
    world.proxy.swallow();
    let begun = Instant::now();
    let inbox = anna.get("/").await;
    assert!(inbox.body.contains("does not answer"), "{}", inbox.body);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    world.proxy.thaw();
    until_there(&anna).await;
    let mut anna = world.browser("anna", "reviewer").await;
    assert_eq!(anna.get("/databases/shop_staging/records").await.status, StatusCode::OK);
}

/// The console of one database of the configuration has the paths of a console without names.
#[tokio::test(flavor = "multi_thread")]
async fn a_chosen_database_is_the_only_one() {
    let world = World::new(|_| ()).await;
    let mut command = world.folder.command(&world.config);
    command.args(["--log", "info", "console", "--database", "shop"]);
    let console = Console::start(command).await;
    let mut anna = console.browser(&world.production, "anna", &[]).await;
    let records = anna.get("/records").await;
    assert!(records.body.contains("shop (production)") && !records.body.contains("shop_staging"), "{}", records.body);
    assert!(!records.body.contains("/databases/"), "{}", records.body);
}

/// A decision in a copy would apply to a proposal of the original.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_not_used_and_the_log_says_why() {
    let original = database().await;
    let role = original.login("console", "countersign_console").await;
    let copy = copy_of(&original).await;
    let copied_role = copy.url_as(&format!("console_{}", original.name()));
    let table = |name: &str, url: &str| format!("[database.{name}]\ndatabase_url = {url:?}\n");
    let folder = ConfigDir::new();
    let mut command = folder.command(&format!("{}{}", table("shop", &role), table("copy", &copied_role)));
    command.args(["--log", "info", "console"]);
    let console = Console::start(command).await;
    let owners = format!("{}{}", table("shop", &original.url()), table("copy", &copy.url()));
    let made = run(ConfigDir::new().command(&owners).args(["console", "login", "--as", "anna"])).await;
    assert!(made.code == 1 && made.err.contains("copy: ") && made.err.contains("for another database"), "{}", made.err);
    let mut anna = console.log_in(made.out.trim()).await;
    let inbox = anna.get("/").await;
    assert!(inbox.body.contains("is not used: the log of the console has the reason"), "{}", inbox.body);
    let refused = anna.get("/databases/copy/records").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.body);
    assert!(refused.body.contains("does not use this database as it is"), "{}", refused.body);
}
