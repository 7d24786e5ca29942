//! Entries: the text of a leaf, `countersign-entry/v1`.

use std::fmt::Write as _;

use crate::Hash;

/// The maximum length of an entry that is written, in bytes.
pub const MAX_ENTRY_BYTES: usize = 8192;

/// The prefix of a value that names a part; the digits of its digest follow.
pub const PART_PREFIX: &str = "sha256:";

const FIRST_LINE: &str = "countersign-entry/v1";

/// The keys whose values name parts, and those whose values are times.
const PART_KEYS: [&str; 5] = ["params", "result", "effects", "context", "details"];
const TIME_KEYS: [&str; 5] = ["at", "admitted_at", "completed_at", "decided_at", "made_before"];

/// The keys of each kind, in order.
const KINDS: [(&str, &[&str]); 14] = [
    (
        "record",
        &[
            "id",
            "correlation_id",
            "status",
            "tool",
            "account",
            "actor",
            "login",
            "admitted_at",
            "completed_at",
            "rows_affected",
            "error_code",
            "duplicate_of",
            "undo_of",
            "proposal_id",
            "decided_by",
            "decided_login",
            "decided_via",
            "decided_at",
            "params",
            "result",
            "effects",
            "context",
        ],
    ),
    (
        "decision",
        &[
            "id",
            "at",
            "login",
            "person",
            "proposal_id",
            "digest",
            "decision",
            "via",
            "approvals",
            "tier",
            "tool",
            "account",
            "details",
        ],
    ),
    ("question", &["id", "at", "login", "person", "proposal_id", "digest", "via", "tool", "account", "details"]),
    ("schema_change", &["id", "at", "login", "person", "change_id", "digest", "action", "account", "steps", "details"]),
    ("freeze", &["id", "at", "login", "person", "subject", "name", "details"]),
    ("unfreeze", &["id", "at", "login", "person", "subject", "name", "details"]),
    (
        "erase",
        &[
            "id",
            "at",
            "login",
            "person",
            "record",
            "event",
            "correlation_id",
            "erased",
            "proposal_id",
            "asked_by",
            "asked_login",
            "params",
            "result",
            "effects",
            "context",
            "details",
        ],
    ),
    ("prune", &["id", "at", "login", "person", "records", "made_before", "details"]),
    ("key", &["id", "at", "login", "person", "action", "vkey"]),
    ("login", &["id", "at", "login", "person", "role", "method"]),
    ("fork", &["id", "at", "login", "previous_origin", "previous_size", "previous_root"]),
    ("loss", &["id", "at", "login", "records", "since", "entries", "signed_entries", "details"]),
    ("export", &["id", "at", "login", "person", "size", "parts"]),
    ("upgrade", &["id", "at", "login", "version"]),
];

/// The fields of an entry, in their order. The first is `kind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    fields: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    Encoding,
    /// The version is another one, or the last line does not end with a line break.
    #[error("it does not begin with the line {FIRST_LINE}, or does not end with a line break")]
    Lines,
    /// A line is not a key and a value, or its value is empty.
    #[error("line {0} is not a key, a space and a value")]
    Field(usize),
    /// A key occurs twice, or the first key is not `kind`.
    #[error("the key of line {0} is there already, or `kind` is not the first one")]
    Key(usize),
    /// A part is not named by its digest, or a time is not in UTC with microseconds.
    #[error("the value of line {0} is not of the form that its key has")]
    Form(usize),
    /// The keys of a known kind are not in its order.
    #[error("the key of line {0} is not in the order of its kind")]
    Order(usize),
    /// A control character is not encoded, or `%` is not followed by the two digits of one.
    #[error("the value of line {0} is not percent-encoded as it should be")]
    Value(usize),
}

impl Entry {
    /// An entry with these keys and values. Fields with an empty value are left out.
    #[must_use]
    pub fn new<K: Into<String>, V: Into<String>>(fields: impl IntoIterator<Item = (K, V)>) -> Self {
        let fields = fields.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self { fields: fields.filter(|(_, value): &(String, String)| !value.is_empty()).collect() }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EntryError::Encoding)?;
        let lines = text.strip_suffix('\n').ok_or(EntryError::Lines)?;
        let mut lines = lines.split('\n').zip(1..);
        if lines.next().is_none_or(|(line, _)| line != FIRST_LINE) {
            return Err(EntryError::Lines);
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for (line, number) in lines {
            let (key, value) = line.split_once(' ').ok_or(EntryError::Field(number))?;
            if !is_key(key) || value.is_empty() {
                return Err(EntryError::Field(number));
            }
            if fields.iter().any(|(known, _)| known == key) || (fields.is_empty() && key != "kind") {
                return Err(EntryError::Key(number));
            }
            fields.push((key.to_owned(), decode(value).ok_or(EntryError::Value(number))?));
        }
        let entry = Self { fields };
        if entry.fields.is_empty() {
            return Err(EntryError::Lines);
        }
        entry.check_kind().map(|()| entry)
    }

    /// Checks the keys that the kind defines. Unknown kinds and keys are not checked.
    fn check_kind(&self) -> Result<(), EntryError> {
        let kind = self.get("kind").unwrap_or_default();
        let keys = KINDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, keys)| keys);
        let mut last = 0;
        for ((key, value), number) in self.fields().zip(2..) {
            if PART_KEYS.contains(&key) && part(value).is_none() {
                return Err(EntryError::Form(number));
            }
            let Some(rank) = keys.iter().position(|known| *known == key) else { continue };
            if rank < last {
                return Err(EntryError::Order(number));
            }
            last = rank;
            if TIME_KEYS.contains(&key) && !is_time(value) {
                return Err(EntryError::Form(number));
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// The keys and values, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The digests of the parts that the entry names.
    pub fn parts(&self) -> impl Iterator<Item = Hash> {
        self.fields().filter(|(key, _)| PART_KEYS.contains(key)).filter_map(|(_, value)| part(value))
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        self.fields.iter().try_for_each(|(key, value)| writeln!(f, "{key} {}", encode(value)))
    }
}

/// The entries of a file of entries (c2sp.org/tlog-tiles), each with its length before it; `None` if the bytes do not
/// end with a complete entry.
#[must_use]
pub fn split_entries(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (entry, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        entries.push(entry);
        bytes = rest;
    }
    Some(entries)
}

/// Appends an entry to a file of entries; `None` if the entry has more than 65,535 bytes.
#[must_use]
pub fn append_entry(file: &mut Vec<u8>, entry: &[u8]) -> Option<()> {
    let length = u16::try_from(entry.len()).ok()?;
    file.extend(length.to_be_bytes());
    file.extend_from_slice(entry);
    Some(())
}

fn part(value: &str) -> Option<Hash> {
    Hash::from_hex(value.strip_prefix(PART_PREFIX)?)
}

/// Whether a text has the form `2026-11-23T09:30:00.000000Z`, with every number in its range.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000000Z";
    let is_of_form = text.len() == FORM.len()
        && text.bytes().zip(FORM).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form });
    let number = |at: std::ops::Range<usize>| text.get(at).and_then(|digits| digits.parse::<u32>().ok());
    let within = |at, range: std::ops::RangeInclusive<u32>| number(at).is_some_and(|number| range.contains(&number));
    is_of_form
        && within(5..7, 1..=12)
        && within(8..10, 1..=31)
        && within(11..13, 0..=23)
        && within(14..16, 0..=59)
        && within(17..19, 0..=59)
}

fn is_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn is_encoded(c: char) -> bool {
    c == '%' || c.is_control()
}

fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for c in value.chars() {
        if is_encoded(c) {
            let mut buffer = [0; 4];
            c.encode_utf8(&mut buffer).bytes().for_each(|byte| {
                // Writing to a String cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            });
        } else {
            encoded.push(c);
        }
    }
    encoded
}

/// The value, if it is encoded exactly as [`encode`] does.
fn decode(value: &str) -> Option<String> {
    if !value.contains(is_encoded) {
        return Some(value.to_owned());
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>()?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*byte);
        }
    }
    let decoded = String::from_utf8(bytes).ok()?;
    (encode(&decoded) == value).then_some(decoded)
}
