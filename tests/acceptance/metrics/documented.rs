//! `docs/reference/metrics.md` follows from the metrics, and what is rendered is OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use crate::samples::sample;
use testkit::{External, assert_page, database, repository, skip_without};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tools::metrics::RefusalReason;

use super::World;

/// Everything that there can be.
async fn everything() -> String {
    let db = database().await;
    let world = World::new(&db, 1).await;
    let http = world.services.metrics.http();
    let (_session, stream) = (http.session(), http.stream());
    http.answered("/mcp", 200);
    http.answered("/mcp", 429);
    http.answered("/mcp", 429);
    http.refused(RefusalReason::RateLimited);
    drop(stream);
    for query in ["select 1", "delete from social.tweet"] {
        world.call("query_database", serde_json::json!({"query": query})).await;
        world.call("describe_database", serde_json::json!({})).await;
    }
    let text = world.services.metrics.render(&[world.services.gauges().await]);
    let scraped = super::Scraped::parse(&text);
    assert_eq!(scraped.of(r#"countersign_http_requests_total{route="/mcp",status="429"}"#), 2.0);
    assert_eq!(scraped.of(r#"countersign_http_refused_total{reason="rate_limited"}"#), 1.0);
    assert_eq!(scraped.of(r#"countersign_http_refused_total{reason="too_slow"}"#), 0.0);
    assert_eq!((scraped.of("countersign_http_sessions"), scraped.of("countersign_http_streams")), (1.0, 0.0));
    text
}

/// The names of the labels of a metric, and the values of those that have a fixed list.
fn labels(text: &str, name: &str) -> String {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let suffixes = ["", "_total", "_info", "_bucket", "_count", "_sum"];
    let of_metric = |line: &&str| {
        let sample = line.split('{').next().unwrap_or_default();
        sample.strip_prefix(name).is_some_and(|suffix| suffixes.contains(&suffix))
    };
    for labels in text.lines().filter(of_metric).filter_map(|line| line.split_once('{')?.1.split_once('}')) {
        for (label, value) in labels.0.split(',').filter_map(|pair| pair.split_once('=')) {
            if label != "le" {
                found.entry(label).or_default().insert(value.trim_matches('"'));
            }
        }
    }
    let is_fixed =
        |label: &str| matches!(label, "pool" | "reason" | "state" | "status") && name != "countersign_http_requests";
    let shown = found.into_iter().map(|(label, values)| match is_fixed(label) {
        true => format!(
            "`{label}`: {}",
            values.into_iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
        ),
        false => format!("`{label}`"),
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_metrics_follows_from_their_help() {
    let text = everything().await;
    let mut page =
        "# Metrics\n\nThis page is generated from the code. `/metrics` serves these metrics as OpenMetrics text.\n\
                    [Monitoring](../topics/monitoring.md#metrics) says what to alert on.\n\n\
                    | metric | type | labels | meaning |\n|---|---|---|---|\n"
            .to_owned();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in families {
        let help =
            text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {name} "))).expect("each has a help");
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels = labels(&text, name);
        page.push_str(&format!("| `{name}{suffix}` | {kind} | {labels} | {} |\n", help.trim_end_matches('.')));
    }
    for reason in RefusalReason::ALL {
        assert!(page.contains(&format!("`{}`", reason.as_str())), "{reason:?} is not on the page");
    }
    assert_page("metrics", &page);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_alerts_of_the_page_are_of_metrics_that_exist() {
    if skip_without(&[External::Python]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alerts.yaml");
    std::fs::write(&path, sample("docs/topics/monitoring.md", "- alert:")).unwrap();
    let script = "import sys, yaml; print(chr(10).join(rule['expr'] for rule in yaml.safe_load(open(sys.argv[1]))))";
    let mut command = Command::new(External::Python.expected_path());
    let output = command.args(["-c", script]).arg(path).output().await.unwrap();
    let expressions = String::from_utf8(output.stdout).unwrap();
    let text = everything().await;
    let names = expressions.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: Vec<&str> = names.filter(|word| word.starts_with("countersign_")).collect();
    assert!(names.len() > 4, "{expressions}");
    for name in names {
        assert!(text.contains(&format!("# TYPE {} ", name.trim_end_matches("_total"))), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_parser_of_the_prometheus_project_takes_it() {
    if skip_without(&[External::Python]) {
        return;
    }
    let text = everything().await;
    let mut command = Command::new(External::Python.expected_path());
    command.arg(repository().join("tests/python/metrics.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parser = command.spawn().unwrap();
    let mut input = parser.stdin.take().unwrap();
    input.write_all(text.as_bytes()).await.unwrap();
    drop(input);
    let output = parser.wait_with_output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.ends_with("metrics complete\n"), "{said}\n{text}");
    for family in ["counter countersign_tool_calls ", "info countersign_build ", "unknown "] {
        assert_eq!(said.contains(family), family != "unknown ", "{family}: {said}");
    }
}
