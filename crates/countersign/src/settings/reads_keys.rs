//! The keys of `[reads]`.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use clap::ValueEnum;
use ledger::ReadLogDetail;
use schemars::JsonSchema;
use serde::Deserialize;

use super::key_group::keys;

pub(super) const READS: &str = "reads";

keys! {
    /// The log of reads: the table `[reads]`.
    ReadsKeys {
        /// Log reads of MCP clients in the ledger: off (the default), metadata (who, what, when, which tables, with
        /// which result), or text (with the statements, up to 8 KiB each).
        #[arg(id = "reads_log", long = "reads-log", env = "COUNTERSIGN_READS_LOG", value_name = "DETAIL")]
        log: ReadsLog,
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadsLog {
    /// No log.
    #[default]
    Off,
    /// Everything except the statements.
    Metadata,
    /// The statements as well.
    Text,
}

types::same_variants! { ReadsLog => ReadLogDetail { Off, Metadata, Text } }
