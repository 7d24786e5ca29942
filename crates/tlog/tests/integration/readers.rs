//! The readers of untrusted texts: no bytes make them panic, and what they accept is written as it was read. The fuzz target
//! `log_formats` calls [`holds`] as well.

use countersign_tlog::{
    Checkpoint, Entry, EntryProof, Policy, SignedNote, SigningKey, Trust, VerifierKey, append_entry, split_entries,
};

/// Reads the bytes behind the first one as the format that the first one selects.
pub(crate) fn holds(bytes: &[u8]) {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    match format % 8 {
        0 => same::<SignedNote>(text),
        1 => same::<Checkpoint>(text),
        2 => same::<EntryProof>(text),
        3 => same::<VerifierKey>(text),
        4 => drop(text.parse::<SigningKey>()),
        5 => {
            if let Ok(entry) = Entry::parse(bytes) {
                assert_eq!(entry.to_string().as_bytes(), bytes);
            }
        }
        6 => {
            let policy = Policy::parse(bytes).ok();
            let trust = Trust { keys: Vec::new(), policy };
            if let Ok(note) = text.parse::<SignedNote>() {
                drop(trust.open(&note));
            }
        }
        _ => {
            if let Some(entries) = split_entries(bytes) {
                let mut written = Vec::new();
                for entry in entries {
                    drop(Entry::parse(entry));
                    assert_eq!(append_entry(&mut written, entry), Some(()));
                }
                assert_eq!(written, bytes);
            }
        }
    }
}

fn same<T: std::str::FromStr + std::fmt::Display>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string(), text);
    }
}
