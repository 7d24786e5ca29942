//! The console in a real browser: whether people can read and use every page, and the attacks that only a browser shows.
//! Accessibility is checked by the rules of axe for WCAG 2.2 AA, by the keyboard, and without JavaScript.

mod attacks;
mod controls;
mod demo;
mod hostile_values;
mod keyboard;
mod looks;
mod mcp_apps;
mod review;
mod sign_in;
mod site;
mod ten_seconds;

use serde_json::{Value, json};
use testkit::{Database, External, Tab, WebBrowser, poll, skip_without};

use crate::console::{Console, status};

/// A browser. `None`: there is none, and the test that calls this ends here.
async fn browser() -> Option<WebBrowser> {
    if skip_without(&[External::NodeModules, External::Chromium]) { None } else { Some(WebBrowser::start().await) }
}

/// A tab in which this person is logged in.
async fn logged_in(browser: &WebBrowser, console: &Console, db: &Database, name: &str, options: Value) -> Tab {
    log_in(browser.tab(options).await, console, db, name, &[]).await
}

/// Logs this person in.
async fn log_in(tab: Tab, console: &Console, db: &Database, name: &str, more: &[&str]) -> Tab {
    assert_eq!(tab.open(&console.link(db, name, more).await).await, 200);
    assert_eq!(tab.follow("Log in").await, 200);
    assert_eq!(tab.url().await, format!("{}/", console.url));
    tab
}

/// A tab without JavaScript.
fn without_javascript() -> Value {
    json!({"javascript": false})
}

/// Waits until a proposal is executed.
async fn until_executed(db: &Database, proposal: &Value) {
    poll::until("the write is executed", async || status(db, proposal).await == "executed").await;
}

/// Names of buttons.
const APPROVE: &str = "Approve exactly this";
const TRY_UNDO: &str = "Try the undo, and change nothing";
