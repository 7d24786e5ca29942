//! The packages as a whole: the same input makes the same bytes, versions are equal, and mistakes are named.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use packaging::{Cli, Compression, PackagingOptions, Platform};
use serde_json::Value;

use super::{COMMIT, files_of, here, options, packages};
use crate::samples::sample;

/// The refusal of binaries.
fn refusal(binaries: BTreeMap<Platform, PathBuf>, commit: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let options = PackagingOptions { binaries, commit: commit.to_owned(), compression: Compression::fast() };
    let refusal = packaging::write(&options, folder.path()).unwrap_err();
    assert_eq!(files_of(folder.path()), Vec::<PathBuf>::new(), "nothing is written");
    format!("{refusal:#}")
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_same_binaries_make_the_same_bytes() {
    let packages = packages();
    let again = packages.path("again");
    packaging::write(&options(&packages.path("stripped")), &again).unwrap();
    let out = packages.path("out");
    let (first, second) = (files_of(&out), files_of(&again));
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first.len(), second.len());
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first.strip_prefix(&out).unwrap(), second.strip_prefix(&again).unwrap());
        assert!(std::fs::read(first).unwrap() == std::fs::read(second).unwrap(), "{} differs", first.display());
    }
    std::fs::remove_dir_all(again).unwrap();
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_command_of_the_page_makes_every_package_that_the_page_lists() {
    let packages = packages();
    let out = packages.path("of-the-page");
    let page = std::fs::read_to_string(testkit::repository().join("packaging/README.md")).unwrap();
    let sample = sample("packaging/README.md", "packaging/reproduce build");
    let (_, arguments) = sample.split_once(" -- ").unwrap();
    let arguments = arguments.replace("\\\n", " ").replace("$(git rev-parse HEAD)", COMMIT);
    let mut words = vec![OsString::from("packaging"), "--compression=1".into()];
    for word in arguments.split(char::is_whitespace).filter(|word| !word.is_empty()) {
        words.push(match word {
            "packages" => out.clone().into(),
            _ if word.contains('=') => format!("{}={}", here().triple(), packages.path("stripped").display()).into(),
            _ => word.into(),
        });
    }
    Cli::of(words).unwrap().run().unwrap();

    let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(path, _)| path);
    let listed: Vec<String> = listed
        .map(|path| {
            let fill = [
                ("VERSION", packaging::project::VERSION),
                ("TARGET", here().triple()),
                ("PLATFORM", &here().to_string()),
                ("OS", here().os.name()),
            ];
            fill.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
        })
        .collect();
    for file in files_of(&out) {
        let path = file.strip_prefix(&out).unwrap().to_str().unwrap().to_owned();
        // The tag of a wheel depends on the binary.
        let fits = |listed: &String| match listed.split_once('*') {
            Some((beginning, end)) => path.starts_with(beginning) && path.ends_with(end),
            None => *listed == path,
        };
        assert!(listed.iter().any(fits), "{path} is not on the page: {listed:#?}");
    }
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn every_package_has_the_version_of_the_workspace() {
    let packages = packages();
    let version = packaging::project::VERSION;
    let server = packages.json("mcp-registry/server.json");
    assert_eq!(server["version"], version);
    for package in server["packages"].as_array().unwrap() {
        let place = if package["version"].is_null() { &package["identifier"] } else { &package["version"] };
        assert!(place.as_str().unwrap().contains(version), "{package}");
    }
    for folder in ["release", "npm", "pypi"] {
        for file in files_of(&packages.path("out").join(folder)) {
            let name = super::file_name(&file);
            assert!(name.contains(version) || name == "SHA256SUMS", "{name}");
        }
    }
    let label = format!("LABEL org.opencontainers.image.version=\"{version}\"");
    let from_source = std::fs::read_to_string(testkit::repository().join("Containerfile")).unwrap();
    for (file, text) in [("Containerfile", from_source), ("container", packages.text("container/Containerfile"))] {
        assert!(text.lines().any(|line| line == label), "{file}: {label}");
    }
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn a_binary_for_another_platform_is_refused() {
    let packages = packages();
    let binary = packages.path("stripped");
    let refused = |platform: &str, reason: &str| {
        let named = Platform::ALL.into_iter().find(|it| it.to_string() == platform).unwrap();
        let binaries = BTreeMap::from([(named, binary.clone())]);
        let refusal = refusal(binaries, COMMIT);
        let expected = format!("is not a program for {platform}: {reason}");
        assert!(refusal.contains(&expected), "{refusal}");
    };
    let (here, other) = if cfg!(target_arch = "aarch64") { ("arm64", "x64") } else { ("x64", "arm64") };
    refused(&format!("linux-{other}-gnu"), "it is for another processor");
    refused(&format!("linux-{here}-musl"), "it needs a dynamic linker, and the packages for musl are static");
    refused(&format!("darwin-{here}"), "it is not a 64-bit Mach-O file");
    let error = "linux-x64-gnu".parse::<Platform>().unwrap_err().to_string();
    assert!(error.contains("x86_64-unknown-linux-gnu, x86_64-unknown-linux-musl"), "{error}");
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn mistakes_are_named_and_nothing_is_written() {
    let binary = || BTreeMap::from([(here(), testkit::countersign())]);
    assert!(refusal(binary(), "main").contains("\"main\" is not a commit"));
    let missing = BTreeMap::from([(here(), PathBuf::from("/nowhere/countersign"))]);
    assert!(refusal(missing, COMMIT).starts_with("/nowhere/countersign cannot be read"));
    let packages = packages();
    let error = packaging::write(&options(&packages.path("stripped")), &packages.path("out")).unwrap_err();
    assert!(error.to_string().ends_with("is not empty: name a new folder"), "{error}");
}

#[test]
fn no_crate_can_be_published_by_mistake() {
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(testkit::repository())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        assert_eq!(package["publish"], serde_json::json!([]), "{}", package["name"]);
    }
}
