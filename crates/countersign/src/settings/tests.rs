//! Layers, mistakes, secrets, and that every key can be given in every way.

use std::path::Path;

use clap::CommandFactory;
use manifest::Source;

use super::*;
use crate::commands::cli::Cli;

pub(super) fn parse(text: &str) -> Result<ConfigFile, String> {
    let source = Source { path: "/etc/cs/countersign.toml".into(), text: text.to_owned() };
    ConfigFile::parse(&source, Path::new("/etc/cs")).map_err(|mistakes| mistakes.to_string())
}

pub(super) fn sources() -> ConfigSources {
    ConfigSources { config: Some("/etc/cs/countersign.toml".into()), given: Keys::default() }
}

fn settings(text: &str) -> Settings {
    sources().merge(parse(text).unwrap()).unwrap()
}

#[test]
fn without_anything_the_defaults_hold() {
    let settings = settings("");
    assert_eq!(settings.databases[0].read_limits.deadline, Duration::from_millis(30_000));
    assert_eq!(settings.databases[0].connect_timeout, Duration::from_millis(10_000));
    assert_eq!(settings.databases[0].read_limits.default_rows, 500);
    assert_eq!(settings.databases[0].call_deadline, Duration::from_millis(30_000));
    assert_eq!((settings.profile.as_str(), settings.account.as_str()), ("write", "default"));
}

#[test]
fn what_is_given_goes_before_the_file_and_paths_of_the_file_are_its_neighbours() {
    let text =
        "profile = \"readonly\"\nactor = \"file\"\nmanifests = [\"a.toml\", \"/x/b.toml\"]\n[limits]\nrow_limit = 7\n";
    let mut sources = sources();
    sources.given.server.serve.profile = Some("admin".to_owned());
    let merged = sources.merge(parse(text).unwrap()).unwrap();
    assert_eq!((merged.profile.as_str(), merged.actor.as_deref()), ("admin", Some("file")));
    assert_eq!(merged.databases[0].read_limits.default_rows, 7);
    assert_eq!(merged.databases[0].manifests, [PathBuf::from("/etc/cs/a.toml"), PathBuf::from("/x/b.toml")]);
}

#[test]
fn every_mistake_of_the_file_is_named_with_its_place_and_what_is_right() {
    let text = "profil = \"x\"\naccount = \"\"\nlog_format = \"xml\"\nmanifests = \"a.toml\"\n\
                [limits]\nrow_limit = 0\nrows = 3\nquery_timeout_ms = \"soon\"\n[network]\n";
    let said = parse(text).unwrap_err();
    for expected in [
        "countersign.toml:1:1: there is no key profil; did you mean profile?; the keys here are: database_url, ",
        "countersign.toml:2:11: account: an account takes 1 to 255 bytes",
        "countersign.toml:3:14: log_format: unknown variant `xml`, expected `text` or `json`",
        "countersign.toml:4:13: manifests: invalid type: string \"a.toml\", expected a list",
        "countersign.toml:6:13: row_limit: 0 is out of bounds: it takes 1 to 100000",
        "countersign.toml:7:1: there is no key limits.rows; the keys here are: connect_timeout_ms, ",
        "countersign.toml:8:20: query_timeout_ms: \"soon\" is no span of time: give one such as 90s, 1h30m or 7d",
        "countersign.toml:9:2: there is no key network",
    ] {
        assert!(said.contains(expected), "{expected} is missing in:\n{said}");
    }
    assert_eq!(said.lines().count(), 8, "{said}");
    assert!(parse("profile = ").unwrap_err().contains("countersign.toml:1:11: this is not TOML"));
    assert!(parse("limits = 3").unwrap_err().contains("written as [limits]"));
}

/// N-30, N-31
#[test]
fn a_mistake_names_the_table_the_key_and_the_type_that_were_meant() {
    for (text, expected) in [
        ("row_limit = 5\n", "there is no key row_limit; it belongs in [limits]; the keys here are"),
        (
            "[limits]\nprofile = \"a\"\n",
            "there is no key limits.profile; it belongs in the top of the file, before the first table",
        ),
        ("[http]\nissuer = \"https://a\"\n", "there is no key http.issuer; it belongs in [console.oidc]"),
        ("database_urll = \"x\"\n", "there is no key database_urll; did you mean database_url?"),
        ("[limits]\nrow_limit = \"many\"\n", "row_limit: invalid type: string \"many\", expected a whole number"),
        ("strict = \"yes\"\n", "strict: invalid type: string \"yes\", expected true or false"),
        ("[http]\nlisten = \"127.0.0.1\"\n", "listen: the port is missing: 127.0.0.1:7777"),
        ("[http]\nlisten = \"::1\"\n", "listen: the port is missing: [::1]:7777"),
        (
            "[http]\nlisten = \"localhost:1\"\n",
            "listen: \"localhost:1\" is not an address with a port, such as 127.0.0.1:7777",
        ),
    ] {
        let said = parse(text).unwrap_err();
        assert!(said.contains(expected), "{expected} is missing in:\n{said}");
    }
}

#[test]
fn what_is_allowed_by_default_must_be_allowed_at_all() {
    let file = parse("[limits]\nmax_row_limit = 100\n").unwrap();
    let said = sources().merge(file).unwrap_err().to_string();
    assert!(said.contains("row_limit is 500 and max_row_limit 100"), "{said}");
}

#[test]
fn a_connection_string_is_given_in_one_way_and_never_shown() {
    let said =
        sources().merge(parse("database_url = \"x\"\ndatabase_url_file = \"y\"").unwrap()).unwrap_err().to_string();
    assert!(said.contains("database_url in /etc/cs/countersign.toml and database_url_file are both given"), "{said}");

    let settings =
        settings("database_url = \"postgresql://me:hunter2@h/d\"\nread_url = \"postgresql://r:hunter2@h/d\"");
    assert_eq!(settings.databases[0].url.as_ref().unwrap().text.expose(), "postgresql://me:hunter2@h/d");
    assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");

    for unquoted in ["database_url = 4711", "database_url = 47.11", "read_url = [\"4711\"]"] {
        let said = parse(unquoted).unwrap_err();
        assert!(said.contains("_url: ") && !said.contains("4711") && !said.contains("47.11"), "{said}");
    }
}

#[test]
fn a_secret_in_a_file_loses_its_line_break_and_hides_what_stands_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    std::fs::write(&path, "host=h dbname=d password='a b '\r\n").unwrap();
    let mut sources = sources();
    sources.given.database.connection.database_url_file = Some(path.clone());
    let below = "database_url = \"postgresql://other/db\"";
    let found = sources.merge(parse(below).unwrap()).unwrap().databases.remove(0).url.unwrap();
    assert_eq!(found.text.expose(), "host=h dbname=d password='a b '");
    assert!(found.origin.contains(path.to_str().unwrap()), "{}", found.origin);

    std::fs::write(&path, "\n").unwrap();
    assert!(sources.load_given().unwrap_err().to_string().contains("is empty"));
    std::fs::remove_file(&path).unwrap();
    let said = format!("{:#}", sources.load_given().unwrap_err());
    assert!(said.contains(path.to_str().unwrap()) && said.contains("cannot be read: No such file"), "{said}");
}

impl ConfigSources {
    fn load_given(&self) -> anyhow::Result<Settings> {
        Self { config: None, ..self.clone() }.load()
    }
}

/// Every key of the file, with the flag and the variable that say the same.
#[test]
fn every_key_has_a_flag_and_a_variable_and_every_flag_a_key() {
    let command = Cli::command();
    let of = |name: &str| command.find_subcommand(name).unwrap().get_arguments();
    let is_key = |argument: &&clap::Arg| {
        !["config", "database", "demo", "help", "version"].contains(&argument.get_id().as_str())
    };
    let is_of_console = |argument: &&clap::Arg| {
        ["console_", "operator_"].iter().any(|prefix| argument.get_id().as_str().starts_with(prefix))
    };
    let of_console = of("console").filter(is_of_console);
    let arguments: Vec<_> = command.get_arguments().chain(of("serve")).filter(is_key).chain(of_console).collect();
    let http = schema::names(Some(keys::HTTP));
    let mut keys = [schema::names(Some(keys::LIMITS)), http.clone()].concat();
    let prefixed = [reads_keys::READS, notify_keys::NOTIFY, otel_keys::OTEL];
    let in_table = |of: &&str| schema::names(Some(of)).into_iter().map(|key| format!("{of}_{key}")).collect::<Vec<_>>();
    keys.extend(prefixed.iter().flat_map(in_table));
    let of_console = in_table(&console_keys::CONSOLE).into_iter().filter(|key| key != "console_oidc");
    let of_secret = Keys::schema(console_keys::CONSOLE_OIDC);
    keys.extend(of_console.chain(of_secret.keys().map(|key| format!("console_oidc_{key}"))));
    let auth = [http_auth_keys::TOKENS, http_auth_keys::OAUTH];
    let tables = [
        &[keys::LIMITS, keys::HTTP, profiles::TABLE, masks::TABLE, database_keys::TABLE, console_keys::CONSOLE][..],
        &prefixed,
        &auth,
    ]
    .concat();
    keys.extend(schema::names(None).into_iter().filter(|key| !tables.contains(&key.as_str())));
    for key in &keys {
        let argument = arguments.iter().find(|argument| argument.get_id() == key.as_str());
        let argument = argument.unwrap_or_else(|| panic!("no flag for {key}"));
        let word = match key.as_str() {
            "manifests" => "manifest".to_owned(),
            "listen" => "http".to_owned(),
            key if http.iter().any(|known| known == key) => format!("http_{key}"),
            key => key.to_owned(),
        };
        // `--url` of the console, whose other options have no table before them either.
        let long = word.strip_prefix("console_").unwrap_or(&word).replace('_', "-");
        assert_eq!(argument.get_long().unwrap(), long);
        let variable = argument.get_env().unwrap_or_else(|| panic!("no variable for {key}"));
        assert_eq!(*variable, *format!("COUNTERSIGN_{}", word.to_ascii_uppercase()));
    }
    for argument in arguments {
        assert!(keys.iter().any(|key| argument.get_id() == key.as_str()), "no key for {}", argument.get_id());
    }
}

#[test]
fn the_example_in_the_documentation_is_read_and_has_every_key() {
    let page = include_str!("../../../../docs/setup/configure.md");
    let (_, rest) = page.split_once("```toml\n# countersign.toml").expect("the example");
    let (example, _) = rest.split_once("```").unwrap();
    assert!(parse(example).is_ok(), "{:?}", parse(example));
    // The keys that are commented out, too.
    let whole: String = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // But for the one key that excludes another.
    let allowed: String =
        whole.lines().filter(|line| !line.starts_with("jwks_file")).map(|line| format!("{line}\n")).collect();
    // Tokens that clients get for what they call the server are taken, whether the audience is said or not.
    let (_, http) = allowed.split_once("\n[http]\n").unwrap();
    let http = format!("[http]\n{http}");
    let unsaid: String = http.split_inclusive('\n').filter(|line| !line.starts_with("audience = ")).collect();
    for example in [http, unsaid] {
        let settings = settings(&example);
        assert_eq!(settings.http.unwrap().public_url.as_deref(), Some("https://mcp.example.com"));
        assert_eq!(settings.oauth[0].audience, "https://mcp.example.com/mcp");
    }
    let console = [console_keys::CONSOLE, console_keys::CONSOLE_OIDC];
    let tables =
        [keys::LIMITS, keys::HTTP, reads_keys::READS, otel_keys::OTEL, http_auth_keys::TOKENS, http_auth_keys::OAUTH];
    let tables = tables.into_iter().chain(console);
    let keys = tables.map(Some).chain([None]).flat_map(schema::names);
    // Several databases are shown on a page of their own.
    let elsewhere = [console_keys::OIDC, database_keys::TABLE, "databases"];
    for key in keys.filter(|key| !elsewhere.contains(&key.as_str())) {
        let is_shown =
            ["{} = ", "[{}", "[[{}]]"].iter().any(|form| whole.contains(&format!("\n{}", form.replace("{}", &key))));
        assert!(is_shown, "{key} is not shown");
    }
}

#[test]
fn a_profile_of_ones_own_is_read_and_every_mistake_in_it_is_named() {
    let own = &settings("[profiles.support]\naccess = [\"read\"]\ntools = [\"like\"]\nexcept = [\"x\"]\n").profiles[0];
    let expected = Profile {
        name: "support".into(),
        access: vec![manifest::Access::Read],
        only: &[],
        tools: vec!["like".into()],
        except: vec!["x".into()],
        databases: None,
        role: None,
    };
    assert_eq!(own.profile, expected);
    let said = own.unknown_tools(&["like", "post"]).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said, ["/etc/cs/countersign.toml:4:11: profile support: there is no tool \"x\"; there are: like, post"]);

    let text = "[profiles.admin]\naccess = [\"read\"]\n[profiles.Big]\naccess = [\"read\"]\n[profiles.none]\nexcept = [\"x\"]\n\
                [profiles.typo]\ntool = [\"x\"]\n[profiles.kind]\naccess = [\"sudo\"]\n";
    let said = parse(text).unwrap_err();
    for expected in [
        "toml:1:11: every server has a profile admin: choose another name",
        "toml:3:11: \"Big\" is no name for a profile",
        "toml:5:11: the profile none has no tools",
        "toml:8:1: there is no key profiles.typo.tool; did you mean tools?; the keys here are: access, tools, except",
        "toml:10:11: access: unknown variant `sudo`, expected one of `read`, `write`, `admin`",
    ] {
        assert!(said.contains(expected), "{expected} is missing in:\n{said}");
    }
    assert_eq!(said.lines().count(), 5, "{said}");
}

#[test]
fn a_profile_that_is_not_there_is_named_with_those_that_are() {
    let file = parse("profile = \"suport\"\n[profiles.support]\naccess = [\"read\"]\n").unwrap();
    let said = sources().merge(file).unwrap_err().to_string();
    assert_eq!(said, "there is no profile \"suport\": it is one of minimal, readonly, write, admin, support");
}

pub(super) const HASH: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn tokens_and_the_issuer_are_read() {
    let text = format!(
        "[profiles.support]\naccess = [\"read\"]\n[[tokens]]\nhash = \"{HASH}\"\naccount = \"team-a\"\n\
         [[tokens]]\nhash = \"{}\"\naccount = \"team-b\"\nprofile = \"support\"\nlabel = \"bot\"\n\
         expires = 2027-01-01T02:00:00+02:00\n[oauth]\nissuer = \"https://login.example.com/\"\naudience = \"me\"\n\
         jwks_file = \"jwks.json\"\nscopes = {{ b = \"readonly\", a = \"support\" }}\n",
        HASH.replace("ba78", "0000")
    );
    let settings = settings(&text);
    let tokens: Vec<_> = settings
        .tokens
        .iter()
        .map(|token| (token.account.as_str(), token.profile.as_str(), token.label.as_deref(), token.expires))
        .collect();
    let new_year = time::OffsetDateTime::from_unix_timestamp(1_798_761_600).unwrap();
    assert_eq!(tokens, [("team-a", "write", None, None), ("team-b", "support", Some("bot"), Some(new_year))]);
    assert_eq!(settings.tokens[0].hash, HASH.parse().unwrap());
    let oauth = &settings.oauth[0];
    assert_eq!(oauth.issuer.as_str(), "https://login.example.com/");
    assert_eq!((oauth.account_claim.as_str(), oauth.account_prefix.as_str()), ("sub", "oauth:"));
    assert_eq!(oauth.keys, auth::JwksSource::File("/etc/cs/jwks.json".into()));
    let discovered = sources().merge(parse(&text.replace("jwks_file", "# ")).unwrap()).unwrap().oauth.remove(0);
    assert_eq!(discovered.keys, auth::JwksSource::Metadata(discovered.issuer));
    // The order of the file, whatever the alphabet says.
    assert_eq!(oauth.scopes, [("b".to_owned(), "readonly".to_owned()), ("a".to_owned(), "support".to_owned())]);
    assert_eq!(oauth.request_scopes, ["b", "a"]);

    // They may change while the server runs.
    let without = sources().merge(parse("[profiles.support]\naccess = [\"read\"]\n").unwrap()).unwrap();
    assert!(settings.same_but_for_tools(&without) && without.same_but_for_tools(&settings));
    assert!(without.authenticator().unwrap().is_empty());
    let said = format!("{:#}", settings.authenticator().unwrap_err());
    assert!(said.contains("/etc/cs/jwks.json (jwks_file) cannot be read: No such file"), "{said}");
}

#[test]
fn every_mistake_in_tokens_and_the_issuer_is_named_with_its_place() {
    let text = format!(
        "[[tokens]]\nhash = \"{HASH}\"\naccount = \"a\"\n\
         [[tokens]]\nhash = \"{HASH}\"\naccount = \"b\"\nprofile = \"suport\"\n\
         [[tokens]]\nhash = \"cs_the-token-itself\"\naccount = \"\"\nlabel = \"a\\nb\"\n\
         [[tokens]]\naccount = \"a\"\nexpires = \"2027-01-01\"\n\
         [[tokens]]\nhash = \"{}\"\nexpires = 2027-01-01T00:00:00\n\
         [[tokens]]\nname = \"x\"\n\
         [oauth]\nissuer = \"http://login.example.com\"\naudience = \"\"\njwks_url = \"https://a/b\"\njwks_file = \"x\"\n\
         scopes = {{ \"a b\" = \"root\", c = 7 }}\nrequest_scopes = [\"d\"]\nkeys = 1\n",
        HASH.replace("ba78", "0000")
    );
    let said = parse(&text).unwrap_err();
    for expected in [
        "toml:5:8: tokens: this token is at /etc/cs/countersign.toml:2:8 already",
        "toml:7:11: tokens: there is no profile \"suport\": it is one of minimal, readonly, write, admin",
        "toml:9:8: hash: a hash is written sha256: and 64 hexadecimal digits",
        "toml:10:11: account: an account takes 1 to 255 bytes",
        "toml:11:9: label: a label takes 1 to 255 bytes, with a letter or digit, without spaces at its ends and without invisible characters",
        "toml:14:11: expires: it takes a date and a time with its offset, without quotes: 2027-01-01T00:00:00Z",
        "toml:17:11: expires: it takes a date and a time with its offset",
        "toml:19:1: there is no key tokens.name; the keys here are: hash, account, profile, databases, label, expires",
        "toml:21:10: issuer: it must begin with https://",
        "toml:22:12: audience: it is empty",
        "toml:24:13: jwks_file: jwks_url is there as well: keep one of them",
        "toml:25:12: scopes: \"a b\" is no scope",
        "toml:25:20: scopes: there is no profile \"root\"",
        "toml:25:32: scopes: \"c\" gives the name of a profile, in quotes",
        "toml:26:19: request_scopes: \"d\" is not in scopes",
        "toml:27:1: there is no key oauth.keys; the keys here are: issuer, audience, jwks_url, jwks_file, account_claim, ",
    ] {
        assert!(said.contains(expected), "{expected} is missing in:\n{said}");
    }
    assert_eq!(said.lines().count(), 16, "{said}");
    assert!(!said.contains("the-token-itself"), "{said}");

    let said = parse("[[tokens]]\nprofile = \"write\"\n[oauth]\nlabel_claim = \"x\"\n").unwrap_err();
    for expected in [
        "toml:1:1: tokens: hash is missing",
        "toml:1:1: tokens: account is missing",
        "toml:3:1: oauth: no scope gives a profile, so no call could succeed: scopes = {",
        "toml:3:1: oauth: issuer is missing",
    ] {
        assert!(said.contains(expected), "{expected} is missing in:\n{said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");
    let url = "[oauth]\nissuer = \"https://a\"\naudience = \"b\"\nscopes = { c = \"write\" }\njwks_url = ";
    for (given, why) in [
        (
            "\"http://login.example.com/keys\"",
            "jwks_url: it must begin with https:// (http:// is for this machine only",
        ),
        ("\"keys\"", "jwks_url: it is not a URL"),
        ("\"https://me:hunter2@a/keys\"", "jwks_url: it must not contain a user name"),
        ("7", "jwks_url: invalid type"),
    ] {
        let said = parse(&format!("{url}{given}\n")).unwrap_err();
        assert!(said.contains(why) && said.lines().count() == 1 && !said.contains("hunter2"), "{said}");
    }
    assert!(parse(&format!("{url}\"http://127.0.0.1:8080/keys\"\n")).is_ok());
    let query = url.replace("//a", "//a?b");
    assert!(
        parse(&format!("{query}\"https://a/keys\"")).unwrap_err().contains("toml:2:10: issuer: an issuer has no query")
    );
    assert!(parse("tokens = 3").unwrap_err().contains("each written as [[tokens]]"));
    assert!(parse("tokens = [3]").unwrap_err().contains("each written as [[tokens]]"));
    assert!(parse("[tokens]\nhash = \"x\"").unwrap_err().contains("each written as [[tokens]]"));
    for oauth in ["oauth = 3", "oauth = [3]", "oauth = [[]]"] {
        let said = parse(oauth).unwrap_err();
        assert!(said.contains("written as [oauth], or a list of tables, each written as [[oauth]]"), "{said}");
    }
    assert_eq!(
        parse("[profiles.Big]\naccess = [\"read\"]\n[[tokens]]\nhash = \"x\"\naccount = \"a\"\nprofile = \"Big\"\n")
            .unwrap_err()
            .lines()
            .count(),
        2,
        "the profile is there, though it has a mistake"
    );
}

#[test]
fn addresses_are_read_as_clients_write_them_and_a_pattern_is_a_mistake() {
    let text = "[http]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://MCP.example.com:443/\"\n\
                allowed_hosts = [\"Countersign:7777\"]\nallowed_origins = [\"https://App.Example.com\"]\n\
                trusted_proxies = [\"10.0.0.1\", \"FD00::/8\"]\nconnections = 100\n";
    let http = settings(text).http.unwrap();
    assert_eq!(http.trusted_proxies, ["10.0.0.1/32", "fd00::/8"]);
    assert_eq!(http.connections_per_address, 25);
    assert_eq!(http.public_url.as_deref(), Some("https://mcp.example.com"));
    assert_eq!(
        (http.allowed_hosts, http.allowed_origins),
        (vec!["countersign:7777".to_owned()], vec!["https://app.example.com".to_owned()])
    );
    for (key, value) in
        [("allowed_hosts", "*"), ("allowed_hosts", "*.example.com"), ("allowed_origins", "https://*.example.com")]
    {
        let said = parse(&format!("[http]\n{key} = [\"{value}\"]\n")).unwrap_err();
        assert!(
            said.contains(&format!("{key}: {value:?} is not")) && said.contains("listed, there are no patterns"),
            "{said}"
        );
    }
    let said = parse("[http]\ntrusted_proxies = [\"haproxy\"]\n").unwrap_err();
    assert!(said.contains("trusted_proxies: \"haproxy\" is not the address of a proxy"), "{said}");
}

#[test]
fn an_issuer_without_an_address_for_clients_is_a_mistake_where_http_is_served() {
    let oauth = "[oauth]\nissuer = \"https://a\"\naudience = \"b\"\nscopes = { c = \"write\" }\njwks_file = \"x\"\n";
    let listen = "listen = \"127.0.0.1:0\"";
    let merge = |http: &str| sources().merge(parse(&format!("[http]\n{http}\n{oauth}")).unwrap());
    let said = merge(listen).unwrap_err().to_string();
    assert!(said.contains("set public_url in [http] (--http-public-url, COUNTERSIGN_HTTP_PUBLIC_URL)"), "{said}");
    assert!(merge(&format!("{listen}\npublic_url = \"https://b\"")).is_ok());
    // The same file for what is no server over HTTP, whose address may be a flag.
    assert!(merge("").is_ok());
}

#[test]
fn several_issuers_are_read_and_share_accounts_only_if_the_file_says_so() {
    let issuer = |url: &str, more: &str| {
        format!(
            "[[oauth]]\nissuer = \"https://{url}\"\njwks_file = \"k\"\naudience = \"me\"\n\
             scopes = {{ a = \"write\" }}\n{more}"
        )
    };
    let prefix = |prefix: &str| format!("account_prefix = \"{prefix}\"\n");
    let both = settings(&[issuer("a", &prefix("a:")), issuer("b", &prefix("b:"))].concat()).oauth;
    let read: Vec<_> = both.iter().map(|own| (own.issuer.as_str(), own.account_prefix.as_str())).collect();
    assert_eq!(read, [("https://a", "a:"), ("https://b", "b:")]);
    assert_eq!(settings(&issuer("a", "")).oauth[0].account_prefix, "oauth:");
    // The same people.
    assert!(parse(&[issuer("a", &prefix("x:")), issuer("b", &prefix("x:"))].concat()).is_ok());
    for (first, second, place) in [
        (String::new(), String::new(), "toml:6:1"),
        (prefix("oauth:"), String::new(), "toml:7:1"),
        (String::new(), prefix("oauth:"), "toml:11:18"),
        (String::new(), prefix("oauth:b:"), "toml:11:18"),
        (prefix("b:"), prefix(""), "toml:12:18"),
        (prefix("ab"), prefix("abc"), "toml:12:18"),
    ] {
        let said = parse(&[issuer("a", &first), issuer("b", &second)].concat()).unwrap_err();
        let expected = format!(
            "{place}: account_prefix: an account of this issuer could be one of the issuer at \
             /etc/cs/countersign.toml:2:10"
        );
        assert!(said.contains(&expected) && said.lines().count() == 1, "{expected} is missing in:\n{said}");
    }
    let said = parse(&[issuer("a", &prefix("a:")), issuer("a", &prefix("b:"))].concat()).unwrap_err();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("toml:8:10: oauth: this issuer is at /etc/cs/countersign.toml:2:10 already"), "{said}");
    // Each mistake of each of them, at its place.
    let said = parse(&[issuer("a", "keys = 1\n"), issuer("b", "label_claim = 7\n")].concat()).unwrap_err();
    assert!(
        said.contains("toml:6:1: there is no key oauth.keys") && said.contains("toml:12:15: label_claim"),
        "{said}"
    );
}
