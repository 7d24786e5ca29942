//! Values between PostgreSQL's text form and JSON.
//!
//! PostgreSQL writes and reads every type as text, so text is the one form that carries them all exactly, extension
//! types included. [`decode`] makes of it what `to_jsonb` would; [`encode`] makes the text of a parameter from JSON. What
//! the text does not say, `draft` prepares for the server to say.

mod composite;
mod decode;
mod draft;
mod encode;
mod literal;

pub(crate) use draft::{Draft, Leaf, Refused, draft_binary, draft_text};

pub use decode::decode;
pub use encode::{EncodeError, encode, encode_all, encode_texts, encode_with_json_texts};
pub use literal::{identifier, sql_literal, text_array};
