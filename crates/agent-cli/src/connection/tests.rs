//! The rules of the module's head, as a table.

use pg::Address;

use super::*;

fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// `dsn=.. host=..` as fields.
fn fields(pairs: &[(&str, &str)]) -> ConnectionFields {
    let text = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
    ConnectionFields {
        dsn_secret: text("dsn").map(Secret::new),
        conninfo_secret: text("conninfo").map(Secret::new),
        host: text("host"),
        port: text("port"),
        user: text("user"),
        dbname: text("dbname"),
        password_secret: text("password").map(Secret::new),
    }
}

fn target(
    session: &[(&str, &str)],
    flags: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Result<ConnectOptions, CliError> {
    ConnectionLayers::new(fields(flags), &env(variables), None, ConnectEnvironment::empty()).target(&fields(session))
}

/// Host, user and database with their origins, where every command uses `shared`.
fn described(shared: &str, session: &[(&str, &str)], flags: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
    let shared =
        (!shared.is_empty()).then(|| ConnectionString { text: Secret::new(shared), origin: "DATABASE_URL".to_owned() });
    let layers = ConnectionLayers::new(fields(flags), &env(variables), shared, ConnectEnvironment::empty());
    layers.target(&fields(session)).unwrap().described()
}

/// `user:password@host:port/dbname`.
fn connects(session: &[(&str, &str)], flags: &[(&str, &str)], variables: &[(&str, &str)]) -> String {
    let target = target(session, flags, variables).unwrap();
    let password = target.password.as_ref().map_or("-", Secret::expose);
    format!("{}:{password}@{}/{}", target.user, target.address(), target.dbname)
}

const DSN: &str = "postgresql://ann:pw@db.example:6000/orders";
const DSN_OF_ENV: [(&str, &str); 1] = [("COUNTERSIGN_DSN_SECRET", DSN)];

#[test]
fn without_anything_it_is_the_defaults() {
    assert_eq!(connects(&[], &[], &[]), "postgres:-@127.0.0.1:5432/postgres");
    assert_eq!(connects(&[], &[("host", "")], &[("PGHOST", "")]), "postgres:-@127.0.0.1:5432/postgres");
}

#[test]
fn every_field_counts_in_every_layer_and_the_higher_layer_wins() {
    let libpq = [("PGHOST", "h1"), ("PGPORT", "1"), ("PGUSER", "u1"), ("PGDATABASE", "d1"), ("PGPASSWORD", "p1")];
    assert_eq!(connects(&[], &[], &libpq), "u1:p1@h1:1/d1");
    let own = [
        ("COUNTERSIGN_HOST", "h2"),
        ("COUNTERSIGN_PORT", "2"),
        ("COUNTERSIGN_USER", "u2"),
        ("COUNTERSIGN_DBNAME", "d2"),
        ("COUNTERSIGN_PASSWORD_SECRET", "p2"),
    ];
    let both = [libpq, own].concat();
    assert_eq!(connects(&[], &[], &both), "u2:p2@h2:2/d2");
    let flags = [("host", "h3"), ("port", "3"), ("user", "u3"), ("dbname", "d3"), ("password", "p3")];
    assert_eq!(connects(&[], &flags, &both), "u3:p3@h3:3/d3");
    let session = [("host", "h4"), ("port", "4"), ("user", "u4"), ("dbname", "d4"), ("password", "p4")];
    assert_eq!(connects(&session, &flags, &both), "u4:p4@h4:4/d4");
    for (index, (key, _)) in flags.iter().enumerate() {
        // One at a time: the others stay those of the layer below.
        let expected: Vec<&str> = ["h", "", "u", "d", "p"].to_vec();
        let text = |at: usize| format!("{}{}", expected[at], if at == index { 3 } else { 2 });
        let whole = format!("{}:{}@{}:{}/{}", text(2), text(4), text(0), text(1), text(3));
        assert_eq!(connects(&[], &flags[index..=index], &both), whole, "{key}");
    }
}

#[test]
fn a_connection_string_counts_in_every_layer() {
    let expected = "ann:pw@db.example:6000/orders";
    let conninfo = "host=db.example port=6000 user=ann password=pw dbname=orders";
    for (key, text) in [("dsn", DSN), ("conninfo", conninfo), ("conninfo", DSN)] {
        assert_eq!(connects(&[(key, text)], &[], &[]), expected);
        assert_eq!(connects(&[], &[(key, text)], &[]), expected);
        assert_eq!(connects(&[(key, text)], &[(key, "postgresql://other/x")], &[("PGHOST", "x")]), expected);
    }
    assert_eq!(connects(&[], &[], &DSN_OF_ENV), expected);
    assert_eq!(connects(&[], &[], &[("COUNTERSIGN_CONNINFO_SECRET", conninfo), ("PGPORT", "9")]), expected);
}

#[test]
fn a_flag_beats_a_connection_string_of_the_environment() {
    for (flags, expected) in [
        // Another server: neither the user nor the password of the string is meant for it.
        (vec![("host", "new")], "postgres:-@new:5432/postgres"),
        (vec![("host", "new"), ("user", "bob"), ("password", "x")], "bob:x@new:5432/postgres"),
        (vec![("dsn", "postgresql://bob@new/d")], "bob:-@new:5432/d"),
        (vec![("conninfo", "host=new")], "postgres:-@new:5432/postgres"),
        // The same server with another database.
        (vec![("dbname", "stock")], "ann:pw@db.example:6000/stock"),
        (vec![("port", "7000")], "ann:pw@db.example:7000/orders"),
        (vec![("password", "x@/#%")], "ann:x@/#%@db.example:6000/orders"),
        (vec![("user", "ann")], "ann:pw@db.example:6000/orders"),
        // A password is that of its user.
        (vec![("user", "bob")], "bob:-@db.example:6000/orders"),
        (vec![("user", "bob"), ("password", "x")], "bob:x@db.example:6000/orders"),
    ] {
        assert_eq!(connects(&[], &flags, &DSN_OF_ENV), expected, "{flags:?}");
        assert_eq!(connects(&flags, &[], &DSN_OF_ENV), expected, "{flags:?} of a session");
        assert_eq!(connects(&flags, &[("dsn", DSN)], &[]), expected, "{flags:?} over a flag");
        let keywords = "user=ann password=pw host=db.example port=6000 dbname='orders'";
        assert_eq!(connects(&flags, &[("conninfo", keywords)], &[]), expected, "{flags:?} over keywords");
    }
}

#[test]
fn within_a_layer_fields_count_over_the_string_and_layers_below_fill_in() {
    let refined = [("dsn", DSN), ("host", "new"), ("dbname", "stock")];
    assert_eq!(connects(&[], &refined, &[]), "ann:pw@new:6000/stock");
    let below = [("COUNTERSIGN_USER", "app"), ("COUNTERSIGN_PASSWORD_SECRET", "p@/#%w"), ("PGPASSWORD", "no")];
    assert_eq!(connects(&[], &[("dsn", "postgresql://h/d")], &below), "app:p@/#%w@h:5432/d");
    assert_eq!(connects(&[], &[("dsn", "postgresql://h/d?sslmode=disable")], &below), "app:p@/#%w@h:5432/d");
    assert_eq!(connects(&[], &[("conninfo", "host=h dbname=d")], &below), "app:p@/#%w@h:5432/d");
    assert_eq!(
        connects(&[], &[("dsn", "postgresql:///d?host=h&port=9")], &[("PGHOST", "x"), ("PGPORT", "1")]),
        "postgres:-@h:9/d"
    );
}

#[test]
fn the_connection_string_of_every_command_is_below_own_fields_and_above_libpqs_variables() {
    let shared = "postgresql://ann:pw@db:6/orders";
    let libpq = [("PGHOST", "no"), ("PGUSER", "no"), ("PGDATABASE", "no")];
    for (flags, variables, expected) in [
        (vec![], vec![], "host db:6 (DATABASE_URL), user ann (DATABASE_URL), database orders (DATABASE_URL)"),
        (
            vec![("dbname", "shop")],
            vec![("COUNTERSIGN_USER", "bob")],
            "host db:6 (DATABASE_URL), user bob (COUNTERSIGN_USER), database shop (--dbname)",
        ),
        (vec![("host", "h")], vec![], "host h:5432 (--host), user no (PGUSER), database no (PGDATABASE)"),
        (
            vec![],
            vec![("COUNTERSIGN_DSN_SECRET", "postgresql://u@h")],
            "host h:5432 (COUNTERSIGN_DSN_SECRET), user u (COUNTERSIGN_DSN_SECRET), database no (PGDATABASE)",
        ),
    ] {
        assert_eq!(described(shared, &[], &flags, &[&libpq[..], &variables].concat()), expected);
    }
    assert_eq!(
        described("", &[("user", "u")], &[], &[("PGDATABASE", "d")]),
        "host 127.0.0.1:5432 (default), user u (user of the session), database d (PGDATABASE)"
    );
    // What it leaves out is found by libpq's rules, as for every other command.
    let user = os_user();
    let left_out = described("host=/run/pg", &[], &[], &[]);
    let expected = format!(
        "host /run/pg (unix socket, port 5432) (DATABASE_URL), user {user} (default), database {user} (default)"
    );
    assert_eq!(left_out, expected);
}

fn os_user() -> String {
    ConnectOptions::parse("").unwrap().user
}

#[test]
fn a_socket_is_a_host_with_a_slash() {
    for flags in [
        vec![("host", "/run/pg")],
        vec![("dsn", "postgresql:///?host=/run/pg")],
        vec![("dsn", "postgresql://%2Frun%2Fpg")],
        vec![("conninfo", "host=/run/pg")],
    ] {
        assert_eq!(target(&[], &flags, &[]).unwrap().addresses, [Address::Unix("/run/pg".into(), 5432)]);
    }
}

#[test]
fn an_address_of_the_environment_is_for_no_other_host() {
    let here: Vec<Address> =
        vec![Address::Tcp { host: "1.2.3.4".into(), hostaddr: Some([1, 2, 3, 4].into()), port: 5432 }];
    for conninfo in ["hostaddr=1.2.3.4", "postgresql://?hostaddr=1.2.3.4"] {
        assert_eq!(target(&[], &[("conninfo", conninfo)], &[("COUNTERSIGN_HOST", "x")]).unwrap().addresses, here);
        assert_eq!(target(&[], &[("conninfo", conninfo)], &[("PGHOST", "x")]).unwrap().addresses, here);
    }
}

#[test]
fn a_service_goes_before_variables_and_defaults_and_after_fields() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    std::fs::write(&file, "[s]\nhost=served\nport=7\nuser=sam\ndbname=sdb\n").unwrap();
    let conninfo = format!("service=s servicefile={}", file.display());
    let variables = [("PGHOST", "no"), ("PGUSER", "no")];
    assert_eq!(connects(&[], &[("conninfo", &conninfo)], &variables), "sam:-@served:7/sdb");
    let flags = [("conninfo", conninfo.as_str()), ("dbname", "mine")];
    assert_eq!(connects(&[], &flags, &[("COUNTERSIGN_USER", "app")]), "app:-@served:7/mine");
}

#[test]
fn what_cannot_be_meant_is_refused_without_showing_a_secret() {
    for (flags, said) in [
        (vec![("dsn", DSN), ("conninfo", "host=hunter2")], "give one of them"),
        (vec![("dsn", "host=h password=hunter2")], "dsn_secret is no URL"),
        (vec![("dsn", "postgresql://u:hunter2@hunter2@h/d")], "%40"),
        (vec![("conninfo", "nonsense=hunter2 password=hunter2")], "no key \"nonsense\""),
        (vec![("conninfo", "password='hunter2")], "without its end"),
        (vec![("port", "70000")], "from 1 to 65535"),
    ] {
        let problem = target(&[], &flags, &[]).unwrap_err();
        assert_eq!(problem.code, crate::error::EventErrorCode::InvalidRequest);
        assert!(problem.message.contains(said) && !format!("{problem:?}").contains("hunter2"), "{problem:?}");
    }
    // Text that is appended does not become a part of the password.
    assert_eq!(connects(&[], &[("conninfo", r"host=h password=a\")], &[]), "postgres:a@h:5432/postgres");
    let problem = target(&[], &[], &[("PGPORT", "x")]).unwrap_err();
    assert!(problem.message.contains("port"), "{problem:?}");
}

proptest::proptest! {
    #[test]
    fn any_password_works_in_any_form(password in "[^\0]{1,30}", user in "[a-z]{1,5}") {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
        for flags in [
            vec![("password", password.clone())],
            vec![("dsn", format!("postgresql://u:{encoded}@h/d"))],
            vec![("dsn", "postgresql://u@h/d?sslmode=disable".to_owned()), ("password", password.clone())],
            vec![("dsn", "postgresql://u:a%3Fb@h".to_owned()), ("password", password.clone())],
            vec![("conninfo", format!("user=u password='{quoted}' host=h"))],
            vec![("conninfo", "user=u password=other".to_owned()), ("password", password.clone())],
        ] {
            let flags: Vec<(&str, &str)> = flags.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let found = target(&[], &flags, &[("PGUSER", &user)]).unwrap().password.unwrap();
            proptest::prop_assert_eq!(found.expose(), &password);
        }
    }
}
