//! Where a front end connects to, and what it says when it cannot (promises B7).

use serde_json::json;
use testkit::{Told, bare_front_end, database};

#[tokio::test]
async fn every_way_to_name_the_database_connects() {
    // B7-01 to B7-18, B6-13 to B6-20, B7-23, B9-24
    let db = database().await;
    let socket = db.value("select current_setting('unix_socket_directories')").await;
    let port = db.value("select current_setting('port')").await;
    let conninfo = format!("host={socket} port={port} user=postgres dbname={}", db.name());
    let name = db.name().to_owned();
    let url = format!("postgresql://postgres@/{name}?host={socket}&port={port}");
    let fields = [("HOST", &socket), ("PORT", &port), ("DBNAME", &name)];
    let sql = "select current_database() as d";
    type Ways<'a> = Vec<(&'a str, Vec<String>, Vec<(String, String)>)>;
    let flags = |names: [&str; 3]| {
        fields.iter().zip(names).flat_map(|((_, value), flag)| [flag.to_owned(), (*value).clone()]).collect::<Vec<_>>()
    };
    let own = fields.iter().map(|(name, value)| (format!("COUNTERSIGN_{name}"), (*value).clone())).collect();
    let libpq = vec![
        ("PGHOST".to_owned(), socket.clone()),
        ("PGPORT".to_owned(), port.clone()),
        ("PGDATABASE".to_owned(), name.clone()),
    ];
    let ways: Ways<'_> = vec![
        ("query", vec!["--dsn-secret".into(), url.clone()], vec![]),
        ("query", vec!["--conninfo-secret".into(), conninfo.clone()], vec![]),
        ("query", flags(["--host", "--port", "--dbname"]), vec![]),
        ("psql", flags(["-h", "-p", "-d"]), vec![]),
        ("psql", vec![url.clone()], vec![]),
        ("query", vec![], vec![("COUNTERSIGN_DSN_SECRET".into(), url.clone())]),
        ("query", vec![], vec![("COUNTERSIGN_CONNINFO_SECRET".into(), conninfo.clone())]),
        ("query", vec![], own),
        ("query", vec![], libpq.clone()),
        // A flag beats any variable, also a DSN there.
        (
            "query",
            flags(["--host", "--port", "--dbname"]),
            vec![("COUNTERSIGN_DSN_SECRET".into(), "postgresql://nobody@nowhere.invalid/none".into())],
        ),
        (
            "query",
            vec![],
            [("PGHOST".to_owned(), "nowhere.invalid".to_owned())]
                .into_iter()
                .chain([("COUNTERSIGN_DSN_SECRET".to_owned(), url.clone())])
                .collect(),
        ),
    ];
    for (front, arguments, variables) in ways {
        let mut command = bare_front_end(front);
        command.args(&arguments).envs(variables.clone());
        let flag = if front == "psql" { "-c" } else { "--sql" };
        let told = Told::by(command.args([flag, sql])).await;
        let event = told.only();
        assert_eq!(event["rows"], json!([{"d": db.name()}]), "{front} {arguments:?} {variables:?}: {event}");
    }
}

#[tokio::test]
async fn a_password_may_have_any_character() {
    let db = database().await;
    db.run("create role odd login password 'p@s/s#w%o r:d'").await;
    let socket = db.value("select current_setting('unix_socket_directories')").await;
    let port = db.value("select current_setting('port')").await;
    let mut command = bare_front_end("query");
    command.args(["--host", &socket, "--port", &port, "--user", "odd", "--dbname", db.name()]);
    command.env("COUNTERSIGN_PASSWORD_SECRET", "p@s/s#w%o r:d").args(["--sql", "select 1 as n"]);
    assert_eq!(Told::by(&mut command).await.only()["rows"], json!([{"n": 1}]));
    db.run("drop role odd").await;
}

#[tokio::test]
async fn failures_to_connect_are_told_apart() {
    // B3-58 to B3-60, B7-22
    let db = database().await;
    let socket = db.value("select current_setting('unix_socket_directories')").await;
    let port = db.value("select current_setting('port')").await;
    // It takes connections and says nothing.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute_port = mute.local_addr().unwrap().port().to_string();
    let cases = [
        (vec!["--host", "127.0.0.1", "--port", "1"], "connect_failed", "127.0.0.1:1"),
        (vec!["--host", &socket, "--port", &port, "--dbname", "no_such_db"], "connect_failed", "no_such_db"),
        (vec!["--host", &socket, "--port", &port, "--user", "no_such_role"], "auth_failed", "no_such_role"),
        (vec!["--host", "nowhere.invalid"], "connect_failed", "nowhere.invalid:5432"),
        (
            vec!["--conninfo-secret", "host=127.0.0.1 connect_timeout=1", "--port", &mute_port],
            "connect_timeout",
            &mute_port,
        ),
    ];
    for (arguments, code, named) in cases {
        let told = Told::by(bare_front_end("query").args(&arguments).args(["--sql", "select 1"])).await;
        assert_eq!(told.status, 1, "{arguments:?}");
        let event = told.only();
        assert_eq!(event["error_code"], code, "{arguments:?}: {event}");
        assert!(event["error"].as_str().unwrap().contains(named), "{arguments:?}: {event}");
        assert!(event["hint"].is_string(), "{event}");
    }
}
