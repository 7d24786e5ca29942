//! Which tools of manifests would not compile any more after a change.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use types::DescribeStatement;

/// Compiles the tools of the operator's manifests.
pub trait ToolCompiler: Sync {
    /// The login of reads, if it is known.
    fn reader(&self) -> Option<&str>;

    /// Compiles the tools against this database.
    ///
    /// # Errors
    /// The reason why no tool can be compiled.
    fn compile<D: DescribeStatement + Sync>(
        &self,
        database: &D,
    ) -> impl Future<Output = Result<CompiledTools, String>> + Send;
}

/// The tools of manifests, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompiledTools {
    pub fitting: BTreeSet<String>,
    /// The tools that do not fit the database, each with the reasons.
    pub unfit: BTreeMap<String, Vec<String>>,
}

/// What a change does to the tools of manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolImpact {
    /// The number of tools that compile before the change.
    pub compiled: usize,
    /// Those of them that would not compile any more.
    pub broken: Vec<BrokenTool>,
    /// The tools that did not compile before, in this login: nothing is known of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compiled: Vec<String>,
    /// Why the tools were not compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenTool {
    pub tool: String,
    /// The reasons, as `countersign check` has them.
    pub reasons: Vec<String>,
}

impl ToolImpact {
    pub(super) fn unknown(because: impl Into<String>) -> Self {
        Self { unknown_because: Some(because.into()), ..Self::default() }
    }

    pub(super) fn new(before: CompiledTools, mut after: CompiledTools) -> Self {
        let compiled = before.fitting.len();
        let gone = before.fitting.into_iter().filter(|tool| !after.fitting.contains(tool)).collect::<Vec<_>>();
        let broken = gone.into_iter().map(|tool| {
            let reasons = after.unfit.remove(&tool).unwrap_or_default();
            BrokenTool { tool, reasons }
        });
        Self {
            compiled,
            broken: broken.collect(),
            not_compiled: before.unfit.into_keys().collect(),
            unknown_because: None,
        }
    }
}
