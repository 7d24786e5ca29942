//! Property tests: whatever is queued, and wherever a call is dropped, each event names the statement that it belongs
//! to.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use proptest::prelude::*;
use tokio::net::UnixStream;

use super::*;

/// One statement: the number of its rows, and how it fails.
#[derive(Debug, Clone, Copy)]
struct Script {
    rows: u8,
    fails_at: Option<Stage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parse,
    Bind,
    Execute,
}

/// Several statements up to one ReadyForQuery.
#[derive(Debug, Clone)]
struct Group {
    statements: Vec<Script>,
    is_simple: bool,
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let stage = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Stage::Parse)),
        1 => Just(Some(Stage::Bind)),
        1 => Just(Some(Stage::Execute))
    ];
    let script = (0..4_u8, stage).prop_map(|(rows, fails_at)| Script { rows, fails_at });
    let statements = prop::collection::vec(script, 0..5);
    let group = (statements, any::<bool>()).prop_map(|(statements, is_simple)| Group { statements, is_simple });
    prop::collection::vec(group, 1..6)
}

/// The text of a statement, which encodes what the server must do.
fn text(number: usize, script: Script) -> String {
    let stage = script.fails_at.map_or(' ', |stage| match stage {
        Stage::Parse => 'p',
        Stage::Bind => 'b',
        Stage::Execute => 'e',
    });
    format!("{number} {} {stage}", script.rows)
}

fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// A server that follows the protocol like PostgreSQL, and writes its answers in pieces of these sizes.
struct Server {
    statements: HashMap<Vec<u8>, String>,
    portal: String,
    skips: bool,
    answer: Vec<u8>,
}

impl Server {
    fn fail(&mut self, number: &str) {
        self.answer.extend(framed(b'E', format!("SERROR\0C22000\0M{number}\0\0").as_bytes()));
    }

    /// Runs a statement. Returns false if it failed.
    fn execute(&mut self, text: &str) -> bool {
        let mut words = text.split(' ');
        let (number, rows) = (words.next().unwrap(), words.next().unwrap().parse::<u8>().unwrap());
        self.answer.extend(framed(b'N', format!("SNOTICE\0C00000\0M{number}\0\0").as_bytes()));
        for _ in 0..rows {
            let length = u32::try_from(number.len()).unwrap().to_be_bytes();
            self.answer.extend(framed(b'D', &[b"\0\x01", &length[..], number.as_bytes()].concat()));
        }
        if text.ends_with('e') {
            self.fail(number);
            return false;
        }
        self.answer.extend(framed(b'C', format!("SELECT {number}\0").as_bytes()));
        true
    }

    fn handle(&mut self, tag: u8, body: &[u8]) {
        let strings: Vec<&[u8]> = body.split(|byte| *byte == 0).collect();
        let number = |text: &str| text.split(' ').next().unwrap().to_owned();
        match tag {
            b'S' => {
                self.skips = false;
                self.answer.extend(b"Z\0\0\0\x05I");
            }
            _ if self.skips => {}
            b'P' => {
                let text = String::from_utf8(strings[1].to_vec()).unwrap();
                if text.ends_with('p') {
                    self.fail(&number(&text));
                    self.skips = true;
                } else {
                    self.statements.insert(strings[0].to_vec(), text);
                    self.answer.extend(framed(b'1', b""));
                }
            }
            b'B' => {
                self.portal = self.statements[strings[1]].clone();
                if self.portal.ends_with('b') {
                    let number = number(&self.portal);
                    self.fail(&number);
                    self.skips = true;
                } else {
                    self.answer.extend(framed(b'2', b""));
                }
            }
            b'D' => self.answer.extend(framed(b'n', b"")),
            b'E' => {
                let text = self.portal.clone();
                self.skips = !self.execute(&text);
            }
            b'C' => self.answer.extend(framed(b'3', b"")),
            b'Q' => {
                let texts = String::from_utf8(strings[0].to_vec()).unwrap();
                let mut texts = texts.split(';').filter(|text| !text.is_empty()).peekable();
                if texts.peek().is_none() {
                    self.answer.extend(framed(b'I', b""));
                }
                let _ = texts.all(|text| self.execute(text));
                self.answer.extend(b"Z\0\0\0\x05I");
            }
            tag => panic!("{tag}"),
        }
    }

    async fn serve(mut self, mut socket: UnixStream, pieces: Vec<usize>) {
        let mut pieces = pieces.into_iter().cycle();
        while let Ok(tag) = socket.read_u8().await {
            let mut body = vec![0; socket.read_u32().await.unwrap() as usize - 4];
            socket.read_exact(&mut body).await.unwrap();
            self.handle(tag, &body);
            for piece in std::mem::take(&mut self.answer).chunks(pieces.next().unwrap()) {
                socket.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Polls a future once, and drops it if it is not ready.
async fn polled_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Drops a future at each await that is pending, until one attempt completes.
macro_rules! with_drops {
    ($future:expr) => {
        loop {
            match polled_once($future).await {
                Some(output) => break output.unwrap(),
                None => tokio::task::yield_now().await,
            }
        }
    };
}

/// Queues the groups. Returns the numbers of their statements, by id.
fn push(connection: &mut Connection, groups: &[Group]) -> HashMap<StatementId, Vec<usize>> {
    let mut numbers = HashMap::new();
    let mut number = 0;
    for group in groups {
        if group.is_simple {
            let texts: Vec<String> = group
                .statements
                .iter()
                .map(|script| {
                    number += 1;
                    text(number, *script)
                })
                .collect();
            connection.push_simple_query(&texts.join(";"), Purpose::Call).unwrap();
            let own = number - texts.len() + 1..=number;
            numbers.insert(connection.exchange.last_statement(), own.collect());
            continue;
        }
        for script in &group.statements {
            number += 1;
            numbers.insert(connection.next_statement(), vec![number]);
            let name = format!("s{number}");
            connection.push_close_statement(&name).unwrap();
            connection.push_parse(&name, &text(number, *script), &[]).unwrap();
            connection.push_bind("", &name, &[]).unwrap();
            connection.push_describe_portal("").unwrap();
            connection.push_execute("", 0).unwrap();
        }
        connection.push_sync(Purpose::Call);
    }
    numbers
}

/// The number of rows that each statement returns, by the statement's number.
fn expected(groups: &[Group]) -> HashMap<usize, u8> {
    let mut rows = HashMap::new();
    let mut number = 0;
    for group in groups {
        let mut has_failed = false;
        for script in &group.statements {
            number += 1;
            let runs = group.is_simple || !matches!(script.fails_at, Some(Stage::Parse | Stage::Bind));
            if runs && !has_failed && script.rows > 0 {
                rows.insert(number, script.rows);
            }
            has_failed |=
                if group.is_simple { script.fails_at == Some(Stage::Execute) } else { script.fails_at.is_some() };
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_event_is_of_the_statement_that_it_names(
        groups in groups(),
        pieces in prop::collection::vec(1..40_usize, 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let server =
                Server { statements: HashMap::new(), portal: String::new(), skips: false, answer: Vec::new() };
            let serving = tokio::spawn(server.serve(theirs, pieces));
            let mut connection = super::tests::connection_over(ours);
            let numbers = push(&mut connection, &groups);
            with_drops!(connection.flush());
            let mut rows = HashMap::new();
            let mut ready = 0;
            while connection.has_pending() {
                let (id, number) = match with_drops!(connection.event()) {
                    Event::Row(id, body) => {
                        let number: usize = rows::row_texts(&body).unwrap()[0].unwrap().parse().unwrap();
                        *rows.entry(number).or_default() += 1;
                        (id, number)
                    }
                    Event::Completed(id, tag) => (id, tag.rsplit(' ').next().unwrap().parse().unwrap()),
                    Event::Failed(id, error) => (id, error.message.parse().unwrap()),
                    Event::Notice(Some(id), notice) => (id, notice.message.parse().unwrap()),
                    Event::Ready => {
                        ready += 1;
                        continue;
                    }
                    _ => continue,
                };
                assert!(numbers[&id].contains(&number), "{number} is not of {id:?}: {groups:?}");
            }
            assert_eq!(rows, expected(&groups));
            assert_eq!((ready, connection.exchange.len()), (groups.len(), 0));
            drop(connection);
            serving.await.unwrap();
        });
    }
}
