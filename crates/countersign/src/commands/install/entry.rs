//! The entry of a server, in the form of each client.

use anyhow::bail;
use http_client::HttpsUrl;
use serde_json::{Value, json};
use types::Secret;

use super::client::{Client, Member, Part, Remote, Variables};

/// The version of the bridge for clients that can only start programs. `docs/setup/clients.md` names the same one.
const BRIDGE: &str = "mcp-remote@0.15.1";

/// A server, as a client will use it.
#[derive(Debug, Clone)]
pub(super) enum Server {
    /// A program that the client starts.
    Program { command: String, arguments: Vec<String> },
    /// A running server.
    Remote { url: HttpsUrl, token: Token },
}

/// How a client gets the token of a remote server.
#[derive(Debug, Clone)]
pub(super) enum Token {
    /// The server needs no token, or the client signs in with OAuth.
    None,
    Text(Secret),
    /// The client reads it from this environment variable.
    Variable(String),
}

/// What is written into the file of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The member of the object of servers.
    pub(super) value: Value,
    /// The question for the token, if the client asks its user and stores the answer.
    pub(super) input: Option<Value>,
}

/// The values for the parts of an entry.
#[derive(Debug, Default)]
struct Values<'s> {
    name: &'s str,
    command: Option<&'s str>,
    arguments: &'s [String],
    url: Option<&'s str>,
    bearer: Option<String>,
    token_variable: Option<&'s str>,
}

impl Values<'_> {
    fn entry(&self, members: &[Member]) -> Value {
        members.iter().filter_map(|(key, part)| Some((*key, self.value(*part)?))).collect()
    }

    fn value(&self, part: Part) -> Option<Value> {
        Some(match part {
            Part::Text(text) => Value::from(text),
            Part::Texts(texts) => Value::from(texts),
            Part::True => Value::from(true),
            Part::Number(number) => Value::from(number),
            Part::Name => Value::from(self.name),
            Part::Command => Value::from(self.command?),
            Part::Arguments => Value::from(self.arguments),
            Part::CommandLine => {
                let words = self.command.into_iter().chain(self.arguments.iter().map(String::as_str));
                words.collect()
            }
            Part::Url => Value::from(self.url?),
            Part::Transport { http, sse } => Value::from(if is_sse(self.url?) { sse } else { http }),
            Part::Headers => json!({"Authorization": self.bearer.as_ref()?}),
            Part::TokenVariable => Value::from(self.token_variable?),
        })
    }
}

impl Server {
    /// The entry of this server.
    ///
    /// # Errors
    /// The client does not support such a server.
    pub(super) fn entry(&self, client: &Client, name: &str) -> anyhow::Result<Entry> {
        let (url, token) = match self {
            Self::Program { command, arguments } => {
                for text in arguments.iter().chain([command]) {
                    check_unchanged(client, text, "path")?;
                }
                let values = Values { name, command: Some(command), arguments, ..Values::default() };
                return Ok(Entry { value: values.entry(client.program), input: None });
            }
            Self::Remote { url, token } => (url.as_str(), token),
        };
        check_unchanged(client, url, "URL")?;
        let asks = matches!(token, Token::Text(_)) && client.variables == Variables::EnvBracesAndInputs;
        let input = asks.then(|| question(name));
        let mut values = Values { name, url: Some(url), ..Values::default() };
        match token {
            Token::None => {}
            Token::Text(_) if asks => values.bearer = Some(format!("${{input:{}}}", input_id(name))),
            Token::Text(token) => values.bearer = Some(token.expose().to_owned()),
            Token::Variable(variable) => match client.variables.reference(variable) {
                Some(reference) => values.bearer = Some(reference),
                None if client.variables == Variables::Named => values.token_variable = Some(variable),
                None => {
                    bail!("{} takes no token from a variable: use --token-file instead of --token-env", client.label)
                }
            },
        }
        values.bearer = values.bearer.map(|token| format!("Bearer {token}"));
        let value = match client.remote {
            Remote::Bridge => bridge(url, values.bearer),
            Remote::Entry { sse: false, .. } if is_sse(url) => {
                bail!("{} is not known to support HTTP with SSE: use the URL that ends in /mcp", client.label)
            }
            Remote::Entry { members, .. } => values.entry(members),
        };
        Ok(Entry { value, input })
    }
}

fn check_unchanged(client: &Client, text: &str, what: &str) -> anyhow::Result<()> {
    match client.variables.mark().filter(|mark| text.contains(mark)) {
        None => Ok(()),
        Some(mark) => {
            bail!(
                "{} replaces what follows a {mark} in \"{text}\" with a variable: use a {what} without {mark}",
                client.label
            )
        }
    }
}

/// Whether a server at this URL speaks HTTP with SSE.
fn is_sse(url: &str) -> bool {
    url.split('?').next().is_some_and(|path| path.trim_end_matches('/').ends_with("/sse"))
}

/// The bridge from a program to a remote server. The header is in a variable: Claude Desktop splits arguments at
/// spaces on some systems, and the arguments of a process are visible to every user of the machine.
fn bridge(url: &str, bearer: Option<String>) -> Value {
    let mut arguments = vec!["-y", BRIDGE, url];
    if is_sse(url) {
        arguments.extend(["--transport", "sse-only"]);
    }
    let Some(bearer) = bearer else { return json!({"command": "npx", "args": arguments}) };
    arguments.extend(["--header", "Authorization:${AUTHORIZATION}"]);
    json!({"command": "npx", "args": arguments, "env": {"AUTHORIZATION": bearer}})
}

/// The id of the question for the token of an entry.
pub(super) fn input_id(name: &str) -> String {
    format!("{name}-token")
}

/// The question for the token of an entry, as VS Code asks it.
fn question(name: &str) -> Value {
    json!({"id": input_id(name), "type": "promptString", "description": format!("Token for {name}"), "password": true})
}

/// Whether an entry is one of those that `countersign install` writes for this client.
pub(super) fn is_own(client: &Client, entry: &Value) -> bool {
    let strings = |value: &Value| match value {
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        other => Vec::from_iter(other.as_str().map(str::to_owned)),
    };
    let of = |members: &[Member], wanted: &[Part]| -> Vec<String> {
        let keys = members.iter().filter(|(_, part)| wanted.contains(part));
        keys.filter_map(|(key, _)| entry.get(*key)).flat_map(strings).collect()
    };
    let words = of(client.program, &[Part::Command, Part::CommandLine, Part::Arguments]);
    let program = words.first().and_then(|command| command.rsplit('/').next()).unwrap_or_default();
    program.starts_with("countersign")
        || match client.remote {
            Remote::Bridge => program == "npx" && words.iter().any(|word| word.starts_with("mcp-remote@")),
            Remote::Entry { members, .. } => !of(members, &[Part::Url]).is_empty(),
        }
}
