//! Connection strings and tokens: in files of their own, and nowhere else.

use std::os::unix::fs::PermissionsExt;

use testkit::{database, startup_error};

use super::{Home, entry, succeeds};

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_a_flag_or_a_variable_goes_into_a_file_that_only_its_owner_reads() {
    let (db, home) = (database().await, Home::new());
    let url = db.writer_url();
    let key = "a key of sixteen characters and more";
    let mut command = home.command(&["install", "--client", "cursor", "--name", "shop", "--manifest", "social.toml"]);
    command.args(["--database-url", &url]).env("COUNTERSIGN_FINGERPRINT_KEY", key);
    let output = succeeds(&mut command).await;
    assert!(!output.out.contains(&url) && !output.out.contains(key), "{}", output.out);
    let folder = home.path().join(".config/countersign/clients");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for (name, content, origin) in [
        ("shop.database-url", url.as_str(), "--database-url"),
        ("shop.fingerprint-key", key, "COUNTERSIGN_FINGERPRINT_KEY"),
    ] {
        let file = folder.join(name);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{content}\n"));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(output.out.contains(&format!("Wrote {} with the value of {origin}", file.display())), "{}", output.out);
    }
    let text = home.read("cursor");
    assert!(!text.contains(&url) && !text.contains(key), "{text}");
    home.serves_the_social_manifest(&entry("cursor", &text, "shop")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_another_connection_string_is_replaced_only_on_demand() {
    let (db, other, home) = (database().await, database().await, Home::new());
    succeeds(&mut home.install(&db, "cursor", &[])).await;
    let said = super::run(&mut home.install(&other, "codex", &[])).await;
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("has another connection string or key") && said.err.contains("--replace"),
        "{}",
        said.err
    );
    assert!(!home.file("codex").exists());
    succeeds(&mut home.install(&other, "codex", &["--replace"])).await;
    let file = home.path().join(".config/countersign/clients/countersign.database-url");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), other.writer_url());
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let said = startup_error(&mut home.install(&other, "gemini", &[])).await;
    assert!(said.contains("can be read by other users: chmod 600"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_for_a_file_takes_precedence_over_a_variable_with_the_secret() {
    let (db, home) = (database().await, Home::new());
    std::fs::write(home.project().join("url"), db.writer_url()).unwrap();
    let mut command = home.install(&db, "codex", &["--database-url-file", "url"]);
    succeeds(command.env("COUNTERSIGN_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:1/wrong")).await;
    let entry = entry("codex", &home.read("codex"), "countersign");
    assert!(!home.path().join(".config").exists());
    home.serves_the_social_manifest(&entry).await;
}
