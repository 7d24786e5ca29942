//! docs/operators.md lists every metric, and no other; and what is rendered is OpenMetrics.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::samples::sample;
use testkit::{External, database, repository, skip_without};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tools::metrics::RefusalReason;

use super::World;

/// Everything that there can be.
async fn everything() -> String {
    let db = database().await;
    let world = World::new(&db, 1).await;
    let http = world.backends.metrics.http();
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
    let text = world.backends.render_metrics().await;
    let scraped = super::Scraped::parse(&text);
    assert_eq!(scraped.of(r#"countersign_http_requests_total{route="/mcp",status="429"}"#), 2.0);
    assert_eq!(scraped.of(r#"countersign_http_refused_total{reason="rate_limited"}"#), 1.0);
    assert_eq!(scraped.of(r#"countersign_http_refused_total{reason="too_slow"}"#), 0.0);
    assert_eq!((scraped.of("countersign_http_sessions"), scraped.of("countersign_http_streams")), (1.0, 0.0));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_in_the_table_and_every_line_of_the_table_is_a_metric() {
    let text = everything().await;
    let rendered: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    let page = std::fs::read_to_string(repository().join("docs/operators.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n")).expect("a section");
    let named: Vec<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.split('{').next().unwrap().to_owned())
        .collect();
    let table: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(table.len(), named.len(), "a metric has one line");
    assert_eq!(table, rendered);
    for reason in RefusalReason::ALL {
        assert!(section.contains(&format!("`{}`", reason.as_str())), "{reason:?} is not in the section");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alerts_of_the_page_are_of_metrics_that_exist() {
    if skip_without(&[External::Python]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alerts.yaml");
    std::fs::write(&path, sample("docs/operators.md", "- alert:")).unwrap();
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
