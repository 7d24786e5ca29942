//! What is exported, and where. OpenTelemetry's crates read the `OTEL_*` variables, apart from those that decide
//! whether anything is exported.

/// The settings of this program. They take effect before the `OTEL_*` variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The collector, such as `http://localhost:4318`; `None` for what `OTEL_EXPORTER_OTLP_ENDPOINT` says.
    pub endpoint: Option<String>,
    /// Whether spans have the text of statements.
    pub sql_text: bool,
}

impl TelemetrySettings {
    pub(crate) fn is_on(&self) -> bool {
        let endpoints =
            [opentelemetry_otlp::OTEL_EXPORTER_OTLP_ENDPOINT, opentelemetry_otlp::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT];
        let has_endpoint = self.endpoint.is_some() || endpoints.into_iter().any(|name| variable(name).is_some());
        has_endpoint
            && variable("OTEL_TRACES_EXPORTER").is_none_or(|exporter| exporter != "none")
            && !variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Where spans go, unless the variables decide that.
    pub(crate) fn endpoint_of_traces(&self) -> Option<String> {
        self.endpoint.as_ref().map(|endpoint| format!("{}/v1/traces", endpoint.trim_end_matches('/')))
    }
}

/// Whether the variables name the service.
pub(crate) fn names_service() -> bool {
    variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|attributes| {
            attributes.split(',').any(|attribute| attribute.trim_start().starts_with("service.name="))
        })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_their_path_below_the_endpoint() {
        let settings = TelemetrySettings { endpoint: Some("http://c:4318/base/".to_owned()), sql_text: false };
        assert_eq!(settings.endpoint_of_traces().unwrap(), "http://c:4318/base/v1/traces");
        assert_eq!(TelemetrySettings::default().endpoint_of_traces(), None);
    }
}
