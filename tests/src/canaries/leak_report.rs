//! The places that are searched for canaries, and the secrets that each may hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::secret_search::{Secret, Secrets};
use crate::Service;
use crate::client::RecordedResponse;
use crate::processes::{Process, command_lines};

/// Secrets that were found in places where they must not be.
#[derive(Debug, Default)]
pub struct LeakReport(Vec<String>);

impl LeakReport {
    /// Reports every secret in a text, except allowed ones.
    pub fn search_text(
        &mut self,
        place: &str,
        text: &str,
        secrets: &Secrets,
        is_allowed: impl Fn(&Secret) -> bool,
    ) {
        for (secret, before) in secrets.found_in(text) {
            if !is_allowed(secret) {
                let Secret { what, owner, .. } = secret;
                self.0
                    .push(format!("{what} of {owner:?} is in {place}: …{before}"));
            }
        }
    }

    /// Asserts that the report is empty.
    ///
    /// # Panics
    /// When it is not; the message lists all leaks.
    pub fn assert_none(&self) {
        assert!(self.0.is_empty(), "leaks:\n{}", self.0.join("\n"));
    }

    /// Searches the command lines of all processes of this machine.
    pub fn search_command_lines(&mut self, secrets: &Secrets) {
        let all = command_lines().join("\n");
        self.search_text("a command line", &all, secrets, |_| false);
    }

    /// Searches the environments of processes in sandboxes. Each may hold its sandbox's two keys and the operator's secrets for
    /// sandboxes.
    pub fn search_environments(&mut self, processes: &[Process], secrets: &Secrets) {
        for process in processes {
            let variables = process.environment.iter();
            let variables: Vec<_> = variables
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let place = format!("the environment of {}", process.arguments.join(" "));
            self.search_text(&place, &variables.join("\n"), secrets, |secret| {
                is_for_sandbox(secret, &process.sandbox)
            });
        }
    }

    /// Searches the output of `docker inspect` for a sandbox's container, which includes the environment.
    pub fn search_container(&mut self, sandbox: &str, inspected: &str, secrets: &Secrets) {
        let is_allowed = |secret: &Secret| is_for_sandbox(secret, sandbox);
        self.search_text(
            &format!("docker inspect of {sandbox}"),
            inspected,
            secrets,
            is_allowed,
        );
    }

    /// Searches the files below a directory; returns their number.
    ///
    /// # Panics
    /// When the directory cannot be read.
    pub fn search_files(
        &mut self,
        directory: &Path,
        secrets: &Secrets,
        is_allowed: &dyn Fn(&Path, &Secret) -> bool,
    ) -> usize {
        let mut files = 0;
        let entries = std::fs::read_dir(directory).expect("cannot read the directory");
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                files += self.search_files(&path, secrets, is_allowed);
            } else if let Ok(bytes) = std::fs::read(&path) {
                files += 1;
                let text = String::from_utf8_lossy(&bytes);
                let place = path.display().to_string();
                self.search_text(&place, &text, secrets, |secret| is_allowed(&path, secret));
            }
        }
        files
    }

    /// Searches responses. `key_holders` names the holder of each key.
    pub fn search_responses(
        &mut self,
        answers: &[RecordedResponse],
        key_holders: &BTreeMap<String, KeyHolder>,
        secrets: &Secrets,
    ) {
        for answer in answers {
            let key_holder = key_holders.get(&answer.key);
            let shown = match key_holder {
                // Users see the keys of their own sandboxes, in two members only: the key itself, and the URL of the editor.
                Some(KeyHolder::User(name)) if shows_session_keys(&answer.request) => {
                    without_session_keys(&answer.text, name, secrets)
                }
                _ => answer.text.clone(),
            };
            // A running sandbox reads its owner's secrets.
            let readable_owner = match key_holder {
                Some(KeyHolder::Sandbox(owner)) if reads_secrets(&answer.request) => Some(owner),
                _ => None,
            };
            let place = format!("the answer to {key_holder:?} of {}", answer.request);
            self.search_text(&place, &shown, secrets, |secret| {
                readable_owner == Some(&secret.owner)
            });
        }
    }
}

/// Name of the secret that the operator puts into the environment of every sandbox.
pub const TEMPLATE_SECRET: &str = "a secret of the template";

/// Name of the signature in a URL of a sandbox's port, which gives access like a key.
pub(super) const SIGNATURE: &str = "signature";

/// The holder of a request's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyHolder {
    /// This user.
    User(String),
    /// A sandbox of this user.
    Sandbox(String),
}

fn is_for_sandbox(secret: &Secret, sandbox: &str) -> bool {
    secret.what.ends_with(&format!("of sandbox {sandbox}")) || secret.what == TEMPLATE_SECRET
}

fn shows_session_keys(request: &str) -> bool {
    let path = request.split_once(' ').map_or(request, |(_, path)| path);
    ["/api/v1/sandboxes", "/api/v1/app-conversations"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

fn reads_secrets(request: &str) -> bool {
    let Some(path) = request.strip_prefix("GET ") else {
        return false;
    };
    path.contains("/settings/secrets/") || path == "/api/v1/users/me?expose_secrets=true"
}

fn without_session_keys(text: &str, owner: &str, secrets: &Secrets) -> String {
    let (head, body) = text.split_once('\n').unwrap_or_default();
    let Ok(mut body) = serde_json::from_str::<Value>(body) else {
        return text.to_owned();
    };
    remove_session_keys(&mut body, owner, secrets);
    format!("{head}\n{body}")
}

fn remove_session_keys(value: &mut Value, owner: &str, secrets: &Secrets) {
    match value {
        Value::Object(map) => {
            let name = map.get("name").and_then(Value::as_str);
            let is_port = map.contains_key("port");
            let (member, kinds) = match name {
                Some("VSCODE") => ("url", &["session key", SIGNATURE][..]),
                Some(_) if is_port => ("url", &[SIGNATURE][..]),
                _ => ("session_api_key", &["session key"][..]),
            };
            let is_own = |text: &str| {
                let found = secrets.found_in(text);
                let is_kind = |it: &Secret| kinds.iter().any(|kind| it.what.starts_with(kind));
                !found.is_empty() && found.iter().all(|(it, _)| it.owner == owner && is_kind(it))
            };
            let shown = map.get(member).and_then(Value::as_str);
            if shown.is_some_and(is_own) {
                map.remove(member);
            }
            map.values_mut()
                .for_each(|item| remove_session_keys(item, owner, secrets));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| remove_session_keys(item, owner, secrets)),
        _ => {}
    }
}

/// The `SQLite` database of a service as SQL, because the file splits long values.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn sqlite_dump(service: &Service) -> String {
    let script = "import sqlite3, sys\n\
                  for line in sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True).iterdump(): print(line)";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(service.data_dir().join("agent-workspace.db"))
        .env("PYTHONIOENCODING", "utf-8:backslashreplace")
        .output()
        .expect("cannot run python3: apt-get install python3");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the database cannot be dumped: {stderr}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
