//! `delete_package_photo` of `manifests/studio.toml`: deletes a photo and closes the gap in the order, so that the
//! next photo becomes the cover if the cover is deleted.

use ledger::{ExecutorError, Statement, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{ErrorCode, Failure, Rollback, TOOL_VERSION};

use crate::schema::{parsed, to_json};

pub(super) const NAME: &str = "delete_package_photo";

/// The same text for a missing package and for one of another tenant, so that the caller cannot distinguish them.
const NO_PACKAGE: &str = "Package not found or access denied";
const NO_PHOTO: &str = "Photo not found";

/// Locks the package, so that concurrent deletions of its other photos wait.
const LOCK_SQL: &str =
    "select package_id from studio.package where tenant_id = $1 and package_id = $2::bigint for update";
const DELETE_SQL: &str = "delete from studio.package_photo \
    where tenant_id = $1 and package_id = $2::bigint and photo_id = $3::bigint returning position";
const CLOSE_GAP_SQL: &str = "update studio.package_photo set position = position - 1 \
    where tenant_id = $1 and package_id = $2::bigint and position > $3::integer";
const LEFT_SQL: &str = "select count(*) as photos_left from studio.package_photo \
    where tenant_id = $1 and package_id = $2::bigint";

/// The order. The tenant among the parameters is for the statements of the manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    #[serde(rename = "tenant_id")]
    _tenant_id: String,
    package_id: u64,
    photo_id: u64,
}

/// `data` of the answer.
#[derive(Debug, Serialize)]
struct Deleted {
    package_id: u64,
    photo_id: u64,
    photos_left: Value,
    message: String,
}

pub(super) struct DeletePackagePhoto;

fn payload(request: &WriteRequest) -> Result<Payload, Failure> {
    parsed(NAME, request.params.clone())
}

impl DeletePackagePhoto {
    async fn delete(tx: &mut WriteTx<'_>, request: &WriteRequest) -> Result<WriteOutput, ExecutorError> {
        let Payload { package_id, photo_id, .. } = payload(request)?;
        let package = [Some(request.principal.account_id.as_str().to_owned()), Some(package_id.to_string())];
        let [tenant, number] = package.clone();
        let photo = [tenant, number, Some(photo_id.to_string())];
        let locked = tx.run(&[Statement::new(LOCK_SQL, &package)]).await?;
        if locked.first().is_none_or(|rows| rows.rows.is_empty()) {
            return Err(Failure::new(ErrorCode::NotFound, NO_PACKAGE).into());
        }
        let deleted = tx.run(&[Statement::new(DELETE_SQL, &photo)]).await?;
        let position = deleted.first().and_then(|rows| rows.rows.first()?.get("position").map(ToString::to_string));
        let position = position.ok_or_else(|| Failure::new(ErrorCode::NotFound, NO_PHOTO))?;
        let [tenant, number] = package.clone();
        let behind = [tenant, number, Some(position)];
        let answers = tx.run(&[Statement::new(CLOSE_GAP_SQL, &behind), Statement::new(LEFT_SQL, &package)]).await?;
        let moved = answers.first().map_or(0, |rows| rows.rows_affected);
        let photos_left = answers.last().and_then(|rows| rows.rows.first()?.get("photos_left").cloned());
        let message = match moved {
            0 => "The photo was deleted.".to_owned(),
            1 => "The photo was deleted, and the photo behind it moved up.".to_owned(),
            moved => format!("The photo was deleted, and the {moved} photos behind it moved up."),
        };
        let data = Deleted { package_id, photo_id, photos_left: photos_left.unwrap_or_default(), message };
        let rollback = Rollback::irreversible("The manifest says how it is undone.");
        Ok(WriteOutput::new(to_json(&data)?, 1 + moved, rollback))
    }
}

impl WriteExecutor for DeletePackagePhoto {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        payload(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(Self::delete(tx, request))
    }

    fn definition(&self) -> String {
        format!("{NAME} {TOOL_VERSION} {}", env!("CARGO_PKG_VERSION"))
    }
}
