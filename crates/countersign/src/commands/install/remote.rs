//! Checks whether a remote server answers and accepts the token.

use std::path::Path;

use anyhow::{Context, bail};
use http_client::{HttpClient, HttpsUrl};
use serde_json::json;
use types::Secret;

use super::entry::Token;
use crate::commands::cli::InstallArgs;

/// The token that a client needs for a remote server.
pub(super) fn token(arguments: &InstallArgs) -> anyhow::Result<Token> {
    if let Some(name) = &arguments.token_env {
        return Ok(Token::Variable(name.clone()));
    }
    arguments.token_file.as_deref().map_or(Ok(Token::None), |file| read(file).map(Token::Text))
}

fn read(file: &Path) -> anyhow::Result<Secret> {
    let named = || format!("the token in {} (--token-file)", file.display());
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", named()))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{} is not one word of ASCII characters: the file contains the token alone", named());
    }
    Ok(Secret::new(token))
}

/// Asks the server for its capabilities, like a client's first request.
pub(super) async fn check(url: &HttpsUrl, token: &Token) -> anyhow::Result<()> {
    let token = match token {
        Token::None => None,
        Token::Text(token) => Some(token.clone()),
        Token::Variable(name) => std::env::var(name).ok().filter(|token| !token.is_empty()).map(Secret::new),
    };
    // The stream of `/sse` never ends; the same server answers at `/mcp`.
    let address = url.as_str().split('?').next().unwrap_or_default().trim_end_matches('/');
    let url: HttpsUrl = match address.strip_suffix("/sse") {
        Some(base) => format!("{base}/mcp").parse()?,
        None => url.clone(),
    };
    let client = HttpClient::new(url.clone())?;
    let question = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "countersign install", "version": env!("CARGO_PKG_VERSION")},
        },
    });
    let mut request = http::Request::post(url.path())
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(token) = &token {
        request = request.header("authorization", format!("Bearer {}", token.expose()));
    }
    let response = client.send(request.body(question.to_string().into())?).await;
    let response = response.with_context(|| format!("{} does not answer", url.as_str()))?;
    match response.status.as_u16() {
        200 => Ok(()),
        // Without a token here, the client signs in with OAuth, or reads a variable that this shell does not have.
        401 if token.is_none() => Ok(()),
        401 | 403 => bail!("{} refuses the token (status {})", url.as_str(), response.status),
        _ => bail!("{} does not answer as an MCP server does (status {})", url.as_str(), response.status),
    }
}
