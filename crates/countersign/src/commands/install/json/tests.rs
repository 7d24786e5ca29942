use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEY: &str = "mcpServers";
const SHOP: Place<'_> = Place::Member("shop");

fn entry() -> Value {
    json!({"command": "/bin/countersign", "args": ["serve", "--config", "/etc/c.toml"]})
}

fn installed(text: &str) -> String {
    match put(text, KEY, SHOP, &entry(), false).unwrap() {
        Put::Written(text) => text,
        other => panic!("{other:?}"),
    }
}

fn uninstalled(text: &str) -> String {
    take(text, KEY, SHOP).unwrap().unwrap()
}

#[test]
fn an_entry_is_written_as_a_person_would() {
    for (before, after) in [
        (
            "",
            "{\n  \"mcpServers\": {\n    \"shop\": {\n      \"command\": \"/bin/countersign\",\n      \
             \"args\": [\"serve\", \"--config\", \"/etc/c.toml\"]\n    }\n  }\n}\n",
        ),
        (
            "{\n\t\"theme\": 1 // mine\n}\n",
            "{\n\t\"theme\": 1, // mine\n\t\"mcpServers\": {\n\t\t\"shop\": {\n\t\t\t\"command\": \"/bin/countersign\",\n\t\t\t\
             \"args\": [\"serve\", \"--config\", \"/etc/c.toml\"]\n\t\t}\n\t}\n}\n",
        ),
        (
            "{\"mcpServers\":{\"a\":{\"url\":\"u\"},\"b\":{}}}",
            "{\"mcpServers\":{\"a\":{\"url\":\"u\"},\"b\":{},\"shop\": {\"command\": \"/bin/countersign\", \
             \"args\": [\"serve\", \"--config\", \"/etc/c.toml\"]}}}",
        ),
        (
            "{\r\n  \"mcpServers\": {\r\n    \"a\": {}, /* one */ // two\r\n    // three\r\n  },\r\n}\r\n",
            "{\r\n  \"mcpServers\": {\r\n    \"a\": {}, /* one */ // two\r\n    \"shop\": {\r\n      \
             \"command\": \"/bin/countersign\",\r\n      \"args\": [\"serve\", \"--config\", \"/etc/c.toml\"]\r\n    },\r\n    \
             // three\r\n  },\r\n}\r\n",
        ),
    ] {
        assert_eq!(installed(before), after);
    }
}

#[test]
fn an_entry_that_is_there_is_compared_by_its_meaning_and_replaced_in_its_place() {
    let text = "{ \"mcpServers\": { \"shop\": /* x */ {\"args\": [\"serve\",\"--config\" , \"/etc/c.toml\"], \"command\": \
                \"\\/bin/countersign\"} } }";
    assert_eq!(put(text, KEY, SHOP, &entry(), false).unwrap(), Put::Unchanged);
    let other = json!({"command": "other"});
    assert_eq!(put(text, KEY, SHOP, &other, false).unwrap(), Put::Differs(entry()));
    let replaced = "{ \"mcpServers\": { \"shop\": /* x */ {\"command\": \"other\"} } }";
    assert_eq!(put(text, KEY, SHOP, &other, true).unwrap(), Put::Written(replaced.to_owned()));
}

#[test]
fn a_text_that_cannot_be_edited_is_an_error_with_its_place() {
    for (text, at, message) in [
        ("{\"a\": 1", 0, "this is not JSON: Unterminated object"),
        ("{\"a\" 1}", 5, "Expected colon"),
        ("{\"a\": 1 \"b\": 2}", 7, "Expected comma"),
        ("{a: 1}", 1, "this is not JSON"),
        ("{'a': 1}", 1, "Single-quoted"),
        ("{} {}", 3, "more than one JSON value"),
        ("[]", 0, "the file is an array and not an object"),
        ("null", 0, "the file is null and not an object"),
        ("// only a comment\n", 18, "the file has no JSON value"),
        ("{\"mcpServers\": []}", 15, "\"mcpServers\" is an array and not an object"),
        ("{\"mcpServers\": null}", 15, "\"mcpServers\" is null and not an object"),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", 19, "\"mcpServers\" is there twice"),
        ("{\"mcpServers\": {\"shop\": 1, \"shop\": 2}}", 27, "\"shop\" is there twice"),
    ] {
        let error = put(text, KEY, SHOP, &entry(), false).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert_eq!(error.at, at, "{text}: {error:?}");
    }
}

#[test]
fn the_question_of_an_editor_is_added_and_removed_like_an_entry() {
    let input = json!({"id": "shop-token", "type": "promptString"});
    let question = Place::Element("shop-token");
    for before in [
        "{\n  \"inputs\": [\n    {\"id\": \"a\"}, // x\n    {\"id\": \"b\"}\n  ],\n  \"servers\": {}\n}\n",
        "{\"inputs\": [{\"id\": \"a\"}], \"servers\": {}}",
        "{\n  \"inputs\": [ /* none */ ],\n}\n",
        "{\"inputs\": []}",
    ] {
        let Put::Written(with) = put(before, "inputs", question, &input, false).unwrap() else { panic!("{before}") };
        assert_eq!(put(&with, "inputs", question, &input, false).unwrap(), Put::Unchanged);
        assert_eq!(take(&with, "inputs", question).unwrap().unwrap(), before);
    }
    let Put::Written(with) = put("{}", "inputs", question, &input, false).unwrap() else { panic!() };
    assert_eq!(take(&with, "inputs", question).unwrap().unwrap(), "{\n  \"inputs\": []\n}");
    assert!(put("{\"inputs\": {}}", "inputs", question, &input, false).unwrap_err().message.contains("not an array"));
}

fn value(document: &Document<'_>) -> Value {
    document.root.clone().into()
}

/// JSON with comments, as files of people are.
fn file() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/*,{}\" \\\\é]{0,6}".prop_map(Value::from),
    ];
    let tree = scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(Value::from_iter),
        ]
    });
    let members = proptest::collection::btree_map("[a-z]{1,5}", tree.clone(), 0..4).prop_map(Value::from_iter);
    let servers = proptest::collection::btree_map("[a-r]{1,5}", tree, 0..4).prop_map(Value::from_iter);
    let root = (members, proptest::option::of(servers)).prop_map(|(mut root, servers): (Value, Option<Value>)| {
        servers.into_iter().for_each(|servers| root[KEY] = servers);
        root
    });
    (root, proptest::collection::vec(any::<u8>(), 64), any::<bool>()).prop_map(|(root, choices, crlf)| {
        let mut text = String::new();
        render(&root, &mut choices.into_iter().cycle(), &mut text);
        if crlf { text.replace('\n', "\r\n") } else { text }
    })
}

fn render(value: &Value, choices: &mut impl Iterator<Item = u8>, text: &mut String) {
    let trivia = ["", "", " ", "\n", "\n  ", "\n\t", " // c, }\n", " /* c, } */ ", "\n  // c\n  ", "/**/", "\n\n    "];
    let mut gap = |text: &mut String| text.push_str(trivia[choices.next().unwrap() as usize % trivia.len()]);
    gap(text);
    let (open, close, members): (_, _, Vec<(Option<&str>, &Value)>) = match value {
        Value::Object(members) => ('{', '}', members.iter().map(|(key, value)| (Some(key.as_str()), value)).collect()),
        Value::Array(elements) => ('[', ']', elements.iter().map(|element| (None, element)).collect()),
        scalar => {
            text.push_str(&scalar.to_string());
            return gap(text);
        }
    };
    text.push(open);
    let count = members.len();
    for (number, (key, value)) in members.into_iter().enumerate() {
        if let Some(key) = key {
            trivia_then(text, &trivia, choices, &format!("{}", Value::from(key)));
            trivia_then(text, &trivia, choices, ":");
        }
        render(value, choices, text);
        if number + 1 < count || choices.next().unwrap().is_multiple_of(3) {
            text.push(',');
        }
    }
    trivia_then(text, &trivia, choices, &close.to_string());
    text.push_str(trivia[choices.next().unwrap() as usize % trivia.len()]);
}

fn trivia_then(text: &mut String, trivia: &[&str], choices: &mut impl Iterator<Item = u8>, token: &str) {
    text.push_str(trivia[choices.next().unwrap() as usize % trivia.len()]);
    text.push_str(token);
}

proptest! {
    /// The documented differences: an object without anything in it becomes `{}`, and an object that had to be added stays.
    #[test]
    fn an_entry_that_is_removed_again_leaves_the_file_as_it_was(text in file()) {
        let with = installed(&text);
        prop_assert_eq!(get(&with, KEY, SHOP).unwrap(), Some(entry()));
        prop_assert_eq!(put(&with, KEY, SHOP, &entry(), false).unwrap(), Put::Unchanged);
        let without = uninstalled(&with);
        let document = Document::parse(&text).unwrap();
        let is_blank = |node: &Node<'_>| text[node.start() + 1..node.end() - 1].trim().is_empty();
        match document.items(&document.root).find(Place::Member(KEY)).unwrap() {
            Some((_, servers @ Node::Object(_))) if is_blank(servers) => {
                let expected = format!("{}{{}}{}", &text[..servers.start()], &text[servers.end()..]);
                prop_assert_eq!(without, expected);
            }
            Some(_) => prop_assert_eq!(without, text),
            None => {
                let left = Document::parse(&without).unwrap();
                let root = left.items(&left.root);
                let (number, added) = root.find(Place::Member(KEY)).unwrap().unwrap();
                prop_assert_eq!(added.text(&without), "{}");
                let bare = spliced(&without, &root.remove(number));
                if is_blank(&document.root) {
                    prop_assert_eq!(value(&Document::parse(&bare).unwrap()), value(&document));
                } else {
                    prop_assert_eq!(bare, text);
                }
            }
        }
    }

    #[test]
    fn removing_any_member_keeps_all_others(text in file(), number in 0_usize..4) {
        let document = Document::parse(&text).unwrap();
        let Some(servers) = document.holder(KEY, SHOP).unwrap() else { return Ok(()) };
        let Some(member) = servers.items.get(number) else { return Ok(()) };
        let name = member.name.unwrap();
        let mut expected = value(&document);
        expected[KEY].as_object_mut().unwrap().shift_remove(name);
        let without = take(&text, KEY, Place::Member(name)).unwrap().unwrap();
        prop_assert_eq!(value(&Document::parse(&without).unwrap()), expected);
        for comment in document.items(&document.root).comments(0..text.len()) {
            let inside = member.range.start <= comment.range.start && comment.range.end <= member.range.end;
            prop_assert!(inside || without.contains(comment.text(&text)));
        }
    }
}
