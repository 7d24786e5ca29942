//! `[profiles.NAME]`: the operator's own sets of tools.

use manifest::{Access, Diagnostic, Location};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_spanned::Spanned;
use tools::Profile;
use types::RoleName;

use super::reader::Reader;

/// The table that the profiles stand in.
pub(super) const TABLE: &str = "profiles";

/// One profile, as it stands in the file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct ProfileKeys {
    /// Every tool of these kinds: read, write, admin.
    pub(super) access: Vec<Access>,
    /// And these tools, by name.
    #[schemars(with = "Vec<String>")]
    pub(super) tools: Vec<Spanned<String>>,
    /// But not these.
    #[schemars(with = "Vec<String>")]
    pub(super) except: Vec<Spanned<String>>,
    /// Databases that it reaches, by name. Default: all.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) databases: Option<Vec<Spanned<String>>>,
    /// Role of PostgreSQL that its statements run as, unless a token names one (role_claim). The logins of the server
    /// must be members of it. Default: that of the login.
    pub(super) role: Option<RoleName>,
}

/// Whether a profile can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
        && name.len() <= 32
}

/// A profile of the operator, with the places of its parts in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProfileConfig {
    pub(crate) profile: Profile,
    at: Location,
    /// The tools that it names.
    named: Vec<(String, Location)>,
}

impl ProfileConfig {
    /// # Errors
    /// The errors that do not depend on which tools exist.
    pub(super) fn new(
        name: &str,
        at: Location,
        keys: ProfileKeys,
        locate: impl Fn(usize) -> Location,
    ) -> Result<Self, Diagnostic> {
        let mistake = |message: String| Err(Diagnostic { at: at.clone(), tool: None, message });
        if Profile::BUILTIN.contains(&name) {
            return mistake(format!("every server has a profile {name}: choose another name"));
        }
        if !is_name(name) {
            let rule = "a lower-case letter, then at most 31 of a-z, 0-9, _ and -";
            return mistake(format!("\"{name}\" is no name for a profile: {rule}"));
        }
        if keys.access.is_empty() && keys.tools.is_empty() {
            return mistake(format!(
                "the profile {name} has no tools: give it tools = [\"like_tweet\"] or access = [\"read\"]"
            ));
        }
        let named = keys.tools.iter().chain(&keys.except);
        let named = named.map(|tool| (tool.get_ref().clone(), locate(tool.span().start))).collect();
        let names = |tools: Vec<Spanned<String>>| tools.into_iter().map(Spanned::into_inner).collect();
        let profile = Profile {
            name: name.to_owned(),
            access: keys.access,
            only: &[],
            tools: names(keys.tools),
            except: names(keys.except),
            databases: Reader::database_names(keys.databases),
            role: keys.role,
        };
        Ok(Self { profile, at, named })
    }

    /// An error for each name that is not the name of a tool. `known` are the names of all tools, served or not.
    pub(crate) fn unknown_tools(&self, known: &[&str]) -> Vec<Diagnostic> {
        let unknown = self.named.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        let mistake = |(name, at): &(String, Location)| Diagnostic {
            at: at.clone(),
            tool: None,
            message: format!(
                "profile {}: there is no tool \"{name}\"; there are: {}",
                self.profile.name,
                known.join(", ")
            ),
        };
        unknown.map(mistake).collect()
    }

    /// The error for a profile without tools.
    pub(crate) fn empty(&self) -> Diagnostic {
        let message = format!("profile {}: no tool that is served is in it", self.profile.name);
        Diagnostic { at: self.at.clone(), tool: None, message }
    }
}
