//! A person decides about a write on its first screen, whatever its rows are.

use serde_json::json;
use testkit::{Tab, WebBrowser};

use super::looks::findings;
use super::{APPROVE, has_no_browser, log_in, logged_in};
use crate::review::Hospital;

/// The windows of a desk and of a phone.
const WINDOWS: [(u32, u32); 2] = [(1280, 800), (400, 800)];

/// The height of the page, and whether the whole button is in the window that opens.
async fn measured(tab: &Tab) -> (f64, bool) {
    let script = format!(
        "(() => {{ scrollTo(0, 0); const button = [...document.querySelectorAll('button')].find((one) => one.textContent === '{APPROVE}'); \
         const box = button.getBoundingClientRect(); \
         const isSeen = button.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)); \
         return [document.documentElement.scrollHeight, isSeen && box.top >= 0 && box.bottom <= innerHeight]; }})()"
    );
    let found = tab.run(&script).await;
    (found[0].as_f64().unwrap(), found[1].as_bool().unwrap())
}

/// The parts of the names of columns that are on more than one line, although they are one word.
const BROKEN_NAMES: &str = "[...document.querySelectorAll('.diff th')].flatMap((cell) => [...cell.childNodes]) \
    .filter((part) => part.nodeType === Node.TEXT_NODE && !part.textContent.includes(' ') && (() => { const range = document.createRange(); \
        range.selectNodeContents(part); return new Set([...range.getClientRects()].map((box) => box.top)).size > 1; })()) \
    .map((part) => part.textContent)";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn what_changes_and_the_decision_are_on_the_first_screen() {
    if has_no_browser() {
        return;
    }
    let (browser, hospital) = (WebBrowser::start().await, Hospital::new().await);
    let tab = logged_in(&browser, &hospital.console, &hospital.db, "anna", json!({})).await;
    let mut found = Vec::new();
    let doses = |last: u32| ("set_dose", json!({"first": 101, "last": last}));
    let dose_of_80 = "times_per_day: 80 rows become 5 (27 were 3, 27 were 1, 26 were 2)";
    for (name, (tool, call), height, parts) in [
        ("1 row", doses(101), 1300.0, &["It would update 1 row of hospital.prescription.", "id = 101"][..]),
        (
            "80 rows",
            doses(180),
            2500.0,
            &["It would update 80 rows of hospital.prescription.", dose_of_80, "60 more rows"],
        ),
        (
            "5000 rows",
            ("set_dose", json!({"first": 1, "last": 5000})),
            2500.0,
            &["It would update 5000 rows of hospital.prescription.", "4980 more rows"],
        ),
        (
            "a cascade",
            ("delete_patient", json!({"id": 10})),
            1600.0,
            &[
                "It would delete 1 row of hospital.patient, and change 3 more rows of hospital.prescription.",
                "It would also delete 3 rows of hospital.prescription",
                "It cannot be undone",
            ],
        ),
        (
            "a long text",
            ("set_note", json!({"word": "evening"})),
            1600.0,
            &["\u{2212}\u{a0}morning", "+\u{a0}evening", "characters …"],
        ),
        (
            "wide rows",
            ("set_wide", json!({"id": 0})),
            1600.0,
            &["column_7", "column_90", "Columns that stay as they are"],
        ),
        (
            "a json document",
            ("set_theme", json!({"ward": 1, "theme": "light"})),
            1300.0,
            &["Give the display of ward 1 the theme light", "settings.page.theme", "settings.old (removed)"],
        ),
        (
            "a long path",
            ("set_frequency", json!({"ward": 1})),
            1300.0,
            &["settings.notifications.delivery_channels.electronic_mail.frequency_of_messages", "hourly"],
        ),
    ] {
        let proposal = hospital.server.propose(tool, call).await;
        assert_eq!(tab.open(&hospital.url(&proposal)).await, 200);
        let text = tab.run("document.body.innerText").await;
        for part in parts {
            let part = part.trim_start_matches(['\u{2212}', '+', '\u{a0}']);
            assert!(text.as_str().unwrap().contains(part), "{name}: {part}: {text}");
        }
        for (width, window) in WINDOWS {
            tab.look(width, window, "light").await;
            let (tall, is_seen) = measured(&tab).await;
            assert!(is_seen, "{name}: {APPROVE} is outside of the window of {width} x {window}");
            let most = if width == 1280 { height } else { 2.0 * height };
            assert!(tall < most, "{name}: {tall} px tall at a width of {width}");
            assert_eq!(tab.run(BROKEN_NAMES).await, json!([]), "{name}: a name is broken at a width of {width}");
        }
        let bytes = tab.run("document.documentElement.outerHTML.length").await.as_u64().unwrap();
        assert!(bytes < 100_000, "{name}: {bytes} bytes");
        found.extend(findings(&tab, &format!("review: {name}")).await);
    }
    assert_eq!(tab.open(&format!("{}/", hospital.console.url)).await, 200);
    let inbox = tab.text().await;
    for part in ["cannot be undone", "and 3 further rows", " min"] {
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    assert!(!inbox.contains("set_dose"), "the tool says nothing more: {inbox}");
    found.extend(findings(&tab, "review: inbox").await);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn records_and_plans_of_undo_are_as_short() {
    if has_no_browser() {
        return;
    }
    let (browser, hospital) = (WebBrowser::start().await, Hospital::new().await);
    let agent = hospital.agent().await;
    let mut olga = hospital.console.browser(&hospital.db, "olga", &["--role", "operator"]).await;
    let tab =
        log_in(browser.tab(json!({})).await, &hospital.console, &hospital.db, "otto", &["--role", "operator"]).await;
    let mut found = Vec::new();
    let doses =
        |first: u32, last: u32| ("set_dose", json!({"first": first, "last": last, "reason": "The ward asks for it."}));
    for (name, (tool, call), parts) in [
        ("1 row", doses(101, 101), &["Update 1 row of hospital.prescription", "times_per_day"][..]),
        ("80 rows", doses(201, 280), &["rows of hospital.prescription", " more rows"]),
        ("a long text", ("set_note", json!({"word": "evening"})), &["Update 1 row of hospital.note", "characters …"]),
        ("5000 rows", doses(1, 5000), &["rows of hospital.prescription"]),
    ] {
        let record = agent.succeed(tool, call).await["meta"]["correlation_id"].as_str().unwrap().to_owned();
        let plan = hospital.plan(&mut olga).await;
        for (page, path) in [("record", format!("/records/{record}")), ("plan", plan)] {
            assert_eq!(tab.open(&format!("{}{path}", hospital.console.url)).await, 200);
            let text = tab.run("document.body.innerText").await;
            for part in parts {
                assert!(text.as_str().unwrap().contains(part), "{name}: {page}: {part}: {text}");
            }
            for (width, window) in WINDOWS {
                tab.look(width, window, "light").await;
                let tall = tab.run("document.documentElement.scrollHeight").await.as_f64().unwrap();
                let most = if width == 1280 { 3000.0 } else { 5000.0 };
                assert!(tall < most, "{name}: {page}: {tall} px tall at a width of {width}");
            }
            found.extend(findings(&tab, &format!("review: {page} of {name}")).await);
        }
    }
    for (name, path) in [("records", "/records"), ("history of a row", "/rows?table=hospital.prescription&key=101")] {
        assert_eq!(tab.open(&format!("{}{path}", hospital.console.url)).await, 200);
        found.extend(findings(&tab, &format!("review: {name}")).await);
    }
    assert!(found.is_empty(), "{found:#?}");
}
