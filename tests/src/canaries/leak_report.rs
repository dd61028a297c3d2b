//! Where canaries are looked for, and what may be where.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::secret_search::{Secret, Secrets};
use crate::Service;
use crate::client::Answer;
use crate::processes::{Process, command_lines};

/// What was found where it must not be.
#[derive(Debug, Default)]
pub struct LeakReport(Vec<String>);

impl LeakReport {
    /// Notes every secret in this text, but those that `may` be there.
    pub fn look(
        &mut self,
        place: &str,
        text: &str,
        secrets: &Secrets,
        may: impl Fn(&Secret) -> bool,
    ) {
        for (secret, before) in secrets.found_in(text) {
            if !may(secret) {
                let Secret { what, owner, .. } = secret;
                self.0
                    .push(format!("{what} of {owner:?} is in {place}: …{before}"));
            }
        }
    }

    /// Fails if there are any, naming all.
    ///
    /// # Panics
    /// Then.
    pub fn assert_none(&self) {
        assert!(self.0.is_empty(), "leaks:\n{}", self.0.join("\n"));
    }

    /// The command lines of everything on the machine.
    pub fn look_at_commands(&mut self, secrets: &Secrets) {
        let all = command_lines().join("\n");
        self.look("a command line", &all, secrets, |_| false);
    }

    /// Environments in sandboxes: each has its own two keys, what the operator gives to all, and what else `may` be there.
    pub fn look_at_processes(
        &mut self,
        processes: &[Process],
        secrets: &Secrets,
        may: &dyn Fn(&str, &Secret) -> bool,
    ) {
        for process in processes {
            let variables = process.environment.iter();
            let variables: Vec<_> = variables
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let place = format!("the environment of {}", process.arguments.join(" "));
            let sandbox = process.sandbox.as_str();
            let may = |secret: &Secret| is_for_sandbox(secret, sandbox) || may(sandbox, secret);
            self.look(&place, &variables.join("\n"), secrets, may);
        }
    }

    /// What `docker inspect` says of a sandbox's container, which holds its environment.
    pub fn look_at_container(&mut self, sandbox: &str, inspected: &str, secrets: &Secrets) {
        let may = |secret: &Secret| is_for_sandbox(secret, sandbox);
        self.look(
            &format!("docker inspect of {sandbox}"),
            inspected,
            secrets,
            may,
        );
    }

    /// Files below a directory; how many there were.
    ///
    /// # Panics
    /// When the directory cannot be read.
    pub fn look_at_files(
        &mut self,
        directory: &Path,
        secrets: &Secrets,
        may: &dyn Fn(&Path, &Secret) -> bool,
    ) -> usize {
        let mut files = 0;
        let entries = std::fs::read_dir(directory).expect("a directory");
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                files += self.look_at_files(&path, secrets, may);
            } else if let Ok(bytes) = std::fs::read(&path) {
                files += 1;
                let text = String::from_utf8_lossy(&bytes);
                let place = path.display().to_string();
                self.look(&place, &text, secrets, |secret| may(&path, secret));
            }
        }
        files
    }

    /// What was answered. `askers` says who has which key: `user NAME` or `sandbox ID of NAME`.
    pub fn look_at_answers(
        &mut self,
        answers: &[Answer],
        askers: &BTreeMap<String, AnswerCollector>,
        secrets: &Secrets,
    ) {
        for answer in answers {
            let asker = askers.get(&answer.key);
            let shown = match asker {
                // The one secret that a user sees: the keys of their own sandboxes, in these members alone (decisions, 9:
                // the key itself, and the address of the editor).
                Some(AnswerCollector::User(name)) if shows_session_keys(&answer.asked) => {
                    without_session_keys(&answer.text, name, secrets)
                }
                _ => answer.text.clone(),
            };
            // And what a live sandbox opens of its owner's.
            let opens = match asker {
                Some(AnswerCollector::Sandbox(owner)) if opens_secrets(&answer.asked) => {
                    Some(owner)
                }
                _ => None,
            };
            let place = format!("the answer to {asker:?} of {}", answer.asked);
            self.look(&place, &shown, secrets, |secret| {
                opens == Some(&secret.owner)
            });
        }
    }
}

/// What the operator gives to every sandbox, in its environment.
pub const FOR_SANDBOXES: &str = "a secret of the template";

/// What makes the address of a sandbox's port as good as a key.
pub(super) const SIGNATURE: &str = "signature";

/// Whose key a request came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerCollector {
    /// A user's.
    User(String),
    /// That of a sandbox of this user.
    Sandbox(String),
}

fn is_for_sandbox(secret: &Secret, sandbox: &str) -> bool {
    secret.what.ends_with(&format!("of sandbox {sandbox}")) || secret.what == FOR_SANDBOXES
}

fn shows_session_keys(asked: &str) -> bool {
    let path = asked.split_once(' ').map_or(asked, |(_, path)| path);
    ["/api/v1/sandboxes", "/api/v1/app-conversations"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

fn opens_secrets(asked: &str) -> bool {
    let Some(path) = asked.strip_prefix("GET ") else {
        return false;
    };
    path.contains("/settings/secrets/") || path == "/api/v1/users/me?expose_secrets=true"
}

fn without_session_keys(text: &str, owner: &str, secrets: &Secrets) -> String {
    let (head, body) = text.split_once('\n').unwrap_or_default();
    let Ok(mut body) = serde_json::from_str::<Value>(body) else {
        return text.to_owned();
    };
    strip(&mut body, owner, secrets);
    format!("{head}\n{body}")
}

fn strip(value: &mut Value, owner: &str, secrets: &Secrets) {
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
                .for_each(|item| strip(item, owner, secrets));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| strip(item, owner, secrets)),
        _ => {}
    }
}

/// Everything in the `SQLite` database of a service, as SQL: long values stand in several pieces in the file.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn sqlite_dump(service: &Service) -> String {
    let script = "import sqlite3, sys\n\
                  for line in sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True).iterdump(): print(line)";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(service.data().join("agent-workspace.db"))
        .env("PYTHONIOENCODING", "utf-8:backslashreplace")
        .output()
        .expect("python3 can be run: apt-get install python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the database cannot be dumped: {said}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
