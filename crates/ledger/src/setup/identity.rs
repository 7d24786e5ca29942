//! Checks that a ledger belongs to its database. The SQL is in `migrations/baseline/80_people.sql`.

use tlog::SignedNote;
use types::CorrelationId;

use crate::Ledger;
use crate::setup::schema::SchemaError;
use crate::write::history::KnownLog;
use crate::write::loss;
use crate::write::obstacle::LedgerObstacle;

const CURRENT_SQL: &str = "select i.ledger_id, i.is_here, (select max(n.no) from countersign.identity n) from countersign.current_identity() i";
/// The timeline, and the newest write. Pruning may remove one that is older than a day, and a server compares it for half
/// of one.
const NEWEST_SQL: &str = "\
select countersign.current_timeline(), (select r.correlation_id \
    from (select * from countersign.record n order by n.id desc limit 1000) r \
    where r.status <> 'failure' and r.completed_at > clock_timestamp() - interval '12 hours' order by r.id desc limit 1)";
const FORK_SQL: &str = "select f.ledger_id, f.proposals from countersign.fork($1::boolean, $2) f";

/// The ledger of this database.
struct LedgerIdentity {
    id: String,
    /// `identity.no`.
    log_no: i64,
    /// Whether it was made for this database.
    is_original: bool,
}

/// The new ledger of a copied database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The new id of the ledger, a UUID.
    pub ledger_id: String,
    /// The number of proposals of the original that were ended in the copy.
    pub proposals: u64,
}

impl Ledger {
    /// Checks that servers may write to this ledger: see [`Ledger::obstacle`].
    ///
    /// # Errors
    /// [`SchemaError::Obstacle`], or the query failed.
    pub async fn check_identity(&self) -> Result<(), SchemaError> {
        self.obstacle().await?.map_or(Ok(()), |obstacle| Err(SchemaError::Obstacle(obstacle.into())))
    }

    /// Why no server writes to this ledger, if there is a reason: it was made for another database, whose proposals a
    /// copy must not execute again; its log does not go on from what was signed here; or a server has missed what it had
    /// acknowledged.
    pub async fn obstacle(&self) -> Result<Option<LedgerObstacle>, pg::Error> {
        let LedgerIdentity { id, log_no, is_original } = self.identity().await?;
        if !is_original {
            return Ok(Some(LedgerObstacle::Copied { database: self.database() }));
        }
        if let Some(loss) = loss::load(&self.records()).await? {
            return Ok(Some(LedgerObstacle::Lost { database: self.database(), loss }));
        }
        let contradiction = self.audit().contradiction(&self.settings.signing, &id).await?;
        if let Some(contradiction) = contradiction {
            return Ok(Some(LedgerObstacle::Contradicted { database: self.database(), contradiction }));
        }
        self.gate.history.learn(KnownLog { log_no, ..KnownLog::default() });
        Ok(None)
    }

    /// The obstacle, after a comparison with what this server knows. What is missing is noted in the ledger, so that the
    /// other servers stop as well.
    pub(crate) async fn compare_history(&self) -> Result<Option<LedgerObstacle>, pg::Error> {
        self.gate.obstacle(None).await?;
        let obstacle = self.obstacle().await?;
        match &obstacle {
            None => self.learn().await?,
            Some(LedgerObstacle::Contradicted { contradiction, .. }) => {
                self.gate.obstacle(Some(contradiction.signed())).await?;
            }
            Some(_) => {}
        }
        Ok(obstacle)
    }

    /// Notes what the ledger has, of which nothing is missing.
    async fn learn(&self) -> Result<(), pg::Error> {
        let log_no = self.identity().await?.log_no;
        let signed = self.audit().last_signed(log_no).await?;
        let row = self.rows(NEWEST_SQL, &[]).await?.into_iter().next().unwrap_or_default();
        let [timeline, newest] = <[Option<String>; 2]>::try_from(row).unwrap_or_default();
        let timeline = timeline.and_then(|timeline| timeline.parse().ok());
        let newest = newest.as_deref().and_then(CorrelationId::parse);
        self.gate.history.learn(KnownLog { log_no, timeline, signed, newest });
        Ok(())
    }

    /// Whether the ledger was made for this database.
    pub async fn is_original(&self) -> Result<bool, pg::Error> {
        Ok(self.identity().await?.is_original)
    }

    async fn identity(&self) -> Result<LedgerIdentity, pg::Error> {
        let row = self.rows(CURRENT_SQL, &[]).await?.into_iter().next().unwrap_or_default();
        let [id, is_original, log_no] = <[Option<String>; 3]>::try_from(row).unwrap_or_default();
        Ok(LedgerIdentity {
            id: id.unwrap_or_default(),
            log_no: log_no.and_then(|log_no| log_no.parse().ok()).unwrap_or_default(),
            is_original: is_original.as_deref() == Some("t"),
        })
    }

    /// Makes the ledger of a copied database an independent one; with `is_restored`, also that of a database that was
    /// restored in place. The first entry of its log names `previous`, the newest checkpoint of the original. Only
    /// members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 55000 if the database is not a copy.
    pub async fn fork(&self, is_restored: bool, previous: Option<&SignedNote>) -> Result<Fork, pg::Error> {
        let params = [Some(is_restored.to_string()), previous.map(|note| note.text().to_owned())];
        let row = self.rows(FORK_SQL, &params).await?.into_iter().next().unwrap_or_default();
        match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(ledger_id), Some(proposals)]) => {
                Ok(Fork { ledger_id, proposals: proposals.parse().unwrap_or_default() })
            }
            _ => Err(std::io::Error::other("the ledger did not say how it goes on").into()),
        }
    }
}
