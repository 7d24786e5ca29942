//! The keys of `[otel]`.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use clap::builder::BoolishValueParser;
use schemars::JsonSchema;
use serde::Deserialize;
use telemetry::TelemetrySettings;

use super::addresses::CollectorUrl;
use super::key_group::keys;

pub(super) const OTEL: &str = "otel";

keys! {
    /// OpenTelemetry: the table `[otel]`.
    #[command(next_help_heading = "Options for OpenTelemetry")]
    OtelKeys {
        /// Collector of OpenTelemetry that takes spans of requests over OTLP/HTTP, such as
        /// http://localhost:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT, or nothing is exported.
        #[arg(id = "otel_endpoint", long = "otel-endpoint", env = "COUNTERSIGN_OTEL_ENDPOINT", value_name = "URL",
              hide_short_help = true)]
        endpoint: CollectorUrl,
        /// Export the text of statements, too, up to 8,192 characters each.
        #[arg(id = "otel_sql_text", long = "otel-sql-text", env = "COUNTERSIGN_OTEL_SQL_TEXT", num_args = 0..=1,
              require_equals = true, default_missing_value = "true", hide_short_help = true, value_parser = BoolishValueParser::new())]
        sql_text: bool,
    }
}

impl OtelKeys {
    pub(super) fn settings(self) -> TelemetrySettings {
        let endpoint = self.endpoint.map(CollectorUrl::into_text);
        TelemetrySettings { endpoint, sql_text: self.sql_text.unwrap_or_default() }
    }
}
