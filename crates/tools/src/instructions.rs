//! The instructions that an agent gets at the beginning of a session: how the server's tools work together. They
//! mention only tools that the server has.

use review::sentences::capitalized;

use crate::tool::ToolInfo;
use types::{DatabaseLabel, Tier};

const READS: [(&str, &str); 3] = [
    ("describe_database", "see what is in it with describe_database"),
    ("query_database", "read with query_database"),
    ("explain_query", "look at a plan with explain_query"),
];

const ANSWERS: &str = "Every tool answers one JSON object: success, then data (the result) or error (code, message, hint; \
    retryable says whether the same call may work later), and meta.";

const WRITES: &str = "Write only with the write tools. Each write is recorded and happens once. meta.correlation_id is its \
    receipt: keep it with what you did. Say in its argument reason why you write: it is the first thing that a reviewer reads.";

const UNDO: &str =
    "meta.rollback says how to undo the write: by undo_tool with undo_params, or by all of undo_calls in order.";

const DUPLICATES: &str = "A call identical to one that succeeded within the last 5 minutes (a tool may have another window) \
    writes nothing: it answers data.duplicate = true, with the first result in data.cached_result and the receipt of that \
    write in data.original_correlation_id. So a duplicate is no second write, and no failure. When an answer was lost, \
    repeat the very same call. When the same write is wanted once more, give it an idempotency_key: an optional argument of \
    every write, a key of your own for one write (such as a UUID; 1 to 255 ASCII characters without spaces). A call with \
    the same key and arguments within 24 hours is answered with the first result.";

const PROPOSALS: &str = "A write that answers requires_approval was not made yet.";

/// What a server without a ledger says: to agents in its instructions, and to operators.
pub const READS_ONLY: &str = "the database has no ledger for this login, so only reads are served. For writes, the operator runs \
    `countersign init --schema SCHEMA --config FILE`, and starts the server again with --config FILE";

/// The instructions for a session that begins before the database is reachable. A client reads instructions only
/// once.
pub(crate) const UNREACHED: &str = "The database was not reachable when this session began. Further tools are announced once \
    it is. Of those that write: each write is recorded and happens once, meta.correlation_id is its receipt, meta.rollback \
    says how to undo it, and data.duplicate = true means that an identical call had been made before and nothing was \
    written now.";

pub(crate) fn of_tools(tools: &[&ToolInfo], databases: &[&DatabaseLabel]) -> String {
    let has = |name: &str| tools.iter().any(|info| info.name == name);
    let reads: Vec<&str> = READS.into_iter().filter(|(name, _)| has(name)).map(|(_, words)| words).collect();
    let mut parts = match databases {
        [] => vec!["A PostgreSQL database.".to_owned()],
        named => vec![of_databases(named)],
    };
    if !reads.is_empty() {
        parts.push(sentence(&reads.join(", ")));
    }
    parts.push(ANSWERS.to_owned());
    let of_rules = tools.iter().flat_map(|info| &info.rules).filter_map(|rule| rule.then.tier());
    let tiers: Vec<Tier> = tools.iter().filter_map(|info| info.tier).chain(of_rules).collect();
    if !tiers.is_empty() {
        let mut say = |words: &str| parts.push(words.to_owned());
        say(WRITES);
        if has("get_mutation_detail") {
            say("get_mutation_detail finds the write by it.");
        }
        say(UNDO);
        if has("get_recent_mutations") {
            say("Before a write that has to do with earlier ones, or may have been made already, look at \
                 get_recent_mutations.");
        }
        if has("preview_mutation") {
            say("preview_mutation shows what a write would do, without doing it.");
        }
        say(DUPLICATES);
        if tiers.iter().any(|tier| *tier > Tier::Auto) {
            say(PROPOSALS);
        }
        if tiers.contains(&Tier::Confirm) && has("confirm_proposal") {
            say("Tier confirm: show its proposal to the user, and call confirm_proposal only if they agree.");
        }
        if tiers.contains(&Tier::Approve) {
            say("Tier approve: a person who is not the caller has to approve it, outside of this conversation.");
        }
        if tiers.iter().any(|tier| *tier > Tier::Auto) && has("get_proposal") {
            say("get_proposal says what has become of it.");
        }
    }
    parts.join(" ")
}

/// The databases of a server, and how a call names one.
fn of_databases(databases: &[&DatabaseLabel]) -> String {
    let of_one = |label: &&DatabaseLabel| match &label.description {
        Some(description) => format!("{label}: {}", description.trim_end_matches('.')),
        None => label.to_string(),
    };
    let listed: Vec<String> = databases.iter().map(of_one).collect();
    format!("PostgreSQL databases, each named by the argument database: {}.", listed.join("; "))
}

/// Makes a sentence of the words, with a capital letter and a full stop.
pub(crate) fn sentence(words: &str) -> String {
    format!("{}.", capitalized(words))
}
