//! The executor of both undo tools.

use ledger::undo::RestoredRows;
use ledger::{WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use serde_json::{Value, json};
use types::{CorrelationId, ErrorCode, Failure, Rollback, TOOL_VERSION, Tier};

use super::{MutationData, RunData, UndoKind, UndoTiers};
use crate::builtin::correlation_id;

impl UndoKind {
    /// The ids of the writes that the request undoes.
    pub(super) fn writes(self, request: &WriteRequest) -> Result<Vec<CorrelationId>, Failure> {
        match self {
            Self::Mutation => {
                let write = request.params.get("correlation_id").and_then(Value::as_str).unwrap_or_default();
                Ok(vec![correlation_id(self.name(), write)?])
            }
            Self::Run => {
                let writes = request.params.get("writes").and_then(Value::as_array);
                let writes = writes.into_iter().flatten().map(|write| write.as_str().and_then(CorrelationId::parse));
                writes.collect::<Option<Vec<_>>>().filter(|writes| !writes.is_empty()).ok_or_else(|| {
                    Failure::new(ErrorCode::InvalidParams, format!("{}: writes is a list of UUIDs", self.name()))
                })
            }
        }
    }
}

pub(crate) struct UndoExecutor {
    kind: UndoKind,
    tiers: UndoTiers,
}

impl UndoExecutor {
    pub(in crate::builtin) const fn new(kind: UndoKind, tiers: UndoTiers) -> Self {
        Self { kind, tiers }
    }
}

impl WriteExecutor for UndoExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        self.kind.writes(request).map(drop)
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let writes = self.kind.writes(request)?;
            let (data, rows) = match self.kind {
                UndoKind::Mutation => {
                    let RestoredRows { rows, set_again, not_restored } = ledger::undo::undo(tx, &writes).await?;
                    let undone = writes.iter().map(ToString::to_string).collect();
                    (json!(MutationData { undone, rows, set_again, not_restored }), rows)
                }
                UndoKind::Run => {
                    let digest = request.params.get("digest").and_then(Value::as_str).unwrap_or_default();
                    let RestoredRows { rows, set_again, not_restored } =
                        ledger::undo::undo_plan(tx, request, &writes, digest).await?;
                    (json!(RunData { writes: writes.len(), rows, set_again, not_restored }), rows)
                }
            };
            Ok(WriteOutput::new(data, rows, Rollback::by_effects()))
        })
    }

    /// The preview fails if the ledger would refuse the undo.
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let output = self.execute(tx, request).await?;
            ledger::undo::refuse_trial(tx, &self.kind.writes(request)?).await?;
            Ok(output)
        })
    }

    fn definition(&self) -> String {
        json!([self.kind.name(), TOOL_VERSION, self.tiers.definition()]).to_string()
    }

    /// The tier of the proposal depends on the writes that it undoes. The definition contains all tiers.
    fn supports_tier(&self, _: Tier) -> bool {
        true
    }

    fn undoes(&self, request: &WriteRequest) -> Vec<CorrelationId> {
        self.kind.writes(request).unwrap_or_default()
    }
}
