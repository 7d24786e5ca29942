//! Headless Chromium: tabs with cookies, keys, colour schemes, and checks of a page. `tests/browser/driver.mjs`
//! drives it; this module forwards the requests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, OnceCell};

use crate::external::{self, External};
use crate::repository::repository;

/// The time limit of each request. The driver gives up earlier.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A browser. It ends with the last of its tabs.
#[derive(Debug, Clone)]
pub struct WebBrowser(Arc<Mutex<Driver>>);

#[derive(Debug)]
struct Driver {
    _child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// A tab, in a window with its own cookies.
#[derive(Debug)]
pub struct Tab {
    browser: WebBrowser,
    id: Value,
    frames: Vec<&'static str>,
}

/// The element that has the focus.
#[derive(Debug)]
pub struct Focused {
    /// Its label or its text.
    pub name: String,
    /// Why a sighted user cannot see the focus.
    pub problems: Vec<String>,
}

impl WebBrowser {
    /// Starts a browser. A test calls [`crate::skip_without`] for [`External::NodeModules`] and
    /// [`External::Chromium`] first.
    pub async fn start() -> Self {
        let chromium = chromium().await;
        let mut command = node("driver.mjs");
        command.arg(&chromium.program);
        if let Some(folder) = &chromium.unpacked {
            command.env("LD_LIBRARY_PATH", folder.join("al2023/lib"));
            command.env("FONTCONFIG_FILE", folder.join("fonts/fonts.conf"));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Node.js");
        let requests = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self(Arc::new(Mutex::new(Driver { _child: child, requests, answers })))
    }

    /// Opens a tab in a new window. The options are those of the driver's command `tab`: `javascript`, `scheme`,
    /// `width`, `height`.
    pub async fn tab(&self, options: Value) -> Tab {
        let id = self.ask("tab", options).await;
        Tab { browser: self.clone(), id, frames: Vec::new() }
    }

    /// Serves pages of another site: `{"/path": {"html": .., "headers": {..}}}`. Returns the port.
    pub async fn serve(&self, pages: Value) -> u64 {
        self.ask("serve", json!({"pages": pages})).await.as_u64().expect("a port")
    }

    async fn ask(&self, verb: &str, mut request: Value) -> Value {
        request["verb"] = verb.into();
        let mut driver = self.0.lock().await;
        driver.requests.write_all(format!("{request}\n").as_bytes()).await.expect("the driver reads");
        let answer = tokio::time::timeout(TIMEOUT, driver.answers.next_line()).await.expect("an answer in time");
        let answer = answer.expect("text").unwrap_or_else(|| panic!("the browser ended: {request}"));
        let mut answer: Value = serde_json::from_str(&answer).expect("an answer of the driver");
        assert!(answer["error"].is_null(), "{}", answer["error"]);
        answer["result"].take()
    }
}

impl Tab {
    /// Opens a tab in the same window, with the same cookies.
    pub async fn beside(&self) -> Self {
        self.browser.tab(json!({"beside": self.id})).await
    }

    /// The same tab, inside nested frames. `frames` has their selectors, from the outside.
    pub fn frame(&self, frames: &[&'static str]) -> Self {
        Self { browser: self.browser.clone(), id: self.id.clone(), frames: frames.to_vec() }
    }

    async fn ask(&self, verb: &str, mut request: Value) -> Value {
        request["tab"] = self.id.clone();
        request["frames"] = json!(self.frames);
        self.browser.ask(verb, request).await
    }

    async fn text_of(&self, verb: &str, request: Value) -> String {
        self.ask(verb, request).await.as_str().expect("a text").to_owned()
    }

    /// Opens a URL. Returns the status of the page.
    pub async fn open(&self, url: &str) -> u64 {
        self.ask("open", json!({"url": url})).await.as_u64().expect("a status")
    }

    /// Clicks the button or link of this name, which must lead to another page. Returns the status of that page.
    pub async fn follow(&self, name: &str) -> u64 {
        self.ask("follow", json!({"name": name})).await.as_u64().expect("a status")
    }

    /// Clicks the button or link of this name.
    pub async fn click(&self, name: &str) {
        self.ask("click", json!({"name": name})).await;
    }

    /// The number of buttons and links of this name.
    pub async fn count(&self, name: &str) -> u64 {
        self.ask("count", json!({"name": name})).await.as_u64().expect("a number")
    }

    /// Fills in the field with this label.
    pub async fn fill(&self, label: &str, text: &str) {
        self.ask("fill", json!({"label": label, "text": text})).await;
    }

    /// Presses a key, such as `Tab` or `Enter`.
    pub async fn press(&self, key: &str) {
        self.ask("press", json!({"key": key})).await;
    }

    /// Holds a key down, so that it repeats.
    pub async fn hold(&self, key: &str) {
        self.ask("hold", json!({"key": key})).await;
    }

    /// Stops the time of scripts in this window, from the next page on.
    pub async fn stop_time(&self) {
        self.ask("stop_time", json!({})).await;
    }

    /// Lets this time pass for scripts.
    pub async fn pass_time(&self, time: Duration) {
        self.ask("pass_time", json!({"ms": time.as_millis() as u64})).await;
    }

    /// Types a text into the focused element.
    pub async fn type_text(&self, text: &str) {
        self.ask("type", json!({"text": text})).await;
    }

    /// Waits until the page at this path has loaded.
    pub async fn arrive(&self, path: &str) {
        self.ask("arrive", json!({"path": path})).await;
    }

    pub async fn text(&self) -> String {
        self.text_of("text", json!({})).await
    }

    /// Waits until the page shows a text.
    pub async fn wait_for_text(&self, text: &str) {
        self.ask("wait_for_text", json!({"text": text})).await;
    }

    pub async fn url(&self) -> String {
        self.text_of("url", json!({})).await
    }

    /// The value of a JavaScript expression.
    pub async fn run(&self, script: &str) -> Value {
        self.ask("run", json!({"script": script})).await
    }

    /// Changes the size of the window, in CSS pixels, and the colour scheme, `light` or `dark`.
    pub async fn look(&self, width: u32, height: u32, scheme: &str) {
        self.ask("resize", json!({"width": width, "height": height, "scheme": scheme})).await;
    }

    /// The violations of WCAG 2.2 AA on the page, each with its elements.
    pub async fn findings(&self) -> Vec<String> {
        texts(&self.ask("findings", json!({})).await)
    }

    /// Those that can differ by the size of the window and by the colours.
    pub async fn findings_of_look(&self) -> Vec<String> {
        texts(&self.ask("findings", json!({"of_look": true})).await)
    }

    /// Violations of the content security policy, errors in the console, and dialogs, since the last call.
    pub async fn problems(&self) -> Vec<String> {
        texts(&self.ask("problems", json!({})).await)
    }

    /// The focused element, if there is one.
    pub async fn focused(&self) -> Option<Focused> {
        let focused = self.ask("focused", json!({})).await;
        let name = focused["name"].as_str()?.to_owned();
        Some(Focused { name, problems: texts(&focused["problems"]) })
    }

    /// Walks through the page with the Tab key. Returns the names of the focused elements in order, and the problems.
    pub async fn walk(&self) -> (Vec<String>, Vec<String>) {
        let walked = self.ask("walk", json!({})).await;
        (texts(&walked["stops"]), texts(&walked["problems"]))
    }

    /// Goes back to the previous page. Returns its status.
    pub async fn back(&self) -> u64 {
        self.ask("back", json!({})).await.as_u64().expect("a status")
    }

    /// Changes what the browser receives from now on: every `from` in a page or file is replaced by `to`.
    pub async fn tamper(&self, from: &str, to: &str) {
        self.ask("tamper", json!({"from": from, "to": to})).await;
    }

    /// Writes the whole page to a PNG file.
    pub async fn screenshot(&self, path: &Path) {
        self.ask("screenshot", json!({"path": path})).await;
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// A program, and the folder of its files if it was unpacked here.
#[derive(Debug)]
struct Chromium {
    program: PathBuf,
    unpacked: Option<PathBuf>,
}

/// The browser. That of the npm package is unpacked the first time.
async fn chromium() -> &'static Chromium {
    static CHROMIUM: OnceCell<Chromium> = OnceCell::const_new();
    CHROMIUM
        .get_or_init(|| async {
            let found = External::Chromium.expected_path();
            if found.extension().is_none_or(|extension| extension != "br") {
                return Chromium { program: found, unpacked: None };
            }
            let folder = found.parent().expect("a folder").join("unpacked");
            if !folder.exists() {
                let unpacked = node("unpack.mjs").arg(&folder).status().await.expect("Node.js");
                assert!(unpacked.success(), "Chromium cannot be unpacked into {}", folder.display());
            }
            Chromium { program: folder.join("chromium"), unpacked: Some(folder) }
        })
        .await
}

/// The command that runs a script of `tests/browser`.
fn node(script: &str) -> Command {
    let modules = External::NodeModules.expected_path();
    let mut command = Command::new(external::node(&modules).expect("a Node.js"));
    command.arg(repository().join("tests/browser").join(script)).env(External::NodeModules.variable(), modules);
    // The browser must not send anything elsewhere, and keeps nothing.
    for variable in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NODE_OPTIONS"] {
        command.env_remove(variable);
    }
    command.env("HOME", env::temp_dir());
    command
}
