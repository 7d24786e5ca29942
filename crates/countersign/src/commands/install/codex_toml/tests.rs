use proptest::prelude::*;
use serde_json::json;

use super::*;

fn entry() -> Value {
    json!({"command": "/bin/countersign", "args": ["serve"], "env": {"A": "1"}})
}

fn installed(text: &str) -> String {
    match put(text, "shop", &entry(), false).unwrap() {
        Put::Written(text) => text,
        other => panic!("{other:?}"),
    }
}

const SECTION: &str =
    "[mcp_servers.shop]\ncommand = \"/bin/countersign\"\nargs = [\"serve\"]\n\n[mcp_servers.shop.env]\nA = \"1\"\n";

#[test]
fn a_table_is_added_at_the_end() {
    assert_eq!(installed(""), SECTION);
    assert_eq!(installed("model = \"x\" # mine\n"), format!("model = \"x\" # mine\n\n{SECTION}"));
    assert_eq!(installed("model = \"x\""), format!("model = \"x\"\n\n{SECTION}"));
    let crlf = SECTION.replace('\n', "\r\n");
    assert_eq!(installed("a = 1\r\n"), format!("a = 1\r\n\r\n{crlf}"));
}

#[test]
fn a_table_is_removed_from_any_place_with_the_tables_below_it() {
    let rest = "a = 1\n\n[mcp_servers.b]\ncommand = \"b\"\n# of c\n[mcp_servers.c]\nargs = [\n  \"x\",\n]\n";
    let text = format!(
        "a = 1\n\n{SECTION}\n[mcp_servers.shop.tools.\"x\"]\nmode = 1\n{}",
        rest.strip_prefix("a = 1\n").unwrap()
    );
    assert_eq!(take(&text, "shop").unwrap().unwrap(), rest);
    let scattered =
        "[mcp_servers.shop]\ncommand = \"x\" # y\n\n[other]\na = 1\n\n[mcp_servers.shop.env]\nA = \"1\"\n\n[last]\n";
    assert_eq!(take(scattered, "shop").unwrap().unwrap(), "\n[other]\na = 1\n\n[last]\n");
    assert_eq!(take(rest, "shop").unwrap(), None);
}

#[test]
fn a_table_that_is_there_is_compared_and_replaced_in_its_place() {
    let text = format!("a = 1\n\n{}\n[z]\n", SECTION.replace("\"serve\"", "\"old\""));
    let Put::Differs(current) = put(&text, "shop", &entry(), false).unwrap() else { panic!() };
    assert_eq!(current["args"], json!(["old"]));
    let Put::Written(replaced) = put(&text, "shop", &entry(), true).unwrap() else { panic!() };
    assert_eq!(replaced, format!("a = 1\n\n{SECTION}\n[z]\n"));
    assert_eq!(put(&replaced, "shop", &entry(), true).unwrap(), Put::Unchanged);
}

#[test]
fn a_text_that_cannot_be_edited_is_an_error_with_its_place() {
    for (text, at, message) in [
        ("a = \n", 4, "this is not TOML"),
        ("a = 1\n[b\n", 8, "this is not TOML"),
        ("mcp_servers = 1\n", 14, "mcp_servers is of type integer and not a table"),
        ("mcp_servers = {}\n", 0, "edit it by hand"),
    ] {
        let error = put(text, "shop", &entry(), false).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert_eq!(error.at, at, "{text}: {error:?}");
    }
    for text in ["[mcp_servers]\nshop = {command = \"x\"}\n", "[mcp_servers]\nshop.command = \"x\"\n"] {
        assert!(take(text, "shop").unwrap_err().message.contains("not written as a table"), "{text}");
    }
}

/// TOML as files of people are.
fn file() -> impl Strategy<Value = String> {
    let line = prop_oneof![Just("\n"), Just("# c [x]\n"), Just("x = 1 # c\n"), Just("y = [\n  1, # d\n]\n")];
    let body = |with_keys: bool| {
        let lines = proptest::collection::vec(line.clone(), 0..5);
        lines.prop_map(move |lines| {
            let mut seen = std::collections::HashSet::new();
            let own = lines.into_iter().filter(|line| !line.contains('=') || with_keys && seen.insert(*line));
            own.collect::<String>()
        })
    };
    let servers = proptest::collection::vec(body(true), 0..4);
    (body(true), servers, body(true), any::<bool>(), any::<bool>()).prop_map(|(top, servers, last, parent, crlf)| {
        let mut text = top;
        if parent {
            text.push_str("[mcp_servers]\n");
        }
        for (number, body) in servers.into_iter().enumerate() {
            text.push_str(&format!("[mcp_servers.s{number}]\n{body}"));
        }
        text.push_str(&format!("[z]\n{last}"));
        if crlf { text.replace('\n', "\r\n") } else { text }
    })
}

proptest! {
    #[test]
    fn a_table_that_is_removed_again_leaves_the_file_as_it_was(text in file()) {
        let with = installed(&text);
        prop_assert!(with.starts_with(&text));
        prop_assert_eq!(get(&with, "shop").unwrap(), Some(entry()));
        prop_assert_eq!(take(&with, "shop").unwrap().unwrap(), text);
    }
}
