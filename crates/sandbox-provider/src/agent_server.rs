//! What every backend knows of the agent server: its variables, and its log.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use std::collections::BTreeMap;
use std::path::PathBuf;

use domain::sandbox::{SandboxLaunch, mask_line};
use secrecy::{ExposeSecret as _, SecretString};

/// Variables by name. Some values are keys, so all are treated as secret.
pub type SandboxVariables = BTreeMap<String, SecretString>;

/// The port of the agent server, for programs of its sandbox. The agent server itself does not read it; the SDK does.
pub const AGENT_SERVER_PORT: &str = "AGENT_SERVER_PORT";
/// Keys of the agent server.
pub const SESSION_KEY_VARIABLE: &str = "OH_SESSION_API_KEYS_0";
/// The key that encrypts the agent server's own secrets.
pub const SECRET_KEY_VARIABLE: &str = "OH_SECRET_KEY";

/// Variables that a dormant agent server gets by its init request. It does not start with a part of them in its
/// environment.
pub const WEBHOOKS_PREFIX: &str = "OH_WEBHOOKS_";

/// Not secret, and equal in all sandboxes.
pub const FIXED_VARIABLES: [(&str, &str); 8] = [
    // Webhooks deliver an event within a second, in batches of at most five.
    ("OH_WEBHOOKS_0_FLUSH_DELAY", "1"),
    ("OH_WEBHOOKS_0_EVENT_BUFFER_SIZE", "5"),
    // Importing litellm must not ask the network for a price list.
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    // A pretty traceback blocks the agent server for seconds.
    ("LOG_RICH_TRACEBACKS", "false"),
    ("LOG_JSON", "true"),
    ("PYTHONUNBUFFERED", "1"),
    // The agent server types secrets into its terminal (`export NAME=value`); a shell history would write them to the disk.
    ("HISTFILE", "/dev/null"),
    // Git must fail instead of prompting, which would block until the command's time-out.
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Sets the variables of a launch. They replace what configuration has set. The agent server keeps its files in `directory`.
pub fn add_launch_variables(all: &mut SandboxVariables, launch: &SandboxLaunch, directory: &str) {
    let mut set = |name: &str, value: &str| all.insert(name.to_owned(), value.into());
    for (name, value) in FIXED_VARIABLES {
        set(name, value);
    }
    set(SESSION_KEY_VARIABLE, launch.session_key.expose_secret());
    set(SECRET_KEY_VARIABLE, launch.secret_key.expose_secret());
    let webhooks = launch.webhook_url.as_str().trim_end_matches('/');
    set("OH_WEBHOOKS_0_BASE_URL", webhooks);
    for (name, file) in [
        ("OH_CONVERSATIONS_PATH", "conversations"),
        ("OH_PERSISTENCE_DIR", "persist"),
        // The default is a file in the workspace, which agents can write.
        ("OPENHANDS_AGENT_SERVER_CONFIG_PATH", "agent-server.json"),
    ] {
        set(name, &format!("{directory}/{file}"));
    }
    // A dormant server gets these and the session key at start: its web server reads the origins when it is created, and VS
    // Code its token.
    for (index, origin) in launch.cors_origins.iter().enumerate() {
        set(&format!("OH_ALLOW_CORS_ORIGINS_{index}"), origin);
    }
    // Always set: a variable of the image or the configuration must not leave a sandbox dormant.
    set("OH_DEFERRED_INIT", if launch.dormant { "1" } else { "0" });
    if launch.dormant {
        all.retain(|name, _| !name.starts_with(WEBHOOKS_PREFIX));
    }
}

const MAX_QUOTED_LINES: usize = 12;
const MAX_LINE_CHARS: usize = 300;

/// The last lines of a log as a quotation for people, without keys, and with names instead of `paths`.
pub fn quote_log(text: &str, keys: &[SecretString], paths: &[(PathBuf, &str)]) -> String {
    let shown = |line: &str| {
        let named = paths.iter().fold(line.to_owned(), |line, (path, name)| {
            line.replace(&*path.to_string_lossy(), name)
        });
        truncated(&mask_line(&named, keys))
    };
    let lines: Vec<String> = text
        .lines()
        .map(message)
        .filter(|line| !line.trim().is_empty())
        .map(|line| shown(line.trim_end()))
        .collect();
    lines[lines.len().saturating_sub(MAX_QUOTED_LINES)..].join("\n")
}

/// Why an agent server ended: `exit` completes "the agent server …", and `quoted` is the end of its log.
pub fn describe_exit(exit: &str, quoted: &str) -> String {
    if quoted.is_empty() {
        format!("the agent server {exit}; it logged nothing")
    } else {
        format!("the agent server {exit}. The end of its log:\n{quoted}")
    }
}

/// The agent server logs JSON objects; people need only the message.
fn message(line: &str) -> String {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(line) else {
        return line.to_owned();
    };
    let text = |name: &str| object.get(name).and_then(serde_json::Value::as_str);
    let message = text("message").or_else(|| text("msg"));
    // The last line of a traceback names the error.
    let exception = text("exc_info").and_then(|trace| trace.trim_end().lines().last());
    match (message, exception) {
        (Some(message), Some(exception)) => format!("{message}: {exception}"),
        (Some(message), None) => message.to_owned(),
        _ => line.to_owned(),
    }
}

fn truncated(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_masked_in_quotations() {
        let (unknown, id) = ("k".repeat(43), "a".repeat(32));
        let text = format!(
            "{{\"message\":\"using canary-1\"}}\n{{\"message\":\"failed\",\"exc_info\":\"Traceback\\n a\\nOSError: no\"}}\n\nplain {unknown} {id}\n"
        );
        let keys = [SecretString::from("canary-1")];
        assert_eq!(
            quote_log(&text, &keys, &[]),
            format!("using ***\nfailed: OSError: no\nplain *** {id}")
        );
    }

    #[test]
    fn quotations_are_short() {
        let text = format!("{}\n", "long words ".repeat(100)).repeat(50);
        let quoted = quote_log(&text, &[], &[]);
        assert_eq!(quoted.lines().count(), MAX_QUOTED_LINES);
        assert!(
            quoted
                .lines()
                .all(|line| line.chars().count() == MAX_LINE_CHARS + 1)
        );
        assert_eq!(quote_log("", &[], &[]), "");
    }
}
