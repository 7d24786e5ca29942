//! JSON Schema of a tool's arguments and of its answers, from PostgreSQL's types.
//!
//! Clients accept less than JSON Schema allows: object roots only, one `type` a property, no boolean schemas below the
//! root, no `$ref`, no `anyOf`. So a value that may be null, or has several JSON types, has a description and no
//! `type`.

mod envelope;
mod input;
mod types;

pub(crate) use envelope::output_schema;
pub use envelope::{envelope_schema, outline};
pub use input::idempotency_key;
pub(crate) use input::{IDEMPOTENCY_KEY, allowed, compare, input_schema};
pub use types::{decimal, enforced, with_numbers};

#[cfg(test)]
pub(crate) use types::examples;

use serde_json::{Map, Value};

/// The object of a `json!({..})`.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
