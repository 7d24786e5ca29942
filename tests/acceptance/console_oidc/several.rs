//! Sign-in to a console of several databases: once, for all that answer.

use reqwest::StatusCode;
use testkit::{ConfigDir, HttpServer, OidcProvider, Proxy, database};

use super::{CLIENT, SECRET, World, usual};
use crate::console::{path, proposed, status};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_once_for_all_databases_that_answer() {
    let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
    let (first, second, folder) = (database().await, database().await, ConfigDir::new());
    let proxy = Proxy::before(&first);
    first.login("console", "countersign_console").await;
    let first_url = proxy.url().replace("user=postgres", &format!("user=console_{}", first.name()));
    let second_url = second.login("console", "countersign_console").await;
    let mut command = folder.command(&format!(
        "{}[database.shop]\ndatabase_url = {first_url:?}\n[database.other]\ndatabase_url = {second_url:?}\n",
        usual(&provider)
    ));
    command.args(["--log", "info", "console", "--listen", "127.0.0.1:0"]);
    let console = HttpServer::listening(command).await;
    let world = World { url: console.url(""), db: second, provider, console, _folder: folder };
    let (_server, proposal) = proposed(&world.db, "Sunset").await;

    // The first one keeps the sign-in in progress, unless it is away.
    proxy.refuse();
    let mut browser = world.browser();
    let landed = world.sign_in(&mut browser, &format!("/login/oidc?again=1&next={}", path(&proposal))).await;
    assert_eq!(landed.location(), format!("{}{}", world.url, path(&proposal)), "{}", landed.body);
    let page = browser.get(&path(&proposal)).await;
    let page = page.location().to_owned();
    assert_eq!(page, format!("/databases/other{}", path(&proposal)));
    let form = [("digest", proposal["digest"].as_str().unwrap())];
    let approved = browser.post(&format!("{page}/approve"), &form).await;
    let inbox = format!("/databases/other/?decided={}", proposal["proposal_id"].as_str().unwrap());
    assert_eq!((approved.status, approved.location()), (StatusCode::SEE_OTHER, inbox.as_str()), "{}", approved.body);
    testkit::poll::until("the write is executed", async || status(&world.db, &proposal).await == "executed").await;

    proxy.accept_connections();
    let mut browser = world.signed_in().await;
    for database in ["shop", "other"] {
        assert_eq!(browser.get(&format!("/databases/{database}/records")).await.status, StatusCode::OK, "{database}");
    }
    for database in [&first, &world.db] {
        let people = "select string_agg(distinct person || ' ' || method, ',') from countersign.console_session";
        assert_eq!(database.value(people).await, "anna@example.com oidc");
    }
}
