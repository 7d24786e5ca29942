//! Checks whether the newest records match their sealed form, and whether all servers compute the same fingerprints.

use ledger::Doctor;
use ledger::audit::{Audit, SignatureState, Verified, WitnessState};

use crate::settings::DatabaseSettings;
use review::Finding;

/// The minimum number of records to compare, if there are as many: about one second of work.
const RECORDS: u32 = 1000;

pub(super) async fn examine(audit: &Audit, doctor: &Doctor, settings: &DatabaseSettings) -> Vec<Finding> {
    let mut findings = records(audit).await;
    findings.push(signatures(audit).await);
    findings.extend(witnesses(audit).await);
    findings.push(keys(doctor, settings).await);
    findings
}

async fn records(audit: &Audit) -> Vec<Finding> {
    const AREA: &str = "log";
    let verified = match audit.verify_recent(RECORDS).await {
        Ok(Ok(verified)) => verified,
        Ok(Err(finding)) => {
            let advice = "somebody who may change the ledger did this: treat it as compromised (docs/topics/security-model.md), and run \
                `countersign audit verify` with a checkpoint that was kept elsewhere";
            return vec![Finding::problem(AREA, format!("the ledger was altered: {finding}"), advice)];
        }
        Err(error) => return vec![Finding::unasked(AREA, "the newest records", &error)],
    };
    let Verified { entries, records, pruned, .. } = verified;
    if records == 0 {
        return vec![Finding::unchecked(
            AREA,
            "whether records were altered: none is sealed yet (`countersign audit seal`)",
        )];
    }
    let compared = format!(
        "the newest {records} sealed records are what was sealed ({entries} entries in the log, {pruned} pruned since)"
    );
    let older = "records before these, and whether the log was made anew as a whole: `countersign audit verify`, with a checkpoint \
        that was kept elsewhere";
    vec![Finding::ok(AREA, compared), Finding::unchecked(AREA, older)]
}

/// Servers sign every minute. If the last checkpoint is this old and there are newer entries, a signature is overdue.
const LATE_S: u64 = 600;

async fn signatures(audit: &Audit) -> Finding {
    const AREA: &str = "log";
    let SignatureState { keys, entries, signed, age_s } = match audit.signatures().await {
        Ok(found) => found,
        Err(error) => return Finding::unasked(AREA, "the signatures of the log", &error),
    };
    if keys == 0 {
        return Finding::warning(
            AREA,
            "the log is not signed: the owner of its tables can make it anew",
            "`countersign audit keys new` makes a key; servers sign with it every minute",
        );
    }
    if signed < entries && (signed == 0 || age_s > LATE_S) {
        let advice = "a server signs every minute if it has the private key (--signing-key): see its log for the reason, or run \
            `countersign audit seal` where the key is";
        return Finding::warning(AREA, format!("{signed} of {entries} entries of the log are signed for"), advice);
    }
    Finding::ok(AREA, format!("{signed} of {entries} entries of the log are signed for"))
}

async fn witnesses(audit: &Audit) -> Vec<Finding> {
    const AREA: &str = "log";
    let asked = async { Ok((audit.witness_states().await?, audit.signatures().await?)) };
    let (states, signatures) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return vec![Finding::unasked(AREA, "the witnesses of the log", &error)],
    };
    let finding = |WitnessState { witness, cosigned }: WitnessState| {
        let (name, url) = (witness.key.name(), witness.url.as_str());
        let advice = "a server asks every minute after it has signed: see its log for the reason, or run `countersign audit seal` where the \
            key is";
        match cosigned {
            Some((size, age_s)) if size >= signatures.signed || age_s <= LATE_S => {
                Finding::ok(AREA, format!("the witness {name} has cosigned {size} entries"))
            }
            Some((size, age_s)) => {
                let late =
                    format!("the witness {name} ({url}) has cosigned {size} entries, {} minutes ago", age_s / 60);
                Finding::warning(AREA, late, advice)
            }
            None => Finding::warning(AREA, format!("the witness {name} ({url}) has cosigned nothing yet"), advice),
        }
    };
    states.into_iter().map(finding).collect()
}

async fn keys(doctor: &Doctor, settings: &DatabaseSettings) -> Finding {
    const AREA: &str = "keys";
    let known = match doctor.fingerprint_keys().await {
        Ok(known) => known,
        Err(error) => return Finding::unasked(AREA, "the fingerprint keys of the servers", &error),
    };
    let own = settings.ledger.fingerprints.key_id();
    match known.as_slice() {
        [] => Finding::unchecked(
            AREA,
            "whether all servers have the same fingerprint key: none ran within the last 2 minutes",
        ),
        [key] if *key == own => Finding::ok(AREA, "all servers have the fingerprint key of this configuration"),
        [_] if own == "none" => Finding::unchecked(
            AREA,
            "whether the servers have the right fingerprint key: this configuration has none (fingerprint_key)",
        ),
        [_] => Finding::warning(
            AREA,
            "the servers have another fingerprint key than this configuration",
            "give every server of a ledger the same fingerprint_key: a server with another one does not know identical calls",
        ),
        several => Finding::problem(
            AREA,
            format!(
                "the servers have {} different fingerprint keys, so identical calls on two of them run twice",
                several.len()
            ),
            "give all of them the same fingerprint_key; after a change of the key this passes within 3 minutes",
        ),
    }
}
