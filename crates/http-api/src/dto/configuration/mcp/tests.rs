use serde_json::json;

use super::*;
use crate::decode::{ErrorFormat, decode};

fn refused(body: &Value) -> Vec<(Vec<String>, String, String)> {
    let errors = decode::<McpConfigDto>(body, &Path::body(true).key("mcp_config")).unwrap_err();
    let detail = errors.detail(ErrorFormat::Legacy);
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
    let config = decode::<McpConfigDto>(&body, &Path::body(true)).unwrap();
    let config = McpConfig::from(config);
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
    assert!(decode::<McpConfigDto>(&json!({}), &Path::body(true)).is_ok());
}

/// Refused at this place for this reason, and for nothing else; the message starts so.
fn check(body: &Value, loc: &str, kind: &str, msg: &str) {
    let items = refused(body);
    assert_eq!(items.len(), 1, "{body}: {items:?}");
    assert_eq!(items[0].0.join("."), loc, "{body}");
    assert_eq!(items[0].1, kind, "{body}");
    assert!(items[0].2.starts_with(msg), "{body}: {}", items[0].2);
}

#[test]
fn non_lists_and_unknown_members_are_refused() {
    let list = "Input should be a valid list";
    check(
        &json!("x"),
        "",
        "model_attributes_type",
        "Input should be a valid dictionary or object",
    );
    check(
        &json!({"bogus": 1}),
        "bogus",
        "extra_forbidden",
        "Extra inputs are not permitted",
    );
    let many = json!({"sse_servers": vec!["https://x"; 101]});
    check(
        &many,
        "sse_servers",
        "too_long",
        "List should have at most 100 items",
    );
    for odd in [json!(5), json!(null), json!("x"), json!({})] {
        for name in ["sse_servers", "stdio_servers", "shttp_servers"] {
            check(&json!({name: odd}), name, "list_type", list);
        }
    }
}

#[test]
fn a_remote_server_has_an_address() {
    let sse = |item: Value| json!({"sse_servers": [item]});
    let url = |item: Value, msg: &str| {
        check(
            &sse(item),
            "sse_servers.0.url",
            "value_error",
            &format!("Value error, URL {msg}"),
        );
    };
    check(
        &sse(json!({})),
        "sse_servers.0.url",
        "missing",
        "Field required",
    );
    check(
        &sse(json!(3)),
        "sse_servers.0",
        "model_attributes_type",
        "Input should be",
    );
    check(
        &sse(json!({"url": 5})),
        "sse_servers.0.url",
        "string_type",
        "Input should be",
    );
    url(json!("  "), "cannot be empty");
    url(
        json!({"url": "example.com/sse"}),
        "must include a scheme (http:// or https://)",
    );
    url(json!({"url": "ftp://x"}), "scheme must be");
    for with in ["https://u:p@x/", "https://u@x", "https://@x"] {
        url(
            json!({"url": with}),
            "cannot contain a user name or password",
        );
    }
    url(json!({"url": "https://"}), "must include a valid host");
    let key = sse(json!({"url": "https://x", "api_key": 5}));
    check(
        &key,
        "sse_servers.0.api_key",
        "string_type",
        "Input should be",
    );
    for (timeout, msg) in [
        (0, "must be positive"),
        (3601, "cannot exceed 3600 seconds"),
    ] {
        let body = json!({"shttp_servers": [{"url": "https://h", "timeout": timeout}]});
        let msg = format!("Value error, Timeout {msg}");
        check(&body, "shttp_servers.0.timeout", "value_error", &msg);
    }
}

#[test]
fn a_process_has_a_name_and_a_command() {
    let refuse = |item: Value, field: &str, kind: &str, msg: &str| {
        check(
            &json!({"stdio_servers": [item]}),
            &format!("stdio_servers.0.{field}"),
            kind,
            msg,
        );
    };
    let bad = |member: &str, value: Value, msg: &str| {
        let mut item = json!({"name": "a", "command": "npx"});
        item[member] = value;
        refuse(item, member, "value_error", &format!("Value error, {msg}"));
    };
    refuse(json!({"command": "c"}), "name", "missing", "Field required");
    refuse(json!({"name": "a"}), "command", "missing", "Field required");
    refuse(
        json!({"name": 1, "command": "c"}),
        "name",
        "string_type",
        "Input should be",
    );
    bad(
        "name",
        json!("a b"),
        "Server name can only contain letters, numbers, hyphens, and underscores",
    );
    bad(
        "command",
        json!("npx -y"),
        "Command should be a single executable without spaces (use arguments field for parameters)",
    );
    bad(
        "args",
        json!("\"open"),
        "Invalid argument format: No closing quotation. Use shell-like format",
    );
    bad(
        "env",
        json!("NOEQ"),
        "Environment variables must be in KEY=VALUE format",
    );
    bad(
        "env",
        json!({"": "1"}),
        "Environment variable names cannot be empty",
    );
    let env = json!({"name": "a", "command": "c", "env": {"K": 1}});
    refuse(env, "env.K", "string_type", "Input should be");
}
