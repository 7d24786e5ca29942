//! The session of the demo: checks each answer, and prints what was shown, or on demand each call with its answer.

use anyhow::{Context, bail, ensure};
use mcp::Client;
use serde_json::{Map, Value};
use tokio::process::Command;

use super::database::DemoDatabase;
use crate::terminal::table::cut;
use crate::terminal::{Style, print_line};

/// The width at which an answer is broken into lines.
const WIDTH: usize = 100;

pub(crate) struct Session<'a> {
    client: &'a Client,
    style: Style,
    step: usize,
    /// Whether each call is printed with its answer.
    is_verbose: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(client: &'a Client, style: Style, is_verbose: bool) -> Self {
        Self { client, style, step: 0, is_verbose }
    }

    /// Prints what the steps since the last such line have shown.
    pub(crate) fn shown(&self, what: &str) {
        if !self.is_verbose {
            print_line(&format!("   {} {what}", self.style.good("ok")));
        }
    }

    /// Prints a line of the transcript.
    fn print(&self, line: &str) {
        if self.is_verbose {
            print_line(line);
        }
    }

    fn title(&mut self, title: &str) {
        self.step += 1;
        self.print("");
        self.print(&self.style.bold(&format!("{}. {title}", self.step)));
    }

    /// Lists the tools and makes sure that these are among them.
    pub(crate) async fn list_tools(&mut self, needed: &[&str]) -> anyhow::Result<()> {
        self.title("The client asks which tools there are");
        self.print(&self.style.faint("   -> tools/list"));
        let tools = self.client.list_tools().await?;
        for tool in &tools {
            let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default();
            let first_sentence = text("description").split_once(". ").map_or(text("description"), |(first, _)| first);
            let line = format!("   {:<22} {}", text("name"), first_sentence.trim_end_matches('.'));
            self.print(&cut(&line, WIDTH));
        }
        for name in needed {
            ensure!(tools.iter().any(|tool| tool.get("name").and_then(Value::as_str) == Some(name)), "no tool {name}");
        }
        Ok(())
    }

    /// Calls a tool that must succeed. Returns the envelope.
    pub(crate) async fn succeeds(&mut self, title: &str, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let envelope = self.call(title, tool, arguments).await?;
        if envelope.get("success") != Some(&Value::Bool(true)) {
            bail!("{tool} should have succeeded: {envelope}");
        }
        Ok(envelope)
    }

    /// Calls a tool that must be refused with this code.
    pub(crate) async fn is_refused(
        &mut self,
        title: &str,
        tool: &str,
        arguments: Value,
        code: &str,
    ) -> anyhow::Result<()> {
        let envelope = self.call(title, tool, arguments).await?;
        let got = envelope.pointer("/error/code").and_then(Value::as_str);
        ensure!(got == Some(code), "{tool} should have been refused with {code}: {envelope}");
        Ok(())
    }

    /// Runs a command of this program as the owner of the database. Returns its output.
    pub(crate) async fn runs(
        &mut self,
        title: &str,
        database: &DemoDatabase,
        arguments: &[&str],
    ) -> anyhow::Result<String> {
        self.title(title);
        self.print(&self.style.faint(&format!("   $ countersign {}", arguments.join(" "))));
        let mut command = this_program()?;
        command.args(arguments).env("DATABASE_URL", database.owner_url());
        let output = command.env("COUNTERSIGN_SIGNING_KEY", database.key_file()).output().await?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed.lines().for_each(|line| self.print(&format!("   {line}")));
        ensure!(output.status.success(), "it should have succeeded: {}", String::from_utf8_lossy(&output.stderr));
        Ok(printed)
    }

    /// Prints a fact, and fails if it does not hold.
    pub(crate) fn expect(&self, holds: bool, what: &str) -> anyhow::Result<()> {
        ensure!(holds, "not so: {what}");
        self.print(&self.style.good(&format!("   ok: {what}")));
        Ok(())
    }

    async fn call(&mut self, title: &str, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        self.title(title);
        self.print(&self.style.faint(&indented(&format!("-> {tool} "), &arguments)));
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let answer = self.client.call(tool, arguments).await?;
        let shown = indented("<- ", &answer.envelope);
        self.print(&if answer.is_error { self.style.bad(&shown) } else { shown });
        Ok(answer.envelope)
    }
}

/// A command of this program. The demo ignores the configuration of this shell.
pub(crate) fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program is not known")?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERSIGN_")) {
        if name != "COUNTERSIGN_PG_BINDIR" && name != "COUNTERSIGN_DEMO_DIR" {
            command.env_remove(name);
        }
    }
    Ok(command)
}

fn indented(prefix: &str, value: &Value) -> String {
    let mut out = format!("   {prefix}");
    let column = out.chars().count();
    push(&mut out, value, 6, column);
    out
}

/// Writes JSON on one line if it fits, otherwise broken at the outermost level that does not fit.
fn push(out: &mut String, value: &Value, indent: usize, column: usize) {
    let flat = value.to_string();
    if column + flat.chars().count() <= WIDTH {
        out.push_str(&flat);
        return;
    }
    let inner = format!("\n{}", " ".repeat(indent));
    match value {
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, entry)) in entries.iter().enumerate() {
                let label = format!("{}: ", Value::from(key.as_str()));
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&inner);
                out.push_str(&label);
                push(out, entry, indent + 2, indent + label.chars().count());
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&inner);
                push(out, item, indent + 2, indent);
            }
            out.push(']');
        }
        _ => out.push_str(&flat),
    }
}
