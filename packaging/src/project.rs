//! Names and texts that several packages have. The version, the licence and the address of the repository are those of
//! the workspace.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Licence of every package, as an SPDX expression.
pub const LICENSE: &str = env!("CARGO_PKG_LICENSE");
/// Address of the repository, from which releases are downloaded.
pub const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Name of the command, the archives, the bundles and the npm package.
pub const NAME: &str = "countersign";
/// Name on PyPI, where `countersign` belongs to somebody else's project.
pub const PYPI_NAME: &str = "countersign-mcp";
/// Name in the MCP registry. Its namespace belongs to the owner of the repository on GitHub.
pub const MCP_NAME: &str = "io.github.countersign-mcp/countersign";
/// The container image without its tag.
pub const IMAGE: &str = "ghcr.io/countersign-mcp/countersign";

/// Name for people.
pub const TITLE: &str = "Countersign";
/// The author that packages name.
pub const AUTHOR: &str = "The countersign authors";
/// One sentence. The MCP registry allows 100 characters.
pub const SUMMARY: &str = "PostgreSQL for AI agents: bounded reads, and declared writes that are audited and undoable.";
/// Words under which registries list the packages.
pub const KEYWORDS: [&str; 6] = ["mcp", "mcp-server", "model-context-protocol", "postgresql", "audit", "approval"];

/// The page that npm and PyPI show.
pub const DESCRIPTION: &str = include_str!("../description.md");
/// The text of the licence.
pub const LICENSE_TEXT: &str = include_str!("../../LICENSE");
/// The manifest of read tools for the health of a database.
pub const DBA_MANIFEST: &str = include_str!("../../manifests/dba.toml");
/// The skills, by the path in an archive.
pub const SKILLS: [(&str, &str); 3] = [
    ("skills/countersign-read/SKILL.md", include_str!("../../skills/countersign-read/SKILL.md")),
    ("skills/countersign-write/SKILL.md", include_str!("../../skills/countersign-write/SKILL.md")),
    ("skills/countersign-undo/SKILL.md", include_str!("../../skills/countersign-undo/SKILL.md")),
];
/// The README of the repository.
pub const README: &str = include_str!("../../README.md");

/// The variable with the connection string.
pub const DATABASE_URL: &str = "DATABASE_URL";
/// What to put into [`DATABASE_URL`].
pub const DATABASE_URL_HELP: &str =
    "Connection string of the server's own login, as postgresql://countersign_writer:password@host:5432/database.";
/// The variable with the manifests.
pub const MANIFEST: &str = "COUNTERSIGN_MANIFEST";
/// What to put into [`MANIFEST`].
pub const MANIFEST_HELP: &str = "Manifest with the tools that may write. Without one, agents can only read.";
