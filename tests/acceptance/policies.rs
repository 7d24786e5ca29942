//! Rules of a tool and the limit of its calls: the policy gate, whose decisions have a log of their own.

mod checks;
mod limits;
mod rows;

use std::sync::{Arc, Mutex};

use serde_json::json;
use testkit::{Database, Proxy, Server, TestManifest, UserAnswer, database};

use crate::proposals::agreement;
use crate::samples::sample;

/// A tool that pays, with these further lines: rules, a limit.
pub(crate) fn pay(more: &str) -> TestManifest {
    TestManifest::new(&format!(
        "[[tool]]\nname = \"pay\"\naccess = \"write\"\ndescription = \"Pay an amount.\"\n\
         sql = \"insert into social.payment (account_id, amount, purpose) values ($1, $2, $3) returning id, amount\"\n\
         rows = \"one\"\nundo = {{ irreversible = \"It is paid.\" }}\n{more}\n\
         [[tool.param]]\nname = \"account_id\"\nfrom = \"principal.account_id\"\n\
         [[tool.param]]\nname = \"amount\"\ndescription = \"How much.\"\n\
         [[tool.param]]\nname = \"purpose\"\ndescription = \"What for.\"\noptional = true\n"
    ))
}

pub(crate) async fn payments() -> Database {
    let db = database().await;
    db.run(
        "create table social.payment (id bigint generated always as identity primary key, account_id text not null,
             amount numeric not null check (amount < 1000000), purpose text)",
    )
    .await;
    db
}

pub(crate) async fn paid(db: &Database) -> Vec<Vec<String>> {
    db.rows("select amount from social.payment order by id").await
}

/// Every decision in the policy log, the oldest first.
pub(crate) async fn decisions(db: &Database) -> Vec<Vec<String>> {
    db.rows("select outcome, rule, matched from countersign.policy_log order by id").await
}

pub(crate) async fn records(db: &Database) -> String {
    db.value("select count(*) from countersign.mutation").await
}

const RULES: &str = r#"
[[tool.rule]]
when = "param.amount > 100"
then = "confirm"

[[tool.rule]]
when = "param.amount > 1000 or $2 < 0"
then = "approve"
message = "Large payments are approved by accounting."

[[tool.rule]]
when = '''param.amount > 10000
   or param.purpose ilike '%gift%' -- nobody gives gifts'''
then = "deny"
message = "Neither gifts nor more than 10000."
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_strictest_rule_that_matches_decides() {
    let db = payments().await;
    let server = pay(RULES).serve(&db).await;
    let call = |amount: i64, purpose: &str| json!({"amount": amount, "purpose": purpose});
    let done = server.succeed("pay", call(100, "rent")).await;
    assert_eq!((paid(&db).await, records(&db).await), (vec![vec!["100".to_owned()]], "1".to_owned()));

    let confirm = server.propose("pay", call(101, "rent")).await;
    assert_eq!(confirm["tier"], "confirm", "{confirm}");
    assert_eq!(confirm["preview"]["rule"], json!({"number": 1, "when": "param.amount > 100", "then": "confirm"}));
    let said = confirm["description"].as_str().unwrap();
    assert!(said.ends_with("Rule 1 of the tool requires approval (if param.amount > 100)"), "{said}");
    let approve = server.propose("pay", call(1001, "rent")).await;
    assert_eq!((&approve["tier"], &approve["preview"]["rule"]["number"]), (&json!("approve"), &json!(2)));
    let message = "requires approval (if param.amount > 1000 or $2 < 0): Large payments are approved by accounting.";
    assert!(approve["description"].as_str().unwrap().ends_with(message), "{approve}");

    for (amount, purpose) in [(10_001, "rent"), (1, "a Gift")] {
        let error = server.fail("pay", call(amount, purpose), "rule_denied").await;
        let message = "rule 3 of pay refuses this call: Neither gifts nor more than 10000.; nothing was written";
        assert_eq!((&error["message"], &error["retryable"]), (&json!(message), &json!(false)));
    }
    assert_eq!((paid(&db).await.len(), records(&db).await), (1, "1".to_owned()), "no record of a refused call");
    assert_eq!(db.value("select count(*) from countersign.attempt").await, "0");
    let expected = [
        ["run", "NULL", "NULL"],
        ["confirm", "1", "{1}"],
        ["approve", "2", "{1,2}"],
        ["deny", "3", "{1,2,3}"],
        ["deny", "3", "{3}"],
    ];
    assert_eq!(decisions(&db).await, expected);
    let logged = "select correlation_id, account_id, tool_name, client_name is not null, login = session_user from countersign.policy_log";
    let first = db.rows(&format!("{logged} order by id limit 1")).await.concat();
    let receipt = done["meta"]["correlation_id"].as_str().unwrap();
    assert_eq!(first, [receipt, "default", "pay", "t", "f"], "the record that the decision is about");
}

#[tokio::test(flavor = "multi_thread")]
async fn null_counts_as_true() {
    let db = payments().await;
    let server = pay(RULES).serve(&db).await;
    // The purpose is NULL, and so is the third condition.
    server.fail("pay", json!({"amount": 5}), "rule_denied").await;
    assert_eq!(decisions(&db).await, [["deny", "3", "{3}"]]);
    assert_eq!(paid(&db).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_a_rule_required_is_executed_after_the_agreement_and_not_judged_again() {
    let db = payments().await;
    let server = pay(RULES).serve(&db).await;
    let call = |amount: i64| json!({"amount": amount, "purpose": "rent"});
    let confirm = server.propose("pay", call(500)).await;
    let approve = server.propose("pay", call(5000)).await;
    server.fail("confirm_proposal", agreement(&approve), "not_permitted").await;
    let done = server.succeed("confirm_proposal", agreement(&confirm)).await;
    assert_eq!(done["data"]["result"]["amount"], 500, "{done}");
    crate::proposals::approve(&db, &approve).await;
    db.until_value("select count(*) from social.payment", "2").await;
    assert_eq!(decisions(&db).await, [["confirm", "1", "{1}"], ["approve", "2", "{1,2}"]]);
    // The same call again is the duplicate of the write, not another proposal, and no decision.
    let again = server.succeed("pay", call(500)).await;
    assert_eq!(again["data"]["duplicate"], true, "{again}");
    assert_eq!(decisions(&db).await.len(), 2);

    // A rule that has changed since makes the proposal stale.
    let open = server.propose("pay", call(700)).await;
    let other = pay(&RULES.replace("param.amount > 100\"", "param.amount > 200\"")).serve(&db).await;
    other.fail("confirm_proposal", agreement(&open), "proposal_stale").await;
    assert_eq!(paid(&db).await, [["500"], ["5000"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_a_client_is_asked_if_a_rule_says_so() {
    let db = payments().await;
    for (answer, written) in [(UserAnswer::Decline, 0), (UserAnswer::Accept, 1)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let user = move |question: &str| {
            heard.lock().unwrap().push(question.to_owned());
            Some(answer)
        };
        let server = Server::with_user(pay(RULES).command(&db), user).await;
        server.succeed("pay", json!({"amount": 7, "purpose": format!("tea {written}")})).await;
        assert_eq!(asked.lock().unwrap().len(), 0, "nobody is asked about 7");
        let answered = server.call("pay", json!({"amount": 500, "purpose": "rent"})).await;
        assert_eq!(answered["success"], written == 1, "{answered}");
        let questions = asked.lock().unwrap().clone();
        assert!(
            matches!(questions.as_slice(), [one] if one.contains("Rule 1 of the tool requires approval")),
            "{questions:?}"
        );
        let large = "select count(*) from social.payment where amount = 500";
        assert_eq!(db.value(large).await, written.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_raise_the_tier_of_a_tool_and_know_the_principal() {
    let db = payments().await;
    let rules = "tier = \"confirm\"\n\
        [[tool.rule]]\nwhen = \"param.amount > 100\"\nthen = \"approve\"\n\
        [[tool.rule]]\nwhen = \"principal.actor is distinct from 'ann' or param.account_id <> principal.account_id\"\nthen = \"deny\"";
    let manifest = pay(rules);
    let start = async |actor: &[&str]| {
        let mut command = manifest.command(&db);
        command.args(actor);
        Server::start(command).await
    };
    let (ann, bob, nobody) = (start(&["--actor", "ann"]).await, start(&["--actor", "bob"]).await, start(&[]).await);
    assert_eq!(ann.propose("pay", json!({"amount": 1})).await["tier"], "confirm");
    let strict = ann.propose("pay", json!({"amount": 101})).await;
    assert_eq!((&strict["tier"], &strict["preview"]["rule"]["number"]), (&json!("approve"), &json!(1)));
    for server in [bob, nobody] {
        let error = server.fail("pay", json!({"amount": 1}), "rule_denied").await;
        assert!(
            error["message"].as_str().unwrap().starts_with("rule 2 of pay refuses this call: principal.actor is"),
            "{error}"
        );
    }
    let outcomes = [["confirm", "NULL", "NULL"], ["approve", "1", "{1}"], ["deny", "2", "{2}"], ["deny", "2", "{2}"]];
    assert_eq!(decisions(&db).await, outcomes);
    assert_eq!(db.value("select count(*) from countersign.proposal").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_cannot_be_evaluated_lets_nothing_run() {
    let db = payments().await;
    let server = pay("[[tool.rule]]\nwhen = \"1 / param.amount > 5\"\nthen = \"deny\"").serve(&db).await;
    let error = server.fail("pay", json!({"amount": 0}), "invalid_params").await;
    let message = "the rules of the tool cannot be evaluated for this call: division by zero; nothing was written";
    assert_eq!((&error["message"], &error["sqlstate"]), (&json!(message), &json!("22012")));
    server.fail("preview_mutation", json!({"tool": "pay", "params": {"amount": 0}}), "invalid_params").await;
    assert_eq!((paid(&db).await.len(), records(&db).await, decisions(&db).await.len()), (0, "0".to_owned(), 0));
    server.succeed("pay", json!({"amount": 1})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_tools_and_a_preview_name_the_rules() {
    let db = payments().await;
    let limit = "limit = { calls = 50, per = \"90m\", by = \"actor\" }\n";
    let server = pay(&format!("{limit}{RULES}")).serve(&db).await;
    let tools = server.client().list_tools().await.unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "pay").unwrap();
    let description = tool["description"].as_str().unwrap();
    assert!(
        description.starts_with(
            "Pay an amount. Tier auto: written at once. Rule 1: if param.amount > 100, the user has to agree first."
        ),
        "{description}"
    );
    assert!(description.ends_with("Limit: 50 calls in 90 min for each actor."), "{description}");
    let meta = &tool["_meta"];
    let second = json!({"number": 2, "when": "param.amount > 1000 or $2 < 0", "then": "approve", "message": "Large payments are approved by accounting."});
    assert_eq!((&meta["countersign/tier"], &meta["countersign/rules"][1]), (&json!("auto"), &second));
    assert_eq!(meta["countersign/limit"], json!({"calls": 50, "per_s": 5400, "by": "actor"}));

    let preview = async |amount: i64| {
        let params = json!({"amount": amount, "purpose": "rent"});
        server.call("preview_mutation", json!({"tool": "pay", "params": params})).await
    };
    let small = preview(1).await;
    assert_eq!(small["data"]["policy"], json!({"tier": "auto", "rule": null}));
    let large = preview(5000).await;
    assert_eq!(
        (&large["data"]["policy"]["tier"], &large["data"]["policy"]["rule"]["number"]),
        (&json!("approve"), &json!(2))
    );
    assert_eq!(preview(50_000).await["error"]["code"], "rule_denied");
    assert_eq!(decisions(&db).await.len(), 0, "a preview decides nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_a_write_cannot_apply_a_policy_or_read_the_log() {
    let db = payments().await;
    let manifest = pay("");
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    let apply = |mode: &str| {
        format!(
            "select countersign.apply_policy('{mode}', '\\x00', 'pay', 'other', null, null, null, null, null, gen_random_uuid(), \
             'confirm', '{{}}', '{{}}')"
        )
    };
    for (sql, said) in [
        (apply("run").as_str(), "the policy of a call is applied where it is admitted"),
        (apply("refuse").as_str(), "this is for servers, and not for the statements of a write"),
        (apply("preview").as_str(), "this is for servers, and not for the statements of a write"),
        ("select countersign.apply_row_limit(gen_random_uuid(), 1, 1, false)", "applied where a write ends"),
        ("select * from countersign.policy_log", "permission denied"),
        ("delete from countersign.policy_log", "permission denied"),
    ] {
        let error = server.fail("execute_sql", json!({"sql": sql}), "sql_error").await;
        assert_eq!(error["sqlstate"], "42501", "{error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
    }
    assert_eq!(decisions(&db).await.len(), 0);
}

/// Statements and round trips of a call, the fewest of several: the server asks for proposals every second.
async fn cost(manifest: &TestManifest, db: &Database) -> [usize; 2] {
    let proxy = Proxy::before(db);
    let mut command = manifest.command(db);
    command.env("DATABASE_URL", proxy.url());
    let server = db.settled(Server::start(command)).await;
    let mut costs = Vec::new();
    for amount in 0..8 {
        let [statements, pipelines] = proxy.traffic();
        server.succeed("pay", json!({"amount": amount, "purpose": "rent"})).await;
        let [more_statements, more_pipelines] = proxy.traffic();
        costs.push([more_statements - statements, more_pipelines - pipelines]);
    }
    costs.into_iter().min().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_costs_a_transaction_in_front_and_no_round_trip_and_nothing_where_there_is_none() {
    let [db, other, third, fourth] = [payments().await, payments().await, payments().await, payments().await];
    let [statements, round_trips] = cost(&pay(""), &db).await;
    assert_eq!(round_trips, 2, "docs/internals/write-protocol.md");
    // take_slot, the admission, the policy, COMMIT AND CHAIN; `claim` instead of `begin_write`.
    assert_eq!(cost(&pay(RULES), &other).await, [statements + 4, round_trips]);
    let limited = pay(&format!("limit = {{ calls = 50, per = \"1h\" }}\n{RULES}"));
    assert_eq!(cost(&limited, &third).await, [statements + 4, round_trips]);
    let rows_limited = pay(&format!("limit = {{ calls = 50, rows = 50, per = \"1h\" }}\n{RULES}"));
    assert_eq!(cost(&rows_limited, &fourth).await, [statements + 5, round_trips]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_of_the_page_has_the_policy_that_the_page_says() {
    let db = database().await;
    db.run(
        "create schema shop; create table shop.refund (id bigint generated always as identity, order_id bigint, amount numeric, reason text);
         grant usage on schema shop to countersign_writer; grant select, insert on shop.refund to countersign_writer",
    )
    .await;
    let manifest = TestManifest::from_text(&sample("docs/topics/policies.md", "name = \"shop\""));
    let start = async |account: &str| {
        let mut command = manifest.command(&db);
        command.args(["--account", account]);
        Server::start(command).await
    };
    // N-36: the block is a manifest as it stands. N-35: its rules are shown.
    let mut check = tokio::process::Command::new(testkit::countersign());
    check.env("DATABASE_URL", db.writer_url()).arg("check").args(manifest.arguments());
    let shown = String::from_utf8(check.output().await.unwrap().stdout).unwrap();
    for line in [
        "rule 1: confirm if param.amount > 100",
        "rule 2: approve if param.amount > 1000 or principal.account_id = 'trainee'",
        "rule 3: deny if param.reason is null and param.amount > 20",
    ] {
        assert!(shown.lines().any(|shown| shown.trim() == line), "{line}: {shown}");
    }
    let (clerk, trainee) = (start("clerk").await, start("trainee").await);
    let refund = |amount: i64, reason: Option<&str>| match reason {
        Some(reason) => json!({"order_id": 1, "amount": amount, "reason": reason}),
        None => json!({"order_id": 1, "amount": amount}),
    };
    clerk.succeed("refund_order", refund(20, None)).await;
    clerk.succeed("refund_order", refund(100, Some("broken"))).await;
    let error = clerk.fail("refund_order", refund(21, None), "rule_denied").await;
    assert!(
        error["message"].as_str().unwrap().contains("rule 3 of refund_order refuses this call: A refund of more"),
        "{error}"
    );
    assert_eq!(clerk.propose("refund_order", refund(101, Some("lost"))).await["tier"], "confirm");
    assert_eq!(clerk.propose("refund_order", refund(1001, Some("lost"))).await["tier"], "approve");
    assert_eq!(trainee.propose("refund_order", refund(1, Some("late"))).await["tier"], "approve");

    let role = format!("olga_{}", db.name());
    db.run(&format!("create role {role} login; grant countersign_operator to {role}")).await;
    let query = sample("docs/topics/policies.md", "select decided_at");
    let shown = db.rows(&format!("set role {role}; {query}")).await;
    assert_eq!(shown.concat()[1..], ["clerk", "refund_order", "deny", "3", "NULL"].map(str::to_owned)[..]);
}
