//! The tools of a database's manifests, for the trial of a schema change.

use std::collections::{BTreeMap, BTreeSet};

use ledger::Ledger;
use ledger::schema_changes::{CompiledTools, ToolCompiler};
use manifest::{Compilation, Diagnostic, Source};
use types::DescribeStatement;

use crate::connection;
use crate::settings::DatabaseSettings;
use crate::tool_catalog::{compile_against, read_manifests};

/// The manifests of a database, to be compiled within a trial.
pub(super) struct ManifestTools {
    sources: Result<Vec<Source>, String>,
    prefix: String,
    reader: Option<String>,
}

impl ManifestTools {
    pub(super) async fn new(settings: &DatabaseSettings, ledger: &Ledger) -> Self {
        let configured = settings.read.as_ref().and_then(|read| connection::parse(read, settings).ok());
        let reader = match configured {
            Some(target) => Some(target.user),
            None => ledger.reader_login().await.ok().map(|target| target.user),
        };
        let sources = match settings.manifests.as_slice() {
            [] => Err("no manifest is given or configured".to_owned()),
            paths => read_manifests(paths).map_err(|error| format!("{error:#}")),
        };
        Self { sources, prefix: settings.prefix.clone(), reader }
    }
}

impl ToolCompiler for ManifestTools {
    fn reader(&self) -> Option<&str> {
        self.reader.as_deref()
    }

    async fn compile<D: DescribeStatement + Sync>(&self, database: &D) -> Result<CompiledTools, String> {
        let sources = self.sources.as_ref().map_err(Clone::clone)?;
        let compiled = compile_against(sources, &self.prefix, database).await.map_err(|error| format!("{error:#}"))?;
        let Compilation { catalog, undo_mistakes } = compiled.map_err(|mistakes| mistakes.to_string())?;
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for tool in catalog.outdated {
            let messages = tool.mistakes.into_iter().map(|mistake| mistake.message);
            reasons.entry(tool.name).or_default().extend(messages);
        }
        for Diagnostic { tool, message, .. } in undo_mistakes.into_iter().chain(catalog.left_out) {
            reasons.entry(tool.unwrap_or_default()).or_default().push(message);
        }
        let fitting: BTreeSet<String> = catalog.tools.iter().map(|tool| tool.name.clone()).collect();
        let fitting: BTreeSet<String> = fitting.into_iter().filter(|tool| !reasons.contains_key(tool)).collect();
        let unfit = catalog.declared.into_iter().filter(|tool| !fitting.contains(&tool.name));
        let unfit = unfit.map(|tool| (reasons.remove(&tool.name).unwrap_or_default(), tool.name));
        let unfit = unfit.map(|(reasons, tool)| (tool, reasons)).collect();
        Ok(CompiledTools { fitting, unfit })
    }
}
