//! Which tools a caller sees.

use manifest::Access;

/// A set of tools, by what they may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Reads of the database only: no write, no look into the ledger.
    Readonly,
    /// Reads, the manifests' writes, and the records of one's own account.
    #[default]
    Write,
    /// Everything.
    Admin,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Readonly, Self::Write, Self::Admin];

    /// The word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// Whether tools of this access are in it.
    #[must_use]
    pub const fn includes(self, access: Access) -> bool {
        matches!(
            (self, access),
            (_, Access::Read) | (Self::Write | Self::Admin, Access::Write) | (Self::Admin, Access::Admin)
        )
    }
}

impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == text).ok_or_else(|| {
            format!("there is no profile \"{text}\": it is one of {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
