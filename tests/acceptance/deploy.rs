//! The files on the pages about deployment work as documented. Those of PgBouncer are tested in `pgbouncer::told`.

use std::path::Path;
use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{
    External, HttpServer, Server, TestManifest, countersign, lone_database, repository, run_countersign, skip_without,
};
use tokio::process::Command;

use crate::samples::sample;

/// The first fenced block of this kind on the pages about deploying.
pub(crate) fn documented(kind: &str) -> String {
    let pages = ["deploy", "proxy", "pgbouncer"].map(|page| repository().join(format!("docs/setup/{page}.md")));
    let texts = pages.map(|page| std::fs::read_to_string(page).unwrap());
    let block = texts.iter().find_map(|text| text.split_once(&format!("```{kind}\n"))).expect("the block is there").1;
    block.split_once("\n```").expect("it ends").0.to_owned()
}

/// Whether this program accepts a file, and what it says; `None` without the program.
async fn said(program: External, arguments: &[&str], file: &Path) -> Option<(bool, String)> {
    if skip_without(&[program]) {
        return None;
    }
    let output =
        Command::new(program.expected_path()).args(arguments).arg(file).stdin(Stdio::null()).output().await.unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
}

/// What systemd-analyze says of our units in a folder. It loads other units of the machine with them, and says what it thinks
/// of those as well. `None` without the program.
async fn complaints(unit: &Path) -> Option<Vec<String>> {
    let (_, said) = said(External::SystemdAnalyze, &["verify"], unit).await?;
    let ours: Vec<String> = std::fs::read_dir(unit.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("countersign"))
        .collect();
    let is_ours = |line: &&str| ours.iter().any(|name| line.contains(name.as_str()));
    Some(said.lines().filter(is_ours).map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systemd_unit_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("countersign.service");
    let text = documented("systemd");
    // It need not be installed here.
    let here = text.replace("/usr/local/bin/countersign", countersign().to_str().unwrap());
    assert_ne!(here, text);
    std::fs::write(&unit, &here).unwrap();
    let Some(found) = complaints(&unit).await else { return };
    assert!(found.is_empty(), "{found:?}");
    // T-1: a mistake in a unit of another package is none of ours, and one of ours is found.
    std::fs::write(folder.path().join("other.service"), "[Service]\nNoSuchKey=1\nExecStart=/bin/true\n").unwrap();
    std::fs::write(&unit, here.replace("[Unit]", "[Unit]\nWants=other.service")).unwrap();
    assert_eq!(complaints(&unit).await, Some(Vec::new()));
    std::fs::write(&unit, here.replace("[Service]", "[Service]\nNoSuchKey=1")).unwrap();
    let found = complaints(&unit).await.unwrap();
    assert!(found.iter().any(|line| line.contains("NoSuchKey")), "{found:?}");
}

/// The unit of docs/setup/deploy.md that goes into this file of /etc/systemd/system.
fn documented_unit(file: &str) -> String {
    sample("docs/setup/deploy.md", &format!("# /etc/systemd/system/{file}\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prune_timer_is_valid_and_its_command_prunes() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["countersign-prune.service", "countersign-prune.timer"] {
        let here = documented_unit(file).replace("/usr/local/bin/countersign", countersign().to_str().unwrap());
        std::fs::write(folder.path().join(file), here).unwrap();
    }
    let service = documented_unit("countersign-prune.service");
    let command = service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/countersign ")).unwrap();
    let db = testkit::database().await;
    let ran = run_countersign(&db.url(), &command.split(' ').collect::<Vec<_>>()).await;
    assert!(ran.code == 0 && ran.out.starts_with("Removed 0 records made before 20"), "{} {}", ran.out, ran.err);
    let timer = folder.path().join("countersign-prune.timer");
    let Some(found) = complaints(&timer).await else { return };
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_haproxy_configuration_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.cfg");
    let text = documented("haproxy").replace(" ssl crt /etc/haproxy/mcp.pem", "");
    std::fs::write(&path, format!("{text}\n")).unwrap();
    let Some((is_fine, said)) = said(External::HaProxy, &["-c", "-f"], &path).await else { return };
    assert!(is_fine, "{said}");
}

/// The documents of the Kubernetes manifest, as PyYAML reads them.
async fn kubernetes() -> Option<Vec<Value>> {
    if skip_without(&[External::Python]) {
        return None;
    }
    let python = External::Python.expected_path();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countersign.yaml");
    std::fs::write(&path, documented("yaml")).unwrap();
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let output = Command::new(python).args(["-c", script]).arg(path).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_pods_of_kubernetes_serve_and_their_probes_are_answered() {
    let Some(documents) = kubernetes().await else { return };
    let of = |kind: &str| documents.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("{kind}"));
    let pod = &of("Deployment")["spec"]["template"];
    assert_eq!(of("Service")["spec"]["selector"], pod["metadata"]["labels"]);
    assert_eq!(of("Deployment")["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    assert!(grace - pause > 30, "a write may take 30 s");

    // Its files, where a pod would have them; only the addresses are this test's.
    let db = testkit::database().await;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let files = [&of("ConfigMap")["data"], &of("Secret")["stringData"]];
    for (name, text) in files.iter().flat_map(|files| files.as_object().unwrap()) {
        let text =
            text.as_str().unwrap().replace("/run/secrets/countersign", place).replace("0.0.0.0:7777", "0.0.0.0:0");
        let text = if name == "database-url" { db.writer_url() } else { text };
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    // What everybody can read here must be no way in: each placeholder is refused until it is replaced.
    let hash = format!("sha256:{}", "5e".repeat(32));
    for (name, placeholder, own) in
        [("tokens.toml", "sha256:...", hash.as_str()), ("fingerprint-key", "change me", "sixteen characters or more")]
    {
        let refused =
            run_countersign(&db.writer_url(), &["--config", &format!("{place}/countersign.toml"), "serve"]).await;
        assert!(refused.code != 0 && refused.err.contains(name), "{name}: {}", refused.err);
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(placeholder), "{text}");
        std::fs::write(&path, text.replace(placeholder, own)).unwrap();
    }
    let mut command = Command::new(countersign());
    let arguments = container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    command.args(arguments.map(|it| it.replace("/etc/countersign", place))).kill_on_drop(true);
    command.env("COUNTERSIGN_LOG_FORMAT", "text");
    let server = HttpServer::listening(command).await;
    server.logged(" ready ").await;
    for probe in ["readinessProbe", "livenessProbe"] {
        let get = &container[probe]["httpGet"];
        let path = get["path"].as_str().unwrap();
        let host = get["httpHeaders"][0]["value"].as_str().unwrap();
        for (host, status) in [(host, 200), ("10.1.2.3:7777", 403)] {
            let visitor = server.http_client().with("host", host);
            let answer = visitor.send(visitor.request(Method::GET, path)).await;
            assert_eq!(answer.status, status, "{probe} {host}");
        }
    }
    // Without a token there is no way in.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(server.http_client().with("host", "countersign").post(&list).await.status, 401);
}

/// What a provider gives: a role that may make roles, and owns its database.
#[tokio::test(flavor = "multi_thread")]
async fn init_needs_no_superuser_but_a_role_that_may_create_roles_and_owns_the_database() {
    let db = lone_database().await;
    db.run("create role provided login createrole nosuperuser").await;
    db.run("create database managed owner provided").await;
    let managed = db.beside("managed");
    let provided = managed.url_as("provided");
    let own = "create schema shop; create table shop.item (id int primary key, name text);
               insert into shop.item values (1, 'lamp')";
    let client = testkit::connect(&provided).await;
    client.batch_execute(own).await.unwrap();
    // The cluster has the roles of other tests' ledgers: this one gets a writer of its own.
    run_countersign(&provided, &["init", "--writer", "shop_writer"]).await.succeeded();
    client
        .batch_execute("grant usage on schema shop to shop_writer; grant select, update on shop.item to shop_writer")
        .await
        .unwrap();
    let tools = TestManifest::new(
        r#"
[[tool]]
name = "rename_item"
access = "write"
description = "Change a name."
before = "select name from shop.item where id = $1 for update"
sql = "update shop.item set name = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "The name." }]
undo = { tool = "rename_item", params = { id = "param.id", name = "before.name" } }
"#,
    );
    let mut command = tools.command(&managed);
    command.env("DATABASE_URL", managed.url_as("shop_writer"));
    command.env("COUNTERSIGN_STRICT_ROLES", "true");
    let server = Server::start(command).await;
    server.succeed("rename_item", json!({"id": 1, "name": "desk lamp"})).await;
    assert_eq!(server.query("select name from shop.item").await, [json!({"name": "desk lamp"})]);
    assert_eq!(managed.value("select string_agg(status, ' ') from countersign.mutation").await, "success");
}
