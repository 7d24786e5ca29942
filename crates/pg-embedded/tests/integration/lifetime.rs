//! A cluster starts, survives, is shared, and ends with its last user.

use std::thread;

use crate::support::{Other, ephemeral, folder, kept_in, query, query_at, runs, signal, start, wait_for};
use countersign_pg_embedded::Options;

#[test]
fn an_ephemeral_cluster_answers_and_leaves_nothing_behind() {
    let cluster = start(Options::ephemeral()).unwrap();
    assert_eq!(query(&cluster, "select 1 + 1"), Ok("2".to_owned()));
    assert!(!cluster.attached());
    let (server, home) = (cluster.pid(), cluster.data_dir().parent().unwrap().to_path_buf());
    cluster.stop().unwrap();
    assert!(!runs(server));
    assert!(!home.exists());
}

#[test]
fn the_server_is_configured_as_it_must_be() {
    let cluster = start(Options::ephemeral().setting("work_mem", "7MB").setting("log_min_messages", "o'no\\")).err();
    assert!(cluster.unwrap().to_string().contains("log_min_messages"), "the log tells which setting is wrong");

    let cluster = start(Options::ephemeral().setting("work_mem", "7MB")).unwrap();
    let show = |name| query(&cluster, &format!("show {name}")).unwrap();
    assert_eq!(show("listen_addresses"), "");
    assert_eq!(show("work_mem"), "7MB");
    assert_eq!(show("synchronous_commit"), "on");
    assert_eq!(show("server_encoding"), "UTF8");
    assert_eq!(show("timezone"), "UTC");
    assert_eq!(query(&cluster, "select upper('é')"), Ok("É".to_owned()));
    assert_eq!(query(&cluster, "select current_user"), Ok("postgres".to_owned()));
    let version = cluster.version();
    assert!(show("server_version").starts_with(&version.to_string()));
}

#[test]
fn callers_cannot_choose_the_listening_address() {
    let refused = start(Options::ephemeral().setting("Port", "1")).unwrap_err().to_string();
    assert!(refused.contains("\"Port\""), "{refused}");
}

#[test]
fn data_survives_a_kill_9_of_the_postmaster() {
    let cluster = start(ephemeral()).unwrap();
    query(&cluster, "create table kept as select 42 as answer").unwrap();
    let killed = cluster.pid();
    cluster.kill9().unwrap();
    assert!(!cluster.is_alive());
    assert!(query(&cluster, "select 1").is_err());
    cluster.restart().unwrap();
    assert_ne!(cluster.pid(), killed);
    assert_eq!(query(&cluster, "select answer from kept"), Ok("42".to_owned()));
}

#[test]
fn a_backend_that_is_busy_when_the_postmaster_dies_does_not_keep_it_down() {
    let cluster = start(ephemeral()).unwrap();
    let connection = cluster.connection_string("postgres");
    let busy = thread::spawn(move || query_at(&connection, "select count(*) from generate_series(1, 1000000000000)"));
    let backend = "select coalesce(max(pid), 0) from pg_stat_activity where query like '%generate' || '_series%'";
    let mut pid = 0;
    wait_for("the backend is busy", || {
        pid = query(&cluster, backend).unwrap().parse().unwrap();
        pid != 0
    });
    cluster.kill9().unwrap();
    assert!(runs(pid), "a busy backend does not notice that its postmaster is dead");
    cluster.restart().unwrap();
    assert!(!runs(pid));
    assert!(busy.join().unwrap().is_err());
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}

#[test]
fn a_busy_backend_ends_with_the_last_user_also_when_its_postmaster_is_dead_already() {
    for user_is_killed in [false, true] {
        let other = Other::start_ephemeral();
        let connection = format!("host={}/s user=postgres dbname=postgres", other.folder);
        let busy_connection = connection.clone();
        let busy =
            thread::spawn(move || query_at(&busy_connection, "select count(*) from generate_series(1, 1000000000000)"));
        let backend = "select coalesce(max(pid), 0) from pg_stat_activity where query like '%generate' || '_series%'";
        let mut pid = 0;
        wait_for("the backend is busy", || {
            pid = query_at(&connection, backend).unwrap().parse().unwrap();
            pid != 0
        });
        signal(other.server, "-KILL");
        if user_is_killed {
            other.kill9()
        } else {
            other.leave()
        }
        wait_for("the backend has ended", || !runs(pid));
        assert!(busy.join().unwrap().is_err());
    }
}

#[test]
fn a_restart_keeps_the_connection_string_also_after_an_immediate_stop() {
    let cluster = start(ephemeral()).unwrap();
    let connection = cluster.connection_string("postgres");
    cluster.stop_immediate().unwrap();
    cluster.restart().unwrap();
    // And while it runs.
    cluster.restart().unwrap();
    assert_eq!(cluster.connection_string("postgres"), connection);
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}

#[test]
fn an_ephemeral_cluster_ends_with_a_parent_that_is_killed_and_leaves_nothing_behind() {
    let other = Other::start_ephemeral();
    let (server, home) = (other.server, other.folder.clone());
    assert!(runs(server));
    other.kill9();
    wait_for("the server has ended", || !runs(server));
    wait_for("its folder is gone", || !std::path::Path::new(&home).exists());
}

#[test]
fn the_server_of_a_killed_process_serves_the_next_one_and_ends_with_it() {
    let folder = folder();
    let other = Other::start(folder.path());
    let server = other.server;
    other.kill9();
    let cluster = start(kept_in(folder.path())).unwrap();
    assert!(cluster.attached());
    assert_eq!(cluster.pid(), server);
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
    cluster.stop().unwrap();
    assert!(!runs(server));
}

#[test]
fn an_idle_client_does_not_keep_the_server_alive() {
    let folder = folder();
    let other = Other::start(folder.path());
    let connection = format!("host={}/s user=postgres dbname=postgres", other.folder);
    let sleeper = thread::spawn(move || query_at(&connection, "select pg_sleep(600)"));
    let server = other.server;
    other.leave();
    assert!(!runs(server));
    assert!(sleeper.join().unwrap().is_err());
}

#[test]
fn a_second_process_attaches_and_the_server_ends_with_the_last_one() {
    for first_is_killed in [false, true] {
        let folder = folder();
        let first = Other::start(folder.path());
        let second = Other::start(folder.path());
        assert!(!first.attached);
        assert!(second.attached);
        assert_eq!(first.server, second.server);
        let (server, home) = (first.server, first.folder.clone());
        if first_is_killed {
            first.kill9()
        } else {
            first.leave()
        }
        assert!(runs(server), "the second process still uses it");
        let connection = format!("host={home}/s user=postgres dbname=postgres");
        assert_eq!(query_at(&connection, "select 1"), Ok("1".to_owned()));
        second.leave();
        assert!(!runs(server));
    }
}

#[test]
fn six_processes_that_start_at_once_share_one_server() {
    let folder = folder();
    let started: Vec<_> = (0..6).map(|_| Other::spawn(folder.path().to_str().unwrap())).collect();
    let others: Vec<_> = started.into_iter().map(Other::ready).collect();
    let server = others[0].server;
    assert!(others.iter().all(|other| other.server == server));
    assert_eq!(others.iter().filter(|other| !other.attached).count(), 1);
    others.into_iter().for_each(Other::leave);
    assert!(!runs(server));
}

#[test]
fn a_crash_that_another_user_repairs_leaves_both_with_a_server() {
    let folder = folder();
    let other = Other::start(folder.path());
    let cluster = start(kept_in(folder.path())).unwrap();
    assert!(cluster.attached());
    // The dead server is a child of the other process, which has to reap it.
    cluster.kill9().unwrap();
    cluster.restart().unwrap();
    other.leave();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}

#[test]
fn a_server_that_was_killed_while_another_process_uses_it_is_started_again() {
    let folder = folder();
    let other = Other::start(folder.path());
    signal(other.server, "-KILL");
    let cluster = start(kept_in(folder.path())).unwrap();
    assert!(!cluster.attached());
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
    other.leave();
    assert_eq!(query(&cluster, "select 1"), Ok("1".to_owned()));
}
