//! Commands and files in a sandbox: the implementation of [`SandboxWorkspace`].
//!
//! `POST /api/bash/execute_bash_command` runs a command and responds when the command has ended. At its `timeout` the
//! agent server ends the whole process group (SIGTERM, a second later SIGKILL) and responds with exit code -1.

use std::time::Duration;

use async_trait::async_trait;
use domain::agent::workspace::{ProjectSkill, SandboxWorkspace, ShellCommand, ShellOutcome};
use domain::agent::{AgentEndpoint, AgentError};
use hyper::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tracing::{Instrument, debug_span};

use crate::errors::{CallError, malformed};
use crate::runtime::HttpAgentRuntime;
use crate::transport::AgentCall;

/// The last bytes of a command's output that a caller gets.
const MAX_OUTPUT_BYTES: usize = 4 << 10;
/// A response contains at most 1 MiB of each output stream (the agent server's `MAX_CONTENT_CHAR_LENGTH`). In JSON a
/// character may take six bytes.
const MAX_COMMAND_RESPONSE_BYTES: usize = 16 << 20;
/// Skills or hooks of one project, in bytes.
const MAX_PROJECT_RESPONSE_BYTES: usize = 4 << 20;
/// Changes of a repository, or both sides of a diff. The agent server compares files of at most 1 MiB, and in JSON few
/// of their characters take more than two bytes.
const MAX_GIT_RESPONSE_BYTES: usize = 4 << 20;
/// Time beyond a command's deadline for ending it (two grace periods of a second) and for the exchange.
const COMMAND_GRACE: Duration = Duration::from_secs(10);
/// Skills of one project that are read.
const MAX_PROJECT_SKILLS: usize = 1_000;
/// Maximum number of bytes of the names of listed files. Less than the agent server returns of an output stream.
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
/// Exit code of a command that the agent server terminated or could not start.
const TERMINATED_EXIT_CODE: i64 = -1;
/// Beginning of `stderr` if the agent server could not start the command.
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
            Some(output) => outcome(&output),
        }
    }

    async fn write(
        &self,
        at: &AgentEndpoint,
        path: &str,
        content: &SecretString,
    ) -> Result<(), AgentError> {
        let segments = ["api", "file", "upload"];
        let call = AgentCall::new(Method::POST, at, &segments, self.config.send)
            .query("path", path)
            .form_file(content.expose_secret().as_bytes())
            // The refusal could quote the content.
            .with_secrets([content.expose_secret()])
            .idempotent();
        call.check(&self.transport.exchange(&call).await?)
    }

    async fn read(
        &self,
        at: &AgentEndpoint,
        path: &str,
        limit: usize,
    ) -> Result<Option<String>, AgentError> {
        let segments = ["api", "file", "download"];
        let call = AgentCall::new(Method::GET, at, &segments, self.config.read)
            .query("path", path)
            // The text of an error may be longer than the limit of the file.
            .max_response_bytes(limit.max(4 << 10));
        match self.transport.exchange(&call).await {
            // 404: no such path. 400: not a file but a directory.
            Ok(reply) if matches!(reply.status, 400 | 404) => Ok(None),
            Ok(reply) => {
                call.check(&reply)?;
                let text = String::from_utf8(reply.body.into()).ok();
                Ok(text.filter(|text| text.len() <= limit))
            }
            Err(CallError::TooLarge(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn list(
        &self,
        at: &AgentEndpoint,
        directory: &str,
        limit: usize,
    ) -> Result<Vec<String>, AgentError> {
        let command = ShellCommand {
            script: list_script(directory, limit),
            directory: None,
            timeout: self.config.read,
        };
        let output = self.execute(at, &command).await?.unwrap_or_default();
        if !outcome(&output)?.is_success() {
            let reason = "the command that lists files failed or did not end in time";
            return Err(malformed(reason));
        }
        let stdout = output["stdout"].as_str().unwrap_or_default();
        Ok(parse_list(stdout, limit))
    }

    async fn changes(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let changes = self.get_git(at, "changes", path, reference).await?;
        match &changes {
            Value::Array(items) if items.iter().all(Value::is_object) => Ok(changes),
            _ => Err(malformed("the git changes are not a list of objects")),
        }
    }

    async fn diff(
        &self,
        at: &AgentEndpoint,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let diff = self.get_git(at, "diff", path, reference).await?;
        let is_object = diff.is_object();
        let diff = is_object.then_some(diff);
        diff.ok_or_else(|| malformed("the git diff is not a JSON object"))
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
        let mut document = self.read_project(at, "skills", &body).await?;
        let Value::Array(skills) = document["skills"].take() else {
            return Err(malformed("the skills are not a JSON list"));
        };
        let skills = skills.iter().filter_map(skill);
        Ok(skills.take(MAX_PROJECT_SKILLS).collect())
    }

    async fn hooks(&self, at: &AgentEndpoint, project: &str) -> Result<Option<Value>, AgentError> {
        let body = json!({"project_dir": project});
        let mut document = self.read_project(at, "hooks", &body).await?;
        let hooks = document["hook_config"].take();
        Ok(hooks.is_object().then_some(hooks))
    }
}

impl HttpAgentRuntime {
    /// Runs a command and returns the agent server's `BashOutput`, or `None` if it does not respond in time.
    async fn execute(
        &self,
        at: &AgentEndpoint,
        command: &ShellCommand,
    ) -> Result<Option<Value>, AgentError> {
        let seconds = whole_seconds(command.timeout);
        let limit = Duration::from_secs(seconds).saturating_add(COMMAND_GRACE);
        // The agent server runs the text with `sh`, which may lack features of bash.
        let script = format!("exec bash -c {}", quoted(&command.script));
        let mut body = json!({"command": script, "timeout": seconds});
        if let Some(directory) = &command.directory {
            body["cwd"] = json!(directory);
        }
        let segments = ["api", "bash", "execute_bash_command"];
        let call = AgentCall::new(Method::POST, at, &segments, limit)
            .json(&body)
            .max_response_bytes(MAX_COMMAND_RESPONSE_BYTES);
        let span = debug_span!("agent.command");
        match self.fetch_of_workspace(&call).instrument(span).await {
            // The agent server did not end the command at its deadline. The caller treats it as ended.
            Err(AgentError::TimedOut(_)) => Ok(None),
            output => output.map(Some),
        }
    }

    /// `GET /api/git/{resource}?path=`.
    async fn get_git(
        &self,
        at: &AgentEndpoint,
        resource: &str,
        path: &str,
        reference: Option<&str>,
    ) -> Result<Value, AgentError> {
        let segments = ["api", "git", resource];
        let mut call = AgentCall::new(Method::GET, at, &segments, self.config.git)
            .query("path", path)
            .max_response_bytes(MAX_GIT_RESPONSE_BYTES);
        if let Some(reference) = reference {
            call = call.query("ref", reference);
        }
        self.fetch_of_workspace(&call).await
    }

    /// `POST /api/{resource}` for resources that only read, so that the request is idempotent.
    async fn read_project(
        &self,
        at: &AgentEndpoint,
        resource: &str,
        body: &Value,
    ) -> Result<Value, AgentError> {
        let call = AgentCall::new(Method::POST, at, &["api", resource], self.config.read)
            .json(body)
            .max_response_bytes(MAX_PROJECT_RESPONSE_BYTES)
            .idempotent();
        self.fetch_of_workspace(&call).await
    }

    /// Here 404 does not mean that a conversation is missing, but that the agent server has no such route, which holds for no
    /// supported release.
    async fn fetch_of_workspace(&self, call: &AgentCall<'_>) -> Result<Value, AgentError> {
        self.fetch(call).await.map_err(|error| match error {
            AgentError::NotFound => AgentError::Rejected {
                status: 404,
                reason: "the agent server has no routes for commands and projects; use release 1.34 or newer".to_owned(),
            },
            error => error,
        })
    }
}

/// Rounds up. The agent server takes whole seconds, and 0 would end a command immediately.
fn whole_seconds(deadline: Duration) -> u64 {
    let rest = u64::from(deadline.subsec_nanos() > 0);
    deadline.as_secs().saturating_add(rest).max(1)
}

/// Quotes a text as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The script whose output [`parse_list`] reads. It stops at the limit, because a workspace may contain millions of
/// files.
fn list_script(directory: &str, limit: usize) -> String {
    let exclusions: Vec<String> = EXCLUDED_DIRECTORIES
        .iter()
        .map(|name| format!("-name {name} -prune -o "))
        .collect();
    format!(
        "cd -- {} 2>/dev/null || exit 0; find . {}-type f -print 2>/dev/null | head -n {limit} | head -c {MAX_LISTING_BYTES}",
        quoted(directory),
        exclusions.concat(),
    )
}

/// Omits lines that are not a whole name: the rest of a name with a line break, and the truncated last line.
fn parse_list(output: &str, limit: usize) -> Vec<String> {
    let whole_lines = output.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let names = whole_lines
        .lines()
        .filter_map(|line| line.strip_prefix("./"));
    let mut names: Vec<String> = names.take(limit).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Converts a `BashOutput` of the agent server.
fn outcome(output: &Value) -> Result<ShellOutcome, AgentError> {
    let Some(code) = output["exit_code"].as_i64() else {
        return Err(malformed("the output of the command has no exit code"));
    };
    let text = |stream: &str| output[stream].as_str().unwrap_or_default();
    let (stdout, stderr) = (text("stdout"), text("stderr"));
    if code == TERMINATED_EXIT_CODE && stderr.starts_with(START_FAILURE_PREFIX) {
        return Err(malformed("the agent server could not start the command"));
    }
    Ok(ShellOutcome {
        exit_code: (code != TERMINATED_EXIT_CODE).then(|| i32::try_from(code).unwrap_or(i32::MAX)),
        output: printable_tail(&format!("{stdout}{stderr}")),
    })
}

/// The last [`MAX_OUTPUT_BYTES`] bytes, without control characters other than line breaks and tabs.
fn printable_tail(output: &str) -> String {
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
    fn output_is_truncated_and_without_control_characters() {
        assert_eq!(printable_tail("a\x1b[31mb\r\n\tc\0"), "a[31mb\n\tc");
        let long = format!("{}é{}", "x".repeat(9_000), "y".repeat(MAX_OUTPUT_BYTES - 1));
        assert_eq!(printable_tail(&long), "y".repeat(MAX_OUTPUT_BYTES - 1));
        assert_eq!(printable_tail(""), "");
    }

    #[test]
    fn a_deadline_is_rounded_up_to_at_least_one_second() {
        for (deadline, seconds) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(deadline)), seconds);
        }
    }

    #[test]
    fn incomplete_names_are_omitted_and_the_others_sorted() {
        let output = "./b.txt\n./dir/a b.txt\n./a\nbroken.txt\n./é\n./cut of";
        assert_eq!(parse_list(output, 9), ["a", "b.txt", "dir/a b.txt", "é"]);
        assert_eq!(parse_list(output, 1), ["b.txt"]);
        assert!(parse_list("", 9).is_empty());
        let script = list_script("/w/it's", 7);
        assert!(script.starts_with(
            r"cd -- '/w/it'\''s' 2>/dev/null || exit 0; find . -name .git -prune -o "
        ));
        assert!(script.contains("| head -n 7 |"));
    }

    #[test]
    fn quotes_and_substitutions_are_escaped() {
        assert_eq!(quoted("a 'b' $(c)"), r"'a '\''b'\'' $(c)'");
    }
}
