//! The signatures that a verifier requires: keys of logs, or a policy (c2sp.org/tlog-policy).

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::{Checkpoint, KeyKind, NoteError, SignedNote, VerifierKey};

/// Logs, witnesses, and how many of the witnesses must have cosigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<VerifierKey>,
    witnesses: Vec<VerifierKey>,
    /// `None`: no witness is required.
    quorum: Option<Member>,
}

/// A witness, or a group of members.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    /// The index of the witness in `witnesses`.
    Witness(usize),
    /// How many of these members must have cosigned.
    Group(usize, Vec<Member>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the policy: {why}")]
pub struct PolicyError {
    /// The number of the line, from 1.
    pub line: usize,
    pub why: String,
}

/// The keys and the policy of a verifier. If there are both, both must be satisfied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    pub keys: Vec<VerifierKey>,
    pub policy: Option<Policy>,
}

/// The reason why a checkpoint is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The note is not a checkpoint.
    #[error("it is no signed checkpoint")]
    Malformed,
    /// No trusted key with the name of the origin has signed the checkpoint.
    #[error("it is not signed by a trusted key whose name is its origin")]
    Unsigned,
    /// A signature of a trusted key is invalid, or occurs twice.
    #[error("the signature of {0} is invalid")]
    Invalid(String),
    /// Too few witnesses have cosigned the checkpoint.
    #[error("too few witnesses of the policy have cosigned it")]
    Quorum,
}

impl Trust {
    /// Opens a signed checkpoint if its signatures suffice. Also returns the names of the witnesses that have
    /// cosigned it, with the times in seconds since 1970.
    pub fn open(&self, note: &SignedNote) -> Result<(Checkpoint, Vec<(String, u64)>), TrustError> {
        let checkpoint: Checkpoint = note.text().parse().map_err(|_| TrustError::Malformed)?;
        let (logs, witnesses) =
            self.policy.as_ref().map_or((&[][..], &[][..]), |policy| (&policy.logs, &policy.witnesses));
        let known: Vec<VerifierKey> = [&self.keys, logs, witnesses].concat();
        let signers = match note.verify(&known) {
            Ok(signers) => signers,
            Err(NoteError::Invalid(name)) => return Err(TrustError::Invalid(name)),
            Err(_) => return Err(TrustError::Unsigned),
        };
        let is_signed = |keys: &[VerifierKey]| {
            let is_own = |key: &VerifierKey| key.kind() == KeyKind::Log && key.name() == checkpoint.origin;
            signers.iter().any(|(key, _)| is_own(key) && keys.contains(key))
        };
        if self.policy.is_none() || !self.keys.is_empty() {
            is_signed(&self.keys).then_some(()).ok_or(TrustError::Unsigned)?;
        }
        if let Some(policy) = &self.policy {
            // A policy may have no logs if the keys of logs are given otherwise.
            if !logs.is_empty() || self.keys.is_empty() {
                is_signed(logs).then_some(()).ok_or(TrustError::Unsigned)?;
            }
            let has_signed = |witness: &VerifierKey| signers.iter().any(|(key, _)| *key == witness);
            if policy.quorum.as_ref().is_some_and(|quorum| !quorum.is_met(&policy.witnesses, &has_signed)) {
                return Err(TrustError::Quorum);
            }
        }
        let cosigned = signers.iter().filter(|(key, _)| key.kind() == KeyKind::Witness);
        let cosigned = cosigned.map(|(key, time)| (key.name().to_owned(), *time)).collect();
        Ok((checkpoint, cosigned))
    }
}

impl Member {
    fn is_met(&self, witnesses: &[VerifierKey], has_signed: &impl Fn(&VerifierKey) -> bool) -> bool {
        match self {
            Self::Witness(index) => witnesses.get(*index).is_some_and(has_signed),
            Self::Group(needed, members) => {
                members.iter().filter(|member| member.is_met(witnesses, has_signed)).count() >= *needed
            }
        }
    }
}

/// The parsed lines. Names are bytes: a policy need not be UTF-8.
#[derive(Default)]
struct Lines<'a> {
    logs: Vec<VerifierKey>,
    witnesses: Vec<VerifierKey>,
    /// Witnesses and groups by name, and whether each belongs to a group.
    members: BTreeMap<&'a [u8], (Member, bool)>,
    quorum: Option<Option<Member>>,
}

impl Policy {
    /// Reads a policy.
    pub fn parse(text: &[u8]) -> Result<Self, PolicyError> {
        let mut lines = Lines::default();
        let rows: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        for (line, row) in (1..).zip(&rows) {
            lines.read(row).map_err(|why| PolicyError { line, why })?;
        }
        if text.last().is_some_and(|last| *last != b'\n') {
            return Err(PolicyError { line: rows.len(), why: "it has no end".to_owned() });
        }
        let Lines { logs, witnesses, quorum, .. } = lines;
        let quorum = quorum.ok_or_else(|| PolicyError { line: rows.len(), why: "there is no quorum".to_owned() })?;
        Ok(Self { logs, witnesses, quorum })
    }

    /// The keys of its logs.
    #[must_use]
    pub fn logs(&self) -> &[VerifierKey] {
        &self.logs
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        Self::parse(text.as_bytes())
    }
}

impl<'a> Lines<'a> {
    fn read(&mut self, row: &'a [u8]) -> Result<(), String> {
        if row.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return Err("it has a control character".to_owned());
        }
        let words: Vec<&[u8]> =
            row.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            [] => Ok(()),
            [first, ..] if first.starts_with(b"#") => Ok(()),
            [b"log", key] | [b"log", key, _] => {
                let key = vkey(key, KeyKind::Log)?;
                refuse_duplicate(&self.logs, &key)?;
                self.logs.push(key);
                Ok(())
            }
            [b"witness", name, key] | [b"witness", name, key, _] => {
                let key = vkey(key, KeyKind::Witness)?;
                refuse_duplicate(&self.witnesses, &key)?;
                self.witnesses.push(key);
                self.define(name, Member::Witness(self.witnesses.len() - 1))
            }
            [b"group", name, needed, members @ ..] if !members.is_empty() => self.group(name, needed, members),
            [b"quorum", name] => {
                if self.quorum.is_some() {
                    return Err("there is a quorum already".to_owned());
                }
                self.quorum = Some(if *name == b"none" { None } else { Some(self.member(name)?.0.clone()) });
                Ok(())
            }
            _ => Err(
                "it takes `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K NAME...` or `quorum NAME`"
                    .to_owned(),
            ),
        }
    }

    fn group(&mut self, name: &'a [u8], needed: &[u8], members: &[&'a [u8]]) -> Result<(), String> {
        let needed = match needed {
            b"all" => members.len(),
            b"any" => 1,
            number => {
                let is_plain = number.iter().all(u8::is_ascii_digit) && !number.starts_with(b"0");
                let parsed =
                    std::str::from_utf8(number).ok().filter(|_| is_plain).and_then(|number| number.parse().ok());
                parsed.filter(|needed| (1..=members.len()).contains(needed)).ok_or_else(|| {
                    format!("a group takes all, any, or a number from 1 to that of its members, {}", members.len())
                })?
            }
        };
        let members: Result<Vec<Member>, String> = members.iter().map(|member| self.take(member)).collect();
        self.define(name, Member::Group(needed, members?))
    }

    fn define(&mut self, name: &'a [u8], member: Member) -> Result<(), String> {
        if name == b"none" || self.members.insert(name, (member, false)).is_some() {
            return Err(format!("the name {} is taken", String::from_utf8_lossy(name)));
        }
        Ok(())
    }

    /// The member with this name, which must not belong to another group.
    fn take(&mut self, name: &[u8]) -> Result<Member, String> {
        let (member, is_taken) = self.member(name)?;
        if std::mem::replace(is_taken, true) {
            return Err(format!("{} is a member of a group already", String::from_utf8_lossy(name)));
        }
        Ok(member.clone())
    }

    fn member(&mut self, name: &[u8]) -> Result<&mut (Member, bool), String> {
        let unknown = || format!("{} is not defined on a line above", String::from_utf8_lossy(name));
        self.members.get_mut(name).ok_or_else(unknown)
    }
}

fn vkey(text: &[u8], kind: KeyKind) -> Result<VerifierKey, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the key is not UTF-8".to_owned())?;
    let key: VerifierKey = text.parse().map_err(|error: crate::KeyError| error.to_string())?;
    if key.kind() == kind {
        return Ok(key);
    }
    Err(match kind {
        KeyKind::Log => "the key of a log has the type 1".to_owned(),
        KeyKind::Witness => "the key of a witness has the type 4".to_owned(),
    })
}

fn refuse_duplicate(known: &[VerifierKey], key: &VerifierKey) -> Result<(), String> {
    if known.iter().any(|known| known.public() == key.public()) {
        return Err("the key is on a line above already".to_owned());
    }
    Ok(())
}
