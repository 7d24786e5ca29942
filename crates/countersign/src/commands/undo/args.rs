//! The arguments of `countersign undo`.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use ledger::plans::PlanMode;
use types::{IdPrefix, Moment};

use crate::commands::words;
use crate::settings::With;
use crate::terminal::short_id;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UndoArgs {
    #[command(subcommand)]
    pub(crate) command: Option<UndoCommand>,
    #[command(flatten)]
    pub(crate) one: With<OneArgs>,
}

#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Correlation id of the write, or its first characters.
    #[arg(value_parser = short_id::parse, required = true)]
    pub(crate) correlation_id: Option<IdPrefix>,
    /// Try the undo in a transaction that is rolled back.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object for the outcome, or for each conflict.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UndoCommand {
    /// Show what undoing many writes would change, and store that as a plan. Nothing is undone.
    Plan(Box<With<PlanArgs>>),
    /// Undo what a plan has shown, if it would still change the same rows. An interrupted plan continues where
    /// it stopped.
    Run(With<RunArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Only writes that were completed from this time on: 30m, 12h or 7d ago, yesterday, 14:00, or '2026-11-22 09:00' (UTC).
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Moment,
    /// Only writes that were completed before this time. Default: now.
    #[arg(long, value_name = "TIME", default_value = "now")]
    pub(crate) to: Moment,
    /// Treatment of writes with conflicts.
    #[arg(long, value_parser = mode(), default_value = "strict")]
    pub(crate) mode: PlanMode,
    /// Number of rows above which the plan runs in several transactions.
    #[arg(long, value_name = "ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_rows: u64,
    /// List every write and every row, with whole values. Default: the first ones, and what the columns become.
    #[arg(long)]
    pub(crate) full: bool,
    /// Freeze the account or actor first.
    #[arg(long)]
    pub(crate) freeze: bool,
    /// Print one JSON object for the plan.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which writes. Without any of these: all.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// Only writes of this account.
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only writes on behalf of this person.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only writes of the session whose id begins with this.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only writes by a client of this name.
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// Only writes of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only writes that changed a row of this table, such as shop.orders.
    #[arg(long)]
    pub(crate) table: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Id of the plan, or its first characters.
    #[arg(value_parser = short_id::parse)]
    pub(crate) plan: IdPrefix,
    /// Digest of the plan, as `undo plan` printed it.
    #[arg(long)]
    pub(crate) digest: String,
    /// Print one JSON object for each part of the plan.
    #[arg(long)]
    pub(crate) json: bool,
}

fn mode() -> impl TypedValueParser<Value = PlanMode> {
    words::one_of([
        ("strict", "Any conflict prevents the plan", PlanMode::Strict),
        (
            "skip",
            "Writes with conflicts are left out as a whole, with the selected writes that they depend on",
            PlanMode::Skip,
        ),
        ("cascade", "Later recorded writes on the same rows are undone too", PlanMode::Cascade),
    ])
}
