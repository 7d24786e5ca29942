//! `countersign token`: bearer tokens for the HTTP transport. The configuration contains only their hashes.

pub(crate) mod args;

use std::fmt::Write;

use anyhow::{Context, ensure};
use auth::{BearerToken, TokenHash, generate_token, hash_token};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::settings::{ConfigSources, Settings};
use crate::terminal::{is_input_interactive, print_error, print_line, read_input};
use args::{NewArgs, TokenCommand};

/// More bytes than any token has, so that a longer input is reported and not truncated.
const MAX_INPUT_BYTES: u64 = 64 * 1024;

pub(crate) fn run(command: TokenCommand, sources: &ConfigSources, settings: &Settings) -> anyhow::Result<()> {
    match command {
        TokenCommand::New(arguments) => new(arguments, sources, settings),
        TokenCommand::Hash => hash(),
    }
}

fn new(arguments: NewArgs, sources: &ConfigSources, settings: &Settings) -> anyhow::Result<()> {
    let NewArgs { account, profile, databases, label, expires_in, json } = arguments;
    // Without a configuration, its profiles are unknown.
    ensure!(
        sources.config.is_none() || settings.has_profile(&profile),
        "there is no profile \"{profile}\" in the configuration: it is one of {}",
        settings.profile_names().collect::<Vec<_>>().join(", ")
    );
    let now = OffsetDateTime::now_utc().replace_nanosecond(0)?;
    let expires = expires_in.map(|age| now + age.duration());
    let secret = generate_token()?;
    let token = BearerToken { hash: TokenHash::of(secret.expose()), account, profile, databases, label, expires };
    let table = table(&token)?;
    if json {
        let expires = expires.map(|at| at.format(&Rfc3339)).transpose()?;
        let object = json!({
            "token": secret.expose(),
            "hash": token.hash.to_string(),
            "account": token.account,
            "profile": token.profile,
            "label": token.label,
            "expires": expires,
            "toml": table,
        });
        print_line(&object.to_string());
        return Ok(());
    }
    print_line("The token, which is shown this once (for the client: Authorization: Bearer TOKEN):\n");
    print_line(&format!("    {}\n", secret.expose()));
    print_line("For the configuration file, or the file of its tokens_file:\n");
    print_line(table.trim_end());
    Ok(())
}

/// The token as a `[[tokens]]` table of the configuration.
fn table(token: &BearerToken) -> anyhow::Result<String> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut table = String::from("[[tokens]]\n");
    writeln!(table, "hash = {}", quoted(&token.hash.to_string()))?;
    writeln!(table, "account = {}", quoted(token.account.as_str()))?;
    writeln!(table, "profile = {}", quoted(&token.profile))?;
    if let Some(databases) = &token.databases {
        let names: Vec<String> = databases.iter().map(|name| quoted(name.as_str())).collect();
        writeln!(table, "databases = [{}]", names.join(", "))?;
    }
    if let Some(label) = &token.label {
        writeln!(table, "label = {}", quoted(label))?;
    }
    if let Some(expires) = token.expires {
        writeln!(table, "expires = {}", expires.format(&Rfc3339)?)?;
    }
    Ok(table)
}

fn hash() -> anyhow::Result<()> {
    if is_input_interactive() {
        print_error("Type or paste the token, then Enter and Ctrl-D:");
    }
    let text = read_input(MAX_INPUT_BYTES).context("standard input cannot be read as text")?;
    let token = text.strip_suffix('\n').unwrap_or(&text);
    let hash = hash_token(token.strip_suffix('\r').unwrap_or(token))?;
    print_line(&hash.to_string());
    Ok(())
}
