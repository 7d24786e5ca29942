//! The policy of a tool: its rules and the limit of its calls. PostgreSQL evaluates the rules and counts the calls
//! (`migrations/baseline/77_policies.sql`); this module sends the statement and parses the decision.
//!
//! ```text
//! call that may run     BEGIN · admission · apply_policy · COMMIT AND CHAIN · claim ...       no further round trip
//! call that may not     BEGIN · admission · apply_policy fails with CS004: ROLLBACK, no record
//!                       admit, apply_policy again for a call that is no duplicate; then the refusal is logged
//! ```

use pg::{PipelineStatement, ServerError, StatementResult, WriterPool};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, LimitScope, Principal, Rule, RuleAction, Tier, ToolLimit};

use crate::write::failures::{ledger_failure, sql_failure, statement_failure};

/// The SQLSTATE if the policy refuses to run a call (see the migrations).
pub(crate) const NOT_LET_RUN: &str = "CS004";

/// The rule that applied to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRule {
    /// The number of the rule in the tool, from 1.
    pub number: usize,
    /// The text of its condition.
    pub when: String,
    /// The consequence for the call.
    pub then: RuleAction,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The decision about a call that the policy does not deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// The tier that the call needs.
    pub tier: Tier,
    /// The rule that requires the tier; `None` if the tool itself does.
    pub rule: Option<AppliedRule>,
}

/// The rules and the limit of a tool, as SQL.
#[derive(Debug, Clone)]
pub struct ToolPolicy {
    /// The name of the tool.
    pub tool: String,
    /// The tier of the tool.
    pub tier: Tier,
    /// The rules, in their order.
    pub rules: Vec<Rule>,
    /// The limit of its calls.
    pub limit: Option<ToolLimit>,
    /// The types of the tool's parameters, by oid.
    pub param_types: Vec<u32>,
    /// An SQL expression that returns the values of the conditions as an array. Its parameters are those of the tool,
    /// followed by the account and the actor.
    pub values: String,
    /// The FROM clause of the expression.
    pub from: String,
}

/// The policy of a tool and the parameters of one call.
#[derive(Debug, Clone)]
pub struct PolicyCall<'a> {
    /// The policy.
    pub policy: &'a ToolPolicy,
    /// The parameters of the tool in PostgreSQL's text form.
    pub params: Vec<Option<String>>,
}

#[derive(Debug, Clone)]
pub(crate) struct PolicyStatement {
    sql: String,
    params: Vec<Option<String>>,
    param_types: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyMode<'a> {
    /// Raise an error unless the call may run. The text is the slot of the call, as `bytea`.
    Run(&'a str),
    /// Log a refusal.
    Refuse,
    /// Only return the decision.
    Preview,
}

/// The decision in the ledger's JSON.
#[derive(Debug, Deserialize)]
struct Verdict {
    outcome: String,
    #[serde(default)]
    rule: Option<usize>,
    #[serde(default)]
    retry_after_s: Option<u64>,
}

impl ToolPolicy {
    fn sql(&self, mode: PolicyMode<'_>) -> String {
        let mode = match mode {
            PolicyMode::Run(_) => "run",
            PolicyMode::Refuse => "refuse",
            PolicyMode::Preview => "preview",
        };
        let account = self.param_types.len() + 1;
        let [actor, slot, tool, session, client, version, trace, correlation] =
            [1, 2, 3, 4, 5, 6, 7, 8].map(|offset| account + offset);
        let actions: Vec<&str> = self.rules.iter().map(|rule| rule.then.as_str()).collect();
        let calls = self.limit.and_then(|limit| Some((limit, limit.calls?)));
        let limit = calls.map_or_else(
            || "null, null, false".to_owned(),
            |(limit, calls)| format!("{calls}, {}, {}", limit.per_s, limit.by == LimitScope::Actor),
        );
        format!(
            "select countersign.apply_policy('{mode}', ${slot}::bytea, ${tool}::text, ${account}::text, ${actor}::text, \
             ${session}::text, ${client}::text, ${version}::text, ${trace}::text, ${correlation}::uuid, '{}', '{{{}}}', {}, \
             {limit}) from {}",
            self.tier.as_str(),
            actions.join(","),
            self.values,
            self.from
        )
    }

    fn rule(&self, number: usize) -> Option<AppliedRule> {
        let rule = self.rules.get(number.checked_sub(1)?)?.clone();
        Some(AppliedRule { number, when: rule.when, then: rule.then, message: rule.message })
    }

    /// Parses the decision. A denial and a used-up limit are errors.
    fn read(&self, json: Option<&str>) -> Result<AppliedPolicy, Failure> {
        let verdict = json.and_then(|json| serde_json::from_str::<Verdict>(json).ok());
        let Some(Verdict { outcome, rule, retry_after_s }) = verdict else {
            return Err(Failure::new(ErrorCode::DbError, "the ledger gave a decision of another version"));
        };
        let rule = rule.and_then(|number| self.rule(number));
        match outcome.as_str() {
            "run" => Ok(AppliedPolicy { tier: Tier::Auto, rule }),
            "confirm" => Ok(AppliedPolicy { tier: Tier::Confirm, rule }),
            "approve" => Ok(AppliedPolicy { tier: Tier::Approve, rule }),
            "limit" => Err(self.limit_reached(retry_after_s.unwrap_or(1))),
            _ => Err(self.denied(rule.as_ref())),
        }
    }

    fn denied(&self, rule: Option<&AppliedRule>) -> Failure {
        let (number, why) = rule.map_or_else(
            || (String::new(), String::new()),
            |rule| {
                let why = rule.message.as_ref().unwrap_or(&rule.when);
                (format!(" {}", rule.number), format!(": {why}"))
            },
        );
        let message = format!("rule{number} of {} refuses this call{why}; nothing was written", self.tool);
        Failure::new(ErrorCode::RuleDenied, message)
    }

    fn limit_reached(&self, retry_after_s: u64) -> Failure {
        let limit = self.limit.map_or_else(String::new, |limit| {
            format!(" ({} in {} s for each {})", limit.amount(), limit.per_s, limit.by.as_str())
        });
        let message = format!(
            "the limit of {}{limit} is reached; nothing was written, and the next call is possible in {retry_after_s} s",
            self.tool
        );
        Failure::new(ErrorCode::LimitReached, message).hint(format!("Repeat the call after {retry_after_s} seconds."))
    }
}

impl PolicyCall<'_> {
    pub(crate) fn statement(
        &self,
        mode: PolicyMode<'_>,
        principal: &Principal,
        correlation_id: CorrelationId,
    ) -> PolicyStatement {
        let slot = if let PolicyMode::Run(slot) = mode { Some(slot.to_owned()) } else { None };
        let client = &principal.client;
        let mut params = self.params.clone();
        params.extend([
            Some(principal.account_id.as_str().to_owned()),
            principal.actor.clone(),
            slot,
            Some(self.policy.tool.clone()),
            client.session_id.clone(),
            client.name.clone(),
            client.version.clone(),
            client.trace_id.clone(),
            Some(correlation_id.to_string()),
        ]);
        PolicyStatement { sql: self.policy.sql(mode), params, param_types: self.policy.param_types.clone() }
    }
}

impl PolicyStatement {
    pub(crate) fn step(&self) -> PipelineStatement<'_> {
        PipelineStatement { sql: &self.sql, params: &self.params, param_types: &self.param_types }
    }
}

/// Decides about a call that does not run now, because it was refused, needs approval, or is only previewed.
pub(crate) async fn decide(
    writer: &WriterPool,
    call: &PolicyCall<'_>,
    principal: &Principal,
    mode: PolicyMode<'_>,
    deadline: Instant,
) -> Result<AppliedPolicy, Failure> {
    let statement = call.statement(mode, principal, CorrelationId::new());
    let mut lease = writer.acquire(deadline).await.map_err(|error| ledger_failure(&error))?;
    let outcome = tokio::time::timeout_at(deadline, lease.session().run(&[statement.step()])).await;
    let outcome = outcome.unwrap_or(Err(pg::PipelineError { step: 0, error: pg::Error::Deadline }));
    let outcomes = outcome.map_err(|failed| match failed.error {
        pg::Error::Server(error) => not_evaluated(&error),
        error => {
            lease.discard();
            ledger_failure(&error)
        }
    })?;
    let json = outcomes.into_iter().next().and_then(StatementResult::into_value);
    call.policy.read(json.as_deref())
}

/// The failure for an error of PostgreSQL while it applied a policy.
pub(crate) fn not_evaluated(error: &ServerError) -> Failure {
    // The message may quote a sensitive parameter, so it is not logged.
    tracing::warn!(sqlstate = error.sqlstate, "the policy of a tool cannot be applied");
    if error.is_schema_drift() {
        return statement_failure(error);
    }
    let failure = sql_failure(error);
    let message =
        format!("the rules of the tool cannot be evaluated for this call: {}; nothing was written", failure.message);
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> ToolPolicy {
        let rules = [RuleAction::Approve, RuleAction::Deny].map(|then| Rule {
            when: "param.amount > 100".to_owned(),
            then,
            message: (then == RuleAction::Deny).then(|| "Too much.".to_owned()),
        });
        ToolPolicy {
            tool: "pay".to_owned(),
            tier: Tier::Auto,
            rules: rules.to_vec(),
            limit: Some(ToolLimit { calls: Some(50), rows: None, per_s: 3600, by: LimitScope::Actor }),
            param_types: vec![23, 25],
            values: "array[]::bool[]".to_owned(),
            from: "t".to_owned(),
        }
    }

    #[test]
    fn the_parameters_of_the_ledger_follow_those_of_the_tool() {
        assert_eq!(
            policy().sql(PolicyMode::Run("")),
            "select countersign.apply_policy('run', $5::bytea, $6::text, $3::text, $4::text, $7::text, $8::text, $9::text, \
             $10::text, $11::uuid, 'auto', '{approve,deny}', array[]::bool[], 50, 3600, true) from t"
        );
    }

    #[test]
    fn a_decision_names_the_rule() {
        let applied = policy().read(Some(r#"{"outcome": "approve", "rule": 1}"#)).unwrap();
        assert_eq!((applied.tier, applied.rule.unwrap().number), (Tier::Approve, 1));
        let denied = policy().read(Some(r#"{"outcome": "deny", "rule": 2, "retry_after_s": null}"#)).unwrap_err();
        assert_eq!(denied.message, "rule 2 of pay refuses this call: Too much.; nothing was written");
        let reached = policy().read(Some(r#"{"outcome": "limit", "rule": null, "retry_after_s": 60}"#)).unwrap_err();
        assert!(reached.retryable && reached.message.contains("50 calls in 3600 s for each actor"), "{reached:?}");
    }

    #[test]
    fn what_cannot_be_read_lets_nothing_run() {
        for json in [None, Some(""), Some("{}"), Some(r#"{"outcome": "other"}"#)] {
            assert!(policy().read(json).is_err(), "{json:?}");
        }
    }
}
