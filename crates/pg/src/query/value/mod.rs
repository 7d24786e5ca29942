//! Converts values between PostgreSQL's text form and JSON.
//!
//! PostgreSQL reads and writes every type as text, so the text form carries all types exactly, including those of
//! extensions. [`decode`] converts it to JSON as `to_jsonb` would; [`encode`] converts JSON to the text of a
//! parameter. `partial_json` handles values whose text does not determine their JSON: the server converts the rest.

mod composite;
mod decode;
mod encode;
mod partial_json;

pub(crate) use partial_json::{BinaryDecodeError, PartialJson, Unresolved, draft_binary, draft_text};

pub use crate::client::literal::{identifier, push_array_element, sql_literal, text_array};
pub use decode::decode;
pub(crate) use encode::encode_safe;
pub use encode::{EncodeError, encode, encode_all, encode_texts, encode_with_json_texts};
