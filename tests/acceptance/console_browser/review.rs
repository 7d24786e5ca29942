//! Pages of rows are short, whatever the rows are.

use serde_json::json;

use super::looks::findings;
use super::{browser, log_in, logged_in};
use crate::review::Hospital;

/// The windows of a desk and of a phone.
pub(super) const WINDOWS: [(u32, u32); 2] = [(1280, 800), (400, 800)];

/// The parts of the names of columns that are on more than one line, although they are one word.
pub(super) const BROKEN_NAMES: &str = "[...document.querySelectorAll('.diff th')].flatMap((cell) => [...cell.childNodes]) \
    .filter((part) => part.nodeType === Node.TEXT_NODE && !part.textContent.includes(' ') && (() => { const range = document.createRange(); \
        range.selectNodeContents(part); return new Set([...range.getClientRects()].map((box) => box.top)).size > 1; })()) \
    .map((part) => part.textContent)";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn long_texts_wide_rows_and_long_paths_are_short_pages() {
    let Some(browser) = browser().await else { return };
    let hospital = Hospital::new().await;
    let tab = logged_in(&browser, &hospital.console, &hospital.db, "anna", json!({})).await;
    let mut found = Vec::new();
    for (name, (tool, call), height, parts) in [
        (
            "a long text",
            ("set_note", json!({"word": "evening"})),
            1600.0,
            &["\u{2212}\u{a0}morning", "+\u{a0}evening", "characters …"][..],
        ),
        (
            "wide rows",
            ("set_wide", json!({"id": 0})),
            1600.0,
            &["column_7", "column_90", "Columns that stay as they are"],
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
            let tall = tab.run("document.documentElement.scrollHeight").await.as_f64().unwrap();
            let most = if width == 1280 { height } else { 2.0 * height };
            assert!(tall < most, "{name}: {tall} px tall at a width of {width}");
            assert_eq!(tab.run(BROKEN_NAMES).await, json!([]), "{name}: a name is broken at a width of {width}");
        }
        let bytes = tab.run("document.documentElement.outerHTML.length").await.as_u64().unwrap();
        assert!(bytes < 100_000, "{name}: {bytes} bytes");
        found.extend(findings(&tab, &format!("review: {name}")).await);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn records_and_plans_of_undo_are_as_short() {
    let Some(browser) = browser().await else { return };
    let hospital = Hospital::new().await;
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
