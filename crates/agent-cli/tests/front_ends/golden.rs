//! Whole sessions, line by line: `> ` is sent, `< ` is what must come next, `# ` says what for. `UPDATE_GOLDEN=1` writes what came
//! into the place of what is expected (as many lines as there are).

use std::path::Path;

use crate::harness::{Pipe, in_time, settled};

async fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut pipe = Pipe::start(&["--log", "query.sql_error"]);
    let mut came = String::new();
    for line in text.lines() {
        if let Some(sent) = line.strip_prefix("> ") {
            pipe.send(sent).await;
        }
        if line.starts_with('<') {
            let event = in_time(pipe.output.next_line()).await.unwrap().expect("an event");
            came.push_str(&format!("< {}\n", settled(&event)));
        } else {
            came.push_str(&format!("{line}\n"));
        }
    }
    let (left, code, _) = pipe.finish().await;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, came).unwrap();
    } else {
        for (number, (came, expected)) in came.lines().zip(text.lines()).enumerate() {
            assert_eq!(came, expected, "{name}.jsonl, line {}", number + 1);
        }
    }
    assert_eq!((left, code), (if text.contains("\"code\":\"close\"}") { vec![] } else { vec!["close".to_owned()] }, 0));
}

#[tokio::test]
async fn queries_and_their_results() {
    // B1-02, B2-01, B2-06 to B2-09, B3-01 to B3-14, B3-24 to B3-36, B4-01, B8-08 to B8-15
    check("queries").await;
}

#[tokio::test]
async fn everything_that_can_go_wrong() {
    // B2-10, B2-11, B2-12, B3-37 to B3-50, B3-56 to B3-62, B8-16, B9-01 to B9-05
    check("failures").await;
}

#[tokio::test]
async fn the_configuration_and_the_other_commands() {
    // B2-02 to B2-05, B2-13 to B2-15, B3-15 to B3-23, B3-51, B3-52, B9-16, B9-31
    check("commands").await;
}

#[tokio::test]
async fn transactions() {
    // B9-27
    check("transactions").await;
}
