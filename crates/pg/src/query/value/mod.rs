//! Values between PostgreSQL's text form and JSON.
//!
//! PostgreSQL writes and reads every type as text, so text is the one form that carries them all exactly, extension
//! types included. [`decode`] makes of it what `to_jsonb` would; [`encode`] makes the text of a parameter from JSON. What
//! the text does not say, `draft` prepares for the server to say.

mod composite;
mod decode;
mod encode;
mod partial_json;

pub(crate) use partial_json::{BinaryDecodeError, PartialJson, Unresolved, draft_binary, draft_text};

pub use crate::client::literal::{identifier, push_array_element, sql_literal, text_array};
pub use decode::decode;
pub(crate) use encode::encode_safe;
pub use encode::{EncodeError, encode, encode_all, encode_texts, encode_with_json_texts};
