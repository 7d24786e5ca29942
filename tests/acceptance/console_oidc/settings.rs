//! The secret of the console, the claim with the name, and the address, as they are configured.

use testkit::{ConfigDir, OidcProvider, Server, database, repository, run, startup_error};

use super::{CLIENT, SECRET, World, usual};
use crate::samples::sample;

#[tokio::test(flavor = "multi_thread")]
async fn a_public_client_and_another_claim_sign_people_in() {
    let provider = OidcProvider::start(CLIENT, None).await;
    provider.set(|provider| {
        provider.person["preferred_username"] = "anna".into();
        provider.person["email_verified"] = false.into();
        provider.person["teams"] = "sql".into();
    });
    let config = usual(&provider).replace(&format!("client_secret = \"{SECRET}\"\n"), "");
    let config = config.replace("\"reviewers\"", "\"sql\"");
    let more = "person_claim = \"preferred_username\"\ngroups_claim = \"teams\"\nscopes = [\"profile\", \"teams\"]\n";
    let world = World::with(provider, &format!("{config}{more}")).await;
    let mut browser = world.browser();
    let begun = browser.get("/login/oidc").await;
    assert_eq!(super::query(begun.location())["scope"], "openid profile teams");
    world.signed_in().await;
    let found = "select person || ' ' || role || ' ' || method from countersign.console_session";
    assert_eq!(world.db.value(found).await, "anna reviewer oidc");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_is_a_variable_or_a_file_that_only_the_console_reads() {
    let without = |provider: &OidcProvider| usual(provider).replace(&format!("client_secret = \"{SECRET}\"\n"), "");
    let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
    let config = without(&provider);
    let world = World::changed(provider, &config, |command, _| {
        command.env("COUNTERSIGN_CONSOLE_OIDC_CLIENT_SECRET", SECRET);
    })
    .await;
    world.signed_in().await;

    let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
    let config = format!("{}client_secret_file = \"secret\"\n", without(&provider));
    let world =
        World::changed(provider, &config, |_, folder| drop(folder.write("secret", &format!("{SECRET}\n")))).await;
    world.signed_in().await;

    // Without the file, the console does not start, and a server with the same configuration does.
    let (db, folder) = (database().await, ConfigDir::new());
    let mut console = folder.command(&config);
    let said = startup_error(console.env("DATABASE_URL", db.url()).args(["console", "--listen", "127.0.0.1:0"])).await;
    assert!(said.contains("secret (client_secret_file) cannot be read"), "{said}");
    let mut server = folder.command(&config);
    server.env("DATABASE_URL", db.writer_url()).arg("serve");
    server.arg("--manifest").arg(repository().join("manifests/social.toml"));
    assert!(!Server::start(server).await.tool_names().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_the_page_signs_people_in() {
    let sample = sample("docs/topics/console.md", "[console]");
    let provider = OidcProvider::start("countersign-console", Some(SECRET)).await;
    provider.set(|provider| provider.person["groups"] = serde_json::json!(["sql-reviewers", "finance-team"]));
    let config = sample.replace("url = \"https://console.example.com\"\n", "");
    let config =
        config.replace("https://login.example.com", provider.url()).replace("/run/secrets/countersign-oidc", "secret");
    let world = World::changed(provider, &config, |_, folder| drop(folder.write("secret", SECRET))).await;
    world.signed_in().await;
    let found = "select person || ' ' || role || ' ' || groups::text from countersign.console_session";
    assert_eq!(world.db.value(found).await, "anna@example.com reviewer {finance}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_log_in_are_for_the_configured_address() {
    let provider = OidcProvider::start(CLIENT, Some(SECRET)).await;
    let config = format!("[console]\nurl = \"https://console.example.com\"\n{}", usual(&provider));
    let (db, folder) = (database().await, ConfigDir::new());
    let mut link = folder.command(&config);
    let made = run(link.env("DATABASE_URL", db.url()).args(["console", "login", "--as", "anna"])).await;
    assert!(made.out.starts_with("https://console.example.com/login/cs_"), "{} {}", made.out, made.err);
}
