//! The common types of countersign: the answer of a tool ([`Envelope`]), the reason of a failure ([`ErrorCode`]),
//! the id of a write ([`CorrelationId`]), the caller ([`Principal`]), and the description of a prepared statement
//! ([`StatementShape`]). This crate does no I/O and knows neither MCP nor connections. All other crates of the
//! workspace may depend on it, so it must not depend on any of them.
//!
//! ```text
//! input       `line_codec`: bounded lines; `id_scanner`: the id in a line that is too long; `strict_json`
//! caller      `principal`, `caller_context`: role and claims; `client_info`
//! statement   `statement`: its parameters and columns
//! write       `tier`: who agrees; `policy`: rules and limits; `ids` of writes and proposals
//! rows        `cell`: a value, before `mask`; `redaction` of sensitive parameters; `secret`: never shown
//!             `row_format`, `safe_numbers`, `json_text`: their form in answers
//! undo        `effects` of a write, `conflict`: why an undo is refused
//! answer      `envelope`, `error_code`
//! texts       `escape` for people; `moment`: times as people type them; `nearest` names
//!             `text_enum`: enums whose variants have a text form
//! ```
//!
//! To add an error code, add one variant with its doc comment, and one line in [`ErrorCode::ALL`];
//! `docs/reference/errors.md` is generated from them.

mod caller_context;
mod cell;
mod client_info;
mod conflict;
mod database_label;
mod effects;
mod envelope;
mod error_code;
mod escape;
mod id_scanner;
mod ids;
mod json_text;
mod line_codec;
mod mask;
mod mixed_script;
mod moment;
mod nearest;
mod policy;
mod principal;
mod redaction;
mod row_format;
mod safe_numbers;
mod secret;
mod statement;
mod strict_json;
mod text_enum;
mod tier;

pub use caller_context::{
    CallerContext, ClaimName, ClaimNameError, MAX_CLAIM_BYTES, MAX_CLAIMS, RoleName, RoleNameError,
};
pub use cell::{Cell, CellMasks, Columns, Member};
pub use client_info::{ClientInfo, trace_id};
pub use conflict::{Conflict, ConflictColumn, ConflictKind, ConflictWrite, Conflicts, RowChanger, shown_conflicts};
pub use database_label::{DatabaseLabel, DatabaseName, DatabaseNameError};
pub use effects::{ChangeKind, ColumnEffect, EffectCount, Effects, RowEffect, RowHistoryEntry};
pub use envelope::{
    Envelope, Failure, MESSAGE_HIDDEN, Meta, Rollback, StandbyAge, TOOL_VERSION, UNDO_NOTE, UNDO_TOOL, UndoCall,
    may_quote_values,
};
pub use error_code::ErrorCode;
pub use escape::{beginning, in_sentence, quoted, visible};
pub use id_scanner::IdScanner;
pub use ids::{CorrelationId, IdPrefix, ProposalId, SchemaChangeId};
pub use json_text::JsonText;
pub use line_codec::{Line, LineCodec, without_byte_order_mark};
pub use mask::{Mask, MaskKey, MaskedColumn, Masks, ToolResults};
pub use mixed_script::{MixedWord, escaped, mixed_words};
pub use moment::{Age, EmptyRange, Moment, TimeError, TimeRange, rfc3339};
pub use nearest::{nearest, nearest_names};
pub use policy::{LimitScope, Rule, RuleAction, ToolLimit};
pub use principal::{AccountId, AccountIdError, Principal};
pub use redaction::{REDACTED, Redaction};
pub use row_format::RowFormat;
pub use safe_numbers::{NumberFields, is_plain_integer, is_safe_decimal, is_safe_integer, with_digits_as_text};
pub use secret::Secret;
pub use statement::{
    Column, ColumnOrigin, CompositeField, ConditionShape, DescribeError, DescribeStatement, PgType, Privilege,
    ReferencedObjects, RemotePart, Requirements, RequirementsCheck, Scalar, StatementShape, TableAccess, TypeKind,
};
pub use strict_json::{StrictJsonError, check_strict_json};
pub use tier::{ApprovalRule, MAX_WRITE_REASON_CHARS, REASON, ReasonRule, Tier};
