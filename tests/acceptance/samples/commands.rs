//! Samples of commands, statements and jobs.

use serde_json::{Value, json};
use testkit::{ConfigDir, countersign, repository, run_countersign};
use tokio::process::Command;

use super::shop::Shop;
use super::{sample, samples_of};

#[test]
fn the_demo_is_what_the_readme_starts() {
    // `demo::` runs what `cargo run -- demo` runs: the default member of the workspace is the binary of the tests.
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("default-members = [\"crates/countersign\"]"), "{manifest}");
    assert_eq!(sample("README.md", "cargo run -- demo"), "cargo run -- demo\ncargo test --workspace\n");
    assert_eq!(sample("CONTRIBUTING.md", "cargo build"), "cargo build\ncargo test --workspace\n");
}

/// `countersign audit list [--limit N] ..`: the words in front of the arguments, and the options.
fn usage(line: &str) -> (Vec<&str>, Vec<&str>) {
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).skip(1).collect();
    let verbs = words.iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).copied().collect();
    let option = |word: &&str| word.trim_start_matches('[').starts_with("--");
    let options = words.iter().filter(|word| option(word)).map(|word| word.trim_matches(['[', ']'])).collect();
    (verbs, options)
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_lines_name_commands_and_options_that_exist() {
    let mut lines = 0;
    for page in ["audit", "notifications", "proposals", "read-log", "tracking", "undo"] {
        for sample in samples_of(&format!("docs/topics/{page}.md")) {
            for line in sample.text.lines().filter(|line| line.starts_with("countersign ") && line.contains("[--")) {
                let (verbs, options) = usage(line);
                let help = Command::new(countersign()).args(&verbs).arg("--help").output().await.unwrap();
                let help = String::from_utf8(help.stdout).unwrap();
                for option in options {
                    let is_there = help.split([' ', '\n']).any(|word| word.split([',', '[']).next() == Some(option));
                    assert!(is_there, "{page}: {verbs:?} has no {option}\n{help}");
                }
                lines += 1;
            }
        }
    }
    assert!(lines > 5, "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_cron() {
    // Each job has its own connection, in the order of the page.
    let shop = Shop::ready().await;
    let place = shop.folder().to_str().unwrap().to_owned();
    for (name, user) in [("countersign.toml", "countersign_writer"), ("owner.toml", "me")] {
        let config = format!("database_url = {:?}\nsigning_key = [\"log.key\"]\n", shop.url(user));
        std::fs::write(shop.folder().join(name), config).unwrap();
    }
    shop.shell(
        &format!("countersign --config {place}/owner.toml audit keys new | tail -1 | tr -d ' ' > {place}/log.vkey"),
        "",
    )
    .await;
    let mut jobs = 0;
    for sample in ["monitoring", "audit"].iter().flat_map(|page| samples_of(&format!("docs/topics/{page}.md"))) {
        for line in sample
            .text
            .lines()
            .filter(|line| line.contains("countersign ") && !line.contains('[') && !line.starts_with('$'))
        {
            let command = line.find("countersign ").map(|at| &line[at..]).unwrap_or_default();
            let is_cron = line.starts_with(|c: char| c.is_ascii_digit() || c == '*');
            if !is_cron && !command.starts_with("countersign audit") {
                continue;
            }
            let command = command
                .replace("/var/lib/countersign", &place)
                .replace("/elsewhere", &place)
                .replace("/etc/countersign", &place);
            assert!(!is_cron || command.contains("--config "), "a job has a connection of its own: {line}");
            // grep exits with 1 when nothing is wrong.
            let command = if command.contains("| grep") { format!("{command} || true") } else { command };
            let connection = if is_cron { String::new() } else { format!("DATABASE_URL='{}'", shop.url("me")) };
            shop.shell(&format!("env -u PGHOST -u PGPORT -u PGUSER {connection} {command}"), "").await;
            jobs += 1;
        }
    }
    assert!(jobs > 3, "{jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_auditors_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    let folder = shop.folder().to_str().unwrap();
    let export = format!("export DATABASE_URL='{}' COUNTERSIGN_SIGNING_KEY={folder}/log.key", shop.url("me"));
    let vkey = shop.shell(&format!("{export}; countersign audit keys new | tail -1"), "").await;
    std::fs::copy(repository().join("docs/verify.py"), shop.folder().join("verify.py")).unwrap();
    shop.run(
        "insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary, status, error_code, \
             login, xid, admitted_at, completed_at) \
         select gen_random_uuid(), 'default', 'like_tweet', repeat('0', 64), '{}', '{}', 'failure', 'x', 'x', '3', now(), now() \
         from generate_series(1, 2)",
    )
    .await;
    let newest = shop.shell(&format!("{export}; countersign audit list --json --limit 1"), "").await;
    let newest: Value = serde_json::from_str(&newest).unwrap();
    let id = newest["correlation_id"].as_str().unwrap();
    let export = format!("{export} VKEY='{}' CORRELATION_ID={id}", vkey.trim());
    let shown = sample("docs/topics/verifying.md", "$ countersign audit seal");
    for step in shown.split("$ ").filter(|step| !step.is_empty()) {
        let (command, output) = step.split_once('\n').unwrap();
        let printed = shop.shell(&format!("{export}; {command}"), "").await;
        assert!(without_hashes(&printed).starts_with(&without_hashes(output)), "{command}: {printed}");
    }
    for step in sample("docs/topics/verifying.md", "$ cp -r bundle").split("$ ").filter(|step| !step.is_empty()) {
        let (command, output) = step.split_once('\n').unwrap();
        let printed = shop.shell(&format!("{export}; {command}"), "").await;
        assert_eq!(without_hashes(&printed), without_hashes(output), "{command}");
    }
}

/// Without names of logs, roots and signatures, which differ from one run to the next.
fn without_hashes(text: &str) -> String {
    let is_base64 = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    let word = |word: &str| match word {
        _ if word.starts_with("countersign/") => "LOG".to_owned(),
        _ if word.len() > 40 && is_base64(word) => "HASH".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(|one| word(one.trim_end_matches(','))).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_witnesses_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    let folder = shop.folder().display().to_string();
    let export = format!("export DATABASE_URL='{}' COUNTERSIGN_SIGNING_KEY={folder}/log.key", shop.url("me"));
    let log_key = shop.shell(&format!("{export}; countersign audit keys new | tail -1"), "").await.trim().to_owned();
    std::fs::copy(repository().join("docs/verify.py"), shop.folder().join("verify.py")).unwrap();
    let witness = testkit::Witness::of(&log_key).await;
    let witness_key = witness.vkey();
    let policy = format!("log {log_key}\nwitness w1 {witness_key}\nquorum w1\n");
    std::fs::write(shop.folder().join("policy"), policy).unwrap();
    let shown = sample("docs/topics/verifying.md", "$ countersign audit witness add");
    for step in shown.split("$ ").filter(|step| !step.is_empty()) {
        let (command, output) = step.split_once('\n').unwrap();
        let command = command.replace("https://witness.example.com/", &witness.url());
        let printed = shop.shell(&format!("{export} WITNESS_VKEY='{witness_key}'; {command}"), "").await;
        assert!(printed.starts_with(output), "{command}: {printed}");
        if command.starts_with("python3") {
            assert!(printed.starts_with("valid\n"), "{command}: {printed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_to_the_console_as_the_page_says() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/console.md", "create role console login")).await;
    let shown = sample("docs/topics/console.md", "$ DATABASE_URL");
    let mut commands = shown.lines().filter_map(|line| line.strip_prefix("$ "));
    let (serve, log_in) = (commands.next().unwrap(), commands.next().unwrap());
    assert!(serve.ends_with("countersign console --listen 127.0.0.1:7788"), "{serve}");
    let mut console = tokio::process::Command::new(testkit::countersign());
    shop.run(&sample("docs/topics/console.md", "create role console_operator")).await;
    console
        .env("DATABASE_URL", shop.url("console"))
        .env("COUNTERSIGN_OPERATOR_URL", shop.url("console_operator"))
        .args(["--log", "info", "console", "--listen", "127.0.0.1:0"])
        .kill_on_drop(true);
    let server = testkit::HttpServer::listening(console).await;
    let link =
        shop.shell(&format!("export DATABASE_URL='{}'; {log_in} --url {}", shop.url("me"), server.url("")), "").await;
    let page = testkit::HttpClient::at(String::new());
    let page = page.send(page.request(reqwest::Method::GET, link.trim())).await;
    assert!(page.status == 200 && page.body.contains("This link works once"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_for_operators() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/proposals.md", "create role anna")).await;
    shop.run(&sample("docs/topics/security-model.md", "revoke execute")).await;
    run_countersign(&shop.url("anna"), &["proposals", "list"]).await.succeeded();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_tracking_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/tracking.md", "create role shop_admin")).await;
    let shown = sample("docs/topics/tracking.md", "$ countersign track");
    for step in shown.split("$ ").filter(|step| !step.is_empty()) {
        let (command, output) = step.split_once('\n').unwrap();
        let user = if command.contains(" check ") { "countersign_writer" } else { "shop_admin" };
        assert_eq!(shop.shell(&format!("DATABASE_URL='{}' {command}", shop.url(user)), "").await, output, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_after_a_migration_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/tracking.md", "create role shop_admin")).await;
    shop.run("alter table shop.orders rename column status to state").await;
    for (start, user) in [("$ countersign check", "countersign_writer"), ("$ countersign track", "shop_admin")] {
        for step in sample("docs/topics/migrations.md", start).split("$ ").filter(|step| !step.is_empty()) {
            let (command, output) = step.split_once('\n').unwrap();
            let script = format!("DATABASE_URL='{}' {command} 2>&1 || true", shop.url(user));
            assert_eq!(shop.shell(&script, "").await, output, "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_profile_of_schema_changes_has_its_tools() {
    let db = testkit::database().await;
    let folder = ConfigDir::new();
    let profile = sample("docs/topics/schema-changes.md", "[profiles.migrations]");
    let mut command = folder.command(&format!("database_url = {:?}\nlog = \"warn\"\n{profile}", db.writer_url()));
    command.args(["serve", "--profile", "migrations"]);
    let names = testkit::Server::start(command).await.tool_names().await;
    let expected = ["query_database", "describe_database", "explain_query", "get_proposal", "propose_schema_change"];
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_schema_changes_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    let shown = sample("docs/topics/schema-changes.md", "$ cat change.sql");
    let mut steps = shown.split("$ ").filter(|step| !step.is_empty());
    let (_, sql) = steps.next().unwrap().split_once('\n').unwrap();
    std::fs::write(shop.folder().join("change.sql"), sql).unwrap();
    let (command, output) = steps.next().unwrap().split_once('\n').unwrap();
    let printed = shop.shell(&format!("DATABASE_URL='{}' {command}", shop.url("me")), "").await;
    assert_eq!(without_ids(&printed), without_ids(output));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_undo_print_what_the_page_shows() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/undo.md", "create role olga")).await;
    let mut command = tokio::process::Command::new(testkit::countersign());
    command.env("DATABASE_URL", shop.url("countersign_writer")).kill_on_drop(true);
    command.args(["--log", "warn", "serve", "--actor", "anna", "--manifest"]).arg(shop.manifest());
    let server = testkit::Server::start(command).await;
    for (page, begin) in [("undo", "$ countersign audit list"), ("undo-in-an-emergency", "$ countersign freeze")] {
        for id in [17, 18] {
            let call = serde_json::json!({"id": id, "status": "shipped", "idempotency_key": format!("{page}-{id}")});
            server.succeed("set_order_status", call).await;
        }
        let mut next = None;
        let shown = sample(&format!("docs/topics/{page}.md"), begin);
        for step in shown.split("$ ").filter(|step| !step.is_empty()) {
            let (command, output) = step.split_once('\n').unwrap();
            let command = next.take().unwrap_or_else(|| command.to_owned());
            let printed = shop.shell(&format!("DATABASE_URL='{}' {command}", shop.url("olga")), "").await;
            // An undo puts rows back in the order in which it finds them.
            let [printed_lines, shown_lines] = [&printed, output].map(|text| {
                let text = without_ids(text);
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            });
            assert_eq!(printed_lines, shown_lines, "{command}");
            next = printed.lines().find_map(|line| Some(line.split_once("To undo them: ")?.1.to_owned()));
        }
    }
}

/// Without ids, digests, times and ages, which differ from one run to the next.
pub(super) fn without_ids(text: &str) -> String {
    let is_id = |word: &str| {
        let digits = word.trim_end_matches(['.', ':']);
        digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            || word.starts_with("20") && word.contains('T')
    };
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(|word| if is_id(word) { "ID" } else { word });
        words
            .collect::<Vec<_>>()
            .join(" ")
            .replace("0 s ago", "AGO")
            .replace("1 s ago", "AGO")
            .replace("2 s ago", "AGO")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_for_auditors() {
    let shop = Shop::ready().await;
    shop.run(&sample("docs/topics/audit.md", "select m.admitted_at")).await;
    shop.run(&sample("docs/topics/audit.md", "select at, login")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_trusted_proxies_is_read() {
    let folder = ConfigDir::new();
    let shop = Shop::ready().await;
    let config = format!(
        "database_url = {:?}\n{}listen = \"127.0.0.1:0\"\n",
        shop.url("countersign_writer"),
        sample("docs/setup/proxy.md", "[http]")
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    testkit::HttpServer::listening(command).await.logged(" ready ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_of_the_page_on_the_command_line() {
    let shop = Shop::new().await;
    shop.run("create table public.customer (id integer primary key, name text); insert into public.customer values (7, 'Ada')")
        .await;
    let shown = sample("docs/topics/agent-cli.md", "$ countersign query");
    let (command, answer) = shown.split_once('\n').unwrap();
    let said = shop.shell(command.trim_start_matches("$ "), "").await;
    let [mut said, mut shown] = [said.as_str(), answer].map(|text| serde_json::from_str::<Value>(text.trim()).unwrap());
    for answer in [&mut said, &mut shown] {
        assert!(answer["trace"].as_object_mut().unwrap().remove("duration_ms").is_some(), "{answer}");
    }
    assert_eq!(said, shown);
    assert_eq!(said["rows"], json!([{"id": 7, "name": "Ada"}]));
}
