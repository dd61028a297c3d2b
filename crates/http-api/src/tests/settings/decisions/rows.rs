//! The rows of both tables in `docs/reference/wire/legacy.md`.

use serde_json::json;

use super::BodyCheck::{At, Is, Lacks, Never};
use super::*;

/// Authentication, the response without stored settings, and the effect of requests.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn first_rows() -> Vec<(&'static str, Vec<DecisionStep>)> {
    let refuse = |key, text, step: DecisionStep| {
        let checks = vec![Is(json_of(text))];
        by(
            key,
            DecisionStep {
                status: 401,
                checks,
                ..step
            },
        )
    };
    let mcp = r#"{"mcp_config":{"sse_servers":[{"url":"https://x/sse"}]}}"#;
    let shown = json!({"sse_servers": [{"url": "https://x/sse"}], "stdio_servers": [], "shttp_servers": []});
    let stored = || vec![Is(json_of(STORED))];
    vec![
        (
            "D1",
            vec![
                refuse("", MISSING, get(vec![])),
                refuse("", MISSING, post(PROVIDERS, "{}", 0, vec![])),
            ],
        ),
        ("D2", vec![refuse("nope", WRONG, get(vec![]))]),
        // The header is required in every configuration; the server creates a first key if there is none.
        (
            "D3",
            vec![refuse("", MISSING, post(SETTINGS, "{}", 0, vec![]))],
        ),
        (
            "D4",
            vec![refuse(
                "",
                MISSING,
                post(PROVIDERS, "{\"provider", 0, vec![]),
            )],
        ),
        (
            "D5",
            vec![
                get(vec![At("/llm_api_key_set", json!(false))]),
                tokens(r#"{"github":{"token":"x"}}"#),
                get(vec![At("/llm_api_key_set", json!(false))]),
            ],
        ),
        (
            "D6",
            vec![
                post(PROVIDERS, mcp, 200, stored()),
                get(vec![At("/mcp_config", shown.clone())]),
            ],
        ),
        (
            "D7",
            vec![
                post(PROVIDERS, mcp, 200, stored()),
                post(PROVIDERS, "{}", 200, stored()),
                post(PROVIDERS, r#"{"mcp_config":null}"#, 200, stored()),
                get(vec![At("/mcp_config", shown)]),
                post(
                    PROVIDERS,
                    r#"{"mcp_config":{"shttp_servers":[]}}"#,
                    200,
                    stored(),
                ),
                get(vec![At("/mcp_config/sse_servers", json!([]))]),
            ],
        ),
        (
            "D8",
            vec![
                tokens(r#"{"github":{"token":"x"}}"#),
                post(PROVIDERS, "{}", 200, stored()),
                tokens("{}"),
                has_tokens(json!({"github": null})),
            ],
        ),
        (
            "D9",
            vec![
                tokens(r#"{"github":{"token":"x"}}"#),
                tokens(r#"{"gitlab":{"token":"y"}}"#),
                has_tokens(json!({"github": null, "gitlab": null})),
            ],
        ),
        (
            "D10",
            vec![
                tokens(r#"{"gitlab":{"token":"y","host":"gl.example","user_id":"7"}}"#),
                tokens(r#"{"gitlab":{"token":"","host":"https://gl.example/"}}"#),
                tokens(r#"{"gitlab":{"token":null}}"#),
                has_tokens(json!({"gitlab": "https://gl.example"})),
            ],
        ),
        (
            "D11",
            vec![
                tokens(
                    r#"{"github":{"token":""},"gitlab":{"token":null},"forgejo":{},"bitbucket":{"user_id":"4"}}"#,
                ),
                has_tokens(json!({})),
            ],
        ),
        // No provider is called: none is reachable from the test.
        (
            "D12",
            vec![
                tokens(r#"{"github":{"token":"x"},"forgejo":{"token":"y","host":"10.255.255.1"}}"#),
                has_tokens(json!({"github": null, "forgejo": "10.255.255.1"})),
            ],
        ),
        (
            "D13",
            vec![
                tokens(r#"{"gitlab":{"token":"y","host":"gl.example"}}"#),
                refused(
                    r#"{"provider_tokens":{"gitlab":{"token":"","host":"evil.example"}}}"#,
                    &["provider_tokens", "gitlab", "token"],
                    "value_error",
                ),
                has_tokens(json!({"gitlab": "gl.example"})),
                tokens(r#"{"gitlab":{"token":"z","host":"other.example"}}"#),
                has_tokens(json!({"gitlab": "other.example"})),
            ],
        ),
        ("D14", vec![post(PROVIDERS, "{}", 200, stored())]),
    ]
}

/// The form of errors and responses.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn further_rows() -> Vec<(&'static str, Vec<DecisionStep>)> {
    let secret = r#"{"provider_tokens":"ghp_topsecret"}"#;
    let servers = json!({
        "mcp_config": {
            "sse_servers": [{"url": "https://x/sse", "api_key": "mcp-one"}, {"url": "https://y/sse", "api_key": null}],
            "stdio_servers": [{"name": "n", "command": "npx", "args": "-y x", "env": "K=mcp-two"}],
        }
    });
    vec![
        (
            "D15",
            vec![
                refused(
                    r#"{"mcp_config":{"sse_servers":5}}"#,
                    &["mcp_config", "sse_servers"],
                    "list_type",
                ),
                refused(
                    r#"{"mcp_config":{"stdio_servers":[{"name":5,"command":"c"}]}}"#,
                    &["mcp_config", "stdio_servers", "0", "name"],
                    "string_type",
                ),
                post(PROVIDERS, b"{\"provider_tokens\": \"\xff\"}", 422, vec![]),
            ],
        ),
        (
            "D16",
            vec![refused(
                r#"{"mcp_config":{"sse_servers":[{}]}}"#,
                &["mcp_config", "sse_servers", "0", "url"],
                "missing",
            )],
        ),
        (
            "D17",
            vec![post(
                PROVIDERS,
                secret,
                422,
                vec![
                    Lacks("/detail/0/input"),
                    Lacks("/detail/0/ctx"),
                    Never("ghp_topsecret"),
                ],
            )],
        ),
        (
            "D19",
            vec![
                tokens(r#"{"github":{"token":"x"}}"#),
                get(vec![At(
                    "/secrets_store",
                    json!({"provider_tokens": {}, "custom_secrets": {}}),
                )]),
            ],
        ),
        ("D20", vec![get(vec![Lacks("/mcp_config")])]),
        (
            "D21",
            vec![
                post(PROVIDERS, servers.to_string(), 200, vec![]),
                get(vec![Lacks("/mcp_config/sse_servers/1/api_key")]),
            ],
        ),
        // Differs from the reference: keys and environments are masked.
        (
            "D22",
            vec![
                post(PROVIDERS, servers.to_string(), 200, vec![]),
                get(vec![
                    At("/mcp_config/sse_servers/0/api_key", json!(MASK)),
                    At("/mcp_config/stdio_servers/0/args", json!(["-y", "x"])),
                    At("/mcp_config/stdio_servers/0/env/K", json!(MASK)),
                    Never("mcp-one"),
                    Never("mcp-two"),
                ]),
            ],
        ),
        // Differs from the reference: `v1_enabled` is included.
        (
            "D23",
            vec![
                post(
                    SETTINGS,
                    r#"{"user_version":3,"condenser_max_size":5,"v1_enabled":false,"language":"en"}"#,
                    200,
                    vec![],
                ),
                get(vec![
                    At("/language", json!("en")),
                    At("/v1_enabled", json!(true)),
                    Lacks("/user_version"),
                    Lacks("/condenser_max_size"),
                ]),
            ],
        ),
        (
            "D24",
            vec![post(
                PROVIDERS,
                r#"{"bogus":1}"#,
                200,
                vec![Is(json_of(STORED))],
            )],
        ),
        (
            "D25",
            vec![
                refused(
                    r#"{"provider_tokens":{"sourcehut":{}}}"#,
                    &["provider_tokens", "sourcehut", "[key]"],
                    "enum",
                ),
                refused(
                    r#"{"provider_tokens":{"GitHub":{}}}"#,
                    &["provider_tokens", "GitHub", "[key]"],
                    "enum",
                ),
                tokens(
                    r#"{"github":{},"gitlab":{},"bitbucket":{},"forgejo":{},"azure_devops":{},"enterprise_sso":{}}"#,
                ),
            ],
        ),
        (
            "D27",
            vec![
                tokens(r#"{"github":{"token":"x"}}"#),
                by(OTHER_KEY, has_tokens(json!({}))),
                by(OTHER_KEY, tokens(r#"{"gitlab":{"token":"y"}}"#)),
                has_tokens(json!({"github": null})),
            ],
        ),
    ]
}

/// The second table.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn target_rows() -> Vec<(&'static str, Vec<DecisionStep>)> {
    let unauthorized = |key, text| {
        let checks = vec![Is(json_of(text))];
        by(
            key,
            DecisionStep {
                status: 401,
                ..get(checks)
            },
        )
    };
    let nothing = || {
        vec![
            At("/llm_api_key_set", json!(false)),
            At("/provider_tokens_set", json!({})),
        ]
    };
    let (token, both) = (
        r#"{"github":{"token":"x"}}"#,
        json!({"github": null, "gitlab": null}),
    );
    let server = r#"{"mcp_config":{"sse_servers":["https://x/sse"]}}"#;
    let list: &[&str] = &["mcp_config", "sse_servers"];
    vec![
        ("T1", vec![unauthorized("", MISSING)]),
        ("T2", vec![unauthorized("nope", WRONG)]),
        ("T3", vec![get(nothing())]),
        (
            "T4",
            vec![post(PROVIDERS, "{}", 200, vec![]), get(nothing())],
        ),
        (
            "T5",
            vec![tokens(token), has_tokens(json!({"github": null}))],
        ),
        (
            "T6",
            vec![
                tokens(token),
                tokens(r#"{"gitlab":{"token":"y"}}"#),
                has_tokens(both),
            ],
        ),
        (
            "T7",
            vec![
                tokens(token),
                post(PROVIDERS, server, 200, vec![]),
                get(vec![
                    At("/mcp_config/sse_servers/0/url", json!("https://x/sse")),
                    At("/provider_tokens_set", json!({"github": null})),
                ]),
            ],
        ),
        (
            "T8",
            vec![refused(
                r#"{"provider_tokens":{"sourcehut":{"token":"t"}}}"#,
                &["provider_tokens", "sourcehut", "[key]"],
                "enum",
            )],
        ),
        (
            "T9",
            vec![
                refused(
                    r#"{"provider_tokens":"x"}"#,
                    &["provider_tokens"],
                    "dict_type",
                ),
                refused(
                    r#"{"provider_tokens":null}"#,
                    &["provider_tokens"],
                    "dict_type",
                ),
            ],
        ),
        (
            "T10",
            vec![
                refused(r#"{"mcp_config":{"sse_servers":5}}"#, list, "list_type"),
                refused(r#"{"mcp_config":{"sse_servers":null}}"#, list, "list_type"),
            ],
        ),
        (
            "T11",
            vec![refused(
                r#"{"mcp_config":{"sse_servers":[{}]}}"#,
                &["mcp_config", "sse_servers", "0", "url"],
                "missing",
            )],
        ),
        (
            "T12",
            vec![refused(
                r#"{"provider_tokens": {"github": }}"#,
                &["31"],
                "json_invalid",
            )],
        ),
        (
            "T13",
            [
                "\"s3cret\"",
                "{\"github\":\"s3cret\"}",
                "{\"github\":{\"token\":{\"a\":\"s3cret\"}}}",
                "{\"nope\":{\"token\":\"s3cret\"}}",
                "{\"github\":{\"token\":\"s3cret \\n s3cret\"}}",
                "{\"github\":{\"token\":\"s3cret\",\"host\":\"u:s3cret@h\"}}",
                "[\"s3cret\"]",
                "{\"a\":s3cret}",
            ]
            .map(|body| {
                let body = format!("{{\"provider_tokens\":{body}}}");
                post(PROVIDERS, body, 422, vec![Never("s3cret")])
            })
            .into(),
        ),
    ]
}
