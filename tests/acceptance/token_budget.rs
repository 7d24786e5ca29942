//! What the tools and typical answers of each profile cost a model, in tokens of the vocabulary `o200k_base`. README has
//! the table. `COUNTERSIGN_TOKENS_OF=FILE` counts another server's result of `tools/list`, too.

use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, database, repository};

/// The tokens of a text.
fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text)
}

/// The text with the same digits in each id and digest: random ones cost 6 tokens more or less.
fn with_fixed_ids(text: &str) -> String {
    let is_of_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    let ids = text.split(|c: char| !is_of_id(c)).filter(|word| word.len() >= 32);
    ids.fold(text.to_owned(), |text, id| {
        let mut digits = "53eb610020604d3cbc17".chars().cycle();
        let fixed: String = id.chars().map(|c| if c == '-' { c } else { digits.next().unwrap() }).collect();
        text.replace(id, &fixed)
    })
}

/// The tokens of what clients pass to a model: name, description and input schema of each tool.
fn tokens_of(tools: &[Value]) -> usize {
    let passed = |tool: &Value| json!({"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]});
    tools.iter().map(|tool| tokens(&passed(tool).to_string())).sum()
}

/// What a model is told of a server at the beginning of a session.
struct Told {
    tools: usize,
    tokens: usize,
    instructions: usize,
}

/// Starts a server with a ledger and without a manifest, unless the arguments name one.
async fn told(db: &Database, arguments: &[&str]) -> Told {
    let command = || {
        let mut command = Server::bare_command(db);
        command.args(arguments);
        command
    };
    let mut server = RawStdioServer::connected(command, "2025-11-25").await;
    let answer = server.request(2, "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let told = Told { tools: tools.len(), tokens: tokens_of(tools), instructions: tokens(server.instructions()) };
    assert!(server.close().await);
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_each_profile_cost_what_the_readme_says() {
    if let Some(file) = std::env::var_os("COUNTERSIGN_TOKENS_OF") {
        let listed: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let tools = listed["tools"].as_array().unwrap();
        println!("{} tools, {} tokens", tools.len(), tokens_of(tools));
    }
    let social = repository().join("manifests/social.toml");
    let social = ["--profile", "write", "--manifest", social.to_str().unwrap()];
    let db = database().await;
    let mut rows = Vec::new();
    for (named, arguments, most) in [
        ("`minimal`", &["--profile", "minimal", "--execute-sql"][..], 1_500),
        ("`readonly`", &["--profile", "readonly"], 1_200),
        ("`write` (the default)", &["--execute-sql"], 3_600),
        ("`admin`", &["--profile", "admin", "--execute-sql"], 4_500),
        ("`write`, with the 14 writes of the demo", &social, 6_000),
    ] {
        let told = told(&db, arguments).await;
        let row = format!("| {named} | {} | {} | {} |", told.tools, told.tokens, told.instructions);
        assert!(told.tokens + told.instructions <= most, "{row}");
        rows.push(row);
    }
    assert_in_readme(&rows.join("\n"));
}

/// The README has the text, or else the test says which text it has to have.
fn assert_in_readme(text: &str) {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    // A sentence is wrapped there.
    let words = |text: &str| text.split([' ', '\n']).collect::<Vec<_>>().join(" ");
    assert!(words(&readme).contains(&words(text)), "README is without\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn typical_answers_cost_what_the_readme_says() {
    let db = database().await;
    db.run("select countersign.track('social.account')").await;
    let server = Server::with(&db, |it| it.arg("--execute-sql")).await;
    let (mut rows, mut unexpected) = (Vec::new(), Vec::new());
    for (named, tool, arguments, most) in [
        (
            "20 rows of 5 columns",
            "query_database",
            json!({"query": "select id, account_id, text, in_reply_to_id, created_at from social.tweet limit 20"}),
            1_200,
        ),
        ("a misspelt column", "query_database", json!({"query": "select txt from social.tweet"}), 120),
        ("a list of 12 tables with comments", "describe_database", json!({}), 550),
        ("a write with its receipt", "like_tweet", json!({"tweet_id": 2}), 170),
        ("the same write again", "like_tweet", json!({"tweet_id": 2}), 120),
        (
            "a proposal that changes one row",
            "execute_sql",
            json!({"sql": "update social.account set display_name = 'New' where account_id = 'default'"}),
            450,
        ),
    ] {
        let answer = server.call(tool, arguments).await;
        let count = tokens(&with_fixed_ids(&answer.to_string()));
        if !(most * 7 / 10..=most).contains(&count) {
            unexpected.push(format!("{named}: {count} tokens: {answer}"));
        }
        rows.push(format!("{named} {most}"));
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    let (last, others) = rows.split_last().unwrap();
    assert_in_readme(&format!("{}, {last}.", others.join(", ")));
}
