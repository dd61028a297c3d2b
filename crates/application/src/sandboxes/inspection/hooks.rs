//! Agent hooks of a project, from the agent server's document.

use serde_json::Value;

/// Events of hooks, in the order of the list.
const EVENTS: [&str; 6] = [
    "pre_tool_use",
    "post_tool_use",
    "user_prompt_submit",
    "session_start",
    "session_end",
    "stop",
];
/// Longest lists: matchers of an event, and hooks of a matcher.
const MAX_LISTED_ITEMS: usize = 200;
const DEFAULT_TIMEOUT_SECONDS: u64 = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHooks {
    /// `pre_tool_use`, `post_tool_use`, `user_prompt_submit`, `session_start`, `session_end` or `stop`.
    pub event: &'static str,
    pub matchers: Vec<HookMatcher>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookMatcher {
    /// A name, a regular expression, or `*`.
    pub matcher: String,
    pub hooks: Vec<Hook>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `command`, or another kind of newer agent servers.
    pub kind: String,
    /// The command; empty for other kinds.
    pub command: String,
    pub timeout: u64,
    /// Whether the agent continues without waiting for the hook.
    pub is_async: bool,
}

/// Reads the document. The sandbox wrote it, so unreadable parts are skipped.
pub(super) fn read(config: &Value) -> Vec<EventHooks> {
    let of_event = |event: &&'static str| {
        let matchers: Vec<_> = items(&config[*event]).map(matcher).collect();
        (!matchers.is_empty()).then_some(EventHooks { event, matchers })
    };
    EVENTS.iter().filter_map(of_event).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    let all = value.as_array().into_iter().flatten();
    all.filter(|item| item.is_object()).take(MAX_LISTED_ITEMS)
}

fn matcher(document: &Value) -> HookMatcher {
    HookMatcher {
        matcher: text(document, "matcher", "*"),
        hooks: items(&document["hooks"]).map(hook).collect(),
    }
}

fn hook(document: &Value) -> Hook {
    // The agent server's internal name of the field is accepted too.
    let is_async = document.get("async").or_else(|| document.get("async_"));
    Hook {
        kind: text(document, "type", "command"),
        command: text(document, "command", ""),
        timeout: document["timeout"]
            .as_u64()
            .unwrap_or(DEFAULT_TIMEOUT_SECONDS),
        is_async: is_async.and_then(Value::as_bool).unwrap_or(false),
    }
}

fn text(document: &Value, name: &str, usual: &str) -> String {
    document[name].as_str().unwrap_or(usual).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_are_read_by_event_and_unreadable_parts_are_skipped() {
        let config = json!({
            "stop": [{"matcher": "*", "hooks": [{"type": "command", "command": "echo hi", "timeout": 5, "async": true}]}],
            "pre_tool_use": [{"hooks": [{"command": "check", "timeout": -1}, 7]}, "x"],
            "session_end": [],
            "session_start": 5,
            "on_fire": [{"matcher": "*"}],
        });
        let hook = |command: &str, timeout, is_async| Hook {
            kind: "command".to_owned(),
            command: command.to_owned(),
            timeout,
            is_async,
        };
        let event = |event, hook| EventHooks {
            event,
            matchers: vec![HookMatcher {
                matcher: "*".to_owned(),
                hooks: vec![hook],
            }],
        };
        assert_eq!(
            read(&config),
            [
                event("pre_tool_use", hook("check", 60, false)),
                event("stop", hook("echo hi", 5, true)),
            ]
        );
        assert_eq!(read(&json!([])), []);
    }
}
