//! Asking the user of a client whether a write shall happen (MCP elicitation), as the client's protocol has it.
//!
//! ```text
//! to 2025-11-25   within the call: elicitation/create ── accept, decline or cancel ──> the call goes on
//! 2026-07-28      the answer is the question (input_required), and the call comes again with inputResponses and requestState
//! ```
//! What comes back is the client's word, and the state that it carries is attacker-controlled: it is sealed for the principal and
//! the tool, names the proposal and its digest and nothing else, and counts once, since the proposal must still wait for it.
//! Whether it belongs to the arguments of the call, the tool looks itself.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, ErrorData, InputRequest,
    InputRequiredResult, ProtocolVersion, RequestId, SealOptions, ServerNotification, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tools::{Question, UserAnswer, UserDecision};
use types::{Principal, ProposalId};

use crate::state_codec::StateCodec;

/// Asks users.
#[derive(Debug, Clone)]
pub struct Elicitation {
    codec: StateCodec,
    timeout: Duration,
}

/// How the user of a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationMode {
    /// Not at all.
    Unsupported,
    /// By a request of the server's.
    Inline,
    /// By an answer that is a question.
    InputRequired,
}

/// The key of the one question and its answer.
const QUESTION: &str = "agreement";

/// No answer is taken after this, whatever the proposal's own end is.
const TTL: Duration = Duration::from_secs(60 * 60);

/// What the client carries for us.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestState {
    proposal_id: ProposalId,
    digest: String,
}

impl Elicitation {
    /// `codec` seals what clients carry; `timeout` is how long a call waits for its user.
    #[must_use]
    pub fn new(codec: StateCodec, timeout: Duration) -> Self {
        Self { codec, timeout }
    }

    /// The codec, for the other states that clients carry.
    pub(crate) fn codec(&self) -> StateCodec {
        self.codec.clone()
    }

    /// How the client of this request says that its user can be asked.
    pub(crate) fn mode(context: &RequestContext<RoleServer>) -> ElicitationMode {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // Neither of the two is what clients said before there were two: a form.
        let asks = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        let is_stateless = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match (asks, is_stateless) {
            (false, _) => ElicitationMode::Unsupported,
            (true, false) => ElicitationMode::Inline,
            (true, true) => ElicitationMode::InputRequired,
        }
    }

    /// Asks within the call; `None` if there is no answer in time.
    pub(crate) async fn elicit(
        &self,
        question: &Question,
        context: &RequestContext<RoleServer>,
    ) -> Option<UserDecision> {
        match self.request(question, &context.peer).await {
            Ok(ClientResult::ElicitResult(result)) => {
                Some(user_decision(question.proposal_id, question.digest.clone(), &result))
            }
            Ok(_) => {
                tracing::warn!(proposal_id = %question.proposal_id, "the answer is no result of an elicitation");
                None
            }
            Err(error) => {
                // It may be in the client's own words.
                let error = types::quoted(&error.to_string());
                tracing::info!(proposal_id = %question.proposal_id, error, "the user did not answer");
                None
            }
        }
    }

    async fn request(&self, question: &Question, peer: &Peer<RoleServer>) -> Result<ClientResult, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(question)));
        let asked = peer.send_cancellable_request(request, PeerRequestOptions::with_timeout(self.timeout)).await?;
        let mut open = PendingElicitation { peer: peer.clone(), id: Some(asked.id.clone()) };
        let answer = asked.await_response().await;
        open.id = None;
        answer
    }

    /// The question as an answer.
    ///
    /// # Errors
    /// That the state cannot be written.
    pub(crate) fn input_required(
        &self,
        question: &Question,
        principal: &Principal,
        tool: &str,
    ) -> Result<InputRequiredResult, ErrorData> {
        let state = RequestState { proposal_id: question.proposal_id, digest: question.digest.clone() };
        let associated_data = associated_data(principal, tool);
        let options = SealOptions::new().associated_data(&associated_data).ttl(TTL);
        let sealed = self.codec.current().seal_json_with(&state, &options);
        let sealed = sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let request = InputRequest::Elicitation(ElicitRequest::new(form(question)));
        Ok(InputRequiredResult::new(Some(BTreeMap::from([(QUESTION.to_owned(), request)])), Some(sealed)))
    }

    /// What the user said, if the call came again with that.
    ///
    /// # Errors
    /// [`ErrorData`] for a state that is none of ours, or another principal's or tool's, or too old; and for an answer that
    /// cannot be read.
    pub(crate) fn decision(
        &self,
        params: &CallToolRequestParams,
        principal: &Principal,
    ) -> Result<Option<UserDecision>, ErrorData> {
        let Some(sealed) = &params.request_state else { return Ok(None) };
        let opened =
            self.codec.current().open_json_with::<RequestState>(sealed, &associated_data(principal, &params.name));
        let state = opened.map_err(|error| {
            tracing::warn!(tool = types::quoted(&params.name), %error, "a requestState was refused");
            let message = "requestState is not one that this server gave to this client for this tool, or it is too old; \
                nothing was written: call the tool again without it";
            ErrorData::invalid_params(message, None)
        })?;
        let answer = params.input_responses.as_ref().and_then(|responses| responses.get(QUESTION));
        // Without an answer it is the first call again.
        let Some(answer) = answer else { return Ok(None) };
        let result: ElicitResult = serde_json::from_value(answer.clone()).map_err(|error| {
            let message =
                format!("inputResponses.{QUESTION} is no result of an elicitation: {error}; nothing was written");
            ErrorData::invalid_params(message, None)
        })?;
        Ok(Some(user_decision(state.proposal_id, state.digest, &result)))
    }
}

/// A question that nobody has answered yet. One whose call is gone is taken back: whoever answered it later would believe
/// that something came of it.
struct PendingElicitation {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for PendingElicitation {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let (peer, reason) = (self.peer.clone(), "the call that asked has ended".to_owned());
        runtime.spawn(async move {
            let taken_back = CancelledNotification::new(CancelledNotificationParam::new(Some(id), Some(reason)));
            // At the end of the session there is nobody to tell.
            let _told = peer.send_notification(ServerNotification::CancelledNotification(taken_back)).await;
        });
    }
}

/// What a state is good for: no account may hold a NUL, and no tool.
fn associated_data(principal: &Principal, tool: &str) -> Vec<u8> {
    format!("countersign agreement\0{}\0{tool}", principal.account_id.as_str()).into_bytes()
}

/// A yes-or-no question: whoever accepts has said yes, so there is nothing to fill in.
fn form(question: &Question) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.text.clone(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

fn user_decision(proposal_id: ProposalId, digest: String, result: &ElicitResult) -> UserDecision {
    let answer = match result.action {
        ElicitationAction::Accept => UserAnswer::Accept,
        ElicitationAction::Decline => UserAnswer::Decline,
        _ => UserAnswer::Cancel,
    };
    UserDecision { proposal_id, digest, answer }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state_codec::StateKey;

    fn elicitation(key: u8) -> Elicitation {
        let keys = vec![StateKey { id: "1".to_owned(), key: vec![key; 32] }];
        Elicitation::new(StateCodec::new("1", keys).unwrap(), Duration::from_secs(1))
    }

    fn principal(account: &str) -> Principal {
        Principal { account_id: account.parse().unwrap(), ..Principal::default() }
    }

    fn retried_call(tool: &str, state: String) -> CallToolRequestParams {
        let answer = json!({"action": "accept"});
        CallToolRequestParams::new(tool.to_owned())
            .with_request_state(state)
            .with_input_responses(BTreeMap::from([(QUESTION.to_owned(), answer)]))
    }

    #[test]
    fn a_state_opens_for_the_principal_and_the_tool_that_it_was_made_for_and_for_nobody_else() {
        // AP11
        let question =
            Question { proposal_id: ProposalId::new(), digest: "d".repeat(64), text: "Delete it?".to_owned() };
        let sealed = elicitation(1).input_required(&question, &principal("ana"), "delete").unwrap();
        let state = sealed.request_state.unwrap();
        let user_decision =
            elicitation(1).decision(&retried_call("delete", state.clone()), &principal("ana")).unwrap().unwrap();
        assert_eq!((user_decision.proposal_id, user_decision.answer), (question.proposal_id, UserAnswer::Accept));
        assert_eq!(user_decision.digest, question.digest);

        let refused = |key, tool: &str, account: &str, state: String| {
            elicitation(key).decision(&retried_call(tool, state), &principal(account)).unwrap_err()
        };
        refused(2, "delete", "ana", state.clone());
        refused(1, "drop", "ana", state.clone());
        refused(1, "delete", "bob", state.clone());
        refused(1, "delete", "ana", String::new());
        for position in 0..state.len() {
            let mut forged = state.clone().into_bytes();
            forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
            refused(1, "delete", "ana", String::from_utf8(forged).unwrap());
        }
    }
}
