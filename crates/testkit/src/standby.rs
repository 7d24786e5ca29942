//! A streaming standby, made with PostgreSQL's low-level API ("Making a Base Backup Using the Low Level API" in the
//! manual), since the pinned packages have no `pg_basebackup`.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;

use pg_embedded::Options;
use tempfile::TempDir;

use crate::cluster::{Database, start};

/// A standby of the cluster of a database. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Standby {
    /// The copy of the database on the standby.
    pub database: Database,
    _folder: TempDir,
}

/// Files that a base backup excludes: those of the running server, and those that the primary sends anyway.
const LEFT_OUT: [&str; 4] = ["postmaster.pid", "postmaster.opts", "pg_wal", "pg_replslot"];

impl Standby {
    /// Starts a standby with these settings, and waits until it has everything that the primary has committed so far.
    pub async fn of(primary: &Database, settings: &[(&str, &str)]) -> Self {
        // A separate folder that the server's user can enter.
        let folder = tempfile::Builder::new()
            .prefix("cs-standby-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .tempdir_in("/tmp")
            .expect("a folder for a standby");
        back_up(primary, &folder.path().join("data")).await;
        let place = primary.cluster().socket_dir().display().to_string();
        let primary_conninfo = format!("host={place} port={} user=postgres", primary.cluster().port());
        let options = Options::persistent_at(folder.path())
            .setting("fsync", "off")
            // A standby must not have fewer connections than its primary.
            .setting("max_connections", "300")
            .setting("primary_conninfo", primary_conninfo)
            .settings(settings);
        let started = tokio::task::spawn_blocking(move || start(options));
        let cluster = Arc::new(started.await.expect("a standby"));
        let standby = Self { database: primary.on(&cluster), _folder: folder };
        standby.catch_up(primary).await;
        standby
    }

    /// Waits until the standby shows everything that its primary has committed until now.
    pub async fn catch_up(&self, primary: &Database) {
        let now = primary.value("select pg_current_wal_lsn()").await;
        let is_there = format!("select coalesce(pg_last_wal_replay_lsn() >= '{now}', false)");
        self.database.until_value(&is_there, "t").await;
    }
}

async fn back_up(primary: &Database, to: &Path) {
    let client = primary.connect().await;
    let version: String = client.query_one("show server_version_num", &[]).await.expect("a version").get(0);
    let (start, stop) = if version.as_str() < "150000" {
        ("select pg_start_backup('standby', true, false)", "select labelfile from pg_stop_backup(false, false)")
    } else {
        ("select pg_backup_start('standby', true)", "select labelfile from pg_backup_stop(false)")
    };
    client.simple_query(start).await.expect("a backup begins");
    let data = primary.cluster().data_dir();
    let owner = std::fs::metadata(&data).expect("the primary's data");
    copy(&data, to, &owner).expect("a copy of the primary's data");
    let label: String = client.query_one(stop, &[]).await.expect("the backup ends").get(0);
    for folder in ["pg_wal", "pg_wal/archive_status", "pg_replslot"] {
        make_folder(&to.join(folder), &owner).expect("a folder of the standby");
    }
    for (name, text) in [("backup_label", label.as_str()), ("standby.signal", "")] {
        std::fs::write(to.join(name), text).expect("a file of the standby");
        chown(to.join(name), Some(owner.uid()), Some(owner.gid())).expect("its owner");
    }
}

fn make_folder(path: &Path, owner: &Metadata) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    chown(path, Some(owner.uid()), Some(owner.gid()))
}

fn copy(from: &Path, to: &Path, owner: &Metadata) -> io::Result<()> {
    make_folder(to, owner)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let to = to.join(entry.file_name());
        let copied = if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to, owner)
        } else {
            std::fs::copy(entry.path(), &to).and_then(|_| chown(&to, Some(owner.uid()), Some(owner.gid())))
        };
        match copied {
            // The primary is still running. Files that it removes during the copy are also removed when the standby
            // replays the WAL.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    Ok(())
}
