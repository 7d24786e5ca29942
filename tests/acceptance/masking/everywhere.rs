//! Every way on which a row leaves the process: no value of a masked column is in any of them.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server, UserAnswer, database, run, run_countersign};

use crate::console::Console;

/// Every value of a masked column has this in it, whatever its type.
const SECRETS: [&str; 2] = ["SECRET", "77007"];

const FIXTURE: &str = "
create schema shop;
create table shop.note (id int primary key, note text, code text, pin int, mail text, kept text unique,
    prefs jsonb default '{}');
insert into shop.note select n, 'SECRETNOTE' || n, 'SECRETCODE' || n, 7700700 + n, 'SECRET' || n || '@x.org', 'kept ' || n
from generate_series(1, 9) n;
select countersign.track('shop.note');
grant usage on schema shop to public;
grant all on shop.note to countersign_writer;
grant select on shop.note to countersign_reader;
";

const MASKS: &str = "
[mask]
\"shop.note.note\" = \"null\"
\"shop.note.code\" = \"refuse\"
\"shop.note.pin\" = \"hash\"
\"shop.note.mail\" = \"partial\"
\"shop.note.prefs\" = { mask = \"null\", profiles = { write = \"none\" } }
";

const TOOLS: &str = r#"
name = "shop"
version = "1"

[[tool]]
name = "drop_note"
access = "write"
description = "Drop a note."
before = "select * from shop.note where id = $1 for update"
sql = "delete from shop.note where id = $1 returning *"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "add_prefs"
access = "write"
tier = "approve"
description = "Add preferences."
before = "select id, prefs from shop.note where id = $1 for update"
sql = "update shop.note set prefs = prefs || $2 where id = $1 returning id, prefs"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "added", description = "What." }]
"#;

/// A tool that sets all masked columns.
fn set_note(name: &str, tier: &str) -> String {
    format!(
        r#"
[[tool]]
name = "{name}"
summary = "Set {{note}}, {{code}}, {{pin}}, {{mail}} of {{id}}"
access = "write"
tier = "{tier}"
description = "Set a note."
before = "select * from shop.note where id = $1 for update"
sql = "update shop.note set note = $2, code = $3, pin = $4, mail = $5 where id = $1 returning *"
rows = "one"
param = [
    {{ name = "id", description = "Which." }}, {{ name = "note", description = "What." }}, {{ name = "code", description = "What." }},
    {{ name = "pin", description = "What." }}, {{ name = "mail", description = "What." }},
]
"#
    )
}

/// A tool that returns masked columns under other names, and expressions over them. It changes none of them, so no
/// other part of an answer knows their values.
fn keep_note(name: &str, tier: &str, returning: &str) -> String {
    format!(
        r#"
[[tool]]
name = "{name}"
access = "write"
tier = "{tier}"
description = "Keep a note."
before = "select id, mail as old_mail, 'was ' || code as old_line from shop.note where id = $1 for update"
sql = """{returning}"""
after = "select n.id, coalesce(n.note, 'none') as new_note from (select * from shop.note) n where id = $1"
rows = "one"
param = [{{ name = "id", description = "Which." }}, {{ name = "kept", description = "What." }}]
"#
    )
}

const RENAMED: &str = "update shop.note n set kept = $2 where id = $1 returning id, kept, note as label, pin as number, \
    mail as address, 'code ' || code as line, mail like 'S%' as same, to_jsonb(n.*) as whole, \
    (select max(m.code) from shop.note m) as top";

const RENAMED_IN_CTE: &str = "with w as (update shop.note set kept = $2 where id = $1 \
    returning id, kept, note as label, pin as number, mail as address, code as line, mail as same, code as whole) \
    select w.*, w.whole || '' as top from w";

/// Arguments that no answer may show. They are longer than what a description shows whole.
fn secrets(id: u32, call: u32) -> Value {
    let long = "x".repeat(300);
    json!({"id": id, "note": format!("SECRETNOTE{id}-{call} {long}"), "code": format!("SECRETCODE{id}-{call}"), "pin": 770_070_000 + call,
        "mail": format!("SECRET{id}-{call}@x.org")})
}

fn config(db: &Database) -> String {
    format!("database_url = {:?}\nlog = \"warn\"\nmanifests = [\"shop.toml\"]\n{MASKS}", db.writer_url())
}

struct Shop {
    db: Database,
    folder: ConfigDir,
    server: Server,
    questions: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    async fn open() -> Self {
        let db = database().await;
        db.run(FIXTURE).await;
        let folder = ConfigDir::new();
        let tools = [("set_note", "auto"), ("confirm_note", "confirm"), ("approve_note", "approve")];
        let tools: String = tools.into_iter().map(|(name, tier)| set_note(name, tier)).collect();
        let keeping = [
            ("keep_note", "auto", RENAMED),
            ("keep_in_cte", "auto", RENAMED_IN_CTE),
            ("ask_to_keep", "approve", RENAMED),
        ];
        let keeping: String = keeping.into_iter().map(|(name, tier, sql)| keep_note(name, tier, sql)).collect();
        folder.write("shop.toml", &format!("{TOOLS}{tools}{keeping}"));
        let mut command = folder.command(&config(&db));
        command.args(["serve", "--profile", "admin"]);
        let questions = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&questions);
        let server = Server::with_user(command, move |question| {
            asked.lock().unwrap().push(question.to_owned());
            Some(UserAnswer::Cancel)
        })
        .await;
        Self { db, folder, server, questions }
    }

    /// Calls a tool. Whatever it answers has no secret in it.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.server.call(tool, arguments.clone()).await;
        no_secret(&format!("{tool} {arguments}"), &answer.to_string());
        answer
    }

    async fn set(&self, id: u32, call: u32) -> Value {
        let answer = self.call("set_note", secrets(id, call)).await;
        assert_eq!(answer["success"], true, "{answer}");
        answer
    }

    /// The refusal of an undo, with conflicts that name this code.
    async fn conflict(&self, write: &Value, code: &str) -> Value {
        let of = json!({"correlation_id": write["meta"]["correlation_id"]});
        let preview = self.call("preview_mutation", json!({"tool": "undo_mutation", "params": of})).await;
        let refused = self.call("undo_mutation", of).await;
        for answer in [&preview, &refused] {
            assert_eq!(answer["error"]["conflicts"][0]["code"], code, "{answer}");
        }
        refused
    }

    async fn detail(&self, answer: &Value) -> Value {
        self.call("get_mutation_detail", json!({"correlation_id": answer["meta"]["correlation_id"]})).await
    }
}

/// Ids and keyed digests are random, and any of them may have the digits of a secret. They are longer than every secret.
#[track_caller]
fn no_secret(what: &str, shown: &str) {
    let ids = shown.split(|c: char| !c.is_ascii_hexdigit() && c != '-').filter(|word| word.len() >= 24);
    let without_ids = ids.fold(shown.to_owned(), |text, id| text.replace(id, "ID"));
    for secret in SECRETS {
        assert!(!without_ids.contains(secret), "{secret} is in the answer of {what}: {shown}");
    }
}

/// The columns of a conflict that differ, by name.
fn column<'a>(refused: &'a Value, name: &str) -> &'a Value {
    let columns = refused["error"]["conflicts"][0]["columns"].as_array().unwrap_or_else(|| panic!("{refused}"));
    columns.iter().find(|column| column["name"] == name).unwrap_or_else(|| panic!("{name}: {refused}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_conflict_or_record_of_an_undo_shows_a_masked_value() {
    // S-1
    let shop = Shop::open().await;
    let (first, second) = (shop.set(1, 1).await, shop.set(1, 2).await);
    let refused = shop.conflict(&first, "changed_since").await;
    assert_eq!(*column(&refused, "note"), json!({"name": "note", "to_restore": null, "left": null, "now": null}));
    assert_eq!(column(&refused, "mail")["now"], "S***@x.org", "{refused}");
    assert_eq!(column(&refused, "pin")["now"].as_str().map(str::len), Some(24), "{refused}");
    let record = shop.detail(&refused).await;
    assert_eq!(record["data"]["error_detail"][0]["code"], "changed_since", "{record}");
    assert_eq!(shop.detail(&second).await["data"]["effects"]["count"], 1);

    // Whole rows: gone, and in the way.
    let third = shop.set(2, 3).await;
    shop.db.run("delete from shop.note where id = 2").await;
    let refused = shop.conflict(&third, "deleted_since").await;
    assert!(column(&refused, "code")["left"].is_null(), "{refused}");
    let dropped = shop.call("drop_note", json!({"id": 3})).await;
    let detail = shop.detail(&dropped).await;
    assert_eq!(detail["data"]["effects"]["rows"][0]["change"], "delete", "{detail}");
    shop.db
        .run("insert into shop.note values (3, 'SECRETNOTE3', 'SECRETCODE3', 7700703, 'SECRET3@x.org', 'again')")
        .await;
    shop.conflict(&dropped, "key_taken").await;
    // A unique value, and what a trigger changes after the undo.
    let dropped = shop.call("drop_note", json!({"id": 4})).await;
    shop.db.run("update shop.note set kept = 'kept 4' where id = 5").await;
    shop.conflict(&dropped, "constraint").await;
    let sixth = shop.set(6, 6).await;
    shop.db.run(
        "create function shop.keep() returns trigger language plpgsql as $$ begin new.note := 'SECRETNOTE by trigger'; return new; end $$;
         create trigger keep before update on shop.note for each row execute function shop.keep()",
    ).await;
    shop.conflict(&sixth, "side_effects").await;

    shop.call("get_recent_mutations", json!({"limit": 100})).await;
    let strict = shop.call("undo_plan", json!({"from": "1h"})).await;
    assert!(strict["data"]["conflict_count"].as_u64().unwrap() > 1, "{strict}");
    assert_eq!((&strict["data"]["added"], &strict["data"]["left_out"]), (&json!([]), &json!([])), "lists: {strict}");
    shop.call("undo_plan", json!({"from": "1h", "mode": "skip"})).await;
    let cascade = shop.call("undo_plan", json!({"from": "1h", "mode": "cascade"})).await;
    assert!(cascade["data"]["added"].is_array(), "{cascade}");
    // An identical call over a row that was changed since.
    let again = shop.call("set_note", secrets(1, 1)).await;
    assert_eq!(again["success"], false, "{again}");
    shop.call("get_recent_mutations", json!({"status": "failure", "limit": 100})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proposal_or_question_shows_a_masked_value() {
    // S-5
    let shop = Shop::open().await;
    let arguments = |call| secrets(1, call);
    shop.call("preview_mutation", json!({"tool": "set_note", "params": arguments(1)})).await;
    let proposed = shop.call("approve_note", arguments(2)).await;
    let proposal = &proposed["data"]["proposal"];
    assert!(proposal["description"].as_str().unwrap().contains("It would update 1 row of shop.note."), "{proposal}");
    // Another profile of the account, with other masks, may have made a proposal.
    let found = shop.call("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    assert_eq!(found["data"]["params"], json!({}), "{found}");
    assert!(
        found["data"]["description"].as_str().unwrap().starts_with("approve_note. It would update 1 row of shop.note."),
        "{found}"
    );
    // What is there now, and who changed it.
    shop.set(1, 9).await;
    shop.db.run("update shop.note set note = 'SECRETNOTE outside', kept = 'other' where id = 1").await;
    shop.db.run("select countersign.request_check(proposal_id) from countersign.proposal").await;
    shop.db.first_value("select 1 from countersign.proposal_check where found is not null").await;
    let changed = shop.call("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    let row = &changed["data"]["since"]["rows"][0];
    assert!(row["columns"]["kept"]["now"] == "other" && row["columns"]["pin"]["now"].is_string(), "{changed}");
    shop.call("confirm_note", arguments(3)).await;
    let listed = shop.call("list_proposals", json!({})).await;
    assert_eq!(listed["data"]["count"], 2, "{listed}");
    let description = listed["data"]["proposals"][0]["description"].as_str().unwrap();
    assert!(description.starts_with("confirm_note. "), "{listed}");
    // The undo of a write as a proposal is a preview with effects.
    let questions = shop.questions.lock().unwrap().join("\n");
    assert!(
        questions.contains("It would update 1 row of shop.note:") && questions.contains("S***@x.org"),
        "{questions}"
    );
    no_secret("the question", &questions);
    // The values differ, and their masks do not.
    for column in ["note", "code", "mail"] {
        let line = format!("\n  {column}: changed (masked)");
        assert!(questions.contains(&line), "{line} is not in {questions}");
    }
    for waiting in listed["data"]["proposals"].as_array().unwrap() {
        let [id, digest] = [&waiting["proposal_id"], &json!("0".repeat(64))].map(Clone::clone);
        shop.call("confirm_proposal", json!({"proposal_id": id, "digest": digest})).await;
        shop.call("reject_proposal", json!({"proposal_id": id, "reason": "no"})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_result_shows_a_masked_column_under_another_name_or_in_an_expression() {
    // S-8
    let shop = Shop::open().await;
    for (id, tool) in [(1, "keep_note"), (2, "keep_in_cte")] {
        let arguments = json!({"id": id, "kept": format!("kept by {tool}")});
        let preview = shop.call("preview_mutation", json!({"tool": tool, "params": arguments})).await;
        let kept = shop.call(tool, arguments.clone()).await;
        let again = shop.call(tool, arguments).await;
        assert_eq!(again["data"]["duplicate"], true, "{again}");
        let record = shop.detail(&kept).await;
        for (answer, result) in [
            (&preview, &preview["data"]["result"]),
            (&kept, &kept["data"]),
            (&again, &again["data"]["cached_result"]),
            (&record, &record["data"]["result"]),
        ] {
            // What is not masked is shown as it is.
            assert_eq!((&result["id"], &result["label"]), (&json!(id), &Value::Null), "{answer}");
            assert_eq!(
                (&result["address"], result["number"].as_str().map(str::len)),
                (&json!("S***@x.org"), Some(24)),
                "{answer}"
            );
            assert_eq!(result["top"], "[redacted]", "{answer}");
            if tool == "keep_note" {
                assert_eq!(
                    (&result["kept"], &result["line"]),
                    (&json!("kept by keep_note"), &json!("[redacted]")),
                    "{answer}"
                );
                assert_eq!((&result["same"], &result["whole"]), (&Value::Null, &Value::Null), "{answer}");
            }
        }
        for (answer, images) in [(&preview, ["before", "after"]), (&record, ["before_image", "after_image"])] {
            let [before, after] = images.map(|image| &answer["data"][image][0]);
            assert_eq!(
                (&before["old_mail"], &before["old_line"]),
                (&json!("S***@x.org"), &json!("[redacted]")),
                "{answer}"
            );
            assert_eq!((&after["id"], &after["new_note"]), (&json!(id), &json!("[redacted]")), "{answer}");
        }
    }
    let proposed = shop.call("ask_to_keep", json!({"id": 3, "kept": "kept by a person"})).await;
    let id = &proposed["data"]["proposal"]["proposal_id"];
    shop.call("get_proposal", json!({"proposal_id": id})).await;
    shop.call("list_proposals", json!({})).await;
    shop.call("get_recent_mutations", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_of_a_profile_without_masks_shows_no_part_of_a_masked_value() {
    // S-9
    let shop = Shop::open().await;
    let mut command = shop.folder.command(&config(&shop.db));
    command.args(["serve", "--profile", "write"]);
    let unmasked = Server::with_user(command, |_| None).await;
    let arguments = json!({"id": 1, "added": {"city": "SECRETCITY"}});
    let proposed = unmasked.call("add_prefs", arguments).await;
    assert!(proposed.to_string().contains("SECRETCITY"), "{proposed}");
    let id = json!({"proposal_id": proposed["data"]["proposal"]["proposal_id"]});
    let pending = shop.call("get_proposal", id.clone()).await;
    shop.call("list_proposals", json!({})).await;
    // The value of the column is another one by then.
    shop.db.run("update shop.note set prefs = '{\"lang\": \"SECRET\"}' where id = 1").await;
    shop.db.run("select countersign.request_check(proposal_id) from countersign.proposal").await;
    shop.db.first_value("select 1 from countersign.proposal_check where found is not null").await;
    let stale = shop.call("get_proposal", id).await;
    for found in [&pending, &stale] {
        assert_eq!((&found["data"]["action"], &found["data"]["params"]), (&json!("add_prefs"), &json!({})), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_that_a_trigger_raises_shows_a_masked_value() {
    let shop = Shop::open().await;
    shop.db
        .run(
            "create table shop.refusing (); grant select on shop.refusing to public;
             create function shop.refuse() returns trigger language plpgsql as $$ begin
                 if not exists (select from shop.refusing) then return new; end if;
                 raise exception 'mail % pin %', old.mail, old.pin using hint = old.note; end $$;
             create trigger refuse before update on shop.note for each row execute function shop.refuse()",
        )
        .await;
    let proposed = shop.call("approve_note", secrets(1, 6)).await["data"]["proposal"].clone();
    shop.db.run("insert into shop.refusing default values").await;
    let refused = shop.call("set_note", secrets(1, 1)).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["sqlstate"]), (&json!("sql_error"), &json!("P0001")));
    assert!(refused["error"]["message"].as_str().unwrap().contains("its message is not shown"), "{refused}");
    shop.call("preview_mutation", json!({"tool": "set_note", "params": secrets(1, 2)})).await;
    shop.call("confirm_note", secrets(1, 3)).await;
    // The proposal fails, and keeps the error.
    crate::proposals::approve(&shop.db, &proposed).await;
    shop.db.until_value("select status from countersign.proposal order by id limit 1", "failed").await;
    let failed = shop.call("get_proposal", json!({"proposal_id": proposed["proposal_id"]})).await;
    assert!(failed["data"]["error_message"].as_str().unwrap().contains("its message is not shown"), "{failed}");
    shop.call("list_proposals", json!({})).await;
    let record = shop.detail(&refused).await;
    assert_eq!((&record["data"]["status"], &record["data"]["error_sqlstate"]), (&json!("failure"), &json!("P0001")));
    let recent = shop.call("get_recent_mutations", json!({})).await;
    let error = recent["data"]["mutations"][0]["error_message"].as_str().unwrap();
    assert!(error.contains("its message is not shown"), "{recent}");
    // A person who may see the values reads the message.
    let written = refused["meta"]["correlation_id"].as_str().unwrap();
    let whole = run_countersign(&shop.db.url(), &["audit", "show", written]).await;
    assert!(whole.out.contains("mail SECRET1@x.org"), "{} {}", whole.out, whole.err);
    // A value of the row in a data exception, and an error that quotes none.
    shop.db
        .run(
            "create or replace function shop.refuse() returns trigger language plpgsql as $$ begin
                 perform old.mail::int; return new; end $$",
        )
        .await;
    let refused = shop.call("set_note", secrets(1, 4)).await;
    assert_eq!(refused["error"]["sqlstate"], "22P02", "{refused}");
    shop.db
        .run("drop trigger refuse on shop.note; alter table shop.note add constraint short check (length(code) < 12)")
        .await;
    let refused = shop.call("set_note", secrets(1, 5)).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("check constraint \"short\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_or_page_of_a_login_without_the_right_shows_a_masked_value() {
    // S-1
    let shop = Shop::open().await;
    let (first, _) = (shop.set(1, 1).await, shop.set(1, 2).await);
    let refused = shop.conflict(&first, "changed_since").await;
    let [written, failed] = [&first, &refused].map(|answer| answer["meta"]["correlation_id"].as_str().unwrap());
    let auditor = format!("auditor_{}", shop.db.name());
    shop.db.run(&format!("create role {auditor} login; grant countersign_operator to {auditor}; grant select (id) on shop.note to {auditor}")).await;
    let config = format!("database_url = {:?}\nlog = \"warn\"\n{MASKS}", shop.db.url_as(&auditor));
    for arguments in [
        vec!["show", written],
        vec!["show", failed],
        vec!["show", failed, "--json"],
        vec!["show", written, "--json", "--full"],
        vec!["list"],
        vec!["list", "--json"],
        vec!["row", "shop.note", "1"],
        vec!["row", "shop.note", "1", "--json"],
    ] {
        let said = run(shop.folder.command(&config).arg("audit").args(&arguments)).await;
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        no_secret(&format!("audit {arguments:?}"), &said.out);
    }

    let path = shop.folder.write("masks.toml", MASKS);
    let operator = shop.db.url();
    let arguments = ["--config", path.to_str().unwrap(), "--operator-url", &operator];
    let console = Console::with(&shop.db, &arguments).await;
    let mut olga = console.browser(&shop.db, "olga", &["--role", "operator"]).await;
    for page in ["/records".to_owned(), format!("/records/{written}"), format!("/records/{failed}")] {
        let shown = olga.get(&page).await;
        assert_eq!(shown.status, 200, "{page}: {}", shown.body);
        no_secret(&page, &shown.body);
    }
    let tried = olga.post(&format!("/records/{written}/try-undo"), &[]).await;
    assert!(tried.status == 409 && tried.body.contains("changed since"), "{}", tried.body);
    no_secret("try-undo", &tried.body);
    let plan = olga.post("/undo", &[("from", "1h"), ("account", "default"), ("tool", "set_note"), ("to", "")]).await;
    let location = plan.headers.get("location").unwrap_or_else(|| panic!("{} {}", plan.status, plan.body));
    let page = olga.get(location.to_str().unwrap()).await;
    no_secret("the plan", &page.body);
    assert!(page.body.contains("Update 1 row of shop.note"), "the plan shows its rows: {}", page.body);
    // The same pages of a person who may see the values have them, so the test would find them.
    let whole = run(shop
        .folder
        .command(&config.replace(&format!("user={auditor}"), "user=postgres"))
        .args(["audit", "show", failed, "--full"]))
    .await;
    assert!(whole.out.contains("SECRETNOTE1"), "{} {}", whole.out, whole.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_does_not_tell_whether_a_masked_value_was_guessed() {
    let shop = Shop::open().await;
    let guess = |code: &str| json!({"tool": "set_note", "params": {"id": 9, "note": "SECRETNOTE9", "code": code, "pin": 7_700_709, "mail": "SECRET9@x.org"}});
    let wrong = shop.call("preview_mutation", guess("SECRETCODE8")).await;
    let right = shop.call("preview_mutation", guess("SECRETCODE9")).await;
    for answer in [&wrong, &right] {
        assert_eq!(answer["data"]["effects"]["count"], 1, "{answer}");
    }
    assert_eq!(wrong["data"], right["data"]);
}
