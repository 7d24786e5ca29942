//! The lines of a history, format 1: each is a JSON object with one member, whose name says what the line is.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// The version of this format.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Header(Header),
    /// A client or a person begins an operation.
    Call(Call),
    /// The operation has ended, or is given up.
    Answer(Answer),
    Fault(Fault),
    /// The final state: every record of the ledger.
    Record(Record),
    /// A change of a row that belongs to no record.
    Stray(Effect),
    /// Every entry of the log.
    Leaf(Leaf),
    /// Every row of the tables that clients write to.
    Row(Row),
    /// The last line of the final state.
    End(End),
}

/// The id of a record, a proposal or a plan. In a history it has its first 13 characters, which are 12 hexadecimal
/// digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct Id(String);

impl Id {
    const SHORT: usize = 13;

    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.get(..Self::SHORT).unwrap_or(&self.0))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    /// The version, the commit of the repository, and the profile of the build.
    pub countersign: String,
    pub commit: String,
    pub profile: String,
    pub run: String,
    pub seed: u64,
    pub machine: Machine,
    pub postgresql: String,
    /// Settings of PostgreSQL that a guarantee rests on.
    pub settings: String,
    pub servers: usize,
    pub agents: usize,
    /// How long an agent thinks between two calls, at most.
    pub think_ms: u64,
    /// For how long faults follow each other, at least.
    pub seconds: u64,
    /// Milliseconds since 1970. The times of all other lines count from it: `t` by the monotonic clock, `wall` and
    /// `at` by the wall clock. There is no `wall` where it is `t`, give or take 1.
    pub began: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub memory_mb: u64,
    pub kernel: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    pub op: u64,
    pub t: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<i64>,
    /// An agent, or a person.
    pub client: String,
    /// The server that is asked; none for the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<usize>,
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Write {
        tool: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        arguments: Arguments,
    },
    /// An undo of one write: by a tool, or by the command `undo`.
    Undo {
        tool: String,
        of: Id,
        arguments: Arguments,
    },
    /// A read.
    Query {
        sql: String,
    },
    /// A read whose statement would insert a row with this text.
    WritingQuery {
        sql: String,
        text: String,
    },
    MakePlan {
        scope: String,
    },
    RunPlan {
        plan: Id,
    },
    Approve {
        proposal: Id,
    },
    Reject {
        proposal: Id,
    },
    Freeze,
    Unfreeze,
    Seal,
    Verify,
}

/// The arguments that tell what a write does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arguments {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    pub op: u64,
    pub t: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<i64>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done {
        receipt: Id,
        data: Value,
    },
    /// The call had been carried out before; the data is that of the first answer.
    Repeated {
        receipt: Id,
        original: Id,
        data: Value,
    },
    /// A person has to approve it first.
    Proposed {
        proposal: Id,
    },
    Read,
    Refused {
        code: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Id>,
        retryable: bool,
    },
    /// The server does not know whether it was carried out.
    InDoubt {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Id>,
    },
    /// No answer: the server or its connection has ended.
    Lost,
    /// A plan, with the writes of each of its parts; none if it cannot be run.
    Planned {
        plan: Option<Id>,
        parts: Vec<Vec<Id>>,
    },
    /// A command ended with this exit code; without one it was killed.
    Ended {
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        undone: Vec<Id>,
        /// It may have done something without a word about it.
        in_doubt: bool,
        /// It says that everything it was asked for is done, by this run or an earlier one.
        complete: bool,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    pub t: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<i64>,
    pub name: String,
    /// Whether this line is its end: what was ended runs again.
    pub over: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The number of the record; none while it is pending.
    pub id: Option<u64>,
    pub receipt: Id,
    pub at: Option<i64>,
    pub tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub arguments: Arguments,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<Id>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo_of: Vec<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversed_by: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Success,
    Failure,
    Duplicate,
    Pending,
}

/// A change of a row. An image is the beginning of the MD5 of the row as text; none where there is no row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effect {
    /// The effects of one row have happened in this order.
    pub position: u64,
    pub table: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Leaf {
    pub index: u64,
    /// What it is of: `record`, or an event.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub table: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    pub image: String,
}

/// How many lines of each kind the final state has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub records: usize,
    pub strays: usize,
    pub leaves: usize,
    pub rows: usize,
}
