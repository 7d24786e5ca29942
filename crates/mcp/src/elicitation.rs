//! Asks the user of a client to decide on a write (MCP elicitation), as the client's protocol version supports it.
//!
//! ```text
//! to 2025-11-25   within the call: elicitation/create ── accept, decline or cancel ──> the call continues
//! 2026-07-28      the result is a question (input_required); the client repeats the call with inputResponses
//!                 and requestState
//! ```
//! The answer and its state are input of an untrusted client. The state is sealed for the principal and the tool, and
//! contains only the proposal, its digest and the time of the question. It has an effect once, because the proposal must
//! still be pending. The tool checks that the state matches the arguments of the call.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rmcp::model::{
    CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, ErrorData, InputRequest,
    InputRequiredResult, ProtocolVersion, RequestId, SealOptions, ServerNotification, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tools::{PageRequest, Question, UserAnswer, UserDecision};
use types::{Principal, ProposalId};

use crate::state_codec::StateCodec;

/// Asks users to decide on writes.
#[derive(Debug, Clone)]
pub struct Elicitation {
    codec: StateCodec,
    timeout: Duration,
}

/// How the user of a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationMode {
    /// The client does not support elicitation.
    Unsupported,
    /// By a request of the server, within the call.
    Inline,
    /// By a result that is a question. The client repeats the call with the answer.
    InputRequired,
}

/// The key of the question and its answer.
const QUESTION: &str = "agreement";

/// How long an answer is accepted, independent of the expiry of the proposal.
const TTL: Duration = Duration::from_secs(60 * 60);

/// The state that the client carries.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestState {
    proposal_id: ProposalId,
    digest: String,
    asked: SystemTime,
}

impl Elicitation {
    /// `codec` seals states; `timeout` is how long a call waits for its user.
    #[must_use]
    pub fn new(codec: StateCodec, timeout: Duration) -> Self {
        Self { codec, timeout }
    }

    /// The codec, for other states that clients carry.
    #[must_use]
    pub fn codec(&self) -> StateCodec {
        self.codec.clone()
    }

    /// How the user of this request's client can be asked.
    pub(crate) fn mode(context: &RequestContext<RoleServer>) -> ElicitationMode {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // Clients of the first version declare neither form nor url, and support forms.
        let asks = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        match (asks, is_stateless(context)) {
            (false, _) => ElicitationMode::Unsupported,
            (true, false) => ElicitationMode::Inline,
            (true, true) => ElicitationMode::InputRequired,
        }
    }

    /// Asks within the call. `None` if there is no answer in time.
    pub(crate) async fn elicit(
        &self,
        question: &Question,
        context: &RequestContext<RoleServer>,
    ) -> Option<UserDecision> {
        let asked = SystemTime::now();
        match self.request(form(question), &context.peer).await {
            Ok(ClientResult::ElicitResult(result)) => {
                Some(user_decision(question.proposal_id, question.digest.clone(), &result, asked))
            }
            Ok(_) => {
                tracing::warn!(proposal_id = %question.proposal_id, "the answer is not a result of an elicitation");
                None
            }
            Err(error) => {
                // The error may contain text of the client.
                let error = types::quoted(&error.to_string());
                tracing::info!(proposal_id = %question.proposal_id, error, "the user did not answer");
                None
            }
        }
    }

    /// Whether the user of this request's client can be asked to open a page within the call. A client that opens
    /// pages need not support forms.
    pub(crate) fn opens_pages(context: &RequestContext<RoleServer>) -> bool {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        !is_stateless(context) && elicitation.is_some_and(|modes| modes.url.is_some())
    }

    /// Asks the user to open a page. The answer decides nothing: the user decides on the page, if they are allowed
    /// to.
    pub(crate) async fn open(&self, page: &PageRequest, context: &RequestContext<RoleServer>) {
        let params = ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: page.text.clone(),
            url: page.url.clone(),
            elicitation_id: page.proposal_id.to_string(),
        };
        if let Err(error) = self.request(params, &context.peer).await {
            let error = types::quoted(&error.to_string());
            tracing::info!(proposal_id = %page.proposal_id, error, "the user was not asked to open the console");
        }
    }

    async fn request(
        &self,
        params: ElicitRequestParams,
        peer: &Peer<RoleServer>,
    ) -> Result<ClientResult, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let asked = peer.send_cancellable_request(request, PeerRequestOptions::with_timeout(self.timeout)).await?;
        let mut open = PendingElicitation { peer: peer.clone(), id: Some(asked.id.clone()) };
        let answer = asked.await_response().await;
        open.id = None;
        answer
    }

    /// The question as a result.
    pub(crate) fn input_required(
        &self,
        question: &Question,
        principal: &Principal,
        tool: &str,
    ) -> Result<InputRequiredResult, ErrorData> {
        let (proposal_id, digest) = (question.proposal_id, question.digest.clone());
        let state = RequestState { proposal_id, digest, asked: SystemTime::now() };
        let associated_data = associated_data(principal, tool);
        let options = SealOptions::new().associated_data(&associated_data).ttl(TTL);
        let sealed = self.codec.current().seal_json_with(&state, &options);
        let sealed = sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let request = InputRequest::Elicitation(ElicitRequest::new(form(question)));
        Ok(InputRequiredResult::new(Some(BTreeMap::from([(QUESTION.to_owned(), request)])), Some(sealed)))
    }

    /// The user's decision, if this call repeats an earlier one with an answer.
    ///
    /// # Errors
    /// [`ErrorData`] for a state that this server did not seal, that belongs to another principal or tool, or that
    /// has expired; and for an unreadable answer.
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
            let message = "requestState was not made by this server for this client and tool, or it has expired; \
                nothing was written: call the tool again without it";
            ErrorData::invalid_params(message, None)
        })?;
        let answer = params.input_responses.as_ref().and_then(|responses| responses.get(QUESTION));
        // Without an answer, the call is treated as the first one.
        let Some(answer) = answer else { return Ok(None) };
        let result: ElicitResult = serde_json::from_value(answer.clone()).map_err(|error| {
            let message =
                format!("inputResponses.{QUESTION} is not a result of an elicitation: {error}; nothing was written");
            ErrorData::invalid_params(message, None)
        })?;
        Ok(Some(user_decision(state.proposal_id, state.digest, &result, state.asked)))
    }
}

/// A question without an answer. If its call ends first, the question is withdrawn: a user who answered later would
/// expect an effect.
struct PendingElicitation {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for PendingElicitation {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let (peer, reason) = (self.peer.clone(), "the call that asked has ended".to_owned());
        runtime.spawn(async move {
            let notification = CancelledNotification::new(CancelledNotificationParam::new(Some(id), Some(reason)));
            // At the end of the session there is no client to notify.
            let _sent = peer.send_notification(ServerNotification::CancelledNotification(notification)).await;
        });
    }
}

/// The principal and the tool that a state is bound to. Neither can contain a NUL.
fn associated_data(principal: &Principal, tool: &str) -> Vec<u8> {
    format!("countersign agreement\0{}\0{tool}", principal.account_id.as_str()).into_bytes()
}

/// Whether the protocol version of this request has no requests of the server.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// A yes-or-no form: accepting it is the answer, so it has no fields.
fn form(question: &Question) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.text.clone(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

fn user_decision(proposal_id: ProposalId, digest: String, result: &ElicitResult, asked: SystemTime) -> UserDecision {
    // A clock that was set back does not tell: then nothing is said to be too fast.
    let answered_after = asked.elapsed().unwrap_or(Duration::MAX);
    let answer = match result.action {
        ElicitationAction::Accept => UserAnswer::Accept,
        ElicitationAction::Decline => UserAnswer::Decline,
        _ => UserAnswer::Cancel,
    };
    UserDecision { proposal_id, digest, answer, answered_after }
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
    fn a_state_opens_only_for_its_principal_and_its_tool() {
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
