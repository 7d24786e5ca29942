//! The entry of a server, in the form of each client.

use anyhow::bail;
use http_client::HttpsUrl;
use serde_json::{Value, json};
use types::Secret;

use super::client::{Format, Variables};
use crate::cli::ClientName;

/// The version of the bridge for clients that can only start programs. `docs/setup/clients.md` names the same one.
const BRIDGE: &str = "mcp-remote@0.15.1";

/// A server, as a client should use it.
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
    /// It needs none, or signs in with OAuth.
    None,
    /// The token itself.
    Text(Secret),
    /// From this environment variable.
    Variable(String),
}

/// What is written into the file of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The member of the object of servers.
    pub(super) value: Value,
    /// The question for the token, where the client asks its user and stores the answer.
    pub(super) input: Option<Value>,
}

impl Server {
    /// The entry of this server.
    ///
    /// # Errors
    /// The client cannot use such a server.
    pub(super) fn entry(&self, client: ClientName, name: &str) -> anyhow::Result<Entry> {
        let label = client.label();
        let (url, token) = match self {
            Self::Program { command, arguments } => {
                for text in arguments.iter().chain([command]) {
                    if client.variables() != Variables::None && text.contains('$') {
                        bail!("{label} replaces what follows a $ in \"{text}\" with a variable: use a path without $");
                    }
                }
                return Ok(Entry { value: program(client, command, arguments), input: None });
            }
            Self::Remote { url, token } => (url.as_str(), token),
        };
        let is_sse = is_sse(url);
        let transport = if is_sse { "sse" } else { "http" };
        if client.variables() != Variables::None && url.contains('$') {
            bail!("{label} replaces what follows a $ in {url} with a variable: use a URL without $");
        }
        let mut input = None;
        let bearer = match (token, client.variables()) {
            (Token::None, _) => None,
            (Token::Text(_), _) if client == ClientName::Vscode => {
                let id = input_id(name);
                input = Some(question(name));
                Some(format!("Bearer ${{input:{id}}}"))
            }
            (Token::Text(token), _) => Some(format!("Bearer {}", token.expose())),
            (Token::Variable(name), Variables::Braces) => Some(format!("Bearer ${{{name}}}")),
            (Token::Variable(name), Variables::EnvBraces) => Some(format!("Bearer ${{env:{name}}}")),
            (Token::Variable(name), Variables::None) => Some(name.clone()),
        };
        let mut value = match client {
            ClientName::ClaudeDesktop => match token {
                Token::Variable(_) => bail!(
                    "Claude Desktop starts programs without the variables of your shell: use --token-file instead of --token-env"
                ),
                _ => return Ok(Entry { value: bridge(url, is_sse, bearer), input: None }),
            },
            ClientName::ClaudeCode | ClientName::Vscode => json!({"type": transport, "url": url}),
            ClientName::Cursor => json!({"url": url}),
            ClientName::Gemini if is_sse => json!({"url": url}),
            ClientName::Gemini => json!({"httpUrl": url}),
            ClientName::Codex if is_sse => {
                bail!("Codex does not support HTTP with SSE: use the URL that ends in /mcp")
            }
            ClientName::Codex => json!({"url": url}),
        };
        let members = value.as_object_mut().into_iter();
        if let Some((members, bearer)) = members.zip(bearer).next() {
            let (key, header) = match (client.format(), token) {
                (Format::Toml, Token::Variable(_)) => ("bearer_token_env_var", Value::from(bearer)),
                (Format::Toml, _) => ("http_headers", json!({"Authorization": bearer})),
                (Format::Json(_), _) => ("headers", json!({"Authorization": bearer})),
            };
            members.insert(key.to_owned(), header);
        }
        Ok(Entry { value, input })
    }
}

/// Whether a server at this URL speaks HTTP with SSE.
pub(super) fn is_sse(url: &str) -> bool {
    url.split('?').next().is_some_and(|path| path.trim_end_matches('/').ends_with("/sse"))
}

fn program(client: ClientName, command: &str, arguments: &[String]) -> Value {
    match client {
        ClientName::ClaudeCode | ClientName::Vscode | ClientName::Cursor => {
            json!({"type": "stdio", "command": command, "args": arguments})
        }
        ClientName::ClaudeDesktop | ClientName::Codex | ClientName::Gemini => {
            json!({"command": command, "args": arguments})
        }
    }
}

/// The bridge from a program to a remote server. The header is in a variable: Claude Desktop splits arguments at spaces on
/// some systems, and the arguments of a program are visible to every user of the machine.
fn bridge(url: &str, is_sse: bool, bearer: Option<String>) -> Value {
    let mut arguments = vec!["-y", BRIDGE, url];
    if is_sse {
        arguments.extend(["--transport", "sse-only"]);
    }
    let Some(bearer) = bearer else { return json!({"command": "npx", "args": arguments}) };
    arguments.extend(["--header", "Authorization:${AUTHORIZATION}"]);
    json!({"command": "npx", "args": arguments, "env": {"AUTHORIZATION": bearer}})
}

fn input_id(name: &str) -> String {
    format!("{name}-token")
}

/// The question for the token of an entry, as VS Code asks it.
pub(super) fn question(name: &str) -> Value {
    json!({"id": input_id(name), "type": "promptString", "description": format!("Token for {name}"), "password": true})
}

/// Whether an entry is one of those that `countersign install` writes.
pub(super) fn is_own(entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let program = text("command").and_then(|command| command.rsplit(['/', '\\']).next());
    match program {
        Some(program) => {
            let mut arguments = arguments;
            program.starts_with("countersign")
                || program == "npx" && arguments.any(|one| one.starts_with("mcp-remote@"))
        }
        None => text("url").or_else(|| text("httpUrl")).is_some(),
    }
}
