//! Whatever an earlier run left behind, a start does the right thing or says what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Other, folder, kept_in, made_in, query, runs, signal, start, wait_for};
use countersign_pg_embedded::{Options, Progress};

#[test]
fn data_is_kept_between_runs_and_removed_by_fresh() {
    let folder = folder();
    let cluster = start(made_in(folder.path())).unwrap();
    query(&cluster, "create table kept as select 42 as answer").unwrap();
    cluster.stop().unwrap();

    let cluster = start(made_in(folder.path())).unwrap();
    assert_eq!(query(&cluster, "select answer from kept"), Ok("42".to_owned()));
    cluster.stop().unwrap();

    let cluster = start(made_in(folder.path()).fresh(true)).unwrap();
    assert!(query(&cluster, "select answer from kept").unwrap_err().contains("42P01"));
    cluster.stop().unwrap();
    assert_eq!(entries_that_start_with(folder.path(), "trash-"), 0);
}

#[test]
fn fresh_is_refused_while_another_process_uses_the_data() {
    let folder = folder();
    let other = Other::start(folder.path());
    let refused = start(kept_in(folder.path()).fresh(true)).unwrap_err().to_string();
    assert!(refused.contains("is in use by another process"), "{refused}");
    assert!(runs(other.server));
    other.leave();
}

#[test]
fn a_foreign_process_id_in_postmaster_pid_is_not_taken_for_a_server() {
    let folder = folder();
    let cluster = start(kept_in(folder.path())).unwrap();
    query(&cluster, "create table kept as select 42 as answer").unwrap();
    let path = cluster.data_dir().join("postmaster.pid");
    let written = fs::read_to_string(&path).unwrap();
    let server = cluster.pid().to_string();
    cluster.kill9().unwrap();
    cluster.stop().unwrap();

    // Living programs, which the system has given the process id meanwhile: ourselves, and one of the server's own user,
    // which PostgreSQL would take for the server and refuse to start.
    let mut foreign = std::process::Command::new("/bin/sleep");
    foreign.arg("60");
    if let Some(owner) = other_owner(&path) {
        std::os::unix::process::CommandExt::uid(&mut foreign, owner);
    }
    let mut foreign = Ended(foreign.stdout(std::process::Stdio::null()).spawn().unwrap());
    for pid in [std::process::id(), foreign.0.id()] {
        let stale = written.replacen(&server, &pid.to_string(), 1);
        assert!(stale.contains("ready"), "it looks like a ready server: {stale}");
        fs::write(&path, stale).unwrap();
        let socket_lock = folder.path().canonicalize().unwrap().join("s/.s.PGSQL.5432.lock");
        fs::write(socket_lock, format!("{pid}\n")).unwrap();

        let cluster = start(kept_in(folder.path())).unwrap();
        assert!(!cluster.attached());
        assert_eq!(query(&cluster, "select answer from kept"), Ok("42".to_owned()));
        cluster.kill9().unwrap();
        cluster.stop().unwrap();
    }
    assert!(foreign.0.try_wait().unwrap().is_none(), "nobody harms the program that has the process id now");
}

/// A program that ends with the test, whatever comes of it.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn other_owner(path: &Path) -> Option<u32> {
    let owner = std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap());
    let own = std::os::unix::fs::MetadataExt::uid(&Path::new("/proc/self").metadata().unwrap());
    (owner != own).then_some(owner)
}

#[test]
fn a_cluster_left_by_a_killed_initdb_is_not_used() {
    let folder = folder();
    let process = Other::spawn_making(folder.path().to_str().unwrap());
    wait_for("initdb has made a part of the data", || {
        fs::read_dir(folder.path()).unwrap().flatten().any(|entry| {
            entry.file_name().to_string_lossy().starts_with("data.new-") && entry.path().join("PG_VERSION").exists()
        })
    });
    let mut process = process;
    process.kill().unwrap();
    process.wait().unwrap();
    for initdb in processes_of(&folder.path().join("data.new-")) {
        signal(initdb, "-KILL");
    }
    assert!(!folder.path().join("data").exists());

    let cluster = start(made_in(folder.path())).unwrap();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
    assert_eq!(entries_that_start_with(folder.path(), "data.new-"), 0);
}

/// The processes that have this data folder in their command line.
fn processes_of(data: &Path) -> Vec<i32> {
    let output = std::process::Command::new("pgrep").args(["-f", "--", &format!("-D {}", data.display())]).output();
    let listed = String::from_utf8(output.unwrap().stdout).unwrap();
    listed.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_folder_that_holds_half_a_cluster_is_refused_until_fresh() {
    let folder = folder();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/PG_VERSION"), "15\n").unwrap();
    let refused = start(kept_in(folder.path())).unwrap_err().to_string();
    assert!(refused.contains("holds no complete PostgreSQL cluster") && refused.contains("--fresh"), "{refused}");
    let cluster = start(kept_in(folder.path()).fresh(true)).unwrap();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}

#[test]
fn data_of_another_major_version_is_refused_with_both_versions_named() {
    let folder = folder();
    let cluster = start(kept_in(folder.path())).unwrap();
    let version = cluster.version();
    let made_by = cluster.data_dir().join("PG_VERSION");
    cluster.stop().unwrap();
    fs::write(made_by, "9\n").unwrap();
    let refused = start(kept_in(folder.path())).unwrap_err().to_string();
    assert!(refused.contains("made by PostgreSQL 9,"), "{refused}");
    assert!(refused.contains(&version.major.to_string()) && refused.contains("--fresh"), "{refused}");
}

#[test]
fn a_long_path_to_the_data_does_not_make_the_sockets_path_too_long() {
    let folder = folder();
    let deep = folder.path().join("a-folder-with-a-very-long-name".repeat(4)).join("and another one with 'quotes'");
    let cluster = start(kept_in(&deep)).unwrap();
    let socket = cluster.socket_dir().join(".s.PGSQL.5432");
    assert!(socket.as_os_str().len() < 100, "{}", socket.display());
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
    let mode = cluster.socket_dir().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "whoever enters it is superuser");
    let socket_dir = cluster.socket_dir();
    cluster.stop().unwrap();
    assert!(!socket_dir.join(".s.PGSQL.5432").exists());
    let _gone = fs::remove_dir(socket_dir);
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let folder = folder();
    let failed = start(kept_in(folder.path()).setting("shared_preload_libraries", "no_such_library")).unwrap_err();
    let text = failed.to_string();
    assert!(text.contains("no_such_library") && text.contains("ended while it was starting"), "{text}");
    // And it is not in the way of the next one.
    let cluster = start(kept_in(folder.path())).unwrap();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}

#[test]
fn a_start_reports_its_progress() {
    let folder = folder();
    let steps_of = |options| {
        let mut steps = Vec::new();
        let cluster = countersign_pg_embedded::Cluster::start(options, &mut |step: Progress| steps.push(step)).unwrap();
        (cluster, steps.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (first, steps) = steps_of(made_in(folder.path()));
    assert!(steps[0].starts_with("using PostgreSQL "), "{steps:?}");
    assert!(steps[1].starts_with("making a new database cluster in "), "{steps:?}");
    assert_eq!(steps[2], "starting PostgreSQL");
    assert!(steps[3].starts_with("PostgreSQL answers after "), "{steps:?}");
    let (second, steps) = steps_of(made_in(folder.path()));
    assert_eq!(steps[1], format!("PostgreSQL already runs (process {}): using it", first.pid()));
    drop(first);
    assert_eq!(query(&second, "select 1"), Ok("1".to_owned()), "a second user in the same process counts, too");
}

#[test]
fn a_name_that_would_lead_elsewhere_is_refused() {
    for name in ["", "../x", "A", "a/b"] {
        let refused = start(Options::persistent(name)).unwrap_err().to_string();
        assert!(refused.contains("cannot name a cluster"), "{refused}");
    }
}

fn entries_that_start_with(folder: &Path, start: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.into_iter().filter(|entry| entry.file_name().to_string_lossy().starts_with(start)).count()
}
