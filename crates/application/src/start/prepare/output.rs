//! Parses the output of preparation commands, and turns failures into causes that a user can act on.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use domain::agent::workspace::ShellOutcome;
use secrecy::{ExposeSecret, SecretString};

use super::plan::PlannedRepository;

const MAX_QUOTED_CHARS: usize = 500;
/// Shorter secrets are not redacted: they would garble every text.
const MIN_SECRET_BYTES: usize = 4;

/// What the inspection of a project directory found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WorkspaceFacts {
    pub(super) private: Option<String>,
    pub(super) state: CheckoutState,
    pub(super) git: GitAvailability,
    /// Branch that is checked out in an existing repository.
    pub(super) branch: Option<String>,
    contents: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum GitAvailability {
    #[default]
    Works,
    Missing,
    /// It failed to create a repository.
    Failed,
}

/// What the target directory of the repository contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CheckoutState {
    #[default]
    Absent,
    /// This start's clone.
    Ours,
    /// An existing clone of the same URL.
    Same,
    Other,
}

impl WorkspaceFacts {
    /// Parses `key=value` lines and skips others.
    pub(super) fn read(output: &str) -> Self {
        let mut found = Self::default();
        for (key, value) in output.lines().filter_map(|line| line.split_once('=')) {
            match (key, value) {
                ("private", path) if path.starts_with('/') => {
                    found.private = Some(path.to_owned());
                }
                ("state", "ours") => found.state = CheckoutState::Ours,
                ("state", "same") => found.state = CheckoutState::Same,
                ("state", "other") => found.state = CheckoutState::Other,
                ("branch", name) if !name.is_empty() => found.branch = Some(name.to_owned()),
                ("git", "no") => found.git = GitAvailability::Missing,
                ("git", "failed") => found.git = GitAvailability::Failed,
                ("has", what) => {
                    found.contents.insert(what.to_owned());
                }
                _ => {}
            }
        }
        found
    }

    /// Whether the project has `what`: `git`, `setup.sh`, `pre-commit.sh`, `hooks.json`, `skills`.
    pub(super) fn has(&self, what: &str) -> bool {
        self.contents.contains(what)
    }
}

/// Removes secrets and host directories from quoted output.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    secrets: Vec<SecretString>,
    directories: Vec<String>,
}

impl Redactor {
    /// Redacts secrets, and these absolute directories: in a process's sandbox they are the host's.
    pub(super) fn new(mut secrets: Vec<SecretString>, directories: &[&str]) -> Self {
        // Longest first, so that a value which contains another is replaced as a whole.
        secrets.retain(|value| value.expose_secret().len() >= MIN_SECRET_BYTES);
        secrets.sort_by_key(|value| Reverse(value.expose_secret().len()));
        let above = directories.iter().flat_map(|it| Path::new(it).ancestors());
        // A directory directly below the root reveals nothing about the host, and is in many texts.
        let above = above.filter(|it| it.components().count() > 2);
        let mut directories: Vec<_> = above.map(|it| it.display().to_string()).collect();
        directories.sort_by_key(|directory| Reverse(directory.len()));
        Self {
            secrets,
            directories,
        }
    }

    fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), "**********");
        }
        for directory in &self.directories {
            text = text.replace(directory, "…");
        }
        text
    }
}

/// The end of the output as one line; `None` if it is empty.
pub(super) fn quote(output: &str, redactor: &Redactor) -> Option<String> {
    let clean = redactor.redact(output);
    let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    let skip = line.chars().count().saturating_sub(MAX_QUOTED_CHARS);
    let end: String = line.chars().skip(skip).collect();
    match (end.is_empty(), skip) {
        (true, _) => None,
        (false, 0) => Some(end),
        (false, _) => Some(format!("… {end}")),
    }
}

/// Causes of failed clones by what git (language C), curl and this service print. The first match decides.
const CLONE_FAILURES: [(&[&str], &str); 12] = [
    (
        &["agent-workspace: the sandbox"],
        "the sandbox was paused or replaced during the start. Start again.",
    ),
    (
        &["agent-workspace: there is no token"],
        "the token of {provider} was deleted or replaced during the start. Check the settings and start again.",
    ),
    (
        &["agent-workspace: the service does not call"],
        "the service may not call {host}. The operator has to allow it (git.allow_private_hosts).",
    ),
    (
        &[
            "agent-workspace: the service cannot reach",
            "agent-workspace: the host closed",
            "agent-workspace: the host did not answer",
        ],
        "{host} cannot be reached from the service, or has a certificate that the service does not trust \
         (docs/reference/repositories.md).",
    ),
    (&["not found in upstream"], "it has no branch {branch}."),
    (
        &[
            "Authentication failed",
            "error: 401",
            "error: 403",
            "Access denied",
        ],
        "{host} does not accept the token of {provider}, or the token may not read it. Store a valid token in the \
         settings.",
    ),
    (
        &["could not read Username", "could not read Password"],
        "{host} requires credentials. Store a valid token of {provider} in the settings.",
    ),
    (
        &["Repository not found", "/' not found", "error: 404"],
        "{host} has no such repository, or the token of {provider} cannot read it. Check the name and the token's scope.",
    ),
    (
        &[
            "SSL certificate",
            "certificate verif",
            "SSL peer certificate",
            "self-signed certificate",
        ],
        "the sandbox does not trust the certificate of {host}. A private certificate authority has to be made known to \
         sandboxes (docs/reference/repositories.md).",
    ),
    (
        &[
            "Could not resolve host",
            "Failed to connect",
            "Couldn't connect",
            "Could not connect",
            "Connection refused",
            "Connection timed out",
            "Connection reset",
            "Network is unreachable",
            "Empty reply from server",
        ],
        "{host} cannot be reached from the sandbox. The operator has to check the network of sandboxes.",
    ),
    (
        &["No space left on device", "Disk quota exceeded"],
        "the sandbox's disk is full. Use another sandbox, or ask the operator to raise its disk limit.",
    ),
    (
        &[
            "agent-workspace: the host redirects",
            "error: 301",
            "error: 302",
            "error: 303",
            "error: 307",
            "error: 308",
        ],
        "{host} redirects to another address, which git does not follow. If the repository was renamed or moved, start with its \
         present name. If the host moved, store its present address with the token of {provider}.",
    ),
];

/// Why a clone failed, and what to do about it.
pub(super) fn clone_failure(
    repository: &PlannedRepository,
    outcome: &ShellOutcome,
    deadline: Duration,
    redactor: &Redactor,
) -> String {
    let output = outcome.output.as_str();
    let is_in_output = |text: &&str| output.contains(*text);
    let failure = CLONE_FAILURES
        .iter()
        .find(|(texts, _)| texts.iter().any(is_in_output));
    let why = match (outcome.exit_code, failure) {
        (None, _) => {
            let less = if repository.full {
                ", or without its whole history (git_full_clone)"
            } else {
                ""
            };
            let (host, seconds) = (repository.host(), deadline.as_secs());
            format!("{host} did not deliver it within {seconds} s. Try again{less}.")
        }
        (Some(_), Some((_, cause))) => cause
            .replace("{provider}", repository.provider.as_str())
            .replace("{host}", repository.host())
            .replace("{branch}", repository.branch.as_deref().unwrap_or_default()),
        (Some(code), None) => {
            quote(output, redactor).unwrap_or_else(|| format!("git ended with exit code {code}."))
        }
    };
    format!("Repository {} was not cloned: {why}", repository.name)
}

#[cfg(test)]
mod tests {
    use domain::git::{CloneSource, GitProvider};

    use super::*;

    fn repository() -> PlannedRepository {
        PlannedRepository {
            name: "acme/tools".to_owned(),
            directory: "tools".to_owned(),
            branch: Some("next".to_owned()),
            working_branch: "openhands-workspace-1".to_owned(),
            full: false,
            provider: GitProvider::Gitlab,
            source: CloneSource {
                url: "https://git.acme.test/acme/tools.git".parse().unwrap(),
                username: "oauth2".to_owned(),
                token: Some(SecretString::from("hunter2hunter2")),
            },
        }
    }

    fn cause(exit_code: Option<i32>, output: &str) -> String {
        let outcome = ShellOutcome {
            exit_code,
            output: output.to_owned(),
        };
        let secrets = vec![SecretString::from("hunter2hunter2")];
        let redactor = Redactor::new(secrets, &[]);
        clone_failure(&repository(), &outcome, Duration::from_secs(120), &redactor)
    }

    /// What is printed, and what the cause says.
    const TABLE: &[(&str, &str)] = &[
        (
            "fatal: Authentication failed for 'https://git.acme.test/acme/tools.git/'",
            "does not accept the token of gitlab",
        ),
        (
            "fatal: unable to access 'https://git.acme.test/acme/tools.git/': The requested URL returned error: 403",
            "does not accept the token of gitlab",
        ),
        (
            "fatal: could not read Username for 'https://git.acme.test': terminal prompts disabled",
            "requires credentials",
        ),
        (
            "remote: Repository not found.\nfatal: repository 'https://git.acme.test/acme/tools.git/' not found",
            "has no such repository",
        ),
        (
            "warning: Could not find remote branch next to clone.\nfatal: Remote branch next not found in upstream origin",
            "it has no branch next",
        ),
        (
            "fatal: unable to access 'https://git.acme.test/': Could not resolve host: git.acme.test",
            "cannot be reached",
        ),
        (
            "fatal: unable to access 'https://git.acme.test/': Failed to connect to git.acme.test port 443: Connection refused",
            "cannot be reached",
        ),
        (
            "fatal: unable to access 'https://git.acme.test/': server certificate verification failed. CAfile: none",
            "does not trust the certificate",
        ),
        (
            "fatal: write error: No space left on device",
            "the sandbox's disk is full",
        ),
        (
            "remote: agent-workspace: the sandbox of this token is not running.\nfatal: unable to access 'http://x/': The \
             requested URL returned error: 403",
            "was paused",
        ),
        (
            "remote: agent-workspace: there is no token for this host; …\nfatal: unable to access 'http://x/': The requested \
             URL returned error: 403",
            "was deleted or replaced",
        ),
        (
            "remote: agent-workspace: the service cannot reach the host.\nfatal: unable to access 'http://x/': The requested \
             URL returned error: 502",
            "cannot be reached from the service",
        ),
        (
            "remote: agent-workspace: the host redirects to another address\nfatal: unable to access 'http://x/': The \
             requested URL returned error: 502",
            "redirects to another address",
        ),
        (
            "error: something new with hunter2hunter2 in it",
            "something new with ********** in it",
        ),
        (
            "fatal: unable to access 'https://git.acme.test/acme/tools.git/': The requested URL returned error: 302",
            "redirects to another address",
        ),
        ("", "exit code 128"),
    ];

    #[test]
    fn output_of_git_becomes_an_actionable_cause() {
        for (output, expected) in TABLE {
            let cause = cause(Some(128), output);
            assert!(cause.contains(expected), "{output}\n  became: {cause}");
            assert!(cause.starts_with("Repository acme/tools was not cloned: "));
            assert!(!cause.contains("hunter2"), "{cause}");
        }
        assert!(cause(None, "").contains("within 120 s"));
    }

    #[test]
    fn facts_are_read_and_noise_is_passed_over() {
        let text = "private=/home/a/.agent-workspace/1\nstate=same\nbranch=main\nhas=setup.sh\nhas=skills\nhas=skills\nnoise\n=\nhas=x\n";
        let found = WorkspaceFacts::read(text);
        assert_eq!(
            found,
            WorkspaceFacts {
                private: Some("/home/a/.agent-workspace/1".to_owned()),
                state: CheckoutState::Same,
                branch: Some("main".to_owned()),
                contents: ["setup.sh", "skills", "x"].map(str::to_owned).into(),
                ..WorkspaceFacts::default()
            }
        );
        assert_eq!(
            WorkspaceFacts::read("private=relative"),
            WorkspaceFacts::default()
        );
    }

    #[test]
    fn the_end_of_an_output_is_quoted_on_one_line() {
        let nothing = Redactor::default();
        assert_eq!(quote(" \n", &nothing), None);
        assert_eq!(quote("a\n  b\n", &nothing).as_deref(), Some("a b"));
        let long = quote(&"é".repeat(900), &nothing).unwrap();
        assert_eq!(long.chars().count(), MAX_QUOTED_CHARS + 2);
    }

    #[test]
    fn host_directories_and_secrets_are_redacted() {
        let directories = [
            "/srv/aw/sandboxes/S/workspace/c",
            "/srv/aw/sandboxes/S/workspace",
            "",
        ];
        let secrets = ["abcd-efgh", "abcd", "abc"]
            .map(SecretString::from)
            .to_vec();
        let redactor = Redactor::new(secrets, &directories);
        for (output, quoted) in [
            (
                "rm: /srv/aw/sandboxes/S/workspace/c/tools: in use",
                "rm: …/tools: in use",
            ),
            (
                "mkdir: cannot create directory ‘/srv/aw/sandboxes’",
                "mkdir: cannot create directory ‘…’",
            ),
            ("/srv is full", "/srv is full"),
            (
                "x=abcd-efgh y=abcd z=abc",
                "x=********** y=********** z=abc",
            ),
        ] {
            assert_eq!(quote(output, &redactor).as_deref(), Some(quoted));
        }
        let container = Redactor::new(Vec::new(), &["/workspace"]);
        assert_eq!(
            quote("/workspace/x", &container).as_deref(),
            Some("/workspace/x")
        );
    }
}
