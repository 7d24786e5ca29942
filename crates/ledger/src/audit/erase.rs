//! Erasing takes the values of a person from records, effects and other tables of the ledger. The log gets an entry for
//! each record that lost values. Two people agree to it: what is proposed here is decided as any proposal.

use serde::Deserialize;
use serde_json::{Value, json};
use types::{CorrelationId, IdPrefix, ProposalId};

use super::{Audit, RowError, TrackedRow, number, one_row, unreadable};

/// The tool of proposals of erasures. No manifest can have this name.
pub const ERASE_TOOL: &str = "audit erase";

/// What an erasure begins with.
#[derive(Debug, Clone)]
pub struct ErasureScope {
    what: Value,
    /// The same in words, such as `the row shop.customer:17`.
    pub words: String,
}

/// What an erasure would find. It has no value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ErasurePlan {
    /// The columns whose values are looked for as text in every table of the ledger.
    pub looked_for: Option<Vec<LookedFor>>,
    pub found: Option<Vec<FoundValues>>,
    /// What holds values and is not decided yet, so that nothing can be erased.
    pub waiting: Option<Vec<WaitingValues>>,
    /// The writes that can be undone, and not afterwards.
    pub lose_undo: Option<Vec<CorrelationId>>,
    /// The number of entries of the log that name the actor, which stay.
    pub named: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LookedFor {
    pub column: String,
    pub values: u64,
    /// Why these are not looked for.
    pub why_not: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FoundValues {
    pub place: String,
    pub rows: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WaitingValues {
    pub place: String,
    /// The id of one of them, if they have ids.
    pub example: Option<String>,
}

/// What an erasure has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// The number of rows of the ledger that lost values.
    pub rows: i64,
    /// The number of records and events that are not sealed yet, so the erasure is not complete.
    pub unsealed: i64,
    /// Whether rows that changed meanwhile have values still.
    pub is_incomplete: bool,
}

/// The number of pages in one transaction.
const BLOCKS: i64 = 64;

/// How often all tables are gone through while others change their rows.
const PASSES: usize = 3;

const PLAN_SQL: &str = "select countersign.erasure_plan($1::json)::text";
const PROPOSE_SQL: &str = "select countersign.propose_erasure($1::uuid, $2::json, $3, $4, $5)::text";
const TABLES_SQL: &str = "select t.of_table, t.blocks::text from countersign.erasable_tables() t";
const PORTION_SQL: &str =
    "select p.erased::text, p.unsealed::text from countersign.erase_portion($1::uuid, $2, $3::bigint, $4::integer) p";
const FIND_SQL: &str = "select p.proposal_id::text from countersign.proposal p \
    where p.tool_name = 'audit erase' and p.proposal_id between $1::uuid and $2::uuid order by p.id desc limit $3::bigint";
const FINISH_SQL: &str = "select countersign.finish_erasure($1::uuid)::text";

impl ErasureScope {
    /// Everything that is recorded of a row of a tracked table. `name` is what the person called it.
    pub fn row(row: &TrackedRow, name: &str) -> Self {
        let what = json!({"row": name, "relation": row.relation, "key": row.key});
        Self { what, words: format!("the row {name}") }
    }

    /// The values of one column of a tracked table.
    pub fn column(table: &TrackedRow, name: &str, column: &str) -> Self {
        let what = json!({"table": name, "relation": table.relation, "column": column});
        Self { what, words: format!("the column {column} of {name}") }
    }

    /// The name of a person on whose behalf calls were made.
    #[must_use]
    pub fn actor(name: &str) -> Self {
        Self { what: json!({"actor": name}), words: format!("the name {name}") }
    }

    /// All values of one record.
    #[must_use]
    pub fn record(id: CorrelationId) -> Self {
        Self { what: json!({"record": id}), words: format!("the record {id}") }
    }
}

impl Audit {
    /// What an erasure would find. This erases nothing.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 42501 if the login is no operator or approver.
    pub async fn erasure_plan(&self, scope: &ErasureScope) -> Result<ErasurePlan, pg::Error> {
        let [plan] = one_row(self.ask(PLAN_SQL, &[Some(scope.what.to_string())]).await?)?;
        serde_json::from_str(&plan.unwrap_or_default()).map_err(|_| unreadable())
    }

    /// Proposes an erasure on behalf of `who`. Another person approves it.
    pub async fn propose_erasure(&self, scope: &ErasureScope, who: &str, why: &str) -> Result<ProposalId, pg::Error> {
        let words = format!("Erase {} from the ledger.", scope.words);
        let params = [ProposalId::new().to_string(), scope.what.to_string(), who.to_owned(), why.to_owned(), words];
        let [stored] = one_row(self.ask(PROPOSE_SQL, &params.map(Some)).await?)?;
        stored.and_then(|id| ProposalId::parse(&id)).ok_or_else(unreadable)
    }

    /// The erasures whose id begins with this prefix, the newest first.
    pub async fn find_erasures(&self, prefix: &IdPrefix, limit: u32) -> Result<Vec<ProposalId>, pg::Error> {
        let [low, high] = prefix.range();
        let rows = self.ask(FIND_SQL, &[Some(low), Some(high), Some(limit.to_string())]).await?;
        let ids = rows.into_iter().flatten().flatten().map(|id| ProposalId::parse(&id).ok_or_else(unreadable));
        ids.collect()
    }

    /// Executes an erasure that was approved, or goes on with it. Each portion of each table is a transaction. Seal
    /// before, since only what is sealed is erased.
    ///
    /// # Errors
    /// A query failed. Earlier portions stay erased, and it can be called again.
    pub async fn erase(&self, id: ProposalId) -> Result<Erased, pg::Error> {
        let mut erased = Erased::default();
        for _ in 0..PASSES {
            erased.unsealed = 0;
            for row in self.ask(TABLES_SQL, &[]).await? {
                let [table, blocks] = one_row(vec![row])?;
                self.erase_table(id, &table, number(blocks.as_ref())?, &mut erased).await?;
            }
            if erased.unsealed > 0 {
                return Ok(erased);
            }
            let [is_finished] = one_row(self.ask(FINISH_SQL, &[Some(id.to_string())]).await?)?;
            if is_finished.as_deref() == Some("true") {
                return Ok(erased);
            }
        }
        Ok(Erased { is_incomplete: true, ..erased })
    }

    async fn erase_table(
        &self,
        id: ProposalId,
        table: &Option<String>,
        blocks: i64,
        erased: &mut Erased,
    ) -> Result<(), pg::Error> {
        let mut from = 0;
        loop {
            let [portion, most] = [from, BLOCKS].map(|number| Some(number.to_string()));
            let params = [Some(id.to_string()), table.clone(), portion, most];
            let [rows, unsealed] = one_row(self.ask(PORTION_SQL, &params).await?)?;
            erased.rows += number(rows.as_ref())?;
            erased.unsealed += number(unsealed.as_ref())?;
            from += BLOCKS;
            if from >= blocks {
                return Ok(());
            }
        }
    }

    /// The scope of an erasure of a row, by the names that a person gives.
    pub async fn erasure_of_row(
        &self,
        name: &str,
        table: &str,
        key: &[(Option<String>, String)],
    ) -> Result<ErasureScope, RowError> {
        Ok(ErasureScope::row(&self.tracked_row(table, key).await?, name))
    }

    /// The scope of an erasure of a column.
    pub async fn erasure_of_column(&self, table: &str, column: &str) -> Result<ErasureScope, RowError> {
        Ok(ErasureScope::column(&self.tracked_row(table, &[]).await?, table, column))
    }
}
