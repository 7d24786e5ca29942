//! Links that add a server to a client when they are opened.

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::client::{Client, Link};
use super::entry::Entry;

/// The link of an entry.
///
/// # Errors
/// The client has no links, or the link would contain a token.
pub(super) fn link(client: &Client, name: &str, entry: &Entry, has_token: bool) -> anyhow::Result<String> {
    match client.link {
        Some(Link::Base64(address)) => {
            if has_token {
                bail!(
                    "a link with the token in it would stay in histories and logs: use --token-env NAME, or install without --link"
                );
            }
            // The name needs no encoding. `+`, `/` and `=` of Base64 have a special meaning in a query.
            let config = percent_encoded(&STANDARD.encode(entry.value.to_string()));
            Ok(format!("{address}?name={name}&config={config}"))
        }
        Some(Link::Json) => {
            let mut server = json!({"name": name});
            let input = entry.input.iter().map(|input| ("inputs".to_owned(), json!([input])));
            if let (Some(server), Some(value)) = (server.as_object_mut(), entry.value.as_object()) {
                server.extend(input);
                server.extend(value.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            // VS Code decodes the text twice, so a percent sign would begin another escape.
            let server = server.to_string().replace('%', "\\u0025");
            Ok(format!("vscode:mcp/install?{}", percent_encoded(&server)))
        }
        None => bail!("{} has no links that add a server: leave out --link", client.label),
    }
}

/// The text with everything percent-encoded that is not a letter or a digit.
fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
