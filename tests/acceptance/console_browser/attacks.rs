//! What pages of somebody else, other tabs and old pages can do. The browser decides what it sends, so a browser shows it.

use serde_json::{Value, json};
use testkit::{Database, Server, Tab, WebBrowser, database};

use super::{APPROVE, browser, logged_in, until_executed};
use crate::console::{Console, path, proposed, status};

/// A reviewer who is logged in, and a proposal.
struct Scene {
    browser: WebBrowser,
    db: Database,
    console: Console,
    server: Server,
    proposal: Value,
    anna: Tab,
}

const FOREIGN: &str = "The request does not come from a page of the console. Nothing was changed.";

impl Scene {
    async fn new() -> Option<Self> {
        let browser = browser().await?;
        let db = database().await;
        let console = Console::on(&db).await;
        let (server, proposal) = proposed(&db, "Sunset").await;
        let anna = logged_in(&browser, &console, &db, "anna", json!({})).await;
        Some(Self { browser, db, console, server, proposal, anna })
    }

    fn url(&self) -> String {
        format!("{}{}", self.console.url, path(&self.proposal))
    }

    async fn status(&self) -> String {
        status(&self.db, &self.proposal).await
    }

    /// A form that approves the proposal.
    fn form(&self, target: &str) -> String {
        let digest = self.proposal["digest"].as_str().unwrap();
        let field = format!("<input type=hidden name=digest value={digest}>");
        format!(
            "<form method=post target={target} action={}/approve>{field}<button>Win a prize</button></form>",
            self.url()
        )
    }

    /// The origins of a page of somebody else: another site, and another port of this one, which gets the cookies as well.
    async fn foreign(&self, html: &str) -> [String; 2] {
        let port = self.browser.serve(json!({"/": {"html": html}})).await;
        ["localhost", "127.0.0.1"].map(|host| format!("http://{host}:{port}/"))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_form_of_somebody_else_approves_nothing() {
    let Some(scene) = Scene::new().await else { return };
    let form = scene.form("_top");
    let quoted = form.replace('"', "&quot;");
    let framed = |sandbox: &str| format!("<iframe sandbox='{sandbox}' srcdoc=\"{quoted}\"></iframe>");
    for (name, html, frames) in [
        ("a form", form.clone(), &[][..]),
        ("without a referrer", format!("<meta name=referrer content=no-referrer>{form}"), &[]),
        // Its origin is `null`.
        ("a frame", framed("allow-forms allow-top-navigation"), &["iframe"]),
    ] {
        for url in scene.foreign(&html).await {
            let tab = scene.anna.beside().await;
            tab.open(&url).await;
            assert_eq!(tab.frame(frames).follow("Win a prize").await, 403, "{name} at {url}");
            assert!(tab.text().await.contains(FOREIGN), "{name} at {url}: {}", tab.text().await);
            assert_eq!(scene.status().await, "pending", "{name} at {url}");
        }
    }
    // The same form in a page of the console is not refused.
    let tab = scene.anna.beside().await;
    tab.tamper("<p class=\"empty\">", &format!("{form}<p class=\"empty\">")).await;
    tab.open(&format!("{}/records", scene.console.url)).await;
    assert_eq!(tab.follow("Win a prize").await, 200);
    until_executed(&scene.db, &scene.proposal).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_page_of_somebody_else_neither_frames_nor_reads_nor_holds_the_console() {
    let Some(scene) = Scene::new().await else { return };
    let url = scene.url();
    let html = format!(
        "<iframe src='{url}'></iframe><script>
         const loads = (make) => new Promise((answer) => {{
           const element = make(document);
           element.onload = () => answer('loaded');
           element.onerror = () => answer('refused');
           document.body.append(element);
         }});
         const script = (src) => loads((page) => Object.assign(page.createElement('script'), {{ src }}));
         const read = (options) => fetch('{url}', {{ credentials: 'include', ...options }}).then((page) => page.type, () => 'refused');
         const opened = () => new Promise((answer) => {{
           const other = window.open('{url}');
           const ask = setInterval(() => {{ if (other.closed) {{ clearInterval(ask); answer('severed'); }} }}, 20);
         }});
         </script>"
    );
    for foreign in scene.foreign(&html).await {
        let tab = scene.anna.beside().await;
        tab.open(&foreign).await;
        let framed = tab.frame(&["iframe"]).run("document.documentElement.innerText").await;
        assert!(!framed.as_str().unwrap().contains("Sunset"), "{foreign}: {framed}");
        let problems = tab.problems().await;
        assert!(problems.iter().any(|problem| problem.contains("frame-ancestors")), "{foreign}: {problems:#?}");
        let export = format!("script('{}/records.jsonl')", scene.console.url);
        for (expression, expected) in [
            ("read()", "refused"),
            ("read({mode: 'no-cors'})", "refused"),
            (&export, "refused"),
            ("opened()", "severed"),
        ] {
            assert_eq!(tab.run(expression).await, expected, "{expression} at {foreign}");
        }
    }
    // A page of the console reads it, so the address is right.
    let script = format!("fetch('{url}').then((page) => page.type)");
    assert_eq!(scene.anna.run(&script).await, "basic");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn one_proposal_in_two_tabs_is_approved_once() {
    let Some(scene) = Scene::new().await else { return };
    let other = scene.anna.beside().await;
    for tab in [&scene.anna, &other] {
        tab.open(&scene.url()).await;
    }
    assert_eq!(scene.anna.follow(APPROVE).await, 200);
    until_executed(&scene.db, &scene.proposal).await;
    // The same approval again is that approval: the page shows what came of it.
    assert_eq!(other.follow(APPROVE).await, 200);
    assert!(other.text().await.contains("executed"), "{}", other.text().await);
    assert_eq!(other.count(APPROVE).await, 0);
    assert_eq!(scene.db.value("select count(*) from countersign.record where status = 'success'").await, "1");
    // Going back and clicking again is no other way.
    scene.anna.back().await;
    assert_eq!(scene.anna.count(APPROVE).await, 0, "the page before is asked for again");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn what_has_changed_between_the_look_and_the_click_is_not_approved() {
    let Some(scene) = Scene::new().await else { return };
    scene.anna.open(&scene.url()).await;
    // Somebody else has rejected it.
    let mut bert = scene.console.browser(&scene.db, "bert", &[]).await;
    bert.post(&format!("{}/reject", path(&scene.proposal)), &[("text", "Not now.")]).await;
    assert_eq!(scene.anna.follow(APPROVE).await, 409);
    assert!(scene.anna.text().await.contains("rejected"), "{}", scene.anna.text().await);
    assert_eq!(scene.anna.follow("To the inbox").await, 200);

    // The row is another one than was shown.
    let (_server, stale) = proposed(&scene.db, "Newborn").await;
    scene.anna.open(&format!("{}{}", scene.console.url, path(&stale))).await;
    scene.db.run("update studio.package set price = 11 where title = 'Newborn'").await;
    scene.anna.follow(APPROVE).await;
    scene.db.until_value("select status from countersign.proposal order by id desc limit 1", "stale").await;
    scene.anna.open(&format!("{}{}", scene.console.url, path(&stale))).await;
    assert!(scene.anna.text().await.contains("stale"), "{}", scene.anna.text().await);
    assert_eq!(scene.db.value("select count(*) from studio.package where title in ('Sunset', 'Newborn')").await, "2");
    drop(scene.server);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_session_that_has_ended_decides_nothing_and_leaves_nothing_to_see() {
    let Some(scene) = Scene::new().await else { return };
    scene.anna.open(&scene.url()).await;
    scene.db.run("select countersign.end_console_sessions('anna')").await;
    assert_eq!(scene.anna.follow(APPROVE).await, 401);
    assert!(scene.anna.text().await.contains("nothing was changed"), "{}", scene.anna.text().await);
    assert_eq!(scene.status().await, "pending");

    let tab = logged_in(&scene.browser, &scene.console, &scene.db, "anna", json!({})).await;
    tab.open(&scene.url()).await;
    assert!(tab.text().await.contains("Sunset"));
    assert_eq!(tab.follow("Log out").await, 200);
    tab.back().await;
    assert!(!tab.text().await.contains("Sunset"), "the browser has kept the page: {}", tab.text().await);
    assert!(tab.url().await.contains("/login?next="), "{}", tab.url().await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_link_logs_one_browser_in_and_an_old_one_none() {
    let Some(scene) = Scene::new().await else { return };
    let link = scene.console.link(&scene.db, "bert", &[]).await;
    let (one, other) = (scene.browser.tab(json!({})).await, scene.browser.tab(json!({})).await);
    for tab in [&one, &other] {
        assert_eq!(tab.open(&link).await, 200);
    }
    assert_eq!(one.follow("Log in").await, 200);
    assert_eq!(other.follow("Log in").await, 401);
    assert!(other.text().await.contains("The link cannot be used"), "{}", other.text().await);
    let old = scene.console.link(&scene.db, "bert", &[]).await;
    scene.db.run("update countersign.console_link set made_at = made_at - interval '6 minutes'").await;
    other.open(&old).await;
    assert_eq!(other.follow("Log in").await, 401);
    other.open(&format!("{}/", scene.console.url)).await;
    assert_eq!(other.url().await, format!("{}/login", scene.console.url));
    // The address of the link is in no header that the browser sends elsewhere, and no script reads the cookie.
    assert_eq!(one.run("document.cookie").await, "");
}
