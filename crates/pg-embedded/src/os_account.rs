//! The user that runs the server: the current user or, if that is root, an unprivileged one, since PostgreSQL refuses
//! to run as root.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Uid, User, geteuid};

use crate::error::{Error, at};

/// The user that runs `initdb` and `postgres`.
#[derive(Debug, Clone)]
pub(crate) struct OsAccount {
    /// `None` for the current user.
    other: Option<Other>,
}

#[derive(Debug, Clone)]
struct Other {
    name: String,
    uid: u32,
    gid: u32,
}

impl OsAccount {
    /// The current user. For root, the user `postgres`, or `nobody` if there is no such user.
    pub(crate) fn choose() -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Ok(Self { other: None });
        }
        let user = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
        user.map(Self::of).ok_or(Error::NoUnprivilegedUser)
    }

    /// For root, the owner of an existing data folder: the server must run as the owner of its data.
    pub(crate) fn of_owner(self, data: &Path) -> Self {
        let owner = data.metadata().ok().map(|found| found.uid()).filter(|uid| *uid != 0);
        match (&self.other, owner) {
            (Some(other), Some(uid)) if uid != other.uid => {
                User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or(self, Self::of)
            }
            _ => self,
        }
    }

    fn of(user: User) -> Self {
        Self { other: Some(Other { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }) }
    }

    /// Whether the server runs as a user other than the current one, which then is root.
    pub(crate) fn is_other(&self) -> bool {
        self.other.is_some()
    }

    pub(crate) fn uid(&self) -> u32 {
        self.other.as_ref().map_or_else(|| geteuid().as_raw(), |other| other.uid)
    }

    /// Makes a command run as this user. If this is not the current user, supplementary groups are dropped too.
    pub(crate) fn apply_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.other {
            Some(other) => command.uid(other.uid).gid(other.gid),
            None => command,
        }
    }

    /// Makes this user the owner of a file or folder.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        match &self.other {
            Some(other) => chown(path, Some(other.uid), Some(other.gid)).map_err(at("change the owner of", path)),
            None => Ok(()),
        }
    }

    /// Whether this user can enter a folder and all folders above it. The error names the folder that denies it.
    pub(crate) fn check_reaches(&self, folder: &Path) -> Result<(), Error> {
        let Some(other) = &self.other else { return Ok(()) };
        for part in folder.ancestors() {
            let found = part.metadata().map_err(at("look at", part))?;
            let needed = match (found.uid() == other.uid, found.gid() == other.gid) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            if found.mode() & needed == 0 {
                return Err(Error::Unreachable { folder: part.to_path_buf(), user: other.name.clone() });
            }
        }
        Ok(())
    }
}
