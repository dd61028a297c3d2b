//! Deliberate differences between this document and the reference's.

/// One difference: an operation (`*` stands for any), a fact of it, and the reason.
pub(crate) struct Difference {
    pub(crate) operation: &'static str,
    pub(crate) fact: &'static str,
    pub(crate) why: &'static str,
}

const fn other(operation: &'static str, fact: &'static str, why: &'static str) -> Difference {
    Difference {
        operation,
        fact,
        why,
    }
}

/// Documents that are passed on unread: the prefix of operations, the member, and its owner.
pub(crate) const OPAQUE: &[(&str, &str, &str)] = &[
    (
        "GET /api/v1/conversation/{conversation_id}/events/search",
        "200 items[]",
        "an event is the agent server's",
    ),
    (
        "GET /api/v1/conversation/{conversation_id}/events",
        "200 []",
        "an event is the agent server's",
    ),
    (
        "POST /api/v1/webhooks/",
        "body",
        "a report is the agent server's; of most of it nothing is read",
    ),
    (
        "POST /api/v1/settings/profiles/{name}",
        "body llm",
        "the fields are in `settings/agent-schema`",
    ),
    (
        "",
        "agent_settings",
        "the fields are in `settings/agent-schema`",
    ),
    (
        "",
        "conversation_settings",
        "the fields are in `settings/conversation-schema`",
    ),
    (
        "",
        "llm_profiles",
        "the fields are in `settings/agent-schema`",
    ),
    (
        "",
        "mcp_config",
        "the fields are in `settings/agent-schema`",
    ),
    (
        "",
        "registered_marketplaces",
        "kept as saved; the fields are those of `skills/marketplace-skills`",
    ),
    ("", "inherited_marketplaces", "always empty"),
];

pub(crate) const DIFFERENCES: &[Difference] = &[
    other(
        "DELETE /api/v1/sandboxes/{id}",
        "operation",
        "its path has the name that the other routes have: `{sandbox_id}`",
    ),
    other(
        "GET /api/v1/app-conversations",
        "query ids",
        "without `ids` it lists",
    ),
    other(
        "GET /api/v1/app-conversations",
        "200 application/json",
        "without `ids` it lists",
    ),
    other(
        "*",
        "path conversation_id",
        "it is a UUID; the reference takes any text and fails later",
    ),
    other(
        "GET /api/v1/users/me",
        "header x-session-api-key",
        "it is a security requirement",
    ),
    other(
        "*",
        "body selected_repository",
        "an impossible repository name is refused immediately",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body sandbox_id",
        "an impossible sandbox id is refused immediately",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body plugins",
        "each is fetched: at most 20",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body processors[].kind",
        "one without `kind` is refused, by both",
    ),
    other(
        "*",
        "body title",
        "the service bounds every value: lists show it",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body agent_profile_id",
        "the service bounds every value",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body llm_model",
        "the service bounds every value",
    ),
    other(
        "POST /api/v1/app-conversations*",
        "body pr_number",
        "the service bounds every value",
    ),
    other(
        "*/switch_acp_model",
        "body model",
        "the service bounds every value",
    ),
    other(
        "POST /api/v1/secrets",
        "body name",
        "secrets become environment variables",
    ),
    other(
        "POST /api/v1/secrets",
        "body description",
        "the service bounds every value",
    ),
    other(
        "PUT /api/v1/secrets/{secret_id}",
        "body name",
        "secrets become environment variables",
    ),
    other(
        "PUT /api/v1/secrets/{secret_id}",
        "body description",
        "the service bounds every value",
    ),
    other(
        "POST /api/v1/secrets/git-providers",
        "body mcp_config",
        "ignored, by both",
    ),
    other(
        "POST /api/v1/secrets/git-providers",
        "body provider_tokens",
        "the default is written as `required: false`",
    ),
    other(
        "POST /api/v1/skills/marketplace-skills",
        "body []*",
        "the service bounds every value; a name that both take is one that can be shown",
    ),
];
