//! Rules and limits that stop the start, with the tool, the number of the rule and what to do.

use super::{pay, payments};

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_no_harmless_condition_stops_the_start() {
    let db = payments().await;
    db.run(
        "create function social.peek() returns boolean language plpgsql stable as 'begin return exists (select from social.payment); end';
         create function social.twice(n numeric) returns numeric language sql immutable as 'select n * 2'",
    )
    .await;
    for (when, said) in [
        ("param.amount", "rule 1: when: it is of type numeric, and a condition is of type boolean"),
        (
            "param.amonut > 1",
            "42703); a condition can use param.account_id, param.amount, param.purpose, principal.account_id, principal.actor",
        ),
        ("amount > 1 and account_id = 'x'", "column reference \"account_id\" is ambiguous"),
        ("param.amount >", "syntax error"),
        ("true) and (", "syntax error"),
        // S-15
        ("true) or (true", "syntax error at or near \")\""),
        ("param.amount > 5) or (length(param.purpose) > 3", "syntax error"),
        ("true), (true", "syntax error"),
        ("$6::int > 1", "$6 is no parameter of the tool"),
        ("exists (select from social.payment)", "it reads social.payment, and a condition reads no table"),
        ("param.amount > (select count(*) from pg_class)", "it reads pg_catalog.pg_class"),
        ("random() > 0.5", "it may not call random: it is volatile"),
        ("nextval('social.payment_id_seq') > 5", "it may not call nextval: it is volatile"),
        ("pg_notify('a', 'b') is null", "it may not call pg_notify"),
        ("social.peek()", "it may not call peek: it may read tables"),
        ("table_to_xml('social.payment', true, true, '') is null", "it may not call table_to_xml: it reads tables"),
        ("true; drop table social.payment", "42601"),
    ] {
        let rule = format!("[[tool.rule]]\nwhen = \"\"\"{when}\"\"\"\nthen = \"deny\"");
        let message = pay(&rule).compile_error(&db).await;
        assert!(message.contains("tool \"pay\"") || message.contains("pay:"), "{when}: {message}");
        assert!(message.contains(said), "{when}: {message}");
    }
    for when in [
        "social.twice(param.amount) > 5",
        "now() < '2001-01-01'",
        "(param.amount > 5) or (param.amount < 3) -- )",
        "param.purpose ~ '^a' and length(param.purpose) > 3",
        "true",
    ] {
        pay(&format!("[[tool.rule]]\nwhen = \"{when}\"\nthen = \"deny\"")).serve(&db).await.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_declaration_says_what_is_right() {
    let db = payments().await;
    for (more, said) in [
        ("[[tool.rule]]\nthen = \"deny\"", "rule 1: a rule needs when, such as when = \"param.amount > 100\""),
        ("[[tool.rule]]\nwhen = \"true\"", "rule 1: a rule needs then = \"confirm\", \"approve\" or \"deny\""),
        ("[[tool.rule]]\nwhen = \" \"\nthen = \"deny\"", "rule 1: when is empty"),
        ("[[tool.rule]]\nwhen = \"true\"\nthen = \"auto\"", "then: unknown variant `auto`"),
        ("[[tool.rule]]\nwhen = \"true\"\nthen = \"deny\"\nwhy = \"x\"", "unknown field `why`"),
        ("[[tool.rule]]\nwhen = \"true\"\nthen = \"deny\"\nmessage = \"\"", "rule 1: message has 1 to 200 characters"),
        (
            "tier = \"confirm\"\n[[tool.rule]]\nwhen = \"true\"\nthen = \"confirm\"",
            "rule 1: every call of a tool of tier confirm needs that agreement already",
        ),
        ("rule = 5", "rule is written as [[rule]]"),
        ("limit = { calls = 0, per = \"1h\" }", "limit: calls is 1 to 10000"),
        ("limit = { rows = 1000001, per = \"1h\" }", "limit: rows is 1 to 1000000"),
        ("limit = { per = \"1h\" }", "limit: say calls, rows or both, such as calls = 50"),
        (
            "tier = \"confirm\"\nlimit = { rows = 5, per = \"1h\" }",
            "limit: rows refuses no write that was agreed to, and every write of tier confirm is",
        ),
        ("limit = { calls = 1, per = \"2d\" }", "limit: per is a period of at most 24h"),
        ("limit = { calls = 1 }", "missing field `per`"),
        ("limit = { calls = 1, per = \"1h\", by = \"tool\" }", "unknown variant `tool`"),
    ] {
        let message = pay(more).compile_error(&db).await;
        assert!(message.contains(said), "{more}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_requires_agreement_asks_for_what_a_tier_asks_for() {
    let db = payments().await;
    let rule = "[[tool.rule]]\nwhen = \"param.amount > 1\"\nthen = \"approve\"";
    let manifest = pay(rule);
    let text = manifest.text().replace("description = \"How much.\"", "description = \"How much.\"\nsensitive = true");
    let message = testkit::TestManifest::from_text(&text).compile_error(&db).await;
    assert!(message.contains("parameter amount: a proposal keeps its parameters"), "{message}");
    let update = "update social.payment set amount = $2, purpose = $3 where account_id = $1 returning id";
    let start = text.find("insert into").unwrap();
    let end = start + text[start..].find('"').unwrap();
    let text = manifest.text().replace(&manifest.text()[start..end], update);
    let message = testkit::TestManifest::from_text(&text).compile_error(&db).await;
    assert!(message.contains("nobody could see what they agree to"), "{message}");
}
