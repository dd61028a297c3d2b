//! Every operation of the service that this client uses, as `config/openapi.json` names it, and those of device login
//! (RFC 8628) and of the automations service, which are not in the document.

/// One operation.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// HTTP method.
    pub method: &'static str,
    /// Path with its parameters in braces.
    pub path: &'static str,
    /// Query parameters that this client may send.
    pub query: &'static [&'static str],
    /// Whether it takes an `Idempotency-Key`.
    pub repeatable: bool,
}

macro_rules! operations {
    ($($name:ident = $method:literal $path:literal [$($query:literal)*] $($repeatable:ident)?;)*) => {
        $(#[expect(missing_docs, reason = "the document describes the operations")]
        pub const $name: Operation = Operation {
            method: $method,
            path: $path,
            query: &[$($query),*],
            repeatable: operations!(@ $($repeatable)?),
        };)*
        /// All operations.
        pub const ALL: &[&Operation] = &[$(&$name),*];
    };
    (@ repeatable) => { true };
    (@) => { false };
}

operations! {
    ALIVE = "GET" "/alive" [];
    HEALTH = "GET" "/health" [];
    READY = "GET" "/ready" [];
    SERVER_INFO = "GET" "/server_info" [];

    START = "POST" "/api/v1/app-conversations" [] repeatable;
    STREAM_START = "POST" "/api/v1/app-conversations/stream-start" [] repeatable;
    CONVERSATIONS = "GET" "/api/v1/app-conversations" ["ids"];
    SEARCH_CONVERSATIONS = "GET" "/api/v1/app-conversations/search" ["title__contains" "created_at__gte" "created_at__lt"
        "updated_at__gte" "updated_at__lt" "sandbox_id__eq" "include_sub_conversations" "page_id" "limit"];
    COUNT_CONVERSATIONS = "GET" "/api/v1/app-conversations/count" ["title__contains" "created_at__gte" "created_at__lt"
        "updated_at__gte" "updated_at__lt" "sandbox_id__eq" "include_sub_conversations"];
    UPDATE_CONVERSATION = "PATCH" "/api/v1/app-conversations/{conversation_id}" [];
    DELETE_CONVERSATION = "DELETE" "/api/v1/app-conversations/{conversation_id}" [];
    SEND_MESSAGE = "POST" "/api/v1/app-conversations/{conversation_id}/send-message" [];
    QUEUE_MESSAGE = "POST" "/api/v1/conversations/{conversation_id}/pending-messages" [] repeatable;
    DOWNLOAD = "GET" "/api/v1/app-conversations/{conversation_id}/download" [];

    START_TASKS = "GET" "/api/v1/app-conversations/start-tasks" ["ids"];
    SEARCH_START_TASKS = "GET" "/api/v1/app-conversations/start-tasks/search" ["conversation_id__eq" "created_at__gte"
        "sort_order" "page_id" "limit"];
    COUNT_START_TASKS = "GET" "/api/v1/app-conversations/start-tasks/count" ["conversation_id__eq" "created_at__gte"];

    EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events" ["id"];
    SEARCH_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/search" ["kind__eq" "timestamp__gte"
        "timestamp__lt" "sort_order" "page_id" "limit"];
    COUNT_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/count" ["kind__eq" "timestamp__gte" "timestamp__lt"];
    FOLLOW_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/stream" ["kind__eq" "from"];

    SANDBOXES = "GET" "/api/v1/sandboxes" ["id"];
    SEARCH_SANDBOXES = "GET" "/api/v1/sandboxes/search" ["page_id" "limit"];
    CREATE_SANDBOX = "POST" "/api/v1/sandboxes" ["sandbox_spec_id"] repeatable;
    PAUSE_SANDBOX = "POST" "/api/v1/sandboxes/{sandbox_id}/pause" [];
    RESUME_SANDBOX = "POST" "/api/v1/sandboxes/{sandbox_id}/resume" [];
    SANDBOX_LOGS = "GET" "/api/v1/sandboxes/{sandbox_id}/logs" ["lines" "follow"];
    DELETE_SANDBOX = "DELETE" "/api/v1/sandboxes/{sandbox_id}" [];

    SEARCH_EGRESS_REQUESTS = "GET" "/api/v1/egress/requests/search" ["decision__eq" "page_id" "limit"];
    APPROVE_EGRESS_REQUEST = "POST" "/api/v1/egress/requests/{egress_request_id}/approve" [];
    DENY_EGRESS_REQUEST = "POST" "/api/v1/egress/requests/{egress_request_id}/deny" [];
    DELETE_EGRESS_REQUEST = "DELETE" "/api/v1/egress/requests/{egress_request_id}" [];

    SPECS = "GET" "/api/v1/sandbox-specs" ["id"];
    SEARCH_SPECS = "GET" "/api/v1/sandbox-specs/search" ["page_id" "limit"];

    SETTINGS = "GET" "/api/v1/settings" [];
    UPDATE_SETTINGS = "POST" "/api/v1/settings" [];

    SEARCH_SECRETS = "GET" "/api/v1/secrets/search" ["name__contains" "page_id" "limit"];
    CREATE_SECRET = "POST" "/api/v1/secrets" [];
    UPDATE_SECRET = "PUT" "/api/v1/secrets/{secret_id}" [];
    DELETE_SECRET = "DELETE" "/api/v1/secrets/{secret_id}" [];

    ME = "GET" "/api/v1/users/me" [];

    KEYS = "GET" "/api/v1/keys" [];
    CREATE_KEY = "POST" "/api/v1/keys" [];
    ROTATE_KEY = "POST" "/api/v1/keys/{key_id}/rotate" [];
    REVOKE_KEY = "DELETE" "/api/v1/keys/{key_id}" [];

    ORGANIZATIONS = "GET" "/api/organizations" [];
    ORGANIZATION_MEMBERS = "GET" "/api/organizations/{organization_id}/members" ["page_id" "limit"];
    INVITE_MEMBERS = "POST" "/api/organizations/{organization_id}/members/invite" [];
    REMOVE_MEMBER = "DELETE" "/api/organizations/{organization_id}/members/{user_id}" [];

    SEARCH_USERS = "GET" "/api/v1/admin/users" ["page_id" "limit"];
    CREATE_USER = "POST" "/api/v1/admin/users" [];
    USER = "GET" "/api/v1/admin/users/{user_id}" [];
    UPDATE_USER = "PATCH" "/api/v1/admin/users/{user_id}" [];
    DELETE_USER = "DELETE" "/api/v1/admin/users/{user_id}" [];
    USER_KEYS = "GET" "/api/v1/admin/users/{user_id}/keys" [];
    CREATE_USER_KEY = "POST" "/api/v1/admin/users/{user_id}/keys" [];
    ROTATE_USER_KEY = "POST" "/api/v1/admin/users/{user_id}/keys/{key_id}/rotate" [];
    REVOKE_USER_KEY = "DELETE" "/api/v1/admin/users/{user_id}/keys/{key_id}" [];

    AUDIT = "GET" "/api/v1/audit" ["actor" "action" "object" "outcome" "since" "until" "page_id" "limit"];
}

pub(crate) const AUTOMATIONS: Operation = Operation {
    method: "GET",
    path: "/api/automation/v1",
    query: &["limit", "offset"],
    repeatable: false,
};

pub(crate) const AUTOMATION_RUNS: Operation = Operation {
    method: "GET",
    path: "/api/automation/v1/{automation_id}/runs",
    query: &["limit"],
    repeatable: false,
};

pub(crate) const DISPATCH_AUTOMATION: Operation = Operation {
    method: "POST",
    path: "/api/automation/v1/{automation_id}/dispatch",
    query: &[],
    repeatable: false,
};

pub(crate) const BEGIN_DEVICE_LOGIN: Operation = Operation {
    method: "POST",
    path: "/oauth/device/authorize",
    query: &[],
    repeatable: false,
};

pub(crate) const POLL_DEVICE_LOGIN: Operation = Operation {
    method: "POST",
    path: "/oauth/device/token",
    query: &[],
    repeatable: false,
};
