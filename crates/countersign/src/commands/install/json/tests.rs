use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEY: &str = "mcpServers";

fn entry() -> Value {
    json!({"command": "/bin/countersign", "args": ["serve", "--config", "/etc/c.toml"]})
}

fn installed(text: &str) -> String {
    match put(text, KEY, "shop", &entry(), false).unwrap() {
        Put::Written(text) => text,
        other => panic!("{other:?}"),
    }
}

fn uninstalled(text: &str) -> String {
    take(text, KEY, "shop").unwrap().unwrap()
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
    assert_eq!(put(text, KEY, "shop", &entry(), false).unwrap(), Put::Unchanged);
    let other = json!({"command": "other"});
    assert_eq!(put(text, KEY, "shop", &other, false).unwrap(), Put::Differs(entry()));
    let replaced = "{ \"mcpServers\": { \"shop\": /* x */ {\"command\": \"other\"} } }";
    assert_eq!(put(text, KEY, "shop", &other, true).unwrap(), Put::Written(replaced.to_owned()));
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
        let error = put(text, KEY, "shop", &entry(), false).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert_eq!(error.at, at, "{text}: {error:?}");
    }
}

#[test]
fn the_question_of_an_editor_is_added_and_removed_like_an_entry() {
    let input = json!({"id": "shop-token", "type": "promptString"});
    for before in [
        "{\n  \"inputs\": [\n    {\"id\": \"a\"}, // x\n    {\"id\": \"b\"}\n  ],\n  \"servers\": {}\n}\n",
        "{\"inputs\": [{\"id\": \"a\"}], \"servers\": {}}",
        "{\n  \"inputs\": [ /* none */ ],\n}\n",
        "{\"inputs\": []}",
    ] {
        let Put::Written(with) = put_element(before, "inputs", &input, false).unwrap() else { panic!("{before}") };
        assert_eq!(put_element(&with, "inputs", &input, false).unwrap(), Put::Unchanged);
        assert_eq!(take_element(&with, "inputs", &input).unwrap().unwrap(), before);
    }
    let Put::Written(with) = put_element("{}", "inputs", &input, false).unwrap() else { panic!() };
    assert_eq!(take_element(&with, "inputs", &input).unwrap().unwrap(), "{\n  \"inputs\": []\n}");
    assert!(put_element("{\"inputs\": {}}", "inputs", &input, false).unwrap_err().message.contains("not an array"));
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
        prop_assert_eq!(get(&with, KEY, "shop").unwrap(), Some(entry()));
        prop_assert_eq!(put(&with, KEY, "shop", &entry(), false).unwrap(), Put::Unchanged);
        let without = uninstalled(&with);
        let document = Document::parse(&text).unwrap();
        let is_blank = |object: &Object<'_>| text[object.start() + 1..object.end() - 1].trim().is_empty();
        let servers = property(&document.root, KEY).unwrap();
        match servers.map(|(_, property)| &property.value) {
            Some(Node::Object(servers)) if is_blank(servers) => {
                let expected = format!("{}{{}}{}", &text[..servers.start()], &text[servers.end()..]);
                prop_assert_eq!(without, expected);
            }
            Some(_) => prop_assert_eq!(without, text),
            None => {
                let left = Document::parse(&without).unwrap();
                let (number, added) = property(&left.root, KEY).unwrap().unwrap();
                prop_assert_eq!(&without[added.value.start()..added.value.end()], "{}");
                let bare = spliced(&without, &left.object(&left.root).remove(number));
                if is_blank(&document.root) {
                    prop_assert_eq!(Document::parse(&bare).unwrap().value(), document.value());
                } else {
                    prop_assert_eq!(bare, text);
                }
            }
        }
    }

    #[test]
    fn removing_any_member_keeps_all_others(text in file(), number in 0_usize..4) {
        let document = Document::parse(&text).unwrap();
        let Some((_, property)) = property(&document.root, KEY).unwrap() else { return Ok(()) };
        let Node::Object(servers) = &property.value else { return Ok(()) };
        let Some(member) = servers.properties.get(number) else { return Ok(()) };
        let mut expected = document.value();
        expected[KEY].as_object_mut().unwrap().shift_remove(member.name.as_str());
        let without = take(&text, KEY, member.name.as_str()).unwrap().unwrap();
        prop_assert_eq!(Document::parse(&without).unwrap().value(), expected);
        for comment in &document.comments {
            let inside = member.start() <= comment.range.start && comment.range.end <= member.end();
            prop_assert!(inside || without.contains(&text[comment.range.clone()]));
        }
    }
}
