//! Profiles: the sets of tools that callers can use.

use manifest::Access;
use types::{DatabaseName, RoleName};

/// A set of tools: by access, by name, and with exclusions. A tool outside the set does not exist for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// `readonly`, `write`, `admin`, or `^[a-z][a-z0-9_-]{0,31}$` for an operator's profile.
    pub name: String,
    /// Every tool with one of these kinds of access.
    pub access: Vec<Access>,
    /// Additional tools by name.
    pub tools: Vec<String>,
    /// Excluded tools by name.
    pub except: Vec<String>,
    /// The databases that it reaches; `None` for all.
    pub databases: Option<Vec<DatabaseName>>,
    /// The role of PostgreSQL that its statements run as, unless the caller's token names one; `None` for that of the
    /// login.
    pub role: Option<RoleName>,
}

impl Profile {
    /// Names of the profiles that every server has. `readonly` reads the database, not the ledger. `write` adds the
    /// manifests' writes and the records of the caller's account. `admin` has everything.
    pub const BUILTIN: [&str; 3] = ["readonly", "write", "admin"];

    /// Default profile.
    pub const DEFAULT: &str = "write";

    /// The profiles that every server has.
    #[must_use]
    pub fn builtin() -> Vec<Self> {
        let access = [Access::Read, Access::Write, Access::Admin];
        let kinds = (1..).filter_map(|count| access.get(..count));
        let profile = |(name, kinds): (&str, &[Access])| Self {
            name: name.to_owned(),
            access: kinds.to_vec(),
            tools: Vec::new(),
            except: Vec::new(),
            databases: None,
            role: None,
        };
        Self::BUILTIN.into_iter().zip(kinds).map(profile).collect()
    }

    /// Whether the profile reaches the database of this name. Every profile reaches one without a name.
    #[must_use]
    pub fn reaches(&self, name: Option<&DatabaseName>) -> bool {
        match (&self.databases, name) {
            (Some(databases), Some(name)) => databases.contains(name),
            _ => true,
        }
    }

    /// Whether the profile includes a tool of this name and access.
    #[must_use]
    pub fn includes(&self, tool: &str, access: Access) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == tool);
        (self.access.contains(&access) || named(&self.tools)) && !named(&self.except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_builtin_profile_has_more_than_the_one_before_it() {
        let kinds: Vec<(String, usize)> =
            Profile::builtin().into_iter().map(|profile| (profile.name, profile.access.len())).collect();
        assert_eq!(kinds, [("readonly".to_owned(), 1), ("write".to_owned(), 2), ("admin".to_owned(), 3)]);
        let readonly = &Profile::builtin()[0];
        assert!(readonly.includes("x", Access::Read) && !readonly.includes("x", Access::Write));
    }

    #[test]
    fn an_exception_goes_before_everything_else() {
        let own = Profile {
            name: "support".into(),
            access: vec![Access::Read],
            tools: vec!["like".into(), "never".into()],
            except: vec!["secrets".into(), "never".into()],
            databases: None,
            role: None,
        };
        assert!(own.includes("any_read", Access::Read) && own.includes("like", Access::Write));
        for (tool, access) in [("secrets", Access::Read), ("never", Access::Write), ("other", Access::Write)] {
            assert!(!own.includes(tool, access), "{tool}");
        }
    }
}
