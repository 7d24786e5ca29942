//! What packages say about the crates in the binary: a bill of materials in CycloneDX, and the texts of licences. Every
//! package with a binary has both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::repository;

use super::{COMMIT, Packages, files_of, here, packages};

const LICENSES: &str = "THIRD-PARTY-LICENSES.txt";

/// The packages with a binary, each unpacked.
fn unpacked(packages: &Packages) -> Vec<(PathBuf, TempDir)> {
    let platform = format!("countersign-{}-", here());
    let files = [("release", "countersign-", ".tar.gz"), ("release", "countersign-", ".mcpb")]
        .into_iter()
        .chain([("npm", platform.as_str(), ".tgz"), ("pypi", "countersign_mcp-", ".whl")]);
    let files = files.map(|(folder, beginning, end)| packages.file(folder, beginning, end));
    let unpack = |file: PathBuf| {
        let folder = tempfile::tempdir().unwrap();
        let is_zip = ["mcpb", "whl"].iter().any(|extension| file.extension().is_some_and(|it| it == *extension));
        // A module of Python's library.
        let (program, options) = if is_zip { ("python3", vec!["-m", "zipfile", "-e"]) } else { ("tar", vec!["-xzf"]) };
        let mut command = Command::new(program);
        command.args(options).arg(&file).current_dir(folder.path());
        if is_zip {
            command.arg(folder.path());
        }
        assert!(command.status().unwrap().success(), "{command:?}");
        (file, folder)
    };
    files.map(unpack).collect()
}

/// The files of a package whose name ends like this.
fn named(folder: &Path, end: &str) -> Vec<PathBuf> {
    files_of(folder).into_iter().filter(|path| super::file_name(path).ends_with(end)).collect()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What the official schema of CycloneDX has against a document.
fn mistakes(document: &Value) -> Vec<String> {
    let schema = |name: &str| json_of(&repository().join("packaging/schemas").join(name));
    let mut registry = jsonschema::Registry::new();
    for name in ["spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json"] {
        let uri = format!("http://cyclonedx.org/schema/{name}");
        registry = registry.add(uri, schema(&name.replace(".SNAPSHOT", ""))).unwrap();
    }
    let registry = registry.prepare().unwrap();
    let validator = jsonschema::options().with_registry(&registry).build(&schema("bom-1.5.schema.json")).unwrap();
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn every_package_with_a_binary_has_the_same_bill_of_materials_and_licences() {
    let packages = packages();
    let of_image = packages.path("out/container").join(here().cpu.container_name());
    let [sbom, licenses] = [".cdx.json", LICENSES].map(|end| {
        let [file] = named(&of_image, end).try_into().expect("one file");
        std::fs::read_to_string(file).unwrap()
    });
    let unpacked = unpacked(&packages);
    assert_eq!(unpacked.len(), 4);
    for (package, folder) in &unpacked {
        for (end, expected) in [(".cdx.json", &sbom), (LICENSES, &licenses)] {
            let files = named(folder.path(), end);
            let [file] = files.as_slice() else { panic!("{}: {end}: {files:?}", package.display()) };
            assert!(std::fs::read_to_string(file).unwrap() == *expected, "{}: {}", package.display(), file.display());
        }
    }
    let (wheel, folder) = unpacked.last().unwrap();
    let [sbom] = named(folder.path(), ".cdx.json").try_into().expect("one file");
    let place = sbom.parent().unwrap();
    assert!(place.ends_with("sboms") && place.parent().unwrap().to_str().unwrap().ends_with(".dist-info"), "{wheel:?}");
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_bill_of_materials_fits_its_schema_and_names_the_crates_of_a_build() {
    let packages = packages();
    let path = packages.path("out/container").join(here().cpu.container_name()).join("countersign.cdx.json");
    let sbom = json_of(&path);
    assert_eq!(mistakes(&sbom), Vec::<String>::new());
    let mut wrong = sbom.clone();
    wrong["components"][0]["scope"] = json!("linked");
    wrong["components"][1]["hashes"][0]["content"] = json!("0");
    assert_eq!(mistakes(&wrong).len(), 2, "{:?}", mistakes(&wrong));
    for random in ["/serialNumber", "/metadata/timestamp"] {
        assert_eq!(sbom.pointer(random), None, "{random}");
    }

    let program = &sbom["metadata"]["component"];
    assert!(program["purl"].as_str().unwrap().ends_with(&format!("@{COMMIT}")), "{program}");
    let binary = std::process::Command::new("sha256sum").arg(packages.path("stripped")).output().unwrap();
    let hash = program["hashes"][0]["content"].as_str().unwrap();
    assert!(String::from_utf8(binary.stdout).unwrap().starts_with(hash), "{program}");

    let components = sbom["components"].as_array().unwrap();
    let scope = |name: &str| components.iter().find(|it| it["name"] == name).map(|it| it["scope"].as_str().unwrap());
    assert_eq!(scope("ring"), Some("required"));
    assert_eq!(scope("countersign-ledger"), Some("required"));
    // It compiles the C code of ring, and a macro runs in the compiler.
    assert_eq!(scope("cc"), Some("excluded"));
    assert_eq!(scope("serde_derive"), Some("excluded"));
    // Only tests and packages have these.
    for name in ["reqwest", "proptest", "cyclonedx-bom", "countersign-testkit"] {
        assert_eq!(scope(name), None, "{name}");
    }
    // Cargo.lock has the hashes.
    let lockfile = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    for component in components {
        let is_ours = component["name"].as_str().unwrap().starts_with("countersign-");
        let hash = component["hashes"][0]["content"].as_str();
        assert_eq!(hash.is_none(), is_ours, "{component}");
        assert!(hash.is_none_or(|hash| lockfile.contains(&format!("checksum = \"{hash}\""))), "{component}");
    }
    // Every reference is to a component, and each is reached from the program.
    let references: BTreeSet<&str> =
        components.iter().chain([program]).map(|it| it["bom-ref"].as_str().unwrap()).collect();
    let dependencies = sbom["dependencies"].as_array().unwrap();
    let needed = dependencies.iter().filter_map(|it| it["dependsOn"].as_array()).flatten();
    let needed: BTreeSet<&str> = needed.chain([&program["bom-ref"]]).map(|it| it.as_str().unwrap()).collect();
    assert_eq!(needed, references);
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_licences_have_a_text_for_each_crate_of_a_registry() {
    let packages = packages();
    let folder = packages.path("out/container").join(here().cpu.container_name());
    let sbom = json_of(&folder.join("countersign.cdx.json"));
    let file = std::fs::read_to_string(folder.join(LICENSES)).unwrap();
    let (list, texts) = file.split_once(&"-".repeat(80)).unwrap();
    let headings: BTreeSet<&str> = texts.lines().flat_map(|line| line.split(", ")).collect();
    for component in sbom["components"].as_array().unwrap() {
        let [name, version] = ["name", "version"].map(|key| component[key].as_str().unwrap());
        let crate_id = format!("{name} {version}");
        let license = component["licenses"][0]["expression"].as_str().unwrap();
        let is_listed = list.lines().any(|line| line.starts_with(&format!("{crate_id}: {license}")));
        assert_eq!(is_listed, !name.starts_with("countersign-"), "{crate_id}");
        assert!(!is_listed || headings.contains(crate_id.as_str()), "{crate_id} has no text");
    }
    // Code that ring has from others.
    for text in ["Copyright 2015-2025 Brian Smith.", "the fiat-crypto authors"] {
        assert!(texts.contains(text), "{text}");
    }
    let line = list.lines().find(|line| line.starts_with("governor ")).unwrap();
    assert!(line.contains("(it has no text; below is that of SPDX; its authors: Andreas Fuchs"), "{line}");
    let mit = "Permission is hereby granted, free of charge, to any person obtaining a copy";
    let rust = "Copyright (c) 2014 The Rust Project Developers";
    assert!(texts.matches(mit).count() > 10 && texts.matches(rust).count() < 10, "each text once");
}
