//! The database to which a ledger belongs. The SQL is in `migrations/baseline/80_people.sql`.

use pg::{ConnectOptions, PipelineStatement, Session, SessionSettings};
use tlog::SignedNote;

use crate::schema::SchemaError;

const CURRENT_SQL: &str = "select i.is_here from countersign.current_identity() i";
const FORK_SQL: &str = "select f.ledger_id, f.proposals from countersign.fork($1::boolean, $2) f";

/// Makes sure that the ledger was made for this database, so that nothing of it is carried out a second time.
///
/// # Errors
/// [`SchemaError::Copied`] if the database is a copy.
pub async fn check_identity(target: &ConnectOptions) -> Result<(), SchemaError> {
    let is_here = ask(target, CURRENT_SQL, &[]).await?.into_iter().flatten().next().flatten();
    if is_here.as_deref() == Some("t") {
        return Ok(());
    }
    Err(SchemaError::Copied { database: target.dbname.clone() })
}

/// The ledger of a copy as it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// Its new name, a UUID.
    pub ledger_id: String,
    /// The number of proposals of the original that were ended here.
    pub proposals: u64,
}

/// Makes the ledger of a copied database a ledger of its own; with `is_restored` also one that was restored in its place. For
/// members of the ledger's owner. The first entry of its log names `previous`, the newest checkpoint of the original.
///
/// # Errors
/// An error of the database; SQLSTATE 55000 if it is no copy.
pub async fn fork(
    target: &ConnectOptions,
    is_restored: bool,
    previous: Option<&SignedNote>,
) -> Result<Fork, SchemaError> {
    let params = [Some(is_restored.to_string()), previous.map(|note| note.text().to_owned())];
    let row = ask(target, FORK_SQL, &params).await?.into_iter().next().unwrap_or_default();
    match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(ledger_id), Some(proposals)]) => {
            Ok(Fork { ledger_id, proposals: proposals.parse().unwrap_or_default() })
        }
        _ => Err(pg::Error::from(std::io::Error::other("the ledger did not say how it goes on")).into()),
    }
}

async fn ask(
    target: &ConnectOptions,
    sql: &str,
    params: &[Option<String>],
) -> Result<Vec<Vec<Option<String>>>, SchemaError> {
    let session = Session::connect(target, &SessionSettings::default()).await;
    let mut session = session.map_err(pg::Error::from)?;
    let outcomes =
        session.run(&[PipelineStatement { sql, params, param_types: &[] }]).await.map_err(|failed| failed.error)?;
    session.close().await;
    Ok(outcomes.into_iter().flat_map(|outcome| outcome.rows).collect())
}
