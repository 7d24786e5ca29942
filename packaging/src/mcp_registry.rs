//! `server.json` for the MCP registry, schema 2025-12-11: where each package is, and what a client has to ask for.

use serde_json::{Value, json};

use crate::file_tree::FileTree;
use crate::mcpb;
use crate::program::Program;
use crate::project::{
    DATABASE_URL, DATABASE_URL_HELP, IMAGE, MANIFEST, MANIFEST_HELP, MCP_NAME, NAME, PYPI_NAME, REPOSITORY, SUMMARY,
    TITLE, VERSION,
};

const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The entry. `release` has the files that are downloaded from the release of this version.
pub(crate) fn server_json(programs: &[Program], release: &FileTree) -> Value {
    let mut packages = vec![
        json!({
            "registryType": "npm",
            "identifier": NAME,
            "version": VERSION,
            "runtimeHint": "npx",
            "transport": {"type": "stdio"},
            "packageArguments": [serve()],
            "environmentVariables": [database_url(), manifest()],
        }),
        json!({
            "registryType": "pypi",
            "identifier": PYPI_NAME,
            "version": VERSION,
            "runtimeHint": "uvx",
            "transport": {"type": "stdio"},
            "packageArguments": [serve()],
            "environmentVariables": [database_url(), manifest()],
        }),
        // The version is the tag. A manifest would have to be mounted.
        json!({
            "registryType": "oci",
            "identifier": format!("{IMAGE}:{VERSION}"),
            "runtimeHint": "docker",
            "transport": {"type": "stdio"},
            "packageArguments": [serve()],
            "environmentVariables": [database_url()],
        }),
    ];
    // A bundle has its own configuration.
    let bundles: Vec<String> = mcpb::systems(programs).map(mcpb::file_name).collect();
    packages.extend(release.iter().filter(|(path, _)| bundles.iter().any(|name| name == path)).map(
        |(path, content)| {
            json!({
                "registryType": "mcpb",
                "identifier": format!("{REPOSITORY}/releases/download/v{VERSION}/{path}"),
                "fileSha256": crate::sha256_hex(content),
                "transport": {"type": "stdio"},
            })
        },
    ));
    json!({
        "$schema": SCHEMA,
        "name": MCP_NAME,
        "title": TITLE,
        "description": SUMMARY,
        "repository": {"url": REPOSITORY, "source": "github"},
        "version": VERSION,
        "packages": packages,
    })
}

fn serve() -> Value {
    json!({"type": "positional", "value": "serve"})
}

fn database_url() -> Value {
    json!({
        "name": DATABASE_URL,
        "description": DATABASE_URL_HELP,
        "format": "string",
        "isRequired": true,
        "isSecret": true,
    })
}

fn manifest() -> Value {
    json!({"name": MANIFEST, "description": MANIFEST_HELP, "format": "filepath", "isRequired": false})
}
