//! Profiles: the sets of tools that callers can use.

use manifest::Access;
use types::{DatabaseName, RoleName};

use crate::builtin;

/// A set of tools: by access, by name, and with exclusions. A tool outside the set does not exist for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// One of [`Self::BUILTIN`], or `^[a-z][a-z0-9_-]{0,31}$` for an operator's profile.
    pub name: String,
    /// Every tool with one of these kinds of access.
    pub access: Vec<Access>,
    /// If there are any, no tool with another name.
    pub only: &'static [&'static str],
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
    /// Names of the profiles that every server has. `minimal` costs few tokens: the tools that take SQL, and
    /// `describe_database`. `readonly` reads the database, not the ledger. `write` adds the manifests' writes and the
    /// records of the caller's account. `admin` has everything.
    pub const BUILTIN: [&str; 4] = ["minimal", "readonly", "write", "admin"];

    /// Default profile.
    pub const DEFAULT: &str = "write";

    /// The profiles that every server has.
    #[must_use]
    pub fn builtin() -> Vec<Self> {
        let (read, write, admin) = (Access::Read, Access::Write, Access::Admin);
        // The access that `execute_sql` has depends on its mode: `minimal` is without arbitrary statements.
        let kinds = [vec![read, write], vec![read], vec![read, write], vec![read, write, admin]];
        let profile = |(name, access): (&str, Vec<Access>)| Self {
            name: name.to_owned(),
            access,
            only: if name == "minimal" { &builtin::MINIMAL } else { &[] },
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
        let may_be_in = self.only.is_empty() || self.only.contains(&tool);
        may_be_in && (self.access.contains(&access) || named(&self.tools)) && !named(&self.except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_builtin_profile_has_its_kinds_of_tools() {
        let tools = [
            ("query_database", Access::Read),
            ("read", Access::Read),
            ("execute_sql", Access::Write),
            ("write", Access::Write),
            ("execute_sql", Access::Admin),
        ];
        let has: Vec<(String, Vec<bool>)> = Profile::builtin()
            .into_iter()
            .map(|profile| {
                let has = tools.iter().map(|(name, access)| profile.includes(name, *access)).collect();
                (profile.name, has)
            })
            .collect();
        let expected = [
            ("minimal", vec![true, false, true, false, false]),
            ("readonly", vec![true, true, false, false, false]),
            ("write", vec![true, true, true, true, false]),
            ("admin", vec![true, true, true, true, true]),
        ];
        assert_eq!(has, expected.map(|(name, has)| (name.to_owned(), has)));
    }

    #[test]
    fn an_exception_goes_before_everything_else() {
        let own = Profile {
            name: "support".into(),
            access: vec![Access::Read],
            only: &[],
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
