//! The user of this process, as the operating system knows it: variables such as `USER` can contain anything.

use nix::unistd::{Uid, User};
use types::visible;

/// The name of the effective user, or `uid N` if the number has none.
pub(crate) fn name() -> String {
    let uid = Uid::effective();
    User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// The person who decided on a proposal.
pub(crate) struct Decider {
    /// The database login of a person, or the account whose client decided.
    name: String,
    /// The operating-system user of a person.
    os_user: Option<String>,
}

/// The decider in a recorded decision. On the command line, the ledger has verified the login, but the
/// operating-system user is only what the command reported.
pub(crate) fn decided_by(who: &str, login: Option<&str>, via: Option<&str>) -> Decider {
    match (login, via) {
        (Some(login), Some("command_line")) => Decider { name: visible(login), os_user: Some(visible(who)) },
        _ => Decider { name: visible(who), os_user: None },
    }
}

impl Decider {
    /// The name of the decider, without the operating-system user.
    pub(crate) fn short(self) -> String {
        self.name
    }
}

impl std::fmt::Display for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.os_user.as_ref().map_or(Ok(()), |user| write!(f, " (OS user {user})"))
    }
}
