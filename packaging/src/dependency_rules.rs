//! The rules of `deny.toml`, the file of cargo-deny, without compiling cargo-deny. A rule that is not held here is an error, but
//! for advisories, which need a database, and levels that only warn.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use cargo_metadata::semver::VersionReq;
use cargo_metadata::{Metadata, Package};
use serde::Deserialize;
use serde::de::IgnoredAny;
use spdx::{Expression, Licensee, ParseMode};

/// The file of the workspace from which this program was built.
const DENY_TOML: &str = include_str!("../../deny.toml");

#[derive(Debug)]
pub struct DependencyRules {
    allowed: Vec<Licensee>,
    rules: DenyToml,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DenyToml {
    #[serde(rename = "advisories")]
    _advisories: IgnoredAny,
    licenses: LicenseRules,
    bans: BanRules,
    sources: SourceRules,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LicenseRules {
    #[serde(rename = "version")]
    _version: IgnoredAny,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BanRules {
    multiple_versions: Level,
    wildcards: Level,
    allow_wildcard_paths: bool,
    deny: Vec<BannedCrate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BannedCrate {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SourceRules {
    unknown_registry: Level,
    unknown_git: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
    Warn,
    Allow,
}

impl DependencyRules {
    /// The rules of the workspace.
    ///
    /// # Errors
    /// As [`Self::parse()`].
    pub fn of_workspace() -> anyhow::Result<Self> {
        Self::parse(DENY_TOML)
    }

    /// # Errors
    /// If the text is no file of cargo-deny, or has a rule that is not held here.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let rules: DenyToml = toml::from_str(text).context("deny.toml")?;
        ensure!(rules.bans.multiple_versions != Level::Deny, "deny.toml: multiple-versions can only warn here");
        if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name.contains(['@', ':'])) {
            bail!("deny.toml: {:?} bans versions of a crate, and only all versions can be banned here", ban.name);
        }
        let allowed = rules.licenses.allow.iter().map(|license| {
            Licensee::parse(license).with_context(|| format!("deny.toml: {license:?} is no licence of SPDX"))
        });
        Ok(Self { allowed: allowed.collect::<anyhow::Result<_>>()?, rules })
    }

    /// What crates have against the rules.
    pub fn violations(&self, metadata: &Metadata) -> BTreeSet<String> {
        metadata.packages.iter().flat_map(|package| self.violations_of(package)).collect()
    }

    fn violations_of(&self, package: &Package) -> Vec<String> {
        let mut violations = Vec::new();
        let name = format!("{} {}", package.name, package.version);
        violations.extend(self.permitted_license(package).err().map(|error| format!("{error:#}")));
        if let Some(ban) = self.rules.bans.deny.iter().find(|ban| ban.name == package.name.as_str()) {
            violations.push(format!("{name} is banned: {}", ban.reason));
        }
        if let Some(source) = &package.source {
            let is_git = source.repr.starts_with("git+");
            let level = if is_git { self.rules.sources.unknown_git } else { self.rules.sources.unknown_registry };
            if level == Level::Deny && !source.is_crates_io() {
                violations.push(format!("{name} is from {source}"));
            }
        }
        // A crate that is not published may name a crate by its path alone.
        let may_have_paths =
            self.rules.bans.allow_wildcard_paths && package.publish.as_ref().is_some_and(Vec::is_empty);
        let wildcards = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.req == VersionReq::STAR && !(may_have_paths && dependency.path.is_some()));
        if self.rules.bans.wildcards == Level::Deny {
            violations.extend(wildcards.map(|it| format!("{name} depends on any version of {}", it.name)));
        }
        violations
    }

    /// The licence of a crate, if it is permitted.
    pub(crate) fn permitted_license(&self, package: &Package) -> anyhow::Result<PermittedLicense> {
        let name = format!("{} {}", package.name, package.version);
        let license = package.license.as_ref().with_context(|| format!("{name} does not name its licence"))?;
        // Old crates have a slash for OR.
        let license = license.replace('/', " OR ");
        let expression = Expression::parse_mode(&license, ParseMode::LAX);
        let expression = expression.with_context(|| format!("{name} has the licence {license:?}"))?;
        let requirements = expression.minimized_requirements(&self.allowed);
        let requirements = requirements
            .ok()
            .with_context(|| format!("{name} has the licence {license:?}, which deny.toml does not allow"))?;
        let texts = requirements.iter().filter_map(|it| Some(it.license.id()?.text().to_owned())).collect();
        Ok(PermittedLicense { expression: license, texts })
    }
}

/// A licence that the rules permit.
#[derive(Debug)]
pub(crate) struct PermittedLicense {
    pub(crate) expression: String,
    /// The texts of SPDX for the licences of the expression under which the crate is used.
    pub(crate) texts: Vec<String>,
}
