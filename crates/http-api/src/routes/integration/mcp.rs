//! The MCP server: for agents in sandboxes, and for users with an MCP client.

use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, ContentType, HeaderMap};
use actix_web::{HttpRequest, HttpResponse, post};
use application::pull_requests::PullRequestCaller;
use domain::id::{ConversationId, OwnerId, SandboxId};
use serde_json::Value;

use crate::decode::model;
use crate::extract::{
    ApiCall, Application, Caller, Query, RawJson, UserOrSandbox, callback_sandbox, require_active,
    state_of,
};
use crate::mcp::{McpReply, ProtocolVersion, RpcErrorCode, exchange, fault};
use crate::problem::Problem;
use crate::state::Listener;

/// The header with the negotiated protocol version.
const PROTOCOL_VERSION_HEADER: &str = "MCP-Protocol-Version";
const EVENT_STREAM: &str = "text/event-stream";

/// The user that the caller acts for: identified by a user's key, or by the callback token or session key of one of the
/// user's active sandboxes.
pub(crate) struct McpCaller(OwnerId, Option<SandboxId>);

impl Caller for McpCaller {
    async fn identify(req: &HttpRequest) -> Result<Self, Problem> {
        let caller = match state_of(req)?.listener {
            // The callback listener accepts only sandboxes' keys.
            Listener::Callback => UserOrSandbox::Sandbox(Box::new(callback_sandbox(req).await?)),
            Listener::Public | Listener::Metrics | Listener::Automations => {
                UserOrSandbox::by_callback(req).await?
            }
        };
        match caller {
            UserOrSandbox::User(actor) => Ok(Self(actor.owner, None)),
            UserOrSandbox::Sandbox(sandbox) => {
                require_active(&sandbox)?;
                Ok(Self(sandbox.owner, Some(sandbox.id)))
            }
        }
    }
}

#[model(query)]
pub(crate) struct McpCallContext {
    /// The conversation that pull requests are opened for: their numbers are added to its `pr_number`. Ignored if it is not the
    /// caller's.
    #[param(value_type = Option<String>, format = Uuid)]
    conversation_id: Option<ConversationId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseFormat {
    Json,
    Stream,
}

impl ResponseFormat {
    /// A stream if the client accepts one, as in the reference; `None` if it accepts neither format.
    fn negotiate(headers: &HeaderMap) -> Option<Self> {
        let values = headers
            .get_all(ACCEPT)
            .filter_map(|value| value.to_str().ok());
        let kinds = values.flat_map(|value| value.split(','));
        let kinds: Vec<String> = kinds
            .map(|kind| {
                kind.split(';')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_ascii_lowercase()
            })
            .filter(|kind| !kind.is_empty())
            .collect();
        let takes = |wanted: &[&str]| kinds.iter().any(|kind| wanted.contains(&kind.as_str()));
        if takes(&[EVENT_STREAM]) {
            Some(Self::Stream)
        } else if kinds.is_empty() || takes(&["*/*", "application/*", "application/json"]) {
            Some(Self::Json)
        } else {
            None
        }
    }

    fn answer(self, message: &Value) -> HttpResponse {
        match self {
            Self::Json => HttpResponse::Ok().json(message),
            // A stream with exactly one event.
            Self::Stream => HttpResponse::Ok()
                .content_type(EVENT_STREAM)
                .body(format!("event: message\r\ndata: {message}\r\n\r\n")),
        }
    }
}

fn json_response(status: StatusCode, message: &Value) -> HttpResponse {
    HttpResponse::build(status)
        .content_type(ContentType::json())
        .body(message.to_string())
}

/// Processes a message of the Model Context Protocol over streamable HTTP, without sessions. The tools open pull requests with
/// the user's git tokens. Accepts a user's key, or the session key or callback token of a sandbox that runs or starts. The
/// sandbox acts for its owner.
#[utoipa::path(
    tag = "MCP",
    request_body(content = Value, description = "A JSON-RPC message, or (in version 2025-03-26) a batch of at most 10"),
    params(McpCallContext, ("MCP-Protocol-Version" = Option<String>, Header, description = "What initialize has agreed on")),
    responses(
        (status = 200, description = "The response, or a stream with one event that has it", content( (Value = "application/json"), (String = "text/event-stream"), )),
        (status = 202, description = "The message needs no response"),
        (status = 400, description = "Not a message, or not a version that is spoken here: a JSON-RPC error", body = Value),
        (status = 406, description = "The client takes neither form: a JSON-RPC error", body = Value),
    )
)]
#[post("/mcp/mcp")]
pub(crate) async fn ask(
    app: Application,
    req: HttpRequest,
    ApiCall(McpCaller(user, sandbox), (Query(about), RawJson(body))): ApiCall<
        McpCaller,
        (Query<McpCallContext>, RawJson),
    >,
) -> Result<HttpResponse, Problem> {
    let refuse = |status, why| {
        Ok(json_response(
            status,
            &fault(&Value::Null, RpcErrorCode::Invalid, why),
        ))
    };
    let Some(form) = ResponseFormat::negotiate(req.headers()) else {
        let why = "Accept must name application/json or text/event-stream";
        return refuse(StatusCode::NOT_ACCEPTABLE, why);
    };
    let named = req.headers().get(PROTOCOL_VERSION_HEADER);
    let named = named.map(|value| value.to_str().unwrap_or_default());
    let Some(version) = ProtocolVersion::of_header(named) else {
        let why =
            "The version in MCP-Protocol-Version is not supported: negotiate one with `initialize`";
        return refuse(StatusCode::BAD_REQUEST, why);
    };
    let conversation = about.conversation_id;
    let opener = PullRequestCaller {
        user,
        sandbox,
        conversation,
    };
    Ok(match exchange(&app, &opener, version, body).await {
        McpReply::Accepted => HttpResponse::Accepted().finish(),
        McpReply::Responses(answer) => form.answer(&answer),
        McpReply::Refused(answer) => json_response(StatusCode::BAD_REQUEST, &answer),
    })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn the_client_chooses_the_response_format() {
        for (accept, expected) in [
            (None, Some(ResponseFormat::Json)),
            (Some("*/*"), Some(ResponseFormat::Json)),
            (Some("application/json"), Some(ResponseFormat::Json)),
            (
                Some("application/json, text/event-stream"),
                Some(ResponseFormat::Stream),
            ),
            (
                Some("TEXT/event-stream;q=0.5"),
                Some(ResponseFormat::Stream),
            ),
            (Some("text/html, */*;q=0.1"), Some(ResponseFormat::Json)),
            (Some("text/html"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(ResponseFormat::negotiate(&headers), expected, "{accept:?}");
        }
    }
}
