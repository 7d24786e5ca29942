//! Ids as people type and read them: the first characters are enough if they identify one id.

use anyhow::bail;
use types::IdPrefix;

pub(crate) use review::sentences::short_id as short;

/// The maximum number of matches that an error names.
const NAMED: u32 = 5;

/// The number of matches to look for: one more than an error names.
pub(crate) const LOOKED_FOR: u32 = NAMED + 1;

pub(crate) fn parse(text: &str) -> Result<IdPrefix, String> {
    IdPrefix::parse(text).ok_or_else(|| {
        format!(
            "an id is a UUID of 36 characters, such as 0b9f7c52-6d3e-4a57-9b0a-1f2e3d4c5b6a, or its first {} or more",
            IdPrefix::MIN_CHARS
        )
    })
}

/// The only match; `None` if there is none. Each match has its id and its description.
///
/// # Errors
/// There are several matches. The message names them.
pub(crate) fn only<T>(
    prefix: &IdPrefix,
    matches: Vec<T>,
    describe: impl Fn(&T) -> String,
) -> anyhow::Result<Option<T>> {
    if matches.len() > 1 {
        let named = NAMED as usize;
        let mut lines: Vec<String> = matches.iter().take(named).map(|one| format!("  {}", describe(one))).collect();
        if matches.len() > named {
            lines.push("  and more".to_owned());
        }
        bail!("several ids begin with {}; give more of the one that you mean:\n{}", prefix.as_str(), lines.join("\n"));
    }
    Ok(matches.into_iter().next())
}
