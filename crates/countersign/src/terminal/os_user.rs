//! The user of this process, as the operating system knows it: variables such as `USER` can contain anything.

use nix::unistd::{Uid, User};

/// The name of the effective user, or `uid N` if the number has none.
pub(crate) fn name() -> String {
    let uid = Uid::effective();
    User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}
