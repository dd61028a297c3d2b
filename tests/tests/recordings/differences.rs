//! Intended differences to the reference.

/// A member that responses of this service have in addition to the reference, or lack.
pub(crate) struct DifferenceMember {
    pub(crate) name: &'static str,
    /// Whether this service adds the member; otherwise it omits it.
    pub(crate) is_ours: bool,
    /// Whether this is about the legacy operations, or about V1.
    pub(crate) in_legacy: bool,
    pub(crate) reason: &'static str,
}

pub(crate) const MEMBER_DIFFERENCES: &[DifferenceMember] = &[
    DifferenceMember {
        name: "notes",
        is_ours: true,
        in_legacy: false,
        reason: "Start tasks list what the start left out or changed.",
    },
    DifferenceMember {
        name: "timings",
        is_ours: true,
        in_legacy: false,
        reason: "Start tasks carry the milliseconds of each step.",
    },
    DifferenceMember {
        name: "enabled_skills",
        is_ours: true,
        in_legacy: false,
        reason: "Newer front ends store which skills of their catalogue are turned on.",
    },
    DifferenceMember {
        name: "title_llm_profile",
        is_ours: true,
        in_legacy: false,
        reason: "Newer front ends store which profile writes titles.",
    },
    DifferenceMember {
        name: "workspace",
        is_ours: true,
        in_legacy: false,
        reason: "Conversations name the directory in which the agent works.",
    },
    DifferenceMember {
        name: "status_detail",
        is_ours: true,
        in_legacy: false,
        reason: "Sandboxes state why they are in ERROR.",
    },
    DifferenceMember {
        name: "sandbox_isolation",
        is_ours: true,
        in_legacy: false,
        reason: "The information on the service names the isolation of sandboxes.",
    },
    DifferenceMember {
        name: "egress_policy",
        is_ours: true,
        in_legacy: false,
        reason: "The information on the service names what sandboxes reach.",
    },
    DifferenceMember {
        name: "exposed",
        is_ours: true,
        in_legacy: false,
        reason: "Secrets state whether agents get their value.",
    },
    DifferenceMember {
        name: "max_budget_per_month",
        is_ours: true,
        in_legacy: false,
        reason: "Users limit what models cost in a month.",
    },
    DifferenceMember {
        name: "egress_allow",
        is_ours: true,
        in_legacy: false,
        reason: "Settings and sandboxes have the hosts to which sandboxes are limited.",
    },
    DifferenceMember {
        name: "custom_secrets",
        is_ours: true,
        in_legacy: true,
        reason: "The documented `secrets_store` has both of its maps, always empty.",
    },
    DifferenceMember {
        name: "user_version",
        is_ours: false,
        in_legacy: true,
        reason: "Not among the documented settings.",
    },
    DifferenceMember {
        name: "condenser_max_size",
        is_ours: false,
        in_legacy: true,
        reason: "Not among the documented settings.",
    },
];

/// Reasons, and the exchanges that they explain.
pub(crate) const DIFFERENCES: &[(&str, &[&str])] = &[
    (
        "Every operation asks for a key, and says which header is missing or wrong",
        &[
            "v0-001-get-settings-no-key",
            "v0-002-get-settings-wrong-key",
            "v0-005-get-settings-key-wrong-case",
            "v0-008-get-settings-query-param-key",
            "v0-010-post-providers-no-key-valid-body",
            "v0-011-post-providers-wrong-key-valid-body",
            "v0-013-post-providers-no-key-malformed-json",
            "v0-014-post-providers-no-key-empty-body",
            "v0-020-open-get-settings-ignores-header",
            "v0-188-options-models-keyed-no-key",
            "v0-196-keyed-v1-users-me-no-key",
            "v0-197-keyed-v1-conversations-search-no-key",
            "v0-244-cors-keyed-401-localhost-origin",
        ],
    ),
    (
        "Conversations have an order, but none by title",
        &["v1-029-conv-search-unknown-param"],
    ),
    (
        "A key may come as a bearer token",
        &[
            "v0-007-get-settings-bearer-instead",
            "v1-416-auth-bearer-not-accepted",
        ],
    ),
    (
        "Legacy settings have defaults before anything was stored",
        &[
            "v0-004-get-settings-key-with-spaces",
            "v0-019-open-get-settings-nothing-stored",
            "v0-077-settings-after-mcp-only-post",
            "v0-094-settings-404-still-after-providers-post",
            "v0-242-cors-get-localhost-origin",
            "v0-248-get-settings-with-body",
        ],
    ),
    (
        "Provider tokens are stored without asking the provider",
        &[
            "v0-079-providers-github-token-no-host-offline",
            "v0-080-providers-github-host-null-offline",
            "v0-082-providers-bitbucket-token-offline",
            "v0-083-providers-forgejo-token-offline",
            "v0-085-providers-enterprise-sso-token",
            "v0-086-providers-token-whitespace",
            "v0-097-providers-gitlab-bad-token-fake-host",
            "v0-098-providers-wrong-provider-for-token",
            "v0-106-providers-blank-token-host-omitted",
            "v0-109-providers-valid-first-invalid-last",
            "v0-206-providers-host-blackhole",
        ],
    ),
    (
        "A provider's host must be a bare host name; a change of it needs the token again",
        &[
            "v0-104-providers-blank-token-host-changed",
            "v0-208-providers-host-userinfo",
            "v0-209-providers-host-path-query-trick",
        ],
    ),
    (
        "Input that cannot be read is 422 on the legacy operations, NaN is not JSON, and numbers beyond 64 bits are refused",
        &[
            "v0-032-providers-invalid-utf8",
            "v0-037-providers-nan-json",
            "v0-125-settings-post-negative-and-huge",
        ],
    ),
    (
        "MCP servers must be a JSON list; a refusal repeats nothing of their environment",
        &[
            "v0-049-providers-multiple-errors",
            "v0-052-providers-mcp-sse-not-list",
            "v0-053-providers-mcp-sse-null",
            "v0-065-providers-mcp-stdio-env-bad",
            "v0-068-providers-mcp-shttp-url-int",
        ],
    ),
    (
        "An MCP server without a key is shown without `api_key`",
        &[
            "v0-113-settings-after-wipe",
            "v0-254-keyed-settings-get-mcp-unchanged",
            "v0-262-settings-get-mcp-normalised",
        ],
    ),
    (
        "Fields that are not documented are ignored, whatever is in them",
        &["v0-127-settings-post-condenser-19"],
    ),
    (
        "`Allow` names all methods of a path",
        &["v0-026-open-put-settings", "v1-007-method-not-allowed"],
    ),
    (
        "Pages of other origins may call only when their origin is configured; others get no `Access-Control-Allow-Credentials`",
        &[
            "v1-011-cors-preflight",
            "v1-412-conv-create-429-cors",
            "v1-424-cors-configured-bad",
            "v1-425-cors-configured-localhost",
        ],
    ),
    (
        "Page tokens have this service's own format; any other is refused",
        &[
            "v1-026-conv-search-page-garbage",
            "v1-028-conv-search-page-huge",
            "v1-092-events-search-page-garbage",
            "v1-103-sbx-search-page-garbage",
            "v1-116-spec-search-page-garbage",
            "v1-175-models-page2",
            "v1-176-models-page-garbage",
            "v1-248-secrets-search-page2",
            "v1-328-events-search-page",
            "v1-367-conv-search-page-2",
            "v1-443-sbx-search-page-2",
            "v1-181-skills-search-page-unknown",
            "v0-218-conv-list-bad-page-id",
            "v0-256-conv-list-page-id-bad-base64",
            "v0-257-conv-list-page-id-json-nonobject",
        ],
    ),
    (
        "Bodies and values that may hold secrets are not repeated in refusals",
        &[
            "v1-043-conv-create-form-encoded",
            "v1-044-conv-create-no-content-type",
            "v1-047-conv-create-string-body",
            "v1-056-conv-create-secret-wrong-type",
            "v1-151-settings-post-not-object",
            "v1-157-secret-create-null-value",
            "v1-224-profile-save-unknown-llm-field",
            "v1-260-git-providers-null",
        ],
    ),
    (
        "Texts list this service's `kind` values, without the validation library's links",
        &[
            "v1-187-pending-bad-content",
            "v1-053-conv-create-bad-processor-kind",
            "v1-194-settings-post-bad-conv-diff",
            "v1-220-settings-post-agent-kind-bogus",
        ],
    ),
    (
        "Bad input is refused as such, where the reference fails with 500",
        &[
            "v1-266-pending-role-int",
            "v1-059-conv-create-parent-unknown",
            "v1-089-events-search-bad-uuid",
            "v1-098-events-batch-bad-id",
            "v1-136-wh-secrets-garbage-token",
            "v1-137-wh-secrets-unknown-kid",
            "v1-193-settings-post-bad-diff",
            "v1-284-conv-patch-bad-repo",
            "v1-287-conv-patch-remove-repo-keep-branch",
        ],
    ),
    (
        "What fails in the reference works",
        &[
            "v1-061-conv-create-suggested-task",
            "v1-062-conv-create-suggested-forgejo",
            "v1-269-sbx-start",
            "v1-350-task-search-poisoned-by-numeric-uuid",
        ],
    ),
    (
        "Settings of a wrong type are never stored, so an account cannot be spoiled by them",
        &[
            "v1-196-settings-get-after-garbage",
            "v1-197-settings-post-repair",
            "v1-199-users-me-after-settings",
            "v1-200-settings-post-null-key-field",
            "v1-202-settings-post-marketplace-bad",
            "v1-203-settings-post-marketplace-dup",
            "v1-206-sbx-search-bricked-settings",
        ],
    ),
    (
        "`DELETE /sandboxes/{id}` takes the id from the path; a query that differs is refused",
        &[
            "v1-109-sbx-delete-path-only",
            "v1-110-sbx-delete-with-query",
        ],
    ),
    (
        "An unknown sandbox is refused immediately",
        &["v1-337-conv-create-unknown-sandbox"],
    ),
    (
        "A sandbox's key alone shows its owner's settings and secrets to the sandbox",
        &["v1-308-sbx-secrets-oss", "v1-310-users-me-expose-oss"],
    ),
    (
        "Secrets have names that a shell takes, in both APIs, and none that the agent's own environment needs; a refused \
         name is not repeated",
        &[
            "v0-163-secrets-post-empty-name",
            "v0-164-secrets-post-weird-name",
            "v1-155-secret-create-bad-name",
            "v1-244-secret-create-unicode-name",
            "v1-245-secret-create-blocked-prefix",
            "v1-253-secret-put-bad-name",
        ],
    ),
    (
        "A secret that is not there is not found, also before there was any",
        &[
            "v0-178-secrets-put-no-store",
            "v0-179-secrets-delete-no-store",
        ],
    ),
    (
        "Reports of agent servers are taken in as they come: newer kinds, more fields, fewer fields",
        &[
            "v1-311-wh-conv-bad-body",
            "v1-319-wh-events-bad-kind",
            "v1-320-wh-events-extra-field",
        ],
    ),
    (
        "A message waits only for what is there, and only one that agents accept (the reference keeps any, for ever)",
        &[
            "v1-262-pending-create",
            "v1-263-pending-create-role-free",
            "v1-265-pending-limit",
        ],
    ),
    (
        "Paths of older front ends are there, too, and know today's triggers",
        &[
            "v1-188-conv-legacy-v0-route",
            "v0-217-conv-list-bad-trigger",
        ],
    ),
    (
        "A sandbox's key stays good for trailing reports after a pause",
        &["v1-380-wh-events-paused"],
    ),
];

/// Exchanges that cannot be replayed, and why.
pub(crate) const NOT_REPLAYED: &[(&str, &[&str])] = &[
    (
        "a backend or an agent server that fails; `tests/tests/faults` does that",
        &[
            "v1-344-conv-create-runtime-503",
            "v1-346-sbx-start-runtime-503",
            "v1-368-conv-send-agent-404",
            "v1-386-sbx-delete-runtime-500",
            "v1-403-conv-send-missing-runtime",
            "v1-406-users-me-expose-missing",
        ],
    ),
    (
        "keys and objects that no recording made; `tests/tests/faults` has such reports refused",
        &[
            "v1-407-wh-hijack-other-sandbox-conv",
            "v1-409-wh-resurrect-deleted",
            "v1-410-conv-resurrected",
            "v1-433-limit-resume-oldest",
            "v1-440-auth-webhook-with-sandbox-key",
        ],
    ),
];
