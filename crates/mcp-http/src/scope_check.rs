//! Rejects calls of tools that a token does not have, and that a stronger scope of its issuer gives: the client is told
//! which scope to request (MCP "Scope Challenge Handling").

use auth::AuthError;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage};

use tools::View;

use crate::error_response::HttpError;
use crate::state::{AppState, AuthenticatedClient};

impl AppState {
    /// # Errors
    /// 403 `insufficient_scope` with the weakest scope that gives the called tool. A tool that no scope gives is left
    /// to the server, which answers that it is unknown.
    pub(crate) fn check_scope(
        &self,
        client: &AuthenticatedClient,
        message: &RxJsonRpcMessage<RoleServer>,
    ) -> Result<(), HttpError> {
        let JsonRpcMessage::Request(request) = message else { return Ok(()) };
        let ClientRequest::CallToolRequest(call) = &request.request else { return Ok(()) };
        let name = &call.params.name;
        if client.tools().registry().info(name).is_some() {
            return Ok(());
        }
        let registries = &client.active.backend.registry;
        let has_tool = |profile: &str| registries.view(View::of_profile(profile)).registry().info(name).is_some();
        match client.stronger.weakest(has_tool) {
            None => Ok(()),
            // Only this scope: a client adds those that it has (SEP-2350).
            Some(scope) => {
                let account = client.identity.principal.account_id.clone();
                let error = AuthError::InsufficientScope { needed: vec![scope.to_owned()], account };
                Err(HttpError::Unauthenticated { error, metadata_url: self.metadata_url() })
            }
        }
    }
}
