//! What a reviewer sees in the first ten seconds: what would change, how much, the high risks and the first changed columns,
//! before any button; and a decision by keys.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Database, Server, Tab, assert_golden, database};

use super::looks::findings;
use super::review::{BROKEN_NAMES, WINDOWS};
use super::{browser, logged_in, until_executed};
use crate::console::{Console, path, proposed, status};

const SCHEMA: &str = "
create schema sales;
create table sales.product (id int primary key, name text not null, price numeric(10, 2) not null, stock int not null);
create table sales.supplier (id int primary key, name text not null);
create table sales.contract (id int primary key, supplier_id int not null references sales.supplier on delete cascade, signed date not null);
create table sales.delivery (id int primary key, contract_id int not null references sales.contract on delete cascade, sent date not null);
create table sales.delivery_line (id int primary key, delivery_id int not null references sales.delivery on delete cascade, pieces int not null);
create table sales.customer (id int primary key, name text not null, email text not null);
create table sales.orders (id int primary key, customer_id int not null references sales.customer on delete cascade, total numeric not null);
create table sales.salary (id int primary key, employee text not null, department text not null, amount numeric(10, 2) not null);
create table sales.zone (id int primary key, country text not null, shipping numeric(6, 2) not null);
create table sales.setting (id int primary key, document jsonb not null);
do $$ begin
    execute (select 'create table sales.article (id int primary key, name text, ' || string_agg(format('attribute_%s text not null default ''as delivered''', n), ', ') || ')'
        from generate_series(1, 58) n);
    execute (select 'create table sales.sensor (id int primary key, site text not null, ' || string_agg(format('reading_%s numeric not null', n), ', ') || ')'
        from generate_series(1, 10) n);
    execute (select 'insert into sales.sensor select n, ''Hall '' || n, ' || string_agg(format('n %% 40 + %s', n), ', ') || ' from generate_series(1, 100) n'
        from generate_series(1, 10) n);
end $$;
insert into sales.product select n, 'Product ' || n, n % 50 + 9.90, case when n % 20 = 0 then 200 else n % 90 end from generate_series(1, 4000) n;
insert into sales.supplier select n, 'Supplier ' || n from generate_series(1, 9) n;
insert into sales.contract select n, n % 9 + 1, '2026-01-01' from generate_series(1, 36) n;
insert into sales.delivery select n, n % 36 + 1, '2026-02-01' from generate_series(1, 180) n;
insert into sales.delivery_line select n, n % 180 + 1, n from generate_series(1, 540) n;
insert into sales.customer select n, 'Customer ' || n, 'c' || n || '@example.org' from generate_series(1, 80) n;
insert into sales.orders select n, n % 80 + 1, n * 10 from generate_series(1, 400) n;
insert into sales.salary select n, 'Employee ' || n, case when n % 8 = 0 then 'Sales' else 'Storage' end, 3000 + n * 7 from generate_series(1, 216) n;
insert into sales.zone select n, 'Country ' || n, 4.90 + n from generate_series(1, 40) n;
insert into sales.article (id, name) values (1, 'Ladder'), (2, 'Rope');
insert into sales.setting values (1, '{\"page\": {\"theme\": \"dark\", \"size\": 12}, \"mail\": {\"sender\": \"shop@example.org\", \"footer\": \"Bye\"}, \"old\": 1}');
grant usage on schema sales to public;
grant select, insert, update, delete on all tables in schema sales to public;
select countersign.track(c.oid::regclass) from pg_class c where relnamespace = 'sales'::regnamespace and relkind = 'r';
analyze";

const LONG_REASON: &str = "The owner has asked on Monday for new prices, since the supplier raises its own by a tenth in June, \
    and the flyers for the summer are already printed. Products of the last season keep their price until they are sold out, \
    and those in the outlet are not part of it. I have compared the list with the one that was sent by mail, and found three \
    differences, which the owner has confirmed on the phone on Tuesday.";

/// A write, and what of it has to be on the first screen.
struct Case {
    name: &'static str,
    sql: &'static str,
    /// The count in words, without the words between.
    count: &'static str,
    /// The high risks.
    risks: &'static [&'static str],
    /// The first changed columns.
    columns: &'static [&'static str],
}

/// The ten proposals of the design, and one more.
const CASES: [Case; 11] = [
    Case {
        name: "one_row",
        sql: "update sales.product set price = 5.49 where id = 7",
        count: "update 1 sales.product",
        risks: &[],
        columns: &["price"],
    },
    Case {
        name: "eighty_rows",
        sql: "update sales.product set price = round(price * 1.1, 2), stock = 0 where id between 101 and 180",
        count: "update 80 sales.product",
        risks: &[],
        columns: &["price", "stock"],
    },
    Case {
        name: "other_direction",
        sql: "update sales.product\nset price = round(price * case when stock > 150 then 0.9 else 1.05 end, 2)\nwhere id <= 3000",
        count: "update 3000 sales.product",
        risks: &[],
        columns: &["price"],
    },
    Case {
        name: "wide_table",
        sql: "update sales.article set attribute_7 = 'repaired', attribute_50 = 'checked' where id = 1",
        count: "update 1 sales.article",
        risks: &[],
        columns: &["attribute_7", "attribute_50"],
    },
    Case {
        name: "json_document",
        sql: "update sales.setting set document = jsonb_set(document, '{page,theme}', '\"light\"') - 'old' where id = 1",
        count: "update 1 sales.setting",
        risks: &[],
        columns: &["document.page.theme"],
    },
    Case {
        name: "cascade",
        sql: "delete from sales.supplier where id = 8",
        count: "delete 1 sales.supplier change 84 3",
        risks: &[],
        columns: &["name"],
    },
    Case {
        name: "every_row",
        sql: "update sales.zone set shipping = 0",
        count: "update 40 sales.zone",
        risks: &["every row"],
        columns: &["shipping"],
    },
    Case {
        name: "times_hundred",
        sql: "update sales.salary set amount = amount * 100 where department = 'Sales'",
        count: "update 27 sales.salary",
        risks: &[],
        columns: &["amount"],
    },
    Case {
        name: "customer_with_orders",
        sql: "delete from sales.customer where id = 5",
        count: "delete 1 sales.customer change 5 sales.orders",
        risks: &[],
        columns: &["name", "email"],
    },
    Case {
        name: "generated_values",
        sql: "update sales.customer set email = md5(random()::text) where id between 1 and 50",
        count: "update 50 sales.customer",
        risks: &[],
        columns: &["email"],
    },
    // Not one of the ten: more risks than a phone has room for.
    Case {
        name: "twelve_risks",
        sql: "update sales.sensor set site = 'Нall', reading_1 = 900, reading_2 = 900, reading_3 = 900, reading_4 = 900, reading_5 = 900, \
            reading_6 = 900, reading_7 = 900, reading_8 = 900, reading_9 = 900, reading_10 = 900",
        count: "update 100 sales.sensor",
        risks: &["every row", "mixes"],
        columns: &["site", "reading_1"],
    },
];

/// The facts that a window shows before anybody scrolls, in the order in which the page is read. Of a sentence it takes what
/// no other words can say: numbers and names.
const FACTS: &str = r#"(() => {
    scrollTo(0, 0);
    const top = (element) => element.getBoundingClientRect().top;
    const buttons = [...document.querySelectorAll("main button")].filter((one) => one.checkVisibility());
    const fold = Math.min(innerHeight, ...[...buttons, document.querySelector(".decide")].map(top));
    const isSeen = (element) => {
        const box = element.getBoundingClientRect();
        if (!element.checkVisibility() || box.height === 0 || box.top < 0 || box.bottom > fold) return false;
        return element.contains(document.elementFromPoint(box.left + 6, box.top + box.height / 2));
    };
    // High risks of other kinds must be seen, too, and are in no golden file.
    const kinds = { "every row": /every row/, "cannot be undone": /cannot be undone/, mixes: /mixes/, "further rows": /also/, unusual: /statistics/ };
    const kind = (one) => Object.keys(kinds).find((kind) => kinds[kind].test(one.innerText));
    const lines = (one, most) => innerWidth < 640 && one.clientHeight > (most + 1) * 24 ? ", on more lines" : "";
    const said = {
        "main > h1": (one) => `what: ${one.innerText}`,
        "main > .sql": () => "what: the statement",
        "main > .headline": (one) => `how much: ${one.innerText.match(/update|insert|delete|change|\d+|\w+\.\w+/g)?.join(" ")}`,
        ".risks .risk": (one) => kind(one) && `risk: ${kind(one)}${lines(one, 1)}`,
        ".risks .caution, .risks .note": (one) => kind(one) && `${one.className}: ${kind(one)}${lines(one, 2)}`,
        ".more-risks > summary": (one) => one.innerText.match(/\d+ \w+/)?.[0],
        "[aria-labelledby=rows] .column": (one) => `column: ${one.innerText.split(":")[0]}`,
        "[aria-labelledby=rows] .diff:not(.dense) tbody tr": (one) => `column: ${one.cells[0].innerText}`,
        "[aria-labelledby=rows] .dense thead th + th": (one) => `column: ${one.innerText}`,
    };
    const all = [...document.querySelectorAll(Object.keys(said).join())];
    const facts = all.filter(isSeen);
    const words = facts.map((one) => said[Object.keys(said).find((selector) => one.matches(selector))](one)).filter(Boolean);
    const columns = [...new Set(words)].filter((one) => one.startsWith("column: "));
    const problems = [...document.querySelectorAll(".risks .risk")].filter((one) => !isSeen(one)).map((one) => `not seen: ${one.innerText}`);
    if (facts.some((one, index) => index > 0 && top(one) < top(facts[index - 1]))) problems.push("the order is not that of reading");
    const isBefore = (button) => all.some((one) => one.compareDocumentPosition(button) & Node.DOCUMENT_POSITION_PRECEDING);
    const before = buttons.filter(isBefore);
    for (const button of before) problems.push(`a button before the facts: ${button.innerText}`);
    const bars = [...document.querySelectorAll("body *")].filter((one) => ["fixed", "sticky"].includes(getComputedStyle(one).position));
    const approve = buttons.find((one) => one.innerText === "Approve exactly this");
    if (innerWidth >= 640 && approve.getBoundingClientRect().bottom > innerHeight) problems.push("no decision on the first screen");
    if (innerWidth < 640) for (const bar of bars) problems.push(`a bar over the page: ${bar.localName}.${bar.className}`);
    return { facts: [...words.filter((one) => !one.startsWith("column: ")), ...columns.slice(0, 3), `buttons: ${before.length > 0 ? "above" : "below"}`], problems };
})()"#;

/// The facts on the first screen, and what is wrong with it.
async fn first_screen(tab: &Tab, case: &Case) -> (Value, Vec<String>) {
    let found = tab.run(FACTS).await;
    let facts = found["facts"].as_array().unwrap();
    let expected = [format!("how much: {}", case.count)].into_iter();
    let expected = expected.chain(["what: Execute SQL".to_owned(), "what: the statement".to_owned()]);
    let expected = expected.chain(case.risks.iter().map(|risk| format!("risk: {risk}")));
    let expected = expected.chain(case.columns.iter().map(|column| format!("column: {column}")));
    let lacking = expected.filter(|fact| !facts.iter().any(|one| one == fact)).map(|fact| format!("not seen: {fact}"));
    let problems = found["problems"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned());
    (found["facts"].clone(), lacking.chain(problems).collect())
}

/// A database with products and customers, and the console.
struct Sales {
    db: Database,
    console: Console,
    server: Server,
}

impl Sales {
    async fn new() -> Self {
        let db = database().await;
        db.run(SCHEMA).await;
        let console = Console::on(&db).await;
        let server = Self::server(&db, "approve").await;
        Self { db, console, server }
    }

    async fn server(db: &Database, tier: &str) -> Server {
        Server::bare_with(db, |it| {
            it.args(["--execute-sql", "--execute-sql-max-rows", "5000", "--execute-sql-tier", tier])
        })
        .await
    }

    /// The address of the page of a new proposal.
    async fn propose(&self, case: &Case) -> (String, Value) {
        let reason = if case.name == "eighty_rows" { LONG_REASON } else { "The owner has asked for it." };
        let proposal = self.server.propose("execute_sql", json!({"sql": case.sql, "reason": reason})).await;
        (format!("{}{}", self.console.url, path(&proposal)), proposal)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn what_how_much_and_every_high_risk_are_on_the_first_screen_before_the_buttons() {
    let Some(browser) = browser().await else { return };
    let sales = Sales::new().await;
    let tab = logged_in(&browser, &sales.console, &sales.db, "anna", json!({})).await;
    let (mut found, mut proposals) = (Vec::new(), Vec::new());
    for case in &CASES {
        let (url, proposal) = sales.propose(case).await;
        // As it opens after another decision.
        let decided = proposals.first().unwrap_or(&proposal)["proposal_id"].as_str().unwrap().to_owned();
        proposals.push(proposal);
        assert_eq!(tab.open(&format!("{url}?decided={decided}")).await, 200);
        let mut screens = json!({});
        for (width, height) in WINDOWS {
            tab.look(width, height, "light").await;
            let (facts, problems) = first_screen(&tab, case).await;
            found.extend(problems.into_iter().map(|problem| format!("{}, {width} wide: {problem}", case.name)));
            screens[format!("{width}x{height}")] = facts;
            let tall = tab.run("document.documentElement.scrollHeight").await.as_f64().unwrap();
            assert!(tall < if width == 1280 { 3000.0 } else { 4000.0 }, "{}, {width} wide: {tall} px tall", case.name);
            assert_eq!(tab.run(BROKEN_NAMES).await, json!([]), "{}: a name is broken at a width of {width}", case.name);
        }
        found.extend(findings(&tab, &format!("ten seconds: {}", case.name)).await);
        if found.is_empty() {
            assert_golden(&format!("review/ten_seconds/{}", case.name), &screens);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_fact_that_is_not_on_the_first_screen_is_found() {
    let Some(browser) = browser().await else { return };
    let sales = Sales::new().await;
    let tab = logged_in(&browser, &sales.console, &sales.db, "anna", json!({})).await;
    tab.look(400, 800, "light").await;
    let case = CASES.iter().find(|case| case.name == "twelve_risks").unwrap();
    let (url, _) = sales.propose(case).await;
    let decide = "document.querySelector('.decide')";
    for (change, found) in [
        ("", &[][..]),
        ("document.querySelector('h1').style.marginTop = '50rem'", &["what: Execute SQL", "risk: every row"]),
        ("document.querySelector('.headline').style.marginTop = '40rem'", &["how much: update 100 sales.sensor"]),
        ("document.querySelector('.risks').remove()", &["risk: every row", "risk: mixes"]),
        (
            "document.querySelector('.risks li').style.whiteSpace = 'pre-wrap'; document.querySelector('.risks li').textContent += 'x '.repeat(300)",
            &["risk: every row"],
        ),
        ("document.querySelectorAll('#rows ~ *').forEach((one) => one.remove())", &["column: reading_1"]),
        (
            &format!("document.querySelector('.headline').before({decide})"),
            &["a button before the facts: Approve exactly this"],
        ),
        (
            &format!("Object.assign({decide}.style, {{ position: 'fixed', bottom: 0, height: '30rem' }})"),
            &["a bar over the page: section.decide", "column: reading_1"],
        ),
    ] {
        tab.open(&url).await;
        tab.run(change).await;
        let (_, problems) = first_screen(&tab, case).await;
        assert_eq!(problems.is_empty(), found.is_empty(), "{change}: {problems:#?}");
        for fact in found {
            assert!(problems.iter().any(|problem| problem.contains(fact)), "{change}: {fact}: {problems:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_inbox_has_first_what_waits_for_the_reader_with_its_count_and_its_risks() {
    let Some(browser) = browser().await else { return };
    let sales = Sales::new().await;
    let other = Sales::server(&sales.db, "confirm").await;
    other.propose("execute_sql", json!({"sql": "update sales.zone set shipping = 1 where id = 3"})).await;
    for case in &CASES {
        sales.propose(case).await;
    }
    let tab = logged_in(&browser, &sales.console, &sales.db, "anna", json!({})).await;
    let lines = "[...document.querySelector('main .cards').tBodies[0].rows].map((line) => \
        [line.querySelector('.count').innerText, line.querySelector('.state.risk') !== null, line.getBoundingClientRect().top < innerHeight])";
    for (width, height) in WINDOWS {
        tab.look(width, height, "light").await;
        let lines = tab.run(lines).await;
        let lines = lines.as_array().unwrap();
        assert_eq!(lines.len(), CASES.len());
        for (line, case) in lines.iter().zip(&CASES) {
            let rows: u64 = line[0].as_str().unwrap().parse().unwrap();
            assert!(rows > 0 && (case.risks.is_empty() || line[1] == true), "{}: {line}", case.name);
        }
        assert_eq!(lines[0][2], true, "the first line is on the first screen");
        let fold =
            tab.run("(({ open, innerText }) => [open, innerText])(document.querySelector('main > details'))").await;
        assert_eq!(fold, json!([false, "1 for others to decide"]));
    }
    assert_eq!(findings(&tab, "ten seconds: inbox").await, [""; 0]);
}

/// A second, in which keys of a page that has opened do nothing.
const DEAD: Duration = Duration::from_secs(1);

/// Whether a page acts on keys, and whether it asks for the second one.
async fn keys(tab: &Tab) -> Value {
    tab.run("[document.documentElement.dataset.keys, document.querySelector('dialog').open]").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_decision_by_key_takes_two_keys_a_second_after_the_page_has_opened() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let (_first, one) = proposed(&db, "Sunset").await;
    let (_second, other) = proposed(&db, "Newborn").await;
    let tab = logged_in(&browser, &console, &db, "anna", json!({})).await;
    assert_eq!(tab.open(&format!("{}{}", console.url, path(&one))).await, 200);
    tab.run("document.querySelector('dialog').showModal()").await;
    assert_eq!(findings(&tab, "keys: the second one").await, [""; 0]);
    tab.stop_time().await;
    assert_eq!(tab.open(&format!("{}{}", console.url, path(&one))).await, 200);
    for dead in [Duration::ZERO, DEAD - Duration::from_millis(1)] {
        tab.pass_time(dead).await;
        tab.press("a").await;
        assert_eq!(keys(&tab).await, json!(["dead", false]));
    }
    tab.pass_time(Duration::from_millis(1)).await;
    assert_eq!(keys(&tab).await, json!(["on", false]), "a key that was pressed too early is forgotten");

    for pressed in ["Enter", "Control+a", "A", "b"] {
        tab.press(pressed).await;
        assert_eq!(keys(&tab).await, json!(["on", false]), "{pressed}");
    }
    tab.run("document.getElementById('text').focus()").await;
    tab.type_text("a").await;
    assert_eq!(keys(&tab).await, json!(["on", false]), "a text");
    assert_eq!(tab.run("document.activeElement.value").await, "a");
    tab.run("document.activeElement.blur()").await;

    tab.hold("a").await;
    tab.press("a").await;
    assert_eq!(keys(&tab).await, json!(["on", true]));
    let asked = tab.run("document.querySelector('dialog').innerText").await;
    for part in ["Approve exactly this?", "Delete a package", "It would delete 1 row of studio.package"] {
        assert!(asked.as_str().unwrap().contains(part), "{part}: {asked}");
    }
    tab.press("Escape").await;
    assert_eq!((keys(&tab).await, status(&db, &one).await), (json!(["on", false]), "pending".to_owned()));

    tab.press("a").await;
    tab.press("Enter").await;
    until_executed(&db, &one).await;
    tab.arrive(&path(&other)).await;
    tab.hold("a").await;
    tab.press("Enter").await;
    assert_eq!(keys(&tab).await, json!(["dead", false]), "the next page is dead, too");

    tab.pass_time(DEAD).await;
    tab.run("document.getElementById('keys').click()").await;
    for _ in 0..2 {
        tab.press("a").await;
        assert_eq!(keys(&tab).await, json!(["off", false]));
        tab.open(&format!("{}{}", console.url, path(&other))).await;
        tab.pass_time(DEAD).await;
    }
    assert_eq!(status(&db, &other).await, "pending");
    tab.run("document.getElementById('keys').click()").await;
    tab.press("a").await;
    assert_eq!(keys(&tab).await, json!(["on", true]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_key_does_not_replace_the_reading_of_the_risks() {
    let Some(browser) = browser().await else { return };
    let sales = Sales::new().await;
    let tab = logged_in(&browser, &sales.console, &sales.db, "anna", json!({})).await;
    tab.stop_time().await;
    let case = CASES.iter().find(|case| case.name == "every_row").unwrap();
    let (url, proposal) = sales.propose(case).await;
    tab.open(&url).await;
    tab.pass_time(DEAD).await;
    for pressed in ["a", "a", "Enter"] {
        tab.press(pressed).await;
        assert_eq!(keys(&tab).await, json!(["on", false]), "{pressed}");
    }
    assert_eq!(tab.focused().await.unwrap().name, "I have read the risks");
    assert_eq!(status(&sales.db, &proposal).await, "pending");
    tab.press("Space").await;
    tab.press("a").await;
    assert_eq!(keys(&tab).await, json!(["on", true]));
    tab.press("Enter").await;
    until_executed(&sales.db, &proposal).await;
}
