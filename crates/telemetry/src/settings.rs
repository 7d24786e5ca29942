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

/// A kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// The path at the collector, the variable with an endpoint, and the one that turns the signal off.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Traces => {
                ("v1/traces", opentelemetry_otlp::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, "OTEL_TRACES_EXPORTER")
            }
            Self::Metrics => {
                ("v1/metrics", opentelemetry_otlp::OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, "OTEL_METRICS_EXPORTER")
            }
        }
    }
}

impl TelemetrySettings {
    pub(crate) fn is_on(&self) -> bool {
        !variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            && [Signal::Traces, Signal::Metrics].into_iter().any(|signal| self.exports(signal))
    }

    pub(crate) fn exports(&self, signal: Signal) -> bool {
        let (_, endpoint, exporter) = signal.names();
        let has_endpoint = self.endpoint.is_some()
            || [opentelemetry_otlp::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint]
                .into_iter()
                .any(|name| variable(name).is_some());
        has_endpoint && variable(exporter).is_none_or(|exporter| exporter != "none")
    }

    /// Where a signal goes, unless the variables decide that.
    pub(crate) fn endpoint_of(&self, signal: Signal) -> Option<String> {
        let (path, ..) = signal.names();
        self.endpoint.as_ref().map(|endpoint| format!("{}/{path}", endpoint.trim_end_matches('/')))
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
    fn a_signal_has_its_path_below_the_endpoint() {
        let settings = TelemetrySettings { endpoint: Some("http://c:4318/base/".to_owned()), sql_text: false };
        assert_eq!(settings.endpoint_of(Signal::Traces).unwrap(), "http://c:4318/base/v1/traces");
        assert_eq!(settings.endpoint_of(Signal::Metrics).unwrap(), "http://c:4318/base/v1/metrics");
        assert_eq!(TelemetrySettings::default().endpoint_of(Signal::Metrics), None);
    }
}
