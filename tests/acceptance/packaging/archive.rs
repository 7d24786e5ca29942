//! The archives of a release.

use super::{clean_command, files_of, here, packages, serves, succeed};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_archive_has_a_binary_that_serves_with_its_licence_completions_and_man_pages() {
    let packages = packages();
    let home = tempfile::tempdir().unwrap();
    let archive = packages.file("release", "countersign-", ".tar.gz");
    succeed(clean_command("tar", home.path()).arg("-xzf").arg(&archive).arg("-C").arg(home.path())).await;
    // The folder that package.metadata.binstall names.
    let folder = home.path().join(format!("countersign-{}-{}", packaging::project::VERSION, here().triple()));
    let files = files_of(&folder);
    let has = |path: &str| files.contains(&folder.join(path));
    for path in [
        "LICENSE",
        "README.md",
        "manifests/dba.toml",
        "skills/countersign-undo/SKILL.md",
        "completions/_countersign",
        "man/man1/countersign-audit-list.1",
    ] {
        assert!(has(path), "{path}: {files:?}");
    }
    succeed(clean_command("bash", home.path()).arg(folder.join("completions/countersign.bash"))).await;
    let mut command = clean_command(folder.join("countersign"), home.path());
    command.arg("serve");
    serves(command).await;
}

#[tokio::test]
#[ignore = "outer: .ci/run runs it"]
async fn the_checksums_are_those_of_the_files_of_the_release() {
    let packages = packages();
    let release = packages.path("out/release");
    let mut command = clean_command("sha256sum", &release);
    let checked = succeed(command.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&release)).await;
    // All files but the list itself.
    assert_eq!(checked.lines().count(), files_of(&release).len() - 1, "{checked}");
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn binstall_finds_the_archive_by_the_metadata_of_the_crate() {
    let manifest = std::fs::read_to_string(testkit::repository().join("crates/countersign/Cargo.toml")).unwrap();
    let value = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
        line.unwrap_or_else(|| panic!("{key}")).trim_end_matches('"')
    };
    let filled = |template: &str| {
        [
            ("{ repo }", packaging::project::REPOSITORY),
            ("{ name }", "countersign"),
            ("{ bin }", "countersign"),
            ("{ version }", packaging::project::VERSION),
            ("{ target }", here().triple()),
        ]
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let archive = packages().file("release", "countersign-", ".tar.gz");
    let url = filled(value("pkg-url"));
    let (release, file) = url.rsplit_once('/').unwrap();
    assert_eq!(file, super::file_name(&archive));
    assert!(release.ends_with(&format!("/releases/download/v{}", packaging::project::VERSION)), "{release}");
    let program = filled(value("bin-dir"));
    assert_eq!(program, format!("{}/countersign", file.trim_end_matches(".tar.gz")));
}
