//! The interpretation of connection strings and their surroundings, compared with libpq's.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// An empty home, and an environment with these variables.
fn in_a_home(variables: &[(&str, &str)]) -> (tempfile::TempDir, ConnectEnvironment) {
    let home = tempfile::tempdir().unwrap();
    let surroundings = ConnectEnvironment::for_tests(variables, home.path(), &[]);
    (home, surroundings)
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.into(), hostaddr: host.parse().ok(), port }
}

fn problem(text: &str, variables: &[(&str, &str)]) -> String {
    let (_home, surroundings) = in_a_home(variables);
    ConnectOptions::parse_with(text, &surroundings).expect_err(text).to_string()
}

#[test]
fn a_password_with_every_awkward_character_is_read_from_url_and_keywords() {
    let url = ConnectOptions::parse("postgresql://me:p%40ss%2F%23%25@db.example:6432/shop").unwrap();
    assert_eq!(url.password.as_ref().unwrap().expose(), "p@ss/#%");
    assert_eq!(url.addresses, [tcp("db.example", 6432)]);
    let keywords = ConnectOptions::parse("host=/run/pg port=5433 user=me password='p@ss/#%' dbname=shop").unwrap();
    assert_eq!(keywords.password, url.password);
    assert_eq!(keywords.addresses, [Address::Unix("/run/pg".into(), 5433)]);
}

#[test]
fn the_text_for_another_login_leads_to_the_same_server_without_the_environment() {
    let variables = [
        ("PGHOST", "/run/my pg,::1,db.example"),
        ("PGPORT", "5433,5432,6432"),
        ("PGDATABASE", "Shop's"),
        ("PGUSER", "me"),
        ("PGPASSWORD", "of me"),
        ("PGAPPNAME", "psql"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "certificates/ca.pem"),
    ];
    let (_home, surroundings) = in_a_home(&variables);
    let conninfo = Conninfo::parse("connect_timeout=7").unwrap();
    let text = ConnectOptions::text_for_login(&conninfo, &surroundings, "writer", &Secret::new(r"a'b\c")).unwrap();
    assert!(!text.expose().contains("of me"), "the password of the first login");
    let (first, other) = (
        ConnectOptions::from_conninfo(&conninfo, &surroundings).unwrap(),
        ConnectOptions::parse(text.expose()).unwrap(),
    );
    assert_eq!((other.user.as_str(), other.dbname.as_str()), ("writer", "Shop's"));
    assert_eq!(other.password, Some(Secret::new(r"a'b\c")));
    assert_eq!((other.addresses, other.connect_timeout), (first.addresses, Duration::from_secs(7)));
    assert_eq!((other.tls.mode, other.application_name.as_str()), (SslMode::VerifyFull, "countersign"));
    let file = std::env::current_dir().unwrap().join("certificates/ca.pem");
    assert!(text.expose().contains(&format!("sslrootcert={}", file.display())));
}

#[test]
fn what_is_left_out_is_what_libpq_takes() {
    let (_home, surroundings) = in_a_home(&[]);
    let target = ConnectOptions::parse_with("", &surroundings).unwrap();
    assert_eq!((target.user.as_str(), target.dbname.as_str()), ("me", "me"));
    assert_eq!(target.addresses, [tcp("localhost", 5432)]);
    assert_eq!(target.application_name, "countersign");
    assert_eq!(target.connect_timeout, DEFAULT_CONNECT_TIMEOUT);
    assert_eq!(target.tls.mode, SslMode::Prefer);
    // H1: libpq leaves these settings to the system, which takes hours to notice a lost peer.
    assert_eq!(target.keepalive, Keepalive::default());
    assert_eq!(ConnectOptions::parse_with("user=you", &surroundings).unwrap().dbname, "you");
}

#[test]
fn without_a_host_the_default_socket_is_taken_if_it_is_there_and_never_that_of_a_second_folder() {
    let (own, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let surroundings = ConnectEnvironment::for_tests(&[], own.path(), &[own.path(), shared.path()]);
    let address = |text| ConnectOptions::parse_with(text, &surroundings).unwrap().addresses.remove(0);
    std::fs::write(shared.path().join(".s.PGSQL.5432"), "").unwrap();
    assert_eq!(address(""), tcp("localhost", 5432));
    std::fs::write(own.path().join(".s.PGSQL.5432"), "").unwrap();
    assert_eq!(address(""), Address::Unix(own.path().into(), 5432));
    assert_eq!(address("postgresql:///shop"), Address::Unix(own.path().into(), 5432));
    assert_eq!(address("port=5433"), tcp("localhost", 5433));
}

#[test]
fn several_servers_are_listed_as_libpq_lists_them() {
    let (_home, surroundings) = in_a_home(&[]);
    let addresses = |text: &str| ConnectOptions::parse_with(text, &surroundings).unwrap().addresses;
    assert_eq!(addresses("postgresql://a:1,b:2/d"), [tcp("a", 1), tcp("b", 2)]);
    assert_eq!(addresses("postgresql://a,b:2/d"), [tcp("a", 5432), tcp("b", 2)]);
    assert_eq!(addresses("host=a,b port=7"), [tcp("a", 7), tcp("b", 7)]);
    assert_eq!(addresses("host=/run/pg,b,,@x port=1,2,,4")[..2], [Address::Unix("/run/pg".into(), 1), tcp("b", 2)]);
    assert_eq!(addresses("host=a,,c")[1], tcp("localhost", 5432));
    assert_eq!(
        addresses("postgresql://[::1]:5433,%2Frun%2Fpg"),
        [tcp("::1", 5433), Address::Unix("/run/pg".into(), 5432)]
    );
    let named = addresses("host=db.example hostaddr=10.0.0.7");
    let expected = Address::Tcp { host: "db.example".into(), hostaddr: "10.0.0.7".parse().ok(), port: 5432 };
    assert_eq!(named, [expected]);
    assert_eq!(addresses("hostaddr=::1,10.0.0.7"), [tcp("::1", 5432), tcp("10.0.0.7", 5432)]);
    assert_eq!(tcp("::1", 1).to_string(), "[::1]:1");
}

#[test]
fn the_text_goes_before_the_service_before_the_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    let text =
        "# comment\n[other]\nhost=wrong\n[shop]\nhost=from-service\nport=1\nuser=from-service\n\n[last]\nhost=wrong\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let variables = [
        ("PGSERVICEFILE", file),
        ("PGSERVICE", "shop"),
        ("PGPORT", "2"),
        ("PGUSER", "from-variable"),
        ("PGDATABASE", "from-variable"),
        ("PGPASSWORD", "from-variable"),
        ("PGAPPNAME", "from-variable"),
        ("PGHOST", "from-variable"),
    ];
    let (home, surroundings) = in_a_home(&variables);
    let target = ConnectOptions::parse_with("user=from-text fallback_application_name=x", &surroundings).unwrap();
    assert_eq!(target.addresses, [tcp("from-service", 1)]);
    assert_eq!((target.user.as_str(), target.dbname.as_str()), ("from-text", "from-variable"));
    assert_eq!(target.password.unwrap().expose(), "from-variable");
    assert_eq!(target.application_name, "from-variable");
    // A key with an empty value counts as given.
    assert!(ConnectOptions::parse_with("password=''", &surroundings).unwrap().password.is_none());

    // Without a file of the user's own: the default file, then the system's.
    let surroundings =
        |home| ConnectEnvironment::for_tests(&[("PGSYSCONFDIR", folder.path().to_str().unwrap())], home, &[]);
    let host = |surroundings| ConnectOptions::parse_with("service=shop", &surroundings).map(|target| target.address());
    let missing = host(surroundings(home.path())).unwrap_err().to_string();
    assert!(missing.contains("no service \"shop\""), "{missing}");
    std::fs::write(folder.path().join("pg_service.conf"), "[shop]\nhost=system\n").unwrap();
    assert_eq!(host(surroundings(home.path())).unwrap(), "system:5432");
    std::fs::write(home.path().join(".pg_service.conf"), "[shop]\nhost=own\n").unwrap();
    assert_eq!(host(surroundings(home.path())).unwrap(), "own:5432");
}

#[test]
fn a_service_file_with_mistakes_is_named_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    for (text, said) in [
        ("[s]\nhost=a\nhunter2", "line 3: it is no key=value"),
        ("[s]\nnonsense=hunter2", "no key \"nonsense\" in line 2"),
        ("[s]\nservice=t", "cannot name another"),
        ("[s]\nldap://x/y=z", "LDAP"),
        ("[s]\nport=hunter2", "port in line 2"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = problem(&format!("service=s servicefile={}", file.display()), &[]);
        assert!(error.contains(said) && error.contains("services") && !error.contains("hunter2"), "{error}");
    }
    assert!(problem("service=s servicefile=/nowhere", &[]).contains("/nowhere: it cannot be read"));
}

#[test]
fn tls_is_as_in_libpq() {
    let (home, surroundings) = in_a_home(&[("PGSSLMODE", "require")]);
    let tls = |text: &str| ConnectOptions::parse_with(text, &surroundings).unwrap().tls;
    assert_eq!((tls("").mode, tls("").roots), (SslMode::Require, RootCertificates::System));
    assert_eq!(tls("sslmode=allow").mode, SslMode::Prefer);
    assert_eq!(tls("sslrootcert=/ca.pem").mode, SslMode::VerifyCa, "require with roots checks them");
    assert_eq!(tls("sslmode=verify-full sslrootcert='/ca x.pem'").roots, RootCertificates::File("/ca x.pem".into()));
    let quoted = tls("sslmode=disable password='sslmode=verify-full'");
    assert_eq!(quoted.mode, SslMode::Disable, "what stands inside a value is no key");
    let (_home, bare) = in_a_home(&[]);
    assert_eq!(ConnectOptions::parse_with("sslrootcert=system", &bare).unwrap().tls.mode, SslMode::VerifyFull);
    assert!(problem("sslrootcert=system sslmode=verify-ca", &[]).contains("too weak"));
    let versions = tls("ssl_min_protocol_version=TLSv1.3");
    assert!(!versions.allows_tls_1_2 && versions.allows_tls_1_3);
    let versions = tls("ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.2");
    assert!(versions.allows_tls_1_2 && !versions.allows_tls_1_3);
    assert!(tls("sslnegotiation=direct").is_direct && tls("").sends_sni && !tls("sslsni=0").sends_sni);
    let client = Some(ClientCertificate { certificate: "/c".into(), key: "/k".into() });
    assert_eq!(tls("sslcert=/c sslkey=/k").client, client);
    assert_eq!(tls("sslcert=/c sslkey=/k sslcertmode=disable").client, None);

    // Files at their default places are used.
    let folder = home.path().join(".postgresql");
    std::fs::create_dir(&folder).unwrap();
    for name in ["root.crt", "root.crl", "postgresql.crt"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let usual = tls("");
    assert_eq!((usual.mode, &usual.roots), (SslMode::VerifyCa, &RootCertificates::File(folder.join("root.crt"))));
    assert_eq!(usual.revoked, Some(folder.join("root.crl")));
    let expected = ClientCertificate { certificate: folder.join("postgresql.crt"), key: folder.join("postgresql.key") };
    assert_eq!(usual.client, Some(expected));
}

#[test]
fn logging_in_is_as_in_libpq() {
    let (_home, surroundings) = in_a_home(&[]);
    let methods = |text: &str| ConnectOptions::parse_with(text, &surroundings).unwrap().login.methods;
    assert_eq!(methods("require_auth=scram-sha-256,none"), [AuthMethod::Scram, AuthMethod::None]);
    let others = methods("require_auth=!password,!md5");
    assert!(others.contains(&AuthMethod::Scram) && !others.contains(&AuthMethod::Md5));
    assert!(problem("require_auth=md5,!password", &[]).contains("either all"));
    assert!(problem("require_auth=hunter2", &[]).contains("scram-sha-256"));
    let login = ConnectOptions::parse_with("channel_binding=require", &surroundings).unwrap().login;
    assert_eq!(login.channel_binding, ChannelBinding::Require);
}

#[test]
fn numbers_and_times_are_as_in_libpq() {
    let (_home, surroundings) = in_a_home(&[("PGCONNECT_TIMEOUT", "7")]);
    let target = |text: &str| ConnectOptions::parse_with(text, &surroundings).unwrap();
    assert_eq!(target("").connect_timeout, Duration::from_secs(7));
    // libpq would wait without a limit.
    assert_eq!(target("connect_timeout=0").connect_timeout, DEFAULT_CONNECT_TIMEOUT);
    assert_eq!(target("connect_timeout=-1").connect_timeout, DEFAULT_CONNECT_TIMEOUT);
    let keepalive = target("keepalives_idle=5 keepalives_interval=0 keepalives_count=3 tcp_user_timeout=250").keepalive;
    let expected = Keepalive {
        is_on: true,
        idle: Some(Duration::from_secs(5)),
        interval: None,
        count: Some(3),
        user_timeout: Some(Duration::from_millis(250)),
        ..Keepalive::default()
    };
    assert_eq!(keepalive, expected);
    assert!(!target("keepalives=0").keepalive.is_on);
    assert_eq!(target("tcp_user_timeout=0").keepalive.user_timeout, None);
    assert!(target("load_balance_hosts=random").is_shuffled && !target("").is_shuffled);
    assert_eq!(target("target_session_attrs=prefer-standby").session_attrs, TargetSessionAttrs::PreferStandby);
}

#[test]
fn what_cannot_be_done_is_refused_and_never_passed_over() {
    for (text, said) in [
        ("nonsense=hunter2", "no key \"nonsense\""),
        ("postgresql://h?nonsense=hunter2", "no key \"nonsense\""),
        ("password=my hunter2=x", "what follows the password"),
        ("port=hunter2", "port: a port is a number"),
        ("port=0", "port"),
        ("port=65536", "port"),
        ("host=a,b port=1,2,3", "3 ports for 2 hosts"),
        ("host=a,b hostaddr=1.2.3.4", "hostaddr: it lists 1 where 2"),
        ("hostaddr=db.example", "IP address"),
        ("sslmode=maybe", "verify-full"),
        ("gssencmode=require", "GSSAPI"),
        ("krbsrvname=x", "GSSAPI"),
        ("replication=database", "replication"),
        ("client_encoding=latin1", "UTF8"),
        ("sslpassword=hunter2", "passphrase"),
        ("sslcrldir=/x", "sslcrl"),
        ("sslcompression=1", "compression"),
        ("sslcertmode=require", "not supported"),
        ("sslnegotiation=direct", "sslmode"),
        ("sslcert=/c sslkey=/k sslnegotiation=now", "postgres, direct"),
        ("ssl_max_protocol_version=TLSv1.1", "TLSv1.2"),
        ("ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2", "newer"),
        ("connect_timeout=soon", "whole number"),
        ("target_session_attrs=master", "prefer-standby"),
        ("load_balance_hosts=yes", "random"),
        ("channel_binding=maybe", "require"),
        ("min_protocol_version=3.2", "3.0"),
        ("oauth_issuer=x", "OAuth"),
        ("scram_client_key=hunter2", "SCRAM"),
        ("sslkeylogfile=/x", "not written"),
    ] {
        let error = problem(text, &[]);
        assert!(error.contains(said) && !error.contains("hunter2"), "{text}: {error}");
    }
    for harmless in
        ["gssencmode=disable", "client_encoding=UTF8", "client_encoding=auto", "replication=false", "sslcompression=0"]
    {
        ConnectOptions::parse(harmless).unwrap_or_else(|error| panic!("{harmless}: {error}"));
    }
    assert!(problem("", &[("PGSSLMODE", "hunter2")]).starts_with("PGSSLMODE: it is one of"), "the variable is named");
}

#[test]
fn a_malformed_string_is_refused_without_repeating_it() {
    let error = ConnectOptions::parse("host=localhost port=abc password=hunter2").unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let error = ConnectOptions::parse("postgres:/nonsense hunter2").unwrap_err();
    assert!(error.to_string().contains("postgresql://") && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn debug_shows_no_password() {
    let target = ConnectOptions::parse("postgresql://me:hunter2@h/d").unwrap();
    assert!(!format!("{target:?}").contains("hunter2"));
}

#[test]
fn the_password_file_is_asked_for_the_server_at_hand() {
    let (home, surroundings) = in_a_home(&[]);
    let file = home.path().join(".pgpass");
    std::fs::write(&file, "a:1:d:u:for-a\nlocalhost:5432:d:u:for-the-default-socket\n/run/pg:5432:d:u:for-a-socket\n")
        .unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let target =
        ConnectOptions::parse_with("host=a,/tmp,/run/pg,b port=1,5432,5432,2 user=u dbname=d", &surroundings).unwrap();
    let passwords: Vec<Result<String, String>> = target
        .addresses
        .iter()
        .map(|address| target.password_for(address).map(|password| password.secret.expose().to_owned()))
        .collect();
    assert_eq!(
        passwords[..3].iter().flatten().collect::<Vec<_>>(),
        ["for-a", "for-the-default-socket", "for-a-socket"]
    );
    assert!(passwords[3].as_ref().unwrap_err().contains("no line of it fits b:2:d:u"), "{passwords:?}");
    let own = ConnectOptions::parse_with("host=a port=1 user=u dbname=d password=own", &surroundings).unwrap();
    assert_eq!(own.password_for(&own.addresses[0]).map(|it| it.secret.expose().to_owned()), Ok("own".to_owned()));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic_or_repeats_a_password(text in "[ -~]{0,40}", secret in "[A-Z]{12}") {
        let (_home, surroundings) = in_a_home(&[]);
        for text in [format!("{text} password={secret}"), format!("postgresql://{text}:{secret}@h/d?{text}")] {
            match ConnectOptions::parse_with(&text, &surroundings) {
                Ok(target) => { let _ = target.address(); }
                // If a text ends a value early, anything may look like a key. Then the error names that key.
                Err(ConnectOptionsError::UnknownKey { .. }) => {}
                Err(error) => proptest::prop_assert!(!error.to_string().contains(&secret), "{}", error),
            }
        }
    }
}
