//! `countersign token` works without a database, shows a token once and prints the hash that the configuration accepts.

use std::collections::HashSet;
use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::{ConfigDir, database};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A command that knows no database.
fn token(folder: &ConfigDir, config: &str, arguments: &[&str]) -> Command {
    let mut command = folder.command(config);
    command.arg("token").args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn new(folder: &ConfigDir, config: &str, arguments: &[&str]) -> Output {
    token(folder, config, &[&["new"], arguments].concat()).output().await.unwrap()
}

async fn hash(input: &[u8]) -> Output {
    let folder = ConfigDir::new();
    let mut child = token(&folder, "", &["hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A reader may close the output early.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

/// The token and the table that were printed.
fn printed(output: &Output) -> (String, String) {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said = text(&output.stdout);
    let (before, table) = said.split_at(said.find("[[tokens]]").expect("the table"));
    let token = before.lines().map(str::trim).find(|line| line.starts_with("cs_")).expect("the token");
    assert_eq!(said.matches(token).count(), 1, "{said}");
    (token.to_owned(), table.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_is_shown_once_and_the_configuration_takes_what_is_printed() {
    let folder = ConfigDir::new();
    let label = "Anna's \"bot\"\\";
    let arguments = ["--account", "team-a", "--profile", "readonly", "--label", label, "--expires-in", "90d"];
    // Whatever is logged, the token is not.
    let output = new(&folder, "log = \"trace\"\n", &arguments).await;
    let (first, table) = printed(&output);
    assert_eq!(first.len(), 46);
    assert!(!table.contains(&first));
    let (second, other_table) = printed(&new(&folder, "", &["--account", "team-a"]).await);
    assert_ne!(first, second);

    // The hash in the table is that of the token by any implementation.
    let hashed = hash(format!("{first}\n").as_bytes()).await;
    assert!(
        hashed.status.success() && table.contains(&format!("hash = \"{}\"", text(&hashed.stdout).trim())),
        "{table}"
    );
    assert_eq!(hash(first.as_bytes()).await.stdout, hashed.stdout);
    assert_eq!(hash(format!("{first}\r\n").as_bytes()).await.stdout, hashed.stdout);

    // Both tables are a configuration, and say what was asked for: the same again is a mistake at its place.
    let both = format!("{table}{other_table}");
    assert!(new(&folder, &both, &["--account", "x"]).await.status.success());
    let said = text(&new(&folder, &format!("{both}{table}"), &["--account", "x"]).await.stderr);
    assert!(said.contains("countersign.toml:12:8: tokens: this token is at "), "{said}");
    let expires = table.lines().find_map(|line| line.strip_prefix("expires = ")).unwrap();
    let db = database().await;
    let apart = db.value(&format!("select timestamptz '{expires}' - now() between '89.9 days' and '90 days'")).await;
    assert_eq!(apart, "t", "{expires}");
    assert!(!other_table.contains("expires") && !other_table.contains("label"), "{other_table}");
    assert!(other_table.contains("profile = \"write\""), "{other_table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_form_is_one_object_with_equal_content() {
    let folder = ConfigDir::new();
    let arguments = ["--account", "team-a", "--label", "bot", "--expires-in", "12h", "--json"];
    let output = new(&folder, "", &arguments).await;
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: HashSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, HashSet::from(["token", "hash", "account", "profile", "label", "expires", "toml"]));
    assert_eq!(
        (&object["account"], &object["profile"], &object["label"]),
        (&"team-a".into(), &"write".into(), &"bot".into())
    );
    let hashed = hash(object["token"].as_str().unwrap().as_bytes()).await;
    assert_eq!(text(&hashed.stdout).trim(), object["hash"]);
    let table = object["toml"].as_str().unwrap();
    assert!(table.contains(object["expires"].as_str().unwrap()), "{table}");
    assert!(new(&folder, table, &["--account", "x"]).await.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_tokens_are_refused() {
    let folder = ConfigDir::new();
    for (arguments, why) in [
        (&["--account", "a", "--profile", "Big"][..], "a lower-case letter, then at most 31"),
        (&["--account", ""], "1 to 255 bytes"),
        (&["--account", "a", "--label", "a\nb"], "without invisible characters"),
        (&["--account", "a", "--label", ""], "1 to 255 bytes"),
        (&["--account", "a", "--expires-in", "0d"], "a span of no time"),
        (&["--account", "a", "--expires-in", "tomorrow"], "90s, 1h30m or 7d"),
        (&["--account", "a", "--expires-in", "5300w"], "100 years at most"),
        (&[], "--account"),
    ] {
        let output = new(&folder, "", arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(why) && output.stdout.is_empty(), "{output:?}");
    }
    let output =
        new(&folder, "[profiles.support]\naccess = [\"read\"]\n", &["--account", "a", "--profile", "suport"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("it is one of minimal, readonly, write, admin, support"), "{output:?}");

    let long = vec![b'a'; 8 * 1024 + 1];
    let cases: [(&[u8], &str); 8] = [
        (b"hunter2-hunter2-hunter2-hunter2", "32 characters or more"),
        (b"", "letters, digits"),
        (b"\n", "letters, digits"),
        (b"hunter2-hunter2-hunter2-hunter2-hunter2\nhunter2-hunter2", "letters, digits"),
        (b" hunter2-hunter2-hunter2-hunter2-hunter2", "letters, digits"),
        (b"Bearer hunter2-hunter2-hunter2-hunter2", "letters, digits"),
        (b"hunter2-hunter2-hunter2-hunter2-\xff\xfe", "cannot be read as text"),
        (&long, "8192 characters at most"),
    ];
    for (input, why) in cases {
        let output = hash(input).await;
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{output:?}");
        assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_the_access_settings_stops_every_command_and_check_reads_the_keys() {
    let db = database().await;
    let folder = ConfigDir::new();
    let manifest = testkit::repository().join("manifests/social.toml");
    let oauth = "[oauth]\nissuer = \"https://login.example.com/\"\naudience = \"me\"\njwks_file = \"jwks.json\"\nscopes = { a = \"write\" }\n";
    let run = async |verb: &str, rest: &str| {
        let config = format!("database_url = {:?}\nmanifests = [{manifest:?}]\n{rest}", db.url());
        folder.command(&config).arg(verb).stdin(Stdio::null()).output().await.unwrap()
    };
    for verb in ["serve", "check", "init"] {
        let output = run(verb, "[[tokens]]\nhash = \"abc\"\naccount = \"a\"\nprofile = \"root\"\n").await;
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("countersign.toml:4:8: hash: a hash is written sha256:"), "{said}");
    }
    let said = text(&run("check", oauth).await.stderr);
    assert!(said.contains("jwks.json (jwks_file) cannot be read: No such file"), "{said}");
    folder.write("jwks.json", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0\"}]}");
    let said = text(&run("check", oauth).await.stderr);
    assert!(said.contains("jwks.json (jwks_file) cannot be used: it holds no key that can be used"), "{said}");
    // RFC 8037, appendix A.2.
    folder.write(
        "jwks.json",
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
    );
    let output = run("check", oauth).await;
    assert!(output.status.success(), "{output:?}");
}
