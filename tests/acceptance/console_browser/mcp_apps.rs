//! The view of a proposal in a client with MCP Apps: the built server, its view in the frames of a web page, and the messages
//! of the specification (2026-01-26) between them.

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, RawStdioServer, Tab, WebBrowser, database, repository};

use super::browser;
use crate::proposals::{PRICE, price};

/// The content security policy that the specification has for a view that asks for none.
const POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; \
                      base-uri 'self'; object-src 'none'";

/// A client with a session at the built server, and its page.
struct Client {
    server: RawStdioServer,
    host: Tab,
    view: Tab,
    _folder: ConfigDir,
}

impl Client {
    /// A client with these capabilities towards views, and a server that knows its console.
    async fn new(browser: &WebBrowser, db: &Database, capabilities: Value) -> Self {
        Self::with_config(browser, db, capabilities, "agent_confirms = true\n").await
    }

    async fn with_config(browser: &WebBrowser, db: &Database, capabilities: Value, config: &str) -> Self {
        let folder = ConfigDir::new();
        let mut command = folder.command(&format!("{config}[console]\nurl = \"https://console.example.com\"\n"));
        command.env("DATABASE_URL", db.writer_url()).args(["--log", "warn", "serve"]);
        command.arg("--manifest").arg(repository().join("manifests/studio.toml"));
        let declared =
            json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}});
        let mut server = RawStdioServer::capable(command, "2025-11-25", declared).await;
        let read = server.request(2, "resources/read", json!({"uri": "ui://countersign/proposal"})).await;
        let view = &read["result"]["contents"][0]["text"];
        let page = |name: &str| std::fs::read_to_string(repository().join("tests/browser").join(name)).unwrap();
        let sandbox = json!({"html": page("mcp_sandbox.html"), "headers": {"content-security-policy": POLICY}});
        let port = browser.serve(json!({"/": sandbox})).await;
        let setup = json!({"view": view, "sandbox": format!("http://127.0.0.1:{port}/"), "capabilities": capabilities, "theme": "light"});
        let html = page("mcp_host.html").replace("SETUP", &setup.to_string().replace('<', "\\u003c"));
        let port = browser.serve(json!({"/": {"html": html}})).await;
        let host = browser.tab(json!({})).await;
        host.open(&format!("http://localhost:{port}/")).await;
        let view = host.frame(&["#sandbox", "iframe"]);
        Self { server, host, view, _folder: folder }
    }

    /// Calls a tool for the model, and shows the result.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.server.request(3, "tools/call", json!({"name": tool, "arguments": arguments})).await;
        self.host.run(&format!("show({arguments}, {})", answer["result"])).await;
        answer["result"]["structuredContent"].clone()
    }

    /// What is wrong with the page and the view. Chromium warns of the sandbox that the specification requires.
    async fn problems(&self) -> Vec<String> {
        let mut problems = self.host.problems().await;
        problems.retain(|problem| !problem.contains("both allow-scripts and allow-same-origin"));
        problems
    }

    /// The next message of the view with this method.
    async fn next(&self, method: &str) -> Value {
        self.host.run(&format!("next('{method}')")).await
    }

    /// Answers the next call of a tool by the view as the server does; the call.
    async fn pass_on(&mut self) -> Value {
        let call = self.next("tools/call").await;
        let answer = self.server.request(4, "tools/call", call["params"].clone()).await;
        self.host.run(&format!("answer({}, {})", call["id"], answer["result"])).await;
        call["params"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_view_shows_the_change_and_its_button_confirms_exactly_that() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let mut client = Client::new(&browser, &db, json!({"serverTools": {}, "openLinks": {}})).await;
    let initialize = client.next("ui/initialize").await;
    assert_eq!(initialize["params"]["protocolVersion"], "2026-01-26");
    assert!(initialize["params"]["appInfo"]["name"].is_string() && initialize["params"]["appCapabilities"].is_object());
    let proposed = client.call("upsert_package", price("150.00")).await;
    client.view.wait_for_text("Nothing was written yet.").await;
    let text = client.view.text().await;
    for part in ["studio.package", "Before", "After", "120.00", "150.00", "It can be undone"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(client.host.findings().await, [""; 0]);
    let height = client.view.run("document.getElementById('view').getBoundingClientRect().bottom").await;
    let asked = client.host.run("size.height").await;
    assert!(asked.as_f64() >= height.as_f64() && asked.as_f64() < Some(860.0), "{asked} for {height}");

    client.view.click("Write exactly this").await;
    let called = client.pass_on().await;
    let proposal = &proposed["data"]["proposal"];
    let expected = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    assert_eq!(called, json!({"name": "confirm_proposal", "arguments": expected}));
    client.view.wait_for_text("Recorded as").await;
    assert_eq!(db.value(PRICE).await, "150.00");
    assert_eq!(client.view.count("Write exactly this").await, 0);

    client.call("upsert_package", price("160.00")).await;
    client.view.click("Reject").await;
    assert_eq!(client.pass_on().await["name"], "reject_proposal");
    assert_eq!(db.value("select status from countersign.proposal order by id desc limit 1").await, "rejected");
    assert_eq!((db.value(PRICE).await, client.problems().await), ("150.00".to_owned(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn for_another_person_to_approve_there_is_only_the_way_to_the_console() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let deletion = json!({"package_id": 3});
    let mut client = Client::new(&browser, &db, json!({"serverTools": {}, "openLinks": {}})).await;
    let proposed = client.call("delete_package", deletion.clone()).await;
    let page = proposed["data"]["proposal"]["review_url"].as_str().unwrap().to_owned();
    assert!(page.starts_with("https://console.example.com/proposals/"), "{page}");
    client.view.wait_for_text("Another person has to approve this.").await;
    for button in ["Write exactly this", "Reject"] {
        assert_eq!(client.view.count(button).await, 0, "{button}");
    }
    assert_eq!(client.host.findings().await, [""; 0]);
    client.view.click("Open it in the console").await;
    assert_eq!(client.next("ui/open-link").await["params"], json!({"url": page}));

    // Without the capability to open links, the address is there to read; without that to call tools, there is no button.
    let mut client = Client::new(&browser, &db, json!({})).await;
    client.call("delete_package", deletion).await;
    client.view.wait_for_text("https://console.example.com/proposals/").await;
    client.call("upsert_package", price("150.00")).await;
    client.view.wait_for_text("Say in the conversation whether you agree.").await;
    assert_eq!(client.view.run("document.querySelectorAll('button').length").await, 0);

    // Nor is there one that an agent could press where it does not confirm.
    let capabilities = json!({"serverTools": {}, "openLinks": {}});
    let mut client = Client::with_config(&browser, &db, capabilities, "").await;
    client.call("upsert_package", price("150.00")).await;
    client.view.wait_for_text("You confirm this outside of this conversation.").await;
    assert_eq!(client.view.count("Write exactly this").await, 0);
    assert_eq!(client.view.count("Open it in the console").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn values_of_rows_are_text_in_the_view() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let mut client = Client::new(&browser, &db, json!({"serverTools": {}})).await;
    let mut hostile = price("150.00");
    hostile["title"] = json!("<img src=x onerror=alert(1)></script><b>Portrait</b>\u{202e}");
    hostile["description"] =
        json!("</main><script>alert(2)</script> javascript:alert(3) \u{2066}x\u{200b}y\u{3164}\u{e0041}");
    client.call("upsert_package", hostile).await;
    client.view.wait_for_text("Nothing was written yet.").await;
    let text = client.view.text().await;
    for part in
        ["<img src=x onerror=alert(1)></script><b>Portrait</b>", "\\u202e", "\\u2066x\\u200by\\u3164\\udb40\\udc41"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(client.view.run("document.querySelectorAll('img, b, script:not(:first-of-type)').length").await, 0);
    assert_eq!((client.host.findings().await, client.problems().await), (Vec::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn of_many_rows_the_view_says_what_their_columns_become_and_what_it_does_not_show() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    db.run(
        "create table public.crew (id int primary key, name text, pin text, at timestamptz default now()); \
         create table public.watch (id int primary key, crew int references public.crew on delete cascade); \
         insert into public.crew select n, 'n' || n % 2, 'secret' from generate_series(1, 150) n; \
         insert into public.watch select n, n from generate_series(1, 70) n; \
         select countersign.track('public.crew', sensitive => array['pin']); select countersign.track('public.watch'); \
         grant select, update, delete on public.crew to countersign_writer; grant select on public.crew to countersign_reader",
    )
    .await;
    let config = "agent_confirms = true\nexecute_sql = \"rows\"\nexecute_sql_max_rows = 1000\nprofile = \"admin\"\n";
    let mut client = Client::with_config(&browser, &db, json!({"serverTools": {}}), config).await;
    let texts = [
        (
            "update public.crew set name = 'x', pin = 'y'",
            vec!["sensitive columns change", "public.crew name: 150 rows become x"],
        ),
        (
            "update public.crew set pin = 'z' where id = 1",
            vec!["sensitive columns change", "update 1 row of public.crew"],
        ),
        ("update public.crew set name = 'n1' where id < 5", vec!["update 2 rows of public.crew", "id = 2", "id = 4"]),
        (
            "delete from public.crew where id < 61",
            vec!["delete 60 rows of public.crew", "delete 60 rows of public.watch"],
        ),
    ];
    for (sql, expected) in texts {
        client.call("execute_sql", json!({"sql": sql})).await;
        client.view.wait_for_text(sql).await;
        let text = client.view.text().await;
        for part in expected {
            assert!(text.contains(part), "{sql} lacks {part}: {text}");
        }
        let tables = client.view.run("document.querySelectorAll('table').length").await.as_u64().unwrap();
        let is_counted = text.contains("more rows are not shown here") || text.contains("Show more rows");
        assert!(tables < 50 || is_counted, "{tables}: {text}");
        assert!(!text.contains("id = 3") || !sql.contains("n1"), "a row that stays as it is: {text}");
    }
    assert_eq!((client.host.findings().await, client.problems().await), (Vec::new(), Vec::new()));
}
