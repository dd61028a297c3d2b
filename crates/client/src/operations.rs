//! Every operation of the service that this client uses, as `config/openapi.json` names it.

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
    ($($(#[$doc:meta])* $name:ident = $method:literal $path:literal [$($query:literal)*] $($repeatable:ident)?;)*) => {
        $($(#[$doc])* pub const $name: Operation = Operation {
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
    /// The process runs.
    ALIVE = "GET" "/alive" [];
    /// The process runs.
    HEALTH = "GET" "/health" [];
    /// Whether the service can start conversations.
    READY = "GET" "/ready" [];
    /// Resource usage of the process.
    SERVER_INFO = "GET" "/server_info" [];

    /// Starts a conversation.
    START = "POST" "/api/v1/app-conversations" [] repeatable;
    /// Starts a conversation and streams every state of the start.
    STREAM_START = "POST" "/api/v1/app-conversations/stream-start" [] repeatable;
    /// Conversations by id.
    CONVERSATIONS = "GET" "/api/v1/app-conversations" ["ids"];
    /// Searches conversations.
    SEARCH_CONVERSATIONS = "GET" "/api/v1/app-conversations/search" ["title__contains" "created_at__gte" "created_at__lt"
        "updated_at__gte" "updated_at__lt" "sandbox_id__eq" "include_sub_conversations" "page_id" "limit"];
    /// Counts conversations.
    COUNT_CONVERSATIONS = "GET" "/api/v1/app-conversations/count" ["title__contains" "created_at__gte" "created_at__lt"
        "updated_at__gte" "updated_at__lt" "sandbox_id__eq" "include_sub_conversations"];
    /// Changes a conversation.
    UPDATE_CONVERSATION = "PATCH" "/api/v1/app-conversations/{conversation_id}" [];
    /// Deletes a conversation.
    DELETE_CONVERSATION = "DELETE" "/api/v1/app-conversations/{conversation_id}" [];
    /// Sends a message.
    SEND_MESSAGE = "POST" "/api/v1/app-conversations/{conversation_id}/send-message" [];
    /// Queues a message until the conversation is ready.
    QUEUE_MESSAGE = "POST" "/api/v1/conversations/{conversation_id}/pending-messages" [] repeatable;
    /// A conversation as an archive.
    DOWNLOAD = "GET" "/api/v1/app-conversations/{conversation_id}/download" [];

    /// Starts by id.
    START_TASKS = "GET" "/api/v1/app-conversations/start-tasks" ["ids"];
    /// Searches starts.
    SEARCH_START_TASKS = "GET" "/api/v1/app-conversations/start-tasks/search" ["conversation_id__eq" "created_at__gte"
        "sort_order" "page_id" "limit"];
    /// Counts starts.
    COUNT_START_TASKS = "GET" "/api/v1/app-conversations/start-tasks/count" ["conversation_id__eq" "created_at__gte"];

    /// Events by id.
    EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events" ["id"];
    /// Searches events.
    SEARCH_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/search" ["kind__eq" "timestamp__gte"
        "timestamp__lt" "sort_order" "page_id" "limit"];
    /// Counts events.
    COUNT_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/count" ["kind__eq" "timestamp__gte" "timestamp__lt"];
    /// Events as they arrive.
    FOLLOW_EVENTS = "GET" "/api/v1/conversation/{conversation_id}/events/stream" ["kind__eq" "from"];

    /// Sandboxes by id.
    SANDBOXES = "GET" "/api/v1/sandboxes" ["id"];
    /// All sandboxes.
    SEARCH_SANDBOXES = "GET" "/api/v1/sandboxes/search" ["page_id" "limit"];
    /// Creates a sandbox.
    CREATE_SANDBOX = "POST" "/api/v1/sandboxes" ["sandbox_spec_id"] repeatable;
    /// Pauses a sandbox.
    PAUSE_SANDBOX = "POST" "/api/v1/sandboxes/{sandbox_id}/pause" [];
    /// Resumes a sandbox.
    RESUME_SANDBOX = "POST" "/api/v1/sandboxes/{sandbox_id}/resume" [];
    /// The log of a sandbox's agent server.
    SANDBOX_LOGS = "GET" "/api/v1/sandboxes/{sandbox_id}/logs" ["lines" "follow"];
    /// Deletes a sandbox.
    DELETE_SANDBOX = "DELETE" "/api/v1/sandboxes/{sandbox_id}" [];

    /// Templates of sandboxes by id.
    SPECS = "GET" "/api/v1/sandbox-specs" ["id"];
    /// All templates of sandboxes.
    SEARCH_SPECS = "GET" "/api/v1/sandbox-specs/search" ["page_id" "limit"];

    /// The user's settings.
    SETTINGS = "GET" "/api/v1/settings" [];
    /// Changes the settings.
    UPDATE_SETTINGS = "POST" "/api/v1/settings" [];

    /// Names of the user's secrets.
    SEARCH_SECRETS = "GET" "/api/v1/secrets/search" ["name__contains" "page_id" "limit"];
    /// Saves a secret.
    CREATE_SECRET = "POST" "/api/v1/secrets" [];
    /// Renames or describes a secret.
    UPDATE_SECRET = "PUT" "/api/v1/secrets/{secret_id}" [];
    /// Deletes a secret.
    DELETE_SECRET = "DELETE" "/api/v1/secrets/{secret_id}" [];

    /// The key's user.
    ME = "GET" "/api/v1/users/me" [];

    /// The user's own API keys.
    KEYS = "GET" "/api/v1/keys" [];
    /// Creates a key.
    CREATE_KEY = "POST" "/api/v1/keys" [];
    /// Replaces a key by a new one.
    ROTATE_KEY = "POST" "/api/v1/keys/{key_id}/rotate" [];
    /// Revokes a key.
    REVOKE_KEY = "DELETE" "/api/v1/keys/{key_id}" [];

    /// All users.
    SEARCH_USERS = "GET" "/api/v1/admin/users" ["page_id" "limit"];
    /// Creates a user.
    CREATE_USER = "POST" "/api/v1/admin/users" [];
    /// A user.
    USER = "GET" "/api/v1/admin/users/{user_id}" [];
    /// Changes a user's role.
    UPDATE_USER = "PATCH" "/api/v1/admin/users/{user_id}" [];
    /// Deletes a user.
    DELETE_USER = "DELETE" "/api/v1/admin/users/{user_id}" [];
    /// A user's API keys.
    USER_KEYS = "GET" "/api/v1/admin/users/{user_id}/keys" [];
    /// Creates a key for a user.
    CREATE_USER_KEY = "POST" "/api/v1/admin/users/{user_id}/keys" [];
    /// Replaces a key of a user by a new one.
    ROTATE_USER_KEY = "POST" "/api/v1/admin/users/{user_id}/keys/{key_id}/rotate" [];
    /// Revokes a user's key.
    REVOKE_USER_KEY = "DELETE" "/api/v1/admin/users/{user_id}/keys/{key_id}" [];

    /// The audit log.
    AUDIT = "GET" "/api/v1/audit" ["actor" "action" "object" "outcome" "since" "until" "page_id" "limit"];
}
