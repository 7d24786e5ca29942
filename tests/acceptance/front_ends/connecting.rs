//! Connection targets of the front ends, and their connection errors.

use serde_json::json;
use testkit::{FrontEndOutput, Pipe, bare_front_end, database};

#[tokio::test]
async fn every_way_to_name_the_database_connects() {
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
        let told = FrontEndOutput::of(command.args([flag, sql])).await;
        let event = told.single_event();
        assert_eq!(event["rows"], json!([{"d": db.name()}]), "{front} {arguments:?} {variables:?}: {event}");
    }
}

/// The connection strings that every other command uses, in their order, below the own ones of the front ends.
#[tokio::test]
async fn the_connection_of_every_other_command_is_the_front_ends_too() {
    let db = database().await;
    let port = db.value("select current_setting('port')").await;
    let socket = db.value("select current_setting('unix_socket_directories')").await;
    let folder = tempfile::tempdir().unwrap();
    let configured = |name: &str| {
        let config = folder.path().join(name);
        std::fs::write(&config, format!("database_url = \"host={socket} port={port} user=postgres dbname={name}\"\n"))
            .unwrap();
        ["--config".to_owned(), config.display().to_string()]
    };
    let url = |name: &str| format!("postgresql:///{name}?host={socket}&port={port}&user=postgres");
    let wrong = "postgresql://nobody@127.0.0.1:1/none".to_owned();
    let name = db.name().to_owned();
    let database_url = |url: &str| vec![("DATABASE_URL".to_owned(), url.to_owned())];
    type Ways = Vec<(Vec<String>, Vec<(String, String)>)>;
    let ways: Ways = vec![
        (vec![], database_url(&url(&name))),
        // The README's example: another database of the same server.
        (vec!["--dbname".into(), name.clone()], database_url(&url("postgres"))),
        (
            vec![],
            [("PGHOST".to_owned(), "nowhere.invalid".to_owned())]
                .into_iter()
                .chain(database_url(&url(&name)))
                .collect(),
        ),
        (configured(&name).to_vec(), database_url(&wrong)),
        (
            configured("no_such_db").to_vec(),
            [("COUNTERSIGN_DATABASE_URL".to_owned(), url(&name))].into_iter().chain(database_url(&wrong)).collect(),
        ),
        // The front ends' own variables and flags.
        (
            vec![],
            [("COUNTERSIGN_DSN_SECRET".to_owned(), url(&name)), ("COUNTERSIGN_DATABASE_URL".to_owned(), wrong.clone())]
                .to_vec(),
        ),
        (vec!["--dsn-secret".into(), url(&name)], database_url(&wrong)),
    ];
    for (front, flag) in [("query", "--sql"), ("psql", "-c")] {
        for (arguments, variables) in &ways {
            let mut command = bare_front_end(front);
            command.args(arguments).envs(variables.clone()).args([flag, "select current_database() as d"]);
            let event = FrontEndOutput::of(&mut command).await.single_event();
            assert_eq!(event["rows"], json!([{"d": db.name()}]), "{front} {arguments:?} {variables:?}: {event}");
        }
    }
    let mut command = bare_front_end("pipe");
    command.env("DATABASE_URL", url(&name));
    let mut pipe = Pipe::start(command);
    assert_eq!(pipe.run("q", "select current_database() as d").await["rows"], json!([{"d": db.name()}]));
    // A session's own field refines it.
    pipe.send(json!({"code": "config", "sessions": {"s": {"dbname": "postgres"}}})).await;
    let event = pipe.run_with("r", "select current_database() as d", json!({"session": "s"})).await;
    assert_eq!(event["rows"], json!([{"d": "postgres"}]), "{event}");
    pipe.finish().await;
}

#[tokio::test]
async fn a_connection_error_names_the_source_of_each_part() {
    let mut query = bare_front_end("query");
    query.env("PGUSER", "ann").args(["--port", "1", "--dbname", "shop", "--sql", "select 1"]);
    let error = FrontEndOutput::of(&mut query).await.single_event()["error"].as_str().unwrap().to_owned();
    assert!(
        error.ends_with("connecting to host 127.0.0.1:1 (default), user ann (PGUSER), database shop (--dbname)"),
        "{error}"
    );

    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    std::fs::write(&config, "database_url = \"postgresql://ann:hunter2@127.0.0.1:1/shop\"\n").unwrap();
    let from_file = format!("(database_url in {})", config.display());
    let expected = format!("host 127.0.0.1:1 {from_file}, user ann {from_file}, database shop {from_file}");
    let mut query = bare_front_end("query");
    query.arg("--config").arg(&config).args(["--sql", "select 1"]);
    let error = FrontEndOutput::of(&mut query).await.single_event()["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&expected) && !error.contains("hunter2"), "{error}");
    // Every other command says the same.
    for command in [&["init"][..], &["doctor"], &["audit", "list"], &["proposals", "list"], &["keys", "rotate"]] {
        let mut other = tokio::process::Command::new(testkit::countersign());
        let output =
            other.args(command).env_remove("DATABASE_URL").arg("--config").arg(&config).output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(&expected) && !said.contains("hunter2"), "{command:?}: {said}");
    }
}

#[tokio::test]
async fn a_variable_that_is_wrong_is_not_repeated() {
    let mut query = bare_front_end("query");
    query.env("COUNTERSIGN_POOLER", "hunter2").args(["--sql", "select 1"]);
    let told = FrontEndOutput::of(&mut query).await;
    assert_eq!(told.status, 2);
    let error = told.single_event()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("--pooler takes one of none, transaction") && !error.contains("hunter2"), "{error}");
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
    assert_eq!(FrontEndOutput::of(&mut command).await.single_event()["rows"], json!([{"n": 1}]));
    db.run("drop role odd").await;
}

#[tokio::test]
async fn connection_failures_have_distinct_errors() {
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
        let told = FrontEndOutput::of(bare_front_end("query").args(&arguments).args(["--sql", "select 1"])).await;
        assert_eq!(told.status, 1, "{arguments:?}");
        let event = told.single_event();
        assert_eq!(event["error_code"], code, "{arguments:?}: {event}");
        assert!(event["error"].as_str().unwrap().contains(named), "{arguments:?}: {event}");
        assert!(event["hint"].is_string(), "{event}");
    }
}

#[tokio::test]
async fn the_password_command_of_the_configuration_is_for_its_database_only() {
    let db = database().await;
    let port = db.value("select current_setting('port')").await;
    let socket = db.value("select current_setting('unix_socket_directories')").await;
    let folder = tempfile::tempdir().unwrap();
    let (config, ran) = (folder.path().join("config.toml"), folder.path().join("ran"));
    let text = format!(
        "database_url = \"host={socket} port={port} user=postgres dbname={}\"\n\
         password_command = [\"sh\", \"-c\", \"echo \\\"$2\\\" >> \\\"$1\\\"; echo secret\", \"sh\", \"{}\", \"{{user}} {{dbname}}\"]\n",
        db.name(),
        ran.display()
    );
    std::fs::write(&config, text).unwrap();
    let query = async |arguments: &[&str]| {
        let mut command = bare_front_end("query");
        command.arg("--config").arg(&config).args(arguments).args(["--sql", "select current_database() as d"]);
        FrontEndOutput::of(&mut command).await.single_event()
    };
    assert_eq!(query(&[]).await["rows"], json!([{"d": db.name()}]));
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), format!("postgres {}\n", db.name()));
    // Another host, and a string with a password, have their own.
    query(&["--host", &socket, "--port", &port, "--dbname", db.name()]).await;
    query(&["--password-secret", "other"]).await;
    assert_eq!(std::fs::read_to_string(&ran).unwrap().lines().count(), 1);
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap().replace("echo secret", "echo why >&2; exit 3"))
        .unwrap();
    let failed = query(&[]).await;
    assert!(failed["error"].to_string().contains("why"), "{failed}");
}
