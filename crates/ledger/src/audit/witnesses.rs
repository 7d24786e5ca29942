//! Witnesses (c2sp.org/tlog-witness) are independent servers. A witness cosigns a checkpoint only if it extends the
//! last one that the witness cosigned. The cosigned note is stored as another checkpoint of the same size.

use std::io;

use futures_util::future::join_all;
use http::{Request, StatusCode};
use http_client::{HttpClient, HttpUrl, HttpsUrl};
use pg::Session;
use tlog::{Checkpoint, CheckpointRequest, Hash, Signature, SignedNote, Trust, VerifierKey, tiles_for_consistency};

use super::checkpoints::{STORE_SQL, load_cosigned, load_keys, load_ledger_id, load_newest};
use super::sign_error::SignError;
use super::signing::{Signing, has_private_key};
use super::tree::{LogState, tiles};
use super::{Audit, ask, one_row};

const WITNESSES_SQL: &str = "\
    select w.vkey, w.url from countersign.witness w \
    where w.log_no = (select max(i.no) from countersign.identity i) and w.removed_at is null order by w.added_at";
const ADD_SQL: &str = "select countersign.add_witness($1, $2, $3)";
const REMOVE_SQL: &str = "select countersign.remove_witness($1, $2)";

/// The maximum number of requests to a witness if other servers get its cosignature first.
const ATTEMPTS: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    pub key: VerifierKey,
    /// The base URL of `add-checkpoint`.
    pub url: HttpsUrl,
}

/// The reason why a witness has not cosigned a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error("it cannot be asked: {0}")]
    Unreachable(#[from] io::Error),
    #[error("it answered {status}{}: {body}", hint(*status))]
    Refused { status: StatusCode, body: String },
    #[error("its answer has no valid cosignature by its key")]
    NoCosignature,
    #[error(
        "it has cosigned {cosigned} entries, and the log has {size}: the database was restored from a backup, or entries were removed"
    )]
    Ahead { cosigned: u64, size: u64 },
    #[error("the tree of the log is incomplete ({0}): `countersign audit verify` names what is missing")]
    Incomplete(String),
    /// The last signed checkpoint cannot be stored.
    #[error(transparent)]
    State(SignError),
}

/// What the operator of the witness or of the log should check.
fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => " (it trusts another key of this log)",
        StatusCode::NOT_FOUND => " (it does not know this log: its operator adds the log's public key)",
        StatusCode::UNPROCESSABLE_ENTITY => " (the log does not go on from what it cosigned: entries were altered)",
        _ => "",
    }
}

/// A witness that has not cosigned the newest checkpoint, and the reason.
#[derive(Debug)]
pub struct Uncosigned {
    pub witness: Witness,
    pub error: WitnessError,
}

/// The newest checkpoint that a witness has cosigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessState {
    pub witness: Witness,
    /// The size of the newest stored checkpoint that the witness has cosigned, and its age in seconds.
    pub cosigned: Option<(u64, u64)>,
}

impl Audit {
    /// The witnesses of the current log, the oldest first.
    pub async fn witnesses(&self) -> Result<Vec<Witness>, pg::Error> {
        load_witnesses(self.acquire().await?.session()).await
    }

    /// Adds a witness, which servers then ask to cosign. Only members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 22023 if the witness has the name of the log.
    pub async fn add_witness(&self, witness: &Witness, person: &str) -> Result<(), pg::Error> {
        let params = [witness.key.to_string(), witness.url.as_str().to_owned(), person.to_owned()].map(Some);
        self.ask(ADD_SQL, &params).await.map(drop)
    }

    /// Removes a witness. Only members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 22023 if the log does not have the witness.
    pub async fn remove_witness(&self, vkey: &str, person: &str) -> Result<(), pg::Error> {
        self.ask(REMOVE_SQL, &[Some(vkey.to_owned()), Some(person.to_owned())]).await.map(drop)
    }

    /// The last checkpoint that each witness has cosigned, according to the notes in the database.
    pub async fn witness_states(&self) -> Result<Vec<WitnessState>, pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let log = LogState::load(session).await?;
        let mut states = Vec::new();
        for witness in load_witnesses(session).await? {
            let cosigned = load_cosigned(session, log.log_no, &witness.key).await?;
            states
                .push(WitnessState { cosigned: cosigned.map(|(checkpoint, age_s)| (checkpoint.size, age_s)), witness });
        }
        Ok(states)
    }

    /// Requests the missing cosignatures of the newest checkpoint, and stores the checkpoint with them. Returns it,
    /// and the witnesses that have not cosigned it.
    ///
    /// If a witness shows a checkpoint of this log that is larger than the log, the signer stores that checkpoint as
    /// its last one, and therefore signs nothing from then on.
    pub async fn cosign(&self, signing: &Signing) -> Result<(Option<SignedNote>, Vec<Uncosigned>), pg::Error> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let (log, witnesses) = (LogState::load(session).await?, load_witnesses(session).await?);
        let Some((mut note, checkpoint)) = load_newest(session, log.log_no).await? else {
            return Ok((None, Vec::new()));
        };
        let mut asked = Vec::new();
        for witness in witnesses.into_iter().filter(|witness| !is_cosigned(&note, &witness.key)) {
            let cosigned = load_cosigned(session, log.log_no, &witness.key).await?;
            asked.push((witness, cosigned.map_or(0, |(checkpoint, _)| checkpoint.size)));
        }
        drop(lease);
        let (newest, size) = (&note, &checkpoint);
        let answers = asked.into_iter().map(async |(witness, known)| {
            let cosignature = self.ask_witness(&witness, newest, size, known, signing).await;
            (witness, cosignature)
        });
        let (mut cosignatures, mut uncosigned) = (Vec::new(), Vec::new());
        for (witness, answer) in join_all(answers).await {
            match answer {
                Ok(cosignature) => cosignatures.push(cosignature),
                Err(error) => uncosigned.push(Uncosigned { witness, error }),
            }
        }
        if !cosignatures.is_empty() {
            note.add(cosignatures);
            self.ask(STORE_SQL, &[checkpoint.size.to_string(), note.to_string()].map(Some)).await?;
        }
        Ok((Some(note), uncosigned))
    }

    async fn ask_witness(
        &self,
        witness: &Witness,
        note: &SignedNote,
        checkpoint: &Checkpoint,
        mut old_size: u64,
        signing: &Signing,
    ) -> Result<Signature, WitnessError> {
        let client = HttpClient::new(witness.url.clone())?;
        for _ in 0..ATTEMPTS {
            let proof = self.consistency_proof(old_size, checkpoint.size).await?;
            let request = CheckpointRequest { old_size, proof, checkpoint: note.clone() };
            let path = path_below(&witness.url, "add-checkpoint");
            let request = Request::post(path).body(request.to_string().into()).map_err(io::Error::other)?;
            let answer = client.send(request).await?;
            let body = String::from_utf8_lossy(&answer.body);
            match answer.status {
                StatusCode::OK => return cosignature(&body, note, &witness.key).ok_or(WitnessError::NoCosignature),
                StatusCode::CONFLICT => {
                    let cosigned = body.trim_end().parse().map_err(|_| refusal(StatusCode::CONFLICT, &body))?;
                    if cosigned > checkpoint.size {
                        self.keep_larger(&client, &checkpoint.origin, signing).await?;
                        return Err(WitnessError::Ahead { cosigned, size: checkpoint.size });
                    }
                    old_size = cosigned;
                }
                status => return Err(refusal(status, &body)),
            }
        }
        Err(refusal(StatusCode::CONFLICT, "its state changes all the time"))
    }

    async fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Hash>, WitnessError> {
        if old == 0 || old == new {
            return Ok(Vec::new());
        }
        let mut lease = self.acquire().await?;
        let log = LogState::load(lease.session()).await?;
        let set = tiles(lease.session(), log.log_no, tiles_for_consistency(old, new)).await?;
        set.consistency_proof(old, new).map_err(|error| WitnessError::Incomplete(error.to_string()))
    }

    /// Stores the checkpoint that a witness shows as the last signed one, if a key of the log has signed it.
    async fn keep_larger(&self, client: &HttpClient, origin: &str, signing: &Signing) -> Result<(), WitnessError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let log = LogState::load(session).await?;
        let keys = load_keys(session, log.log_no).await?;
        let ledger_id = load_ledger_id(session).await?;
        drop(lease);
        let state = signing.state_file(&ledger_id);
        if let (Some(state), Some((note, checkpoint))) = (state, shown_by(client, origin, &keys).await?) {
            state.keep(&note, checkpoint.size).map_err(WitnessError::State)?;
        }
        Ok(())
    }

    /// If this signer has not signed before, asks the witnesses for checkpoints that were signed elsewhere, and
    /// stores the newest one.
    pub(super) async fn learn_from_witnesses(&self, signing: &Signing) -> Result<(), SignError> {
        let mut lease = self.acquire().await?;
        let session = lease.session();
        let ledger_id = load_ledger_id(session).await?;
        let Some(state) = signing.state_file(&ledger_id) else { return Ok(()) };
        if state.read()?.is_some() || !has_private_key(signing, &ledger_id) {
            return Ok(());
        }
        let witnesses = load_witnesses(session).await?;
        if witnesses.is_empty() {
            return Ok(());
        }
        let log = LogState::load(session).await?;
        let keys = load_keys(session, log.log_no).await?;
        drop(lease);
        let Some(origin) = keys.first().map(|key| key.name().to_owned()) else { return Ok(()) };
        for Witness { key, url } in witnesses {
            let shown = async { shown_by(&HttpClient::new(url)?, &origin, &keys).await };
            let shown = shown.await.map_err(|error| SignError::Witness { name: key.name().to_owned(), error })?;
            if let Some((note, checkpoint)) = shown {
                state.keep(&note, checkpoint.size)?;
            }
        }
        Ok(())
    }
}

async fn load_witnesses(session: &mut Session) -> Result<Vec<Witness>, pg::Error> {
    let rows = ask(session, WITNESSES_SQL, &[]).await?;
    rows.into_iter()
        .map(|row| {
            let [vkey, url] = one_row(vec![row])?.map(Option::unwrap_or_default);
            let unreadable = |why: String| io::Error::other(format!("the witness {vkey} cannot be used: {why}"));
            let key = vkey.parse().map_err(|error: tlog::KeyError| unreadable(error.to_string()))?;
            let url = url.parse().map_err(|error: http_client::HttpsUrlError| unreadable(error.to_string()))?;
            Ok(Witness { key, url })
        })
        .collect()
}

/// The newest checkpoint of this log that a witness publishes, if one of these keys has signed it.
async fn shown_by(
    client: &HttpClient,
    origin: &str,
    keys: &[VerifierKey],
) -> io::Result<Option<(SignedNote, Checkpoint)>> {
    let path = path_below(client.url(), &format!("{}/checkpoint", Hash::of(&[origin.as_bytes()]).to_hex()));
    let answer = client.send(Request::get(path).body(Default::default()).map_err(io::Error::other)?).await?;
    match answer.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => return Err(io::Error::other(format!("it answered {status} to a request for its checkpoint"))),
    }
    let note = std::str::from_utf8(&answer.body).ok().and_then(|text| text.parse::<SignedNote>().ok());
    let trust = Trust { keys: keys.to_vec(), policy: None };
    let opened = note.and_then(|note| trust.open(&note).ok().map(|(checkpoint, _)| (note, checkpoint)));
    Ok(opened.filter(|(_, checkpoint)| checkpoint.origin == origin))
}

fn path_below(url: &HttpUrl, resource: &str) -> String {
    format!("{}/{resource}", url.path().trim_end_matches('/'))
}

fn cosignature(body: &str, note: &SignedNote, key: &VerifierKey) -> Option<Signature> {
    let lines = Signature::parse_lines(body).ok()?;
    lines.into_iter().find(|line| {
        let alone = SignedNote::new(note.text().to_owned(), vec![line.clone()]);
        is_cosigned(&alone, key)
    })
}

fn is_cosigned(note: &SignedNote, key: &VerifierKey) -> bool {
    note.verify(std::slice::from_ref(key)).is_ok()
}

/// The refusal of a witness, with as much of its answer as can be shown.
fn refusal(status: StatusCode, body: &str) -> WitnessError {
    let line = body.lines().next().unwrap_or_default();
    let body = line.chars().filter(|c| !c.is_control()).take(200).collect();
    WitnessError::Refused { status, body }
}
