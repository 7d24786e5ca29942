//! Logs go to standard error: standard output is reserved for the protocol.
//!
//! Messages contain texts of clients, of PostgreSQL and of the issuer. So each event is one line with hidden
//! characters escaped: no text can look like another line of the program or control a terminal.

use std::io;

use anyhow::Context;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::LogFormat;

/// Crates that, below this level, log whole messages with the texts of queries and parameters. rmcp logs a warning
/// for every request that is invalid or that its client cancels. The client gets an error anyway, and could fill the
/// log.
const TALKATIVE: [(&str, Level); 2] = [("rmcp", Level::ERROR), ("refinery_core", Level::WARN)];

pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let asked = EnvFilter::try_new(level).with_context(|| {
        format!("log (--log, COUNTERSIGN_LOG) is \"{level}\": it takes error, warn, info, debug or filters")
    })?;
    // Applied to every configured level: no filter may bring a parameter into the log.
    let filter = asked.and(filter_fn(is_free_of_messages));
    let layer = layer(format, || OneLine(io::stderr()));
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    Ok(())
}

fn layer<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    }
}

/// Receives one event at a time, with its line break. Hidden characters are replaced with JSON escapes, so a line of
/// JSON keeps its meaning.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = types::visible(text.strip_suffix('\n').unwrap_or(&text));
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_free_of_messages(event: &Metadata<'_>) -> bool {
    let crate_name = event.target().split("::").next().unwrap_or_default();
    TALKATIVE.iter().all(|(name, least)| *name != crate_name || event.level() <= least)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Arrived(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Arrived {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, words: &str) -> String {
        let arrived = Arrived::default();
        let writer = arrived.clone();
        let layer = layer(format, move || OneLine(writer.clone()));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(field = %words, "the client says {words}");
        });
        let bytes = arrived.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_in_which_nothing_is_hidden_whatever_its_words_are() {
        let words = "Grüße\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}[31m\u{7f}\u{85}\u{9b}\u{2028}\u{202e}\u{e0041}";
        let text = logged(LogFormat::Text, words);
        assert!(text.ends_with(&format!("field={}\n", types::visible(words))), "{text}");
        let json = logged(LogFormat::Json, words);
        let event: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(event["fields"]["field"], words);
        assert_eq!(event["fields"]["message"], format!("the client says {words}"));
        for log in [text, json] {
            let line = log.strip_suffix('\n').unwrap();
            assert_eq!(types::visible(line), line, "something is hidden, or there are two lines");
        }
    }
}
