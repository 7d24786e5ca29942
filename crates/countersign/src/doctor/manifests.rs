//! The manifests, as `countersign check` looks at them.

use ledger::{ConnectOptions, Ledger};
use manifest::Diagnostics;

use super::Finding;
use crate::settings::Settings;
use crate::{check, tool_catalog};

const AREA: &str = "manifests";

pub(super) async fn examine(ledger: &Ledger, target: &ConnectOptions, settings: &Settings) -> Vec<Finding> {
    if settings.manifests.is_empty() {
        return vec![Finding::unchecked(AREA, "the manifests: none was given")];
    }
    let sources = match tool_catalog::read_manifests(&settings.manifests) {
        Ok(sources) => sources,
        Err(error) => {
            return vec![Finding::problem(AREA, format!("{error:#}"), "give the path of a file that can be read")];
        }
    };
    match tool_catalog::compile(&sources, &settings.profiles, ledger, target).await {
        Ok(catalog) => vec![Finding::ok(AREA, check::summary(&catalog))],
        Err(error) => match error.downcast_ref::<Diagnostics>() {
            Some(Diagnostics(mistakes)) => {
                mistakes.iter().map(|mistake| Finding::broken(AREA, mistake.to_string())).collect()
            }
            None => vec![Finding::broken(AREA, format!("{error:#}"))],
        },
    }
}
