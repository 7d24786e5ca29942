//! `countersign try`: calls one tool from the shell. A write runs in `preview_mutation` and is rolled back.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use manifest::Access;
use review::Summary;
use serde::Deserialize;
use serde_json::{Map, Value};
use tools::{Metrics, Registry};
use types::{Effects, Envelope, Failure, Principal, Rollback, Tier, check_strict_json, quoted, visible};

use crate::commands::bootstrap::ToolBuilder;
use crate::commands::cli::TryArgs;
use crate::commands::proposals::show::undo_lines;
use crate::connection;
use crate::settings::Settings;
use crate::terminal::rows;
use crate::terminal::table::{Shown, beside};
use crate::terminal::{Style, print_error, print_line, print_lines};

/// The tool that runs a write and rolls it back.
const PREVIEW: &str = "preview_mutation";

/// `data` of the answer of a preview.
#[derive(Deserialize)]
struct PreviewedWrite {
    tool: String,
    params: Map<String, Value>,
    result: Value,
    before: Option<Value>,
    after: Option<Value>,
    effects: Option<Effects<Value>>,
    rows_affected: u64,
    rollback: Rollback,
    policy: Option<PreviewedPolicy>,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct PreviewedPolicy {
    tier: Tier,
}

struct Answer {
    envelope: Envelope,
    is_preview: bool,
    tier: Option<Tier>,
}

pub(crate) async fn run(arguments: &TryArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let params = parse(&arguments.arguments)?;
    let database = settings.database()?;
    let target = connection::configured(database)?;
    let builder = ToolBuilder::open(&target, settings, database, false, Metrics::new()).await?;
    let toolsets = builder.tools(&builder.sources(database)?, settings, database).await?.toolsets;
    let tools = toolsets.get(&settings.profile).context("the configured profile does not exist")?;
    let registry = Registry::of_one(Arc::clone(tools));
    let read_log = builder.services.ledger.read_log().start();
    let outcome = call(&registry, arguments, params, settings).await;
    builder.services.ledger.gate().drain().await;
    if let Some(reader) = &builder.services.reader {
        reader.drain().await;
    }
    builder.services.ledger.read_log().finish(read_log).await;
    print(arguments, outcome?)
}

/// The arguments of the call, parsed as strictly as in a server.
fn parse(text: &str) -> anyhow::Result<Map<String, Value>> {
    const MAX_VALUES: usize = 70_000;
    let wrong = "the arguments are not a JSON object, such as '{\"id\": 17}'";
    check_strict_json(text.as_bytes(), MAX_VALUES).context(wrong)?;
    serde_json::from_str(text).context(wrong)
}

/// Calls a tool that only reads directly, and any other tool through [`PREVIEW`].
async fn call(
    registry: &Registry,
    arguments: &TryArgs,
    params: Map<String, Value>,
    settings: &Settings,
) -> anyhow::Result<Answer> {
    let tool = arguments.tool.as_str();
    let known = || registry.infos().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(info) = registry.info(tool) else {
        if let Some(result) = registry.call_outdated(tool, &params) {
            return Ok(Answer { envelope: result.envelope, is_preview: false, tier: None });
        }
        let profile = &settings.profile;
        anyhow::bail!("the profile \"{profile}\" has no tool {}; its tools are: {}", quoted(tool), known());
    };
    let principal =
        Principal { account_id: settings.account.clone(), actor: settings.actor.clone(), ..Principal::default() };
    let (called, call) = if info.access == Access::Read {
        (tool, params)
    } else {
        let preview = [("tool", Value::from(tool)), ("params", Value::Object(params))];
        (PREVIEW, preview.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    };
    let result = registry.call(called, call, principal).await.with_context(|| {
        format!("a write is tried with {PREVIEW}, which the profile \"{}\" does not have", settings.profile)
    })?;
    Ok(Answer { envelope: result.envelope, is_preview: called == PREVIEW, tier: info.tier })
}

/// Prints the answer as text or as JSON. As text, a failure goes to standard error.
fn print(arguments: &TryArgs, answer: Answer) -> anyhow::Result<ExitCode> {
    let Answer { envelope, is_preview, tier } = answer;
    let code = if envelope.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.json {
        print_line(&visible(&envelope.into_json()?));
        return Ok(code);
    }
    match envelope {
        Envelope::Success { data, .. } => {
            let shown = Shown::new(arguments.full);
            let (lines, why) = if is_preview {
                (preview(&serde_json::from_str(data.get())?, tier, shown), "the write was run and rolled back")
            } else {
                (shown.field("result", Some(&serde_json::from_str(data.get())?)), "the tool only reads")
            };
            print_lines(lines);
            print_line(&format!("Nothing was written: {why}."));
        }
        Envelope::Failure { error, .. } => print_failure(&error),
    }
    Ok(code)
}

fn print_failure(failure: &Failure) {
    let detail = failure.detail.as_ref().map_or_else(String::new, |detail| format!("\n{}", visible(detail)));
    let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\n{}", visible(hint)));
    let (code, message) = (failure.code.as_str(), visible(&failure.message));
    print_error(&format!("countersign: {code}: {message}{detail}{hint}\nNothing was written."));
}

/// The lines of a preview, in the form of a proposal.
fn preview(data: &PreviewedWrite, tier: Option<Tier>, shown: Shown) -> Vec<String> {
    let style = Style::of_stdout();
    let mut lines = beside("tool", [visible(&data.tool)]);
    let tier = data.policy.as_ref().map(|policy| policy.tier).or(tier);
    lines.extend(tier.into_iter().flat_map(|tier| beside("tier", [tier.as_str().to_owned()])));
    // A parameter that was not given is NULL.
    let given = data.params.iter().filter(|(_, value)| !value.is_null());
    let given = given.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>();
    lines.extend(shown.field("parameters", Some(&Value::Object(given))));
    lines.extend(beside("rows touched", [data.rows_affected.to_string()]));
    lines.extend(data.warnings.iter().flat_map(|warning| beside("warning", [style.bad(&visible(warning))])));
    let summary = Summary::of_images(data.before.as_ref(), data.after.as_ref(), data.effects.as_ref());
    lines.extend(beside("rows", rows::lines(&summary, shown, &style)));
    lines.extend(shown.field("result", Some(&data.result)));
    lines.extend(undo_lines(&data.rollback, true, &style));
    lines
}
