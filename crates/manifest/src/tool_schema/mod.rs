//! JSON Schemas of a tool's arguments and answers, from PostgreSQL's types.
//!
//! Clients support less than JSON Schema allows. Their converters need an object at the root, a type everywhere,
//! alternatives as `anyOf` instead of a list of types, no boolean schemas, no `additionalProperties` and no `$ref`.
//! Clients do not convert the schemas of answers: there, a value that may be null or has several JSON types has a
//! description and no type.

mod envelope;
mod input;
mod listed;
mod types;

pub(crate) use envelope::output_schema;
pub use envelope::{envelope_schema, outline};
pub(crate) use input::{IDEMPOTENCY_KEY, allowed, compare, input_schema};
pub use input::{form, idempotency_key};
pub use listed::listed;
pub use types::{
    any_parameter, any_scalar, any_value, decimal, element, enforced, integer, property, unsafe_numbers, with_numbers,
};

#[cfg(test)]
pub(crate) use types::examples;

use serde_json::{Map, Value};

/// The object in a `json!({..})`.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
