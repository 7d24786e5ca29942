use serde_json::json;

use super::*;

fn server() -> Value {
    json!({"enabled": true, "type": "stdio", "name": "shop", "cmd": "/opt/countersign", "args": ["serve", "--log", "warn"],
           "envs": {}, "timeout": 300})
}

const ENTRY: &str = "  shop:
    enabled: true
    type: \"stdio\"
    name: \"shop\"
    cmd: \"/opt/countersign\"
    args:
      - \"serve\"
      - \"--log\"
      - \"warn\"
    envs: {}
    timeout: 300
";

fn written(text: &str, replace: bool) -> String {
    match put(text, "shop", &server(), replace) {
        Ok(Put::Written(text)) => text,
        other => panic!("{text}: {other:?}"),
    }
}

const FILE: &str = "# Mine.
GOOSE_MODEL: gpt-4.1 # the cheap one
extensions: # what it may use
  # For code.
  developer:
    bundled: true
    enabled: true
    description: |
      Edits files,
      and runs commands.

    timeout:

  # Not now.
  'memory': {enabled: false, type: builtin}   # later
GOOSE_MODE: auto
";

#[test]
fn the_entry_is_directly_below_its_key_and_everything_else_stays() {
    let with = written(FILE, false);
    let (before, after) = FILE.split_at(FILE.find("  # For code.").unwrap());
    assert_eq!(with, format!("{before}{ENTRY}{after}"));
    assert_eq!(get(&with, "shop").unwrap(), Some(server()));
    assert_eq!(put(&with, "shop", &server(), true).unwrap(), Put::Unchanged);
    assert_eq!(take(&with, "shop").unwrap().as_deref(), Some(FILE));
    assert_eq!(take(FILE, "shop").unwrap(), None);
}

#[test]
fn an_entry_of_any_form_is_shown_replaced_and_removed() {
    for (name, left) in [
        ("developer", FILE.replace(&FILE[FILE.find("  developer").unwrap()..FILE.find("\n  # Not now.").unwrap()], "")),
        ("memory", FILE.replace("  'memory': {enabled: false, type: builtin}   # later\n", "")),
    ] {
        assert_eq!(take(FILE, name).unwrap(), Some(left), "{name}");
        let Put::Differs(current) = put(FILE, name, &server(), false).unwrap() else { panic!("{name}") };
        assert!(current["enabled"].is_boolean(), "{current}");
        let Put::Written(replaced) = put(FILE, name, &server(), true).unwrap() else { panic!("{name}") };
        assert_eq!(get(&replaced, name).unwrap(), Some(server()), "{replaced}");
        assert!(replaced.contains("# For code.") && replaced.ends_with("GOOSE_MODE: auto\n"), "{replaced}");
    }
}

#[test]
fn files_without_servers_get_the_mapping() {
    for (before, text, after) in [
        ("", "", ""),
        ("# Nothing yet.\n", "", ""),
        ("GOOSE_MODEL: x", "\n", ""),
        ("GOOSE_MODEL: x\r\n", "", ""),
        ("", "extensions: {} # none\n", "A: 1\n"),
        ("A: 1\n", "extensions:\n", ""),
        ("A: 1\n", "extensions: null", ""),
    ] {
        let file = format!("{before}{}{after}", if text == "\n" { "" } else { text });
        let with = written(&file, false);
        assert!(with.starts_with(before.trim_end()) && with.ends_with(after), "{with}");
        assert_eq!(get(&with, "shop").unwrap(), Some(server()), "{with}");
        assert_eq!(with.contains('\r'), file.contains('\r'), "{with:?}");
        let left = take(&with, "shop").unwrap().unwrap();
        assert!(left.contains("extensions: {}"), "an entry is removed, and the mapping stays: {left}");
        assert_eq!(get(&written(&left, false), "shop").unwrap(), Some(server()), "{left}");
    }
}

#[test]
fn what_has_no_lines_of_its_own_is_left_to_people() {
    for (text, at, words) in [
        ("{extensions: {a: {b: c}}}", 0, "by hand"),
        ("A: 1\nextensions: {a: {b: c}}\n", 17, "by hand"),
        ("- a\n", 0, "by hand"),
        ("a: 1\n---\nb: 2\n", 5, "second document"),
        ("a: [1\nb: 2\n", 7, "this is not YAML"),
        ("extensions: text\n", 12, "by hand"),
    ] {
        let error = put(text, "shop", &server(), false).unwrap_err();
        assert!(error.message.contains(words), "{text}: {error:?}");
        assert_eq!(error.at, at, "{text}: {error:?}");
    }
    // An entry that others refer to, and text that would be another document.
    let anchored = "extensions:\n  shop: &it\n    enabled: true\n  other: *it\n";
    assert!(take(anchored, "shop").is_err());
    assert!(put("a: 1\n...\n", "shop", &server(), false).is_err());
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(put(&deep, "shop", &server(), false).is_err());
}

#[test]
fn names_and_texts_are_never_anything_else() {
    for name in ["true", "No", "7", "a b", "x: y", "ü#"] {
        let text = written_as(name, json!({"cmd": "a: b # c", "args": ["- x", "\"", "é\u{7}", "null"]}));
        assert_eq!(get(&text, name).unwrap().unwrap()["args"], json!(["- x", "\"", "é\u{7}", "null"]), "{text}");
    }
}

fn written_as(name: &str, value: Value) -> String {
    match put(FILE, name, &value, false) {
        Ok(Put::Written(text)) => text,
        other => panic!("{name}: {other:?}"),
    }
}
