use super::*;
use crate::decode::{Flavour, decode};

fn refused(body: &Value) -> Vec<(Vec<String>, String, String)> {
    let errors = decode::<McpConfigInput>(body, &Path::body(true).key("mcp_config")).unwrap_err();
    let detail = errors.detail(Flavour::Legacy);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = detail.as_array().unwrap().iter();
    items
        .map(|item| {
            let loc = item["loc"]
                .as_array()
                .unwrap()
                .iter()
                .skip(2)
                .map(text)
                .collect();
            (loc, text(&item["type"]), text(&item["msg"]))
        })
        .collect()
}

#[test]
fn shorthand_becomes_the_normal_form() {
    let body = json!({
        "sse_servers": ["https://a.example/sse ", {"url": "wss://x/y", "api_key": null, "extra": 1}],
        "stdio_servers": [
            {"name": " n ", "command": "npx", "args": "-y 'b c'", "env": "K=V, Z=1=2"},
            {"name": "a", "command": "npx", "args": null, "env": null},
        ],
        "shttp_servers": ["https://h/mcp", {"url": "https://h2", "timeout": null, "api_key": "k"}],
    });
    let McpConfigInput(config) = decode(&body, &Path::body(true)).unwrap();
    assert_eq!(config.sse_servers[0].url, "https://a.example/sse");
    assert!(config.sse_servers[1].api_key.is_none());
    assert_eq!(config.stdio_servers[0].args, ["-y", "b c"]);
    assert_eq!(
        config.stdio_servers[0].env.keys().collect::<Vec<_>>(),
        ["K", "Z"]
    );
    assert!(config.stdio_servers[1].args.is_empty() && config.stdio_servers[1].env.is_empty());
    let timeouts: Vec<_> = config.shttp_servers.iter().map(|s| s.timeout).collect();
    assert_eq!(timeouts, [Some(60), None]);
    assert!(config.shttp_servers[1].api_key.is_some());
    assert!(decode::<McpConfigInput>(&json!({}), &Path::body(true)).is_ok());
}

#[test]
fn every_refusal_has_its_place_and_words() {
    let sse = |item: Value| json!({"sse_servers": [item]});
    let stdio = |item: Value| json!({"stdio_servers": [item]});
    for (body, loc, kind, msg) in [
        (
            json!("x"),
            "",
            "model_attributes_type",
            "Input should be a valid dictionary",
        ),
        (
            json!({"bogus": 1}),
            "bogus",
            "extra_forbidden",
            "Extra inputs are not permitted",
        ),
        (
            json!({"sse_servers": 5}),
            "sse_servers",
            "list_type",
            "Input should be a valid list",
        ),
        (json!({"sse_servers": null}), "sse_servers", "list_type", ""),
        (json!({"sse_servers": "x"}), "sse_servers", "list_type", ""),
        (
            json!({"stdio_servers": {}}),
            "stdio_servers",
            "list_type",
            "",
        ),
        (
            sse(json!({})),
            "sse_servers.0.url",
            "missing",
            "Field required",
        ),
        (sse(json!(3)), "sse_servers.0", "model_attributes_type", ""),
        (
            sse(json!("  ")),
            "sse_servers.0.url",
            "value_error",
            "Value error, URL cannot be empty",
        ),
        (
            sse(json!({"url": "example.com/sse"})),
            "sse_servers.0.url",
            "value_error",
            "Value error, URL must include a scheme (http:// or https://)",
        ),
        (
            sse(json!({"url": "ftp://x"})),
            "sse_servers.0.url",
            "value_error",
            "Value error, URL scheme",
        ),
        (
            sse(json!({"url": "https://"})),
            "sse_servers.0.url",
            "value_error",
            "Value error, URL must include a valid host",
        ),
        (
            sse(json!({"url": 5})),
            "sse_servers.0.url",
            "string_type",
            "",
        ),
        (
            sse(json!({"url": "https://x", "api_key": 5})),
            "sse_servers.0.api_key",
            "string_type",
            "",
        ),
        (
            json!({"shttp_servers": [{"url": "https://h", "timeout": 0}]}),
            "shttp_servers.0.timeout",
            "value_error",
            "Value error, Timeout must be positive",
        ),
        (
            json!({"shttp_servers": [{"url": "https://h", "timeout": 3601}]}),
            "shttp_servers.0.timeout",
            "value_error",
            "Value error, Timeout cannot exceed 3600 seconds",
        ),
        (
            stdio(json!({"command": "c"})),
            "stdio_servers.0.name",
            "missing",
            "",
        ),
        (
            stdio(json!({"name": "a b", "command": "npx"})),
            "stdio_servers.0.name",
            "value_error",
            "Value error, Server name can only contain letters, numbers, hyphens, and underscores",
        ),
        (
            stdio(json!({"name": "a", "command": "npx -y"})),
            "stdio_servers.0.command",
            "value_error",
            "Value error, Command should be a single executable without spaces (use arguments field for parameters)",
        ),
        (
            stdio(json!({"name": 1, "command": "c"})),
            "stdio_servers.0.name",
            "string_type",
            "",
        ),
        (
            stdio(json!({"name": "a", "command": "c", "args": "\"open"})),
            "stdio_servers.0.args",
            "value_error",
            "Value error, Invalid argument format: No closing quotation. Use shell-like format",
        ),
        (
            stdio(json!({"name": "a", "command": "c", "env": "NOEQ"})),
            "stdio_servers.0.env",
            "value_error",
            "Value error, Environment variables must be in KEY=VALUE format",
        ),
        (
            stdio(json!({"name": "a", "command": "c", "env": {"K": 1}})),
            "stdio_servers.0.env.K",
            "string_type",
            "",
        ),
        (
            stdio(json!({"name": "a", "command": "c", "env": {"": "1"}})),
            "stdio_servers.0.env",
            "value_error",
            "",
        ),
    ] {
        let items = refused(&body);
        assert_eq!(items.len(), 1, "{body}: {items:?}");
        assert_eq!(items[0].0.join("."), loc, "{body}");
        assert_eq!(items[0].1, kind, "{body}");
        assert!(items[0].2.starts_with(msg), "{body}: {}", items[0].2);
    }
}
