//! The JSON Schema of `countersign.toml`, for editors. It is generated from the keys, and checked in as
//! `countersign.schema.json`.

use serde_json::{Map, Value, json};

use super::console_keys::{CONSOLE, CONSOLE_OIDC, OIDC, OidcKeys};
use super::database_keys::{self, DatabaseTableKeys};
use super::http_auth_keys::{OAUTH, OAuthKeys, TOKENS, TokenKeys};
use super::key_group::properties;
use super::keys::{DatabaseGroups, HTTP, Keys, LIMITS, TOP};
use super::masks;
use super::notify_keys::NOTIFY;
use super::otel_keys::OTEL;
use super::profiles::{self, ProfileKeys};
use super::reads_keys::READS;

pub(super) fn schema() -> Value {
    let mut top = Keys::schema(TOP);
    for (name, description) in [
        (LIMITS, "Limits."),
        (READS, "The log of reads."),
        (NOTIFY, "Notices of proposals."),
        (OTEL, "OpenTelemetry."),
        (HTTP, "MCP over HTTP."),
    ] {
        top.insert(name.to_owned(), table(description, Keys::schema(name)));
    }
    top.insert(CONSOLE.to_owned(), console());
    let own = with(table("One database of several.", database()), "minProperties", 1.into());
    let names = json!({"description": "The databases of a server with several, by name.", "type": "object",
        "patternProperties": {"^[a-z][a-z0-9_]{0,31}$": own}, "additionalProperties": false});
    top.insert(database_keys::TABLE.to_owned(), names);
    let own = table("Your own set of tools.", properties::<ProfileKeys>());
    let own = with(own, "minProperties", 1.into());
    let names = json!({"description": "Your own profiles, by name.", "type": "object",
        "patternProperties": {"^[a-z][a-z0-9_-]{0,31}$": own}, "additionalProperties": false});
    top.insert(profiles::TABLE.to_owned(), names);
    top.insert(masks::TABLE.to_owned(), masks::schema());
    let token = table("A token, by its hash.", properties::<TokenKeys>());
    let token = with(token, "required", json!(["hash", "account"]));
    let list =
        json!({"description": "Callers over HTTP, by the hash of their token.", "type": "array", "items": token});
    top.insert(TOKENS.to_owned(), list);
    top.insert(OAUTH.to_owned(), oauth());
    let mut schema = table("The configuration of countersign: countersign.toml.", top);
    if let Some(schema) = schema.as_object_mut() {
        schema.shift_insert(0, "$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    }
    schema
}

/// The keys of the table of a database.
pub(super) fn database() -> Map<String, Value> {
    let mut keys = properties::<DatabaseTableKeys>();
    keys.extend(DatabaseGroups::schema(TOP));
    for name in database_keys::INNER {
        keys.insert(name.to_owned(), table(&format!("As [{name}]."), DatabaseGroups::schema(name)));
    }
    keys.insert(masks::TABLE.to_owned(), masks::schema());
    keys
}

fn console() -> Value {
    let mut keys = properties::<OidcKeys>();
    keys.extend(Keys::schema(CONSOLE_OIDC));
    let description = "Group that approvers of a tool names, for each group of the provider that is one. Default: every group, as the \
                       provider names it.";
    let groups = json!({"description": description, "type": "object", "additionalProperties": {"type": "string"}});
    keys.insert("groups".to_owned(), groups);
    let oidc = table("The OpenID Connect provider where people sign in to the console.", keys);
    let mut console = Keys::schema(CONSOLE);
    console.insert(OIDC.to_owned(), with(oidc, "required", json!(["issuer", "client_id"])));
    table("The console.", console)
}

fn oauth() -> Value {
    let mut keys = properties::<OAuthKeys>();
    let description = "Profile of each scope, from the weakest to the strongest: the last match applies.";
    let scopes = json!({"description": description, "type": "object", "minProperties": 1,
        "additionalProperties": {"type": "string"}});
    keys.insert("scopes".to_owned(), scopes);
    let oauth = table("The issuer whose JWTs are accepted over HTTP, or a list of several.", keys);
    let oauth = with(oauth, "required", json!(["issuer", "scopes"]));
    let oauth = with(oauth, "not", json!({"type": "object", "required": ["jwks_url", "jwks_file"]}));
    // One table, or a list of such tables.
    let oauth = with(oauth, "type", json!(["object", "array"]));
    with(oauth, "items", json!({"$ref": "#/properties/oauth", "type": "object"}))
}

/// The keys of the file, of one of its tables (`http`, `console.oidc`), or of each table of a list.
pub(super) fn names(table: Option<&str>) -> Vec<String> {
    let schema = schema();
    let mut path = table.into_iter().flat_map(|table| table.split('.'));
    let holder = path.try_fold(&schema, |holder, table| holder.get("properties")?.get(table));
    let holder = holder.map(|holder| if holder.get("properties").is_some() { holder } else { &holder["items"] });
    let properties = holder.and_then(|holder| holder.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

/// What stands before the keys of a table in messages: `limits.`.
pub(super) fn prefix(table: Option<&str>) -> String {
    table.map(|table| format!("{table}.")).unwrap_or_default()
}

/// The table that has this key, in the user's notation, if it is not the table `prefix` (`limits.`).
pub(super) fn elsewhere(key: &str, prefix: &str) -> Option<String> {
    let tables =
        [None, Some(LIMITS), Some(HTTP), Some(READS), Some(NOTIFY), Some(OTEL), Some(CONSOLE), Some(CONSOLE_OIDC)];
    // Keys of tokens and profiles belong to no other table.
    tables.iter().find(|table| self::prefix(**table) == prefix)?;
    let mut others = tables.into_iter().filter(|table| self::prefix(*table) != prefix);
    let found = others.find(|table| names(*table).iter().any(|name| name == key))?;
    Some(found.map_or_else(|| "the top of the file, before the first table".to_owned(), |table| format!("[{table}]")))
}

/// The schema of a table with one more keyword.
fn with(mut table: Value, keyword: &str, value: Value) -> Value {
    if let Some(table) = table.as_object_mut() {
        table.insert(keyword.to_owned(), value);
    }
    table
}

fn table(description: &str, properties: Map<String, Value>) -> Value {
    json!({"description": description, "type": "object", "properties": properties, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../countersign.schema.json");

    /// `UPDATE_GOLDEN=1 cargo test -p countersign` writes the file anew.
    #[test]
    fn the_checked_in_schema_of_the_configuration_is_the_generated_one() {
        let generated = format!("{:#}\n", schema());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(CHECKED_IN, &generated).unwrap();
        }
        assert_eq!(std::fs::read_to_string(CHECKED_IN).unwrap(), generated, "run it with UPDATE_GOLDEN=1");
    }
}
