//! Adds to the document what all routes share.

use actix_web::http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

use super::{enums, glossary};

/// The members of a path item that are operations.
pub(super) const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];
/// The tag of the operations whose errors have the legacy shape.
const LEGACY_TAG: &str = "Legacy";
/// The tag of the operations for administrators.
const ADMINISTRATION_TAG: &str = "Administration";

const DESCRIPTION: &str =
    "Runs software-agent conversations inside sandboxes, and keeps settings and secrets per user.";

/// Adds title, security and shared responses. A response that a handler documents itself stays as it is.
pub(crate) fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_else(|_| json!({}));
    document["openapi"] = "3.1.0".into();
    document["info"] = json!({
        "title": "Agent Workspace",
        "description": DESCRIPTION,
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "MIT", "identifier": "MIT"},
    });
    document["security"] = json!([{"ApiKey": []}, {"Bearer": []}, {"Session": []}]);
    add_components(&mut document);
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        let operations = item.as_object_mut().into_iter().flatten();
        for (method, operation) in operations.filter(|(name, _)| METHODS.contains(&name.as_str())) {
            operation["operationId"] = unique_id(operation, path, method).into();
            add_path_parameters(path, operation);
            add_answers((path.as_str(), method.as_str()), operation);
        }
    }
    enums::close_enums(&mut document);
    glossary::explain(&mut document);
    document
}

/// A unique operation id: handlers of different resources share names (`search`). It has `FastAPI`'s form.
fn unique_id(operation: &Value, path: &str, method: &str) -> String {
    let name = operation["operationId"].as_str().unwrap_or_default();
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!(
        "{name}{}_{method}",
        path.chars().map(word).collect::<String>()
    )
}

/// Adds the parameters in braces of the path that the handler does not document itself.
fn add_path_parameters(path: &str, operation: &mut Value) {
    let Some(operation) = operation.as_object_mut() else {
        return;
    };
    let own = match operation.shift_remove("parameters") {
        Some(Value::Array(own)) => own,
        _ => Vec::new(),
    };
    let is_own = |name: &&str| {
        let is_it = |one: &Value| one["in"] == "path" && one["name"] == *name;
        own.iter().any(is_it)
    };
    let names = path.split('/').filter_map(|part| part.strip_prefix('{'));
    let names = names.filter_map(|name| name.strip_suffix('}'));
    let missing = names.filter(|name| !is_own(name)).map(path_parameter);
    let all: Vec<Value> = missing.chain(own.iter().cloned()).collect();
    if !all.is_empty() {
        let before = operation.keys().position(|key| key == "operationId");
        let at = before.map_or(0, |before| before + 1);
        operation.shift_insert(at, "parameters".to_owned(), all.into());
    }
}

fn path_parameter(name: &str) -> Value {
    let schema = match name {
        "connection_id" | "conversation_id" | "identity_id" | "invitation_id" | "key_id"
        | "organization_id" | "profile_id" | "session_id" => {
            json!({"type": "string", "format": "uuid"})
        }
        "name" => {
            json!({"type": "string", "maxLength": 64, "minLength": 1, "pattern": "^[A-Za-z0-9._-]{1,64}$"})
        }
        _ => json!({"type": "string"}),
    };
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

fn add_components(document: &mut Value) {
    for (section, components) in shared_components().as_object().into_iter().flatten() {
        for (name, component) in components.as_object().into_iter().flatten() {
            document["components"][section][name] = component.clone();
        }
    }
}

/// The shapes of errors, and how callers authenticate.
fn shared_components() -> Value {
    let list_of = |name: &str| {
        json!({
            "type": "object",
            "required": ["detail"],
            "properties": {"detail": {"type": "array", "items": {"$ref": format!("#/components/schemas/{name}")}}},
        })
    };
    let step = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    json!({
        "schemas": {
            "ValidationError": {
                "type": "object",
                "required": ["type", "loc", "msg"],
                "properties": {
                    "type": {"type": "string", "description": "A stable word for the kind of error."},
                    "loc": {"type": "array", "items": step, "description": "The path to the refused value."},
                    "msg": {"type": "string"},
                    "input": {"description": "The refused value. Absent if it is large or may be secret."},
                    "ctx": {"type": "object", "description": "The violated bounds."},
                },
            },
            "HTTPValidationError": list_of("ValidationError"),
            "LegacyValidationError": {
                "type": "object",
                "required": ["loc", "msg", "type"],
                "properties": {
                    "loc": {"type": "array", "items": {"type": "string"}},
                    "msg": {"type": "string"},
                    "type": {"type": "string"},
                },
            },
            "LegacyHTTPValidationError": list_of("LegacyValidationError"),
            "Detail": {
                "type": "object",
                "required": ["detail"],
                "properties": {"detail": {"type": "string"}},
            },
        },
        "securitySchemes": {
            "ApiKey": {
                "type": "apiKey", "in": "header", "name": "X-Session-API-Key",
                "description": "A user's API key. Routes for sandboxes take the sandbox's session key.",
            },
            "Bearer": {"type": "http", "scheme": "bearer"},
            "Session": {
                "type": "apiKey", "in": "cookie", "name": "__Host-aw_session",
                "description": "The session of a person who signed in on the page `/login` (`auth.mode = \"accounts\"`). Requests \
                                that may change something must come from a page of this service.",
            },
            "AccessToken": {
                "type": "apiKey", "in": "header", "name": "X-Access-Token",
                "description": "A token that a program in a sandbox received for one git provider.",
            },
        },
    })
}

fn add_answers(route: (&str, &str), operation: &mut Value) {
    let shared = shared_answers(route, operation);
    let own = operation
        .as_object_mut()
        .map(|operation| operation.entry("responses").or_insert_with(|| json!({})));
    let Some(Value::Object(responses)) = own else {
        return;
    };
    for (status, response) in responses.iter_mut() {
        complete_response(status, response);
    }
    for (status, description, schema) in shared {
        let shared = answer(status, description, schema);
        match responses.get_mut(status) {
            None => {
                responses.insert(status.to_owned(), shared);
            }
            Some(own) => widen(own, &shared),
        }
    }
    responses.sort_keys();
}

/// Adds the description, which version 3.1 requires, and the usual body of an error.
fn complete_response(status: &str, response: &mut Value) {
    let code = status.parse::<StatusCode>().ok();
    if response["description"].as_str().is_none_or(str::is_empty) {
        let reason = code.and_then(|code| code.canonical_reason());
        response["description"] = reason.unwrap_or("Response").into();
    }
    let is_error = code.is_some_and(|code| code.is_client_error() || code.is_server_error());
    if is_error && response.get("content").is_none() {
        response["content"] = answer(status, "", "Detail")["content"].take();
    }
}

/// Allows both bodies where a route and the layers around it answer with the same status.
fn widen(own: &mut Value, shared: &Value) {
    const SCHEMA: &str = "/content/application~1json/schema";
    if let (Some(own), Some(shared)) = (own.pointer_mut(SCHEMA), shared.pointer(SCHEMA))
        && own != shared
    {
        *own = json!({"anyOf": [own, shared]});
    }
}

/// Description of the status 429.
const LIMIT_REACHED: &str =
    "The rate limit or a cap is reached; try again after `Retry-After` seconds";

/// Status, description and schema of the responses of extractors and layers to this operation.
fn shared_answers(
    (path, method): (&str, &str),
    operation: &Value,
) -> Vec<(&'static str, &'static str, &'static str)> {
    let has = |member: &str| operation.get(member).is_some_and(|value| !value.is_null());
    let lists = |member: &str, wanted: &Value| {
        operation[member]
            .as_array()
            .is_some_and(|list| list.contains(wanted))
    };
    let public = lists("security", &json!({}));
    let legacy = lists("tags", &LEGACY_TAG.into());
    let (takes_body, takes_params) = (has("requestBody"), has("parameters"));
    let validation = if legacy {
        "LegacyHTTPValidationError"
    } else {
        "HTTPValidationError"
    };

    let refused = if legacy { validation } else { "Detail" };
    let writes = matches!(method, "post" | "put" | "patch") && !path.ends_with("/pause");
    let full = "The disk is nearly full, or a quota of the user is exhausted";
    let table = [
        (true, "500", "A server error", "Detail"),
        (!public, "401", "Missing or unknown key", refused),
        (
            lists("tags", &ADMINISTRATION_TAG.into()),
            "403",
            "The caller is not an administrator",
            "Detail",
        ),
        (!public, "429", LIMIT_REACHED, "Detail"),
        (!public, "503", "Temporarily unavailable", "Detail"),
        (writes, "507", full, "Detail"),
        (
            path.contains('{'),
            "404",
            "Unknown, or owned by another user",
            "Detail",
        ),
        (
            takes_body || takes_params,
            "422",
            "Invalid input",
            validation,
        ),
        (takes_body, "400", "An invalid request or body", "Detail"),
        (
            takes_body,
            "408",
            "The body did not arrive in time",
            "Detail",
        ),
        (takes_body, "413", "The body is too large", "Detail"),
        (
            takes_body,
            "415",
            "The body has a content encoding",
            "Detail",
        ),
    ];
    let shared = table.into_iter().filter(|(applies, ..)| *applies);
    shared
        .map(|(_, status, text, schema)| (status, text, schema))
        .collect()
}

fn answer(status: &str, description: &str, schema: &str) -> Value {
    let mut answer = json!({
        "description": description,
        "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
    });
    if matches!(status, "429" | "503" | "507") {
        answer["headers"] = json!({
            "Retry-After": {"description": "Seconds after which to retry.", "schema": {"type": "integer"}},
        });
    }
    answer
}
