//! Checks the standbys: whether commits wait for one that is not there, whether a failover can lose acknowledged writes,
//! and how far behind the standby is that agents read from.

use std::time::Duration;

use ledger::read::{ReadError, ReadRequest, Reader, RowFormat, SearchPath};
use ledger::{ConnectOptions, Doctor, ReplicationFacts};
use review::Finding;
use serde::Deserialize;
use types::visible;

use crate::connection;
use crate::settings::DatabaseSettings;

const AREA: &str = "standbys";

/// A standby that replays commits later than this is worth a warning.
const LATE: Duration = Duration::from_secs(10);

/// How many bytes of WAL a standby has not replayed; null for a primary.
const BEHIND_SQL: &str = "select case when pg_catalog.pg_is_in_recovery() then \
    pg_catalog.pg_wal_lsn_diff($1::pg_catalog.pg_lsn, pg_catalog.pg_last_wal_replay_lsn())::pg_catalog.int8 end as bytes";

#[derive(Deserialize)]
struct StandbyBacklog {
    bytes: Option<i64>,
}

pub(super) async fn examine(doctor: &Doctor, settings: &DatabaseSettings) -> Vec<Finding> {
    let facts = match doctor.replication().await {
        Ok(facts) => facts,
        Err(error) => return vec![Finding::unasked(AREA, "the standbys", &error)],
    };
    let mut findings: Vec<Finding> = confirmation(&facts).into_iter().collect();
    if let (Some(read), Some(position)) = (&settings.read, &facts.position) {
        findings.extend(match connection::parse(read, settings) {
            Ok(login) => backlog(login, settings, position).await,
            // Another check reports it.
            Err(_) => None,
        });
    }
    findings
}

/// Whether a standby confirms each commit. `None` if there is no standby, and none is awaited.
fn confirmation(facts: &ReplicationFacts) -> Option<Finding> {
    let ReplicationFacts { synchronous_standby_names, standbys, confirming, .. } = facts;
    let names = visible(synchronous_standby_names);
    Some(match (names.is_empty(), standbys, confirming) {
        (true, 0, _) => return None,
        (true, ..) => Finding::warning(
            AREA,
            format!(
                "no commit waits for a standby ({standbys} connected): after a failover acknowledged writes can be missing, and \
                 servers stop to write"
            ),
            "set synchronous_standby_names, or let the cluster manager do it (docs/setup/databases.md)",
        ),
        (false, 0, _) | (false, _, Some(0)) => Finding::problem(
            AREA,
            format!(
                "each commit waits for a standby (synchronous_standby_names = '{names}'), and none that is connected confirms it: writes hang"
            ),
            "connect the standby again, or change synchronous_standby_names and reload the configuration",
        ),
        (false, _, None) => Finding::unchecked(
            AREA,
            "whether a standby confirms each commit: ask as a member of pg_monitor, which sees pg_stat_replication",
        ),
        (false, _, Some(confirming)) => {
            Finding::ok(AREA, format!("each commit waits for a standby, and {confirming} of {standbys} confirm"))
        }
    })
}

/// How far behind the standby of `read_url` is. `None` for a primary.
async fn backlog(login: ConnectOptions, settings: &DatabaseSettings, position: &str) -> Option<Finding> {
    let reader = Reader::new(login, &SearchPath::default(), settings.read_limits.clone()).for_trusted_sql();
    let params = [position.into()];
    let result = match reader.read(&ReadRequest::new(BEHIND_SQL, &params, RowFormat::Object)).await {
        Ok(result) => result,
        Err(ReadError::Database(error)) => return Some(Finding::unasked(AREA, "the server of read_url", &error)),
        Err(_) => return None,
    };
    let row = result.rows.first().and_then(|row| serde_json::from_str::<StandbyBacklog>(row).ok());
    let bytes = row.and_then(|row| row.bytes)?;
    let behind = result.standby.and_then(|standby| standby.behind_ms).map(Duration::from_millis);
    let age = behind.map_or_else(|| "an unknown time".to_owned(), |behind| format!("{} s", behind.as_secs()));
    if bytes <= 0 || behind.is_some_and(|behind| behind < LATE) {
        return Some(Finding::ok(AREA, "the standby of read_url shows what the primary has committed"));
    }
    Some(Finding::warning(
        AREA,
        format!(
            "the standby of read_url is {bytes} bytes of WAL behind: its newest commit is {age} old, and agents read that"
        ),
        "see pg_stat_wal_receiver there, and whether a long query or pg_wal_replay_pause() holds the replay back",
    ))
}
