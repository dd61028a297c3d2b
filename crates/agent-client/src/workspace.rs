//! `SandboxWorkspace`: commands and files through the agent server.
//!
//! A command runs by `POST /api/bash/execute_bash_command`, which both dialects have and which answers when the command
//! has ended: nothing is polled. The agent server itself ends a command at its `timeout` (the whole process group:
//! SIGTERM, a second later SIGKILL) and then answers exit code -1.

use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{AgentEndpoint, AgentError};
use domain::workspace::{ProjectSkill, SandboxWorkspace, ShellCommand, ShellOutcome};
use hyper::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tracing::{Instrument, debug_span};

use crate::errors::{CallError, Scrubber, refused};
use crate::runtime::{HttpAgentRuntime, document};
use crate::transport::{AgentCall, AgentReply};

/// Bytes at the end of a command's output that are passed on.
const MAX_OUTPUT_BYTES: usize = 4 << 10;
/// An answer to a command holds at most 1 MiB of each stream (`MAX_CONTENT_CHAR_LENGTH` of the agent server) as JSON, in
/// which a character may take six bytes.
const MAX_COMMAND_RESPONSE_BYTES: usize = 16 << 20;
/// Skills or hooks of one project, in bytes.
const MAX_PROJECT_RESPONSE_BYTES: usize = 4 << 20;
/// Changes of a repository, or both sides of a diff: the agent server compares files of at most 1 MiB. As JSON, in which few
/// characters take more than a byte or two.
const MAX_GIT_RESPONSE_BYTES: usize = 4 << 20;
/// What ending a command at its deadline may take the agent server (twice one second of grace), and the way there and back.
const COMMAND_GRACE: Duration = Duration::from_secs(10);
/// Skills of one project that are read.
const MAX_PROJECT_SKILLS: usize = 1_000;
/// Bytes of the names of listed files: less than what an answer holds of a stream.
const MAX_LISTING_BYTES: usize = 512 << 10;
/// Directories whose many generated files are not listed.
const EXCLUDED_DIRECTORIES: [&str; 6] = [
    ".git",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    "target",
];
/// Exit code and message of the agent server for a command that it terminated or could not start.
const TERMINATED_EXIT_CODE: i64 = -1;
const START_FAILURE_PREFIX: &str = "Error executing command:";

#[async_trait]
impl SandboxWorkspace for HttpAgentRuntime {
    async fn run(
        &self,
        at: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<ShellOutcome, AgentError> {
        match self.execute(at, command).await? {
            None => Ok(ShellOutcome {
                exit_code: None,
                output: String::new(),
            }),
            Some(answer) => outcome(&answer),
        }
    }

    async fn write(
        &self,
        at: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError> {
        let call = AgentCall::new(
            Method::POST,
            at,
            &["api", "file", "upload"],
            self.config.send,
        )?
        .query("path", path)
        .form_file(content.expose_secret().as_bytes())
        .idempotent();
        let reply = self.transport.exchange(&call).await?;
        if reply.is_success() {
            return Ok(());
        }
        // A refusal could quote what it refuses.
        let hidden = [&at.key, content];
        Err(refused(
            reply.status,
            &reply.body,
            &Scrubber::of_all(hidden),
        ))
    }

    async fn read(
        &self,
        at: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError> {
        let call = AgentCall::new(
            Method::GET,
            at,
            &["api", "file", "download"],
            self.config.read,
        )?
        .query("path", path)
        // An error's text may be longer than what is allowed of the file.
        .at_most(limit.max(4 << 10));
        match self.transport.exchange(&call).await {
            Ok(reply) if reply.is_success() => {
                let text = String::from_utf8(reply.body).ok();
                Ok(text.filter(|text| text.len() <= limit))
            }
            // 404: nothing there; 400: no file (a directory).
            Ok(reply) if matches!(reply.status, 400 | 404) => Ok(None),
            Ok(reply) => Err(refused(
                reply.status,
                &reply.body,
                &Scrubber::of_key(&at.key),
            )),
            Err(CallError::TooLarge(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn list(
        &self,
        at: &AgentEndpoint,
        directory: &str,
        limit: usize,
    ) -> Result<Vec<String>, AgentError> {
        let command = ShellCommand {
            script: listing(directory, limit),
            directory: None,
            deadline: self.config.read,
        };
        let answer = self.execute(at, &command).await?.unwrap_or_default();
        if !outcome(&answer)?.is_success() {
            let reason = "files that could not be listed in time".to_owned();
            return Err(AgentError::Malformed(reason));
        }
        Ok(listed(answer["stdout"].as_str().unwrap_or_default(), limit))
    }

    async fn changes(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let changes = self.of_git(at, "changes", path, reference).await?;
        match &changes {
            Value::Array(items) if items.iter().all(Value::is_object) => Ok(changes),
            _ => Err(AgentError::Malformed("changes that are no list".to_owned())),
        }
    }

    async fn diff(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let diff = self.of_git(at, "diff", path, reference).await?;
        match &diff {
            Value::Object(_) => Ok(diff),
            _ => Err(AgentError::Malformed("a diff that is no object".to_owned())),
        }
    }

    async fn skills(
        &self,
        at: &AgentEndpoint,
        project: &str,
    ) -> Result<Vec<ProjectSkill>, AgentError> {
        let body = json!({
            "load_public": false, "load_user": false, "load_org": false, "load_project": true,
            "project_dir": project,
        });
        let mut answer = self.of_project(at, "skills", &body).await?;
        let Value::Array(skills) = answer["skills"].take() else {
            return Err(AgentError::Malformed("skills that are no list".to_owned()));
        };
        let read = skills.iter().filter_map(skill);
        Ok(read.take(MAX_PROJECT_SKILLS).collect())
    }

    async fn hooks(&self, at: &AgentEndpoint, project: &str) -> Result<Option<Value>, AgentError> {
        let body = json!({"project_dir": project});
        let mut answer = self.of_project(at, "hooks", &body).await?;
        let hooks = answer["hook_config"].take();
        Ok(hooks.is_object().then_some(hooks))
    }
}

impl HttpAgentRuntime {
    /// Runs a command: what the agent server says of it, or `None` if it says nothing in time.
    async fn execute(
        &self,
        at: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<Option<Value>, AgentError> {
        let seconds = whole_seconds(command.deadline);
        let limit = Duration::from_secs(seconds).saturating_add(COMMAND_GRACE);
        // The agent server hands the text to `sh`, and other shells than bash understand less.
        let script = format!("exec bash -c {}", quoted(&command.script));
        let mut body = json!({"command": script, "timeout": seconds});
        if let Some(directory) = &command.directory {
            body["cwd"] = json!(directory);
        }
        let call = AgentCall::new(
            Method::POST,
            at,
            &["api", "bash", "execute_bash_command"],
            limit,
        )?
        .json(&body)
        .at_most(MAX_COMMAND_RESPONSE_BYTES);
        let running = self.transport.exchange(&call);
        let reply = running.instrument(debug_span!("agent.command")).await;
        match reply {
            // An agent server that ends nothing at the deadline: for us the command was ended.
            Err(CallError::TimedOut(_)) => Ok(None),
            reply => answer(&reply?, at).map(Some),
        }
    }

    /// `GET /api/git/{what}`, which both releases have with the path in the query (1.34 takes it in the path, too).
    async fn of_git(
        &self,
        at: &AgentEndpoint,
        what: &str,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let mut call = AgentCall::new(Method::GET, at, &["api", "git", what], self.config.git)?
            .query("path", path)
            .at_most(MAX_GIT_RESPONSE_BYTES);
        if let Some(reference) = reference {
            call = call.query("ref", reference);
        }
        answer(&self.transport.exchange(&call).await?, at)
    }

    /// `POST /api/{what}`: these only read, so they may be asked again.
    async fn of_project(
        &self,
        at: &AgentEndpoint,
        what: &str,
        body: &Value,
    ) -> Result<Value, AgentError> {
        let call = AgentCall::new(Method::POST, at, &["api", what], self.config.read)?
            .json(body)
            .at_most(MAX_PROJECT_RESPONSE_BYTES)
            .idempotent();
        let reply = self.transport.exchange(&call).await?;
        answer(&reply, at)
    }
}

/// A 404 is no conversation that is missing, as elsewhere: these routes are there in every release that is known.
fn answer(reply: &AgentReply, at: &AgentEndpoint) -> Result<Value, AgentError> {
    document(reply, &Scrubber::of_key(&at.key)).map_err(|error| match error {
        AgentError::NotFound => AgentError::Rejected {
            status: 404,
            reason: "it does not run commands or read projects".to_owned(),
        },
        error => error,
    })
}

/// Rounded up: the agent server knows whole seconds, and 0 would end everything at once.
fn whole_seconds(deadline: Duration) -> u64 {
    let rest = u64::from(deadline.subsec_nanos() > 0);
    deadline.as_secs().saturating_add(rest).max(1)
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The script that [`listed`] reads. It looks no further than it has to: a workspace may hold millions of files.
fn listing(directory: &str, limit: usize) -> String {
    let left_out: Vec<String> = EXCLUDED_DIRECTORIES
        .iter()
        .map(|name| format!("-name {name} -prune -o "))
        .collect();
    format!(
        "cd -- {} 2>/dev/null || exit 0; find . {}-type f -print 2>/dev/null | head -n {limit} | head -c {MAX_LISTING_BYTES}",
        quoted(directory),
        left_out.concat(),
    )
}

/// What is no line of ours, being the rest of a name with a line break in it or cut off, is left out.
fn listed(output: &str, limit: usize) -> Vec<String> {
    let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let names = whole.lines().filter_map(|line| line.strip_prefix("./"));
    let mut names: Vec<String> = names.take(limit).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// A `BashOutput` of the agent server: the last one, which carries the exit code.
fn outcome(answer: &Value) -> Result<ShellOutcome, AgentError> {
    let Some(code) = answer["exit_code"].as_i64() else {
        return Err(AgentError::Malformed(
            "a command that ended without an exit code".to_owned(),
        ));
    };
    let text = |stream: &str| answer[stream].as_str().unwrap_or_default();
    let (out, err) = (text("stdout"), text("stderr"));
    if code == TERMINATED_EXIT_CODE && err.starts_with(START_FAILURE_PREFIX) {
        return Err(AgentError::Malformed(
            "the sandbox could not start a command".to_owned(),
        ));
    }
    Ok(ShellOutcome {
        exit_code: (code != TERMINATED_EXIT_CODE).then(|| i32::try_from(code).unwrap_or(i32::MAX)),
        output: end_of(&format!("{out}{err}")),
    })
}

/// The last [`MAX_OUTPUT_BYTES`] bytes without control characters; lines stay lines.
fn end_of(output: &str) -> String {
    let clean: String = output
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    let mut start = clean.len().saturating_sub(MAX_OUTPUT_BYTES);
    while !clean.is_char_boundary(start) {
        start += 1;
    }
    clean[start..].to_owned()
}

fn skill(document: &Value) -> Option<ProjectSkill> {
    let text = |name: &str| document[name].as_str().map(str::to_owned);
    let triggers = document["triggers"].as_array().into_iter().flatten();
    Some(ProjectSkill {
        name: text("name")?,
        kind: text("type")?,
        content: text("content")?,
        triggers: triggers
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_short_and_plain() {
        assert_eq!(end_of("a\x1b[31mb\r\n\tc\0"), "a[31mb\n\tc");
        let long = format!("{}é{}", "x".repeat(9_000), "y".repeat(MAX_OUTPUT_BYTES - 1));
        assert_eq!(end_of(&long), "y".repeat(MAX_OUTPUT_BYTES - 1));
        assert_eq!(end_of(""), "");
    }

    #[test]
    fn a_deadline_is_a_whole_number_of_seconds_and_never_none() {
        for (deadline, seconds) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(deadline)), seconds);
        }
    }

    #[test]
    fn listed_files_are_whole_lines_in_order() {
        let output = "./b.txt\n./dir/a b.txt\n./a\nbroken.txt\n./é\n./cut of";
        assert_eq!(listed(output, 9), ["a", "b.txt", "dir/a b.txt", "é"]);
        assert_eq!(listed(output, 1), ["b.txt"]);
        assert!(listed("", 9).is_empty());
        let script = listing("/w/it's", 7);
        assert!(script.starts_with(
            r"cd -- '/w/it'\''s' 2>/dev/null || exit 0; find . -name .git -prune -o "
        ));
        assert!(script.contains("| head -n 7 |"));
    }

    #[test]
    fn nothing_gets_out_of_a_quoted_word() {
        assert_eq!(quoted("a 'b' $(c)"), r"'a '\''b'\'' $(c)'");
    }
}
