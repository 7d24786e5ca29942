//! The wheel, installed by pip into a virtual environment.

use std::path::Path;

use testkit::{External, skip_without};

use super::{clean_command, packages, serves, succeed};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn pip_installs_the_wheel_and_a_client_is_served_under_both_names() {
    if skip_without(&[External::Python]) {
        return;
    }
    let packages = packages();
    let home = tempfile::tempdir().unwrap();
    let environment = home.path().join("environment");
    let python = External::Python.expected_path();
    succeed(clean_command(python, home.path()).args(["-m", "venv"]).arg(&environment)).await;
    let in_environment = |name: &str| clean_command(environment.join("bin").join(name), home.path());
    let wheel = packages.file("pypi", "countersign_mcp-", ".whl");
    let mut pip = in_environment("pip");
    succeed(pip.args(["install", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]).arg(&wheel)).await;
    let check = testkit::repository().join("tests/python/check_record.py");
    assert_eq!(succeed(in_environment("python").arg(check).arg(&wheel)).await, "8 files\n");
    for name in ["countersign", "countersign-mcp"] {
        let mut command = in_environment(name);
        command.arg("serve");
        serves(command).await;
    }
    // The registry's proof of who owns the package.
    let metadata = home.path().join("environment/lib");
    let metadata = super::files_of(&metadata).into_iter().find(|path| is_metadata(path)).expect("METADATA");
    let line = format!("mcp-name: {}", packaging::project::MCP_NAME);
    assert!(std::fs::read_to_string(metadata).unwrap().lines().any(|it| it == line), "{line}");
}

fn is_metadata(path: &Path) -> bool {
    path.ends_with("METADATA") && path.parent().unwrap().to_str().unwrap().contains("countersign_mcp")
}

#[tokio::test]
#[ignore = "outer: .ci/run runs it"]
async fn the_tag_of_the_wheel_is_the_c_library_that_the_binary_needs() {
    // readelf is an implementation of its own, of the same package as strip.
    let home = tempfile::tempdir().unwrap();
    let binary = super::stripped_binary(home.path());
    let versions = succeed(clean_command("readelf", home.path()).args(["--version-info", "--wide"]).arg(binary)).await;
    let minors = versions.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().ok()
    });
    let tag = format!("-manylinux_2_{}_", minors.max().expect("it needs glibc"));
    let wheel = packages().file("pypi", "countersign_mcp-", ".whl");
    assert!(super::file_name(&wheel).contains(&tag), "{tag}: {}", wheel.display());
}
