//! The checks of this suite find what they are for: each page here is broken on its way to the browser.

use serde_json::json;
use testkit::{Tab, database};

use super::{browser, logged_in};
use crate::console::{Console, path, proposed};

/// What the checks find on a page in which `from` has become `to`.
async fn found(tab: &Tab, url: &str, from: &str, to: &str, scheme: &str) -> Vec<String> {
    let broken = tab.beside().await;
    broken.tamper(from, to).await;
    assert_eq!(broken.open(url).await, 200);
    assert!(broken.run("document.documentElement.outerHTML").await.as_str().unwrap().contains("Approve exactly this"));
    broken.look(640, 800, scheme).await;
    let mut found = broken.findings().await;
    let of_look = broken.findings_of_look().await;
    let contrast = |found: &[String]| found.iter().any(|finding| finding.starts_with("color-contrast"));
    assert_eq!(contrast(&of_look), contrast(&found), "{of_look:#?}");
    found.extend(broken.problems().await);
    found.extend(broken.walk().await.1);
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_page_that_breaks_a_rule_is_found() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    let console = Console::on(&db).await;
    let (_server, proposal) = proposed(&db, "Sunset").await;
    let tab = logged_in(&browser, &console, &db, "anna", json!({})).await;
    let url = format!("{}{}", console.url, path(&proposal));
    assert_eq!(found(&tab, &url, "", "", "light").await, [""; 0], "the page as it is");
    let label = "<label for=\"text\">Question to the agent, or reason for a rejection</label>";
    let hint = "placeholder=\"Question, or reason for a rejection\"";
    let field = format!("{label}\n<input id=\"text\" name=\"text\" maxlength=\"1000\" {hint}>");
    for (rule, from, to, scheme) in [
        ("color-contrast", "--muted: #", "--muted: #bbb; --was: #", "light"),
        ("color-contrast", "--ink: #", "--ink: #222; --was: #", "dark"),
        ("label", &field, &field.replace(label, "").replace("placeholder", "data-was"), "light"),
        ("html-has-lang", "<html lang=\"en\">", "<html>", "light"),
        ("horizontal-scroll", "main { ", "main { min-width: 60rem; ", "light"),
        ("violates the policy: script-src-elem inline", label, &format!("{label}<script>alert(1)</script>"), "light"),
        (
            "violates the policy: script-src-attr inline",
            label,
            &format!("{label}<img src=x alt='' onerror=alert(1)>"),
            "light",
        ),
        ("violates the policy: style-src-attr inline", label, &format!("<p style='color:red'>x</p>{label}"), "light"),
        ("violates the policy: img-src", label, &format!("{label}<img alt='' src='http://localhost:1/'>"), "light"),
        ("console error", "console-", "absent-", "light"),
        (
            "Approve exactly this: the focus is not visible",
            ":focus-visible { outline: 3px",
            ":focus-visible { outline: 0",
            "light",
        ),
        (
            "the Tab key reaches 12 of 13 elements",
            "<button class=\"primary\"",
            "<button tabindex=\"-1\" class=\"primary\"",
            "light",
        ),
        ("its turn comes after", "<input id=\"text\" ", "<input id=\"text\" tabindex=\"3\" ", "light"),
    ] {
        let found = found(&tab, &url, from, to, scheme).await;
        assert!(found.iter().any(|finding| finding.contains(rule)), "{rule}: {found:#?}");
        assert!(!found.iter().any(|finding| finding.contains("dialog")), "{rule}: {found:#?}");
    }
}
