//! The requests to each operation about one user's objects. An operation, parameter or body that is missing in these tables
//! fails the test, so that a new one is not forgotten.

use serde_json::{Value, json};

use super::CANARY;
use super::owned_objects::OwnedObjects;
use crate::client::text;
use crate::hostile::requests::encoded;
use crate::hostile::surface::{Operation, Parameter};
use crate::hostile::wire::Request;

/// Parameters that name no object. Requests omit them.
const OMITTED_PARAMETERS: [&str; 26] = [
    "Idempotency-Key",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "action",
    "conversation_trigger",
    "created_at__gte",
    "created_at__lt",
    "decision__eq",
    "follow",
    "from",
    "group_by",
    "include_sub_conversations",
    "installation_id",
    "kind__eq",
    "last_event_id",
    "limit",
    "lines",
    "outcome",
    "page",
    "page_id",
    "per_page",
    "provider__eq",
    "sandbox_spec_id",
    "sort_order",
    "updated_at__gte",
    "updated_at__lt",
];

/// Paths of agent servers, which the document leaves out: they are forwarded to the sandbox of a conversation.
const FORWARDED_READS: [&str; 3] = [
    "/api/conversations/{conversation_id}/events/count",
    "/api/conversations/{conversation_id}/events/search",
    "/sockets/events/{conversation_id}",
];
const FORWARDED_CHANGES: [&str; 4] = [
    "/api/conversations/{conversation_id}/events",
    "/api/conversations/{conversation_id}/interrupt",
    "/api/conversations/{conversation_id}/pause",
    "/api/conversations/{conversation_id}/run",
];

/// The paths of agent servers, in the form of the `OpenAPI` document.
pub(super) fn forwarded() -> serde_json::Map<String, Value> {
    let body = json!({"content": {"application/json": {"schema": {}}}});
    let reads = FORWARDED_READS.map(|path| (path.to_owned(), json!({"get": {}})));
    let change = |path: &str| (path.to_owned(), json!({"post": {"requestBody": body}}));
    let changes = FORWARDED_CHANGES.map(change);
    reads.into_iter().chain(changes).collect()
}

/// The requests to an operation about these objects: with the required parameters, and with all parameters.
pub(super) fn requests(
    operation: &Operation,
    objects: &OwnedObjects,
) -> Result<Vec<Request>, String> {
    let path = path(operation, objects)?;
    let mut needed = Vec::new();
    let mut all = Vec::new();
    for parameter in operation.parameters.iter().filter(|it| !it.in_path) {
        let Some(value) = query_value(operation, parameter, objects)? else {
            continue;
        };
        let pair = format!("{}={}", parameter.name, encoded(&value));
        if parameter.is_required {
            needed.push(pair.clone());
        }
        all.push(pair);
    }
    let mut queries = vec![needed.join("&"), all.join("&")];
    queries.dedup();
    let bodies = match &operation.body {
        None => vec![None],
        Some(_) => bodies(operation, objects)?.into_iter().map(Some).collect(),
    };
    let pairs = queries
        .iter()
        .flat_map(|query| bodies.iter().map(move |body| (query, body)));
    let requests = pairs.map(|(query, body)| {
        let separator = if query.is_empty() { "" } else { "?" };
        let mut headers = vec![("Accept".to_owned(), "*/*".to_owned())];
        if body.is_some() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        Request {
            method: operation.method.clone(),
            target: format!("{path}{separator}{query}"),
            headers,
            body: body.as_ref().map(|body| body.to_string().into_bytes()),
        }
    });
    Ok(requests.collect())
}

fn path(operation: &Operation, objects: &OwnedObjects) -> Result<String, String> {
    let segments = operation.path.split('/').map(|segment| {
        let name = segment
            .strip_prefix('{')
            .and_then(|it| it.strip_suffix('}'));
        let value = match name {
            None => segment,
            Some("conversation_id") => &objects.conversation,
            Some("key_id") => &objects.key,
            Some("name") => &objects.profile,
            Some("organization_id") => &objects.organization,
            Some("profile_id") => &objects.agent_profile,
            Some("connection_id") => &objects.connection,
            Some("sandbox_id") => &objects.sandbox,
            Some("secret_id" | "secret_name") => &objects.secret,
            // The users of this suite have none of these.
            Some(
                "session_id" | "identity_id" | "invitation_id" | "host_id" | "egress_request_id",
            ) => "00000000-0000-0000-0000-000000000001",
            Some("user_id") => &objects.user,
            Some(other) => {
                return Err(missing(operation, &format!("the part {other} of its path")));
            }
        };
        Ok(value.to_owned())
    });
    let segments: Result<Vec<String>, String> = segments.collect();
    Ok(segments?.join("/"))
}

fn missing(operation: &Operation, what: &str) -> String {
    let name = operation.name();
    format!(
        "{name}: tests/src/hostile/tenancy/operation_requests.rs does not say how to fill {what}"
    )
}

/// The value of a parameter; `None`: the request omits it.
fn query_value(
    operation: &Operation,
    parameter: &Parameter,
    objects: &OwnedObjects,
) -> Result<Option<String>, String> {
    let path = operation.path.as_str();
    let value = match parameter.name.as_str() {
        "ids" if path.ends_with("/start-tasks") => &objects.task,
        "ids" | "conversation_id" | "conversation_id__eq" | "object" => &objects.conversation,
        "id" if path.ends_with("/events") => &objects.event,
        "id" if path.ends_with("/sandboxes") => &objects.sandbox,
        "id" if path.ends_with("/sandbox-specs") => "process",
        "sandbox_id" | "sandbox_id__eq" => &objects.sandbox,
        "actor" | "email" | "name" => &objects.user,
        "token" => "none",
        "name__contains" => &objects.secret,
        "title__contains" => CANARY,
        "expose_secrets" | "verified__eq" => "true",
        "file_path" => "stub.txt",
        "path" => ".",
        "provider" | "selected_provider" => "gitlab",
        "query" => "a",
        "ref" => "HEAD",
        "repository" | "selected_repository" => "acme/tools",
        "since" | "timestamp__gte" => "2020-01-01T00:00:00Z",
        "until" | "timestamp__lt" => "2100-01-01T00:00:00Z",
        name if OMITTED_PARAMETERS.contains(&name) && !parameter.is_required => return Ok(None),
        name => return Err(missing(operation, &format!("the parameter {name}"))),
    };
    Ok(Some(value.to_owned()))
}

fn password_change() -> Value {
    json!({"current_password": "taken over", "new_password": "taken over again"})
}

fn event() -> Value {
    json!([{
        "kind": "MessageEvent", "id": "taken-over", "timestamp": "2026-11-21T10:00:00.123456", "source": "user",
    }])
}

/// A request inside a request, without a sandbox's key.
fn envelope(objects: &OwnedObjects) -> Value {
    json!({
        "host": objects.host, "method": "GET", "headers": {"X-Session-API-Key": "none"},
        "path": format!("/api/conversations/{}/events/count", objects.conversation),
    })
}

fn bodies(operation: &Operation, objects: &OwnedObjects) -> Result<Vec<Value>, String> {
    let tokens = json!({"provider_tokens": {"bitbucket": {"token": "t"}}});
    let secret = json!({"name": "TAKEN_OVER", "value": "taken over"});
    let message = json!({"role": "user", "content": text("taken over")});
    let info = json!({
        "id": objects.conversation, "title": "taken over", "execution_status": "error",
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"}, "agent": {"kind": "Agent", "llm": {"model": "m"}},
    });
    let start = [
        json!({"sandbox_id": objects.sandbox, "initial_message": message}),
        json!({"parent_conversation_id": objects.conversation, "initial_message": message}),
    ];
    let bodies = match operation.name().as_str() {
        "POST /api/cloud-proxy" => vec![envelope(objects)],
        "POST /api/add-git-providers" | "POST /api/v1/secrets/git-providers" => vec![tokens],
        "POST /api/secrets"
        | "POST /api/v1/secrets"
        | "PUT /api/secrets/{secret_id}"
        | "PUT /api/v1/secrets/{secret_id}" => vec![secret],
        "PATCH /api/conversations/{conversation_id}"
        | "PATCH /api/v1/app-conversations/{conversation_id}" => {
            vec![json!({"title": "taken over"})]
        }
        "POST /api/organizations/{organization_id}/profiles/{name}"
        | "POST /api/v1/settings/profiles/{name}" => {
            vec![json!({"llm": {"model": "openai/taken-over"}})]
        }
        "POST /api/organizations/{organization_id}/profiles/{name}/rename"
        | "POST /api/v1/settings/profiles/{name}/rename" => vec![json!({"new_name": "taken-over"})],
        "POST /api/agent-profiles/{name}" => vec![json!({"llm_profile_ref": "taken-over"})],
        // Its own name, because a name is taken once.
        "POST /api/agent-profiles/{name}/rename" => vec![json!({"new_name": objects.profile})],
        "POST /api/analytics/events" => vec![json!({"event_type": "canvas_authenticated"})],
        "POST /api/settings" | "POST /api/v1/settings" => vec![json!({"language": "fr"})],
        "POST /api/v1/app-conversations" | "POST /api/v1/app-conversations/stream-start" => {
            start.to_vec()
        }
        "POST /api/v1/app-conversations/{conversation_id}/send-message"
        | "POST /api/v1/conversations/{conversation_id}/pending-messages" => vec![message],
        _ if FORWARDED_CHANGES.contains(&operation.path.as_str()) => vec![message],
        "POST /api/v1/app-conversations/{conversation_id}/switch_acp_model" => {
            vec![json!({"model": "taken-over"})]
        }
        "POST /api/v1/app-conversations/{conversation_id}/switch_profile" => {
            vec![json!({"profile_name": objects.profile})]
        }
        "POST /api/v1/skills/marketplace-skills" => vec![json!([])],
        "POST /api/v1/webhooks/conversations"
        | "POST /api/v1/webhooks/{sandbox_id}/conversations" => vec![info],
        "POST /api/v1/webhooks/events/{conversation_id}"
        | "POST /api/v1/webhooks/{sandbox_id}/events/{conversation_id}" => vec![event()],
        "POST /api/v1/egress/requests/{egress_request_id}/approve" => {
            vec![json!({"for_all_sandboxes": true})]
        }
        "POST /mcp/mcp" => vec![json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})],
        _ => vec![account_body(operation, objects).ok_or_else(|| missing(operation, "its body"))?],
    };
    Ok(bodies)
}

/// The body of an operation on users, keys and organizations.
fn account_body(operation: &Operation, objects: &OwnedObjects) -> Option<Value> {
    let body = match operation.name().as_str() {
        "POST /api/organizations"
        | "PATCH /api/organizations/{organization_id}"
        | "POST /api/v1/admin/users/{user_id}/keys"
        | "POST /api/v1/keys" => json!({"name": "taken over"}),
        "POST /api/organizations/members/invite/accept" => json!({"token": "none"}),
        "POST /api/organizations/{organization_id}/members/invite" => json!({"emails": []}),
        "PATCH /api/organizations/{organization_id}/members/{user_id}" => json!({"role": "owner"}),
        "POST /api/organizations/{organization_id}/provider-connections" => {
            json!({"display_name": "taken over", "api_key": "k"})
        }
        "PATCH /api/organizations/{organization_id}/provider-connections/{connection_id}" => {
            json!({"display_name": "taken over"})
        }
        "POST /api/v1/admin/users" => json!({"id": objects.user, "role": "user"}),
        "PATCH /api/v1/admin/hosts/{host_id}" => json!({"draining": true}),
        "PATCH /api/v1/admin/users/{user_id}" => json!({"role": "admin"}),
        "POST /api/v1/admin/users/{user_id}/keys/{key_id}/rotate"
        | "POST /api/v1/keys/{key_id}/rotate" => json!({"grace_period": 0}),
        "POST /api/v1/users/me/password" => password_change(),
        _ => return None,
    };
    Some(body)
}
