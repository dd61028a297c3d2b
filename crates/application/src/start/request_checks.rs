//! Checks of a start request before any work.

use std::collections::BTreeMap;

use domain::conversation::MessageInput;
use domain::start_task::StartRequest;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::conversations::{check_branch, check_repository};
use crate::secrets::{MAX_SECRET_VALUE_BYTES, is_reserved};

/// The error of a start that names the id of another conversation.
pub(super) const CONVERSATION_ID_IN_USE: &str = "conversation_id is already in use";

const MAX_REQUEST_SECRETS: usize = 50;
const MAX_SECRET_NAME_BYTES: usize = 256;

/// Checks number, size and names of a request's secrets.
pub fn check_secrets(secrets: &BTreeMap<String, SecretString>) -> Result<(), String> {
    if secrets.len() > MAX_REQUEST_SECRETS {
        return Err(format!(
            "Too many secrets: {} (at most {MAX_REQUEST_SECRETS})",
            secrets.len()
        ));
    }
    for (name, value) in secrets {
        // The error does not repeat the name: people paste values into the wrong field.
        if name.is_empty() || name.len() > MAX_SECRET_NAME_BYTES || name.contains(['\0', '=']) {
            return Err(format!(
                "Every secret name must have 1 to {MAX_SECRET_NAME_BYTES} characters, without '=' or NUL"
            ));
        }
        if is_reserved(name) {
            return Err("A secret name is reserved".to_owned());
        }
        if value.expose_secret().len() > MAX_SECRET_VALUE_BYTES {
            return Err(format!(
                "The value of a secret is larger than {MAX_SECRET_VALUE_BYTES} bytes"
            ));
        }
    }
    Ok(())
}

/// Checks combinations, and adds the message of a suggested task.
pub(super) fn check_request(request: &mut StartRequest) -> Result<(), String> {
    if let Some(task) = &request.suggested_task {
        if request.initial_message.is_some() {
            return Err("suggested_task cannot be combined with initial_message".to_owned());
        }
        request.initial_message = Some(suggested_task_message(task));
        // The task is about this repository, so the conversation works there.
        let text = |name: &str| task.get(name).and_then(Value::as_str);
        if request.selected_repository.is_none() {
            request.selected_repository = text("repo").map(str::to_owned);
        }
        if request.git_provider.is_none() {
            request.git_provider = text("git_provider").and_then(|name| name.parse().ok());
        }
    }
    if let Some(repository) = &request.selected_repository {
        check_repository(repository)?;
    }
    if let Some(branch) = &request.selected_branch {
        check_branch(branch)?;
    }
    Ok(())
}

fn suggested_task_message(task: &Value) -> MessageInput {
    let text = |name: &str| task.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = task
        .get("issue_number")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let (repo, title) = (text("repo"), text("title"));
    let what = match text("task_type") {
        "MERGE_CONFLICTS" => "Resolve the merge conflicts of pull request",
        "FAILING_CHECKS" => "Find out why checks fail, and mend them, in pull request",
        "UNRESOLVED_COMMENTS" => "Address the unresolved review comments of pull request",
        "OPEN_PR" => "Review and complete pull request",
        _ => "Solve issue",
    };
    let text = format!("{what} #{number} of {repo}: {title}");
    MessageInput {
        role: "user".to_owned(),
        content: vec![json!({"cache_prompt": false, "type": "text", "text": text})],
        run: true,
    }
}

/// Notes about fields that have no effect in this version.
pub(super) fn unsupported_notes(request: &StartRequest) -> Vec<String> {
    let mut notes = Vec::new();
    for kind in request
        .processors
        .iter()
        .flatten()
        .filter_map(|p| p.get("kind").and_then(Value::as_str))
    {
        if kind != TITLE_PROCESSOR {
            notes.push(format!(
                "Processor {kind} is recorded but does not run in this version."
            ));
        }
    }
    notes
}

const TITLE_PROCESSOR: &str = "SetTitleCallbackProcessor";

/// Whether the conversation gets an automatic title: not if the client set one, nor if it named processors without the
/// title processor.
pub(super) fn wants_auto_title(request: &StartRequest) -> bool {
    let named = request.processors.as_ref().is_none_or(|processors| {
        processors
            .iter()
            .any(|p| p.get("kind").and_then(Value::as_str) == Some(TITLE_PROCESSOR))
    });
    request.title.is_none() && named
}

#[cfg(test)]
mod tests {
    use domain::git::GitProvider;

    use super::*;

    fn secrets(name: &str, value: &str) -> BTreeMap<String, SecretString> {
        BTreeMap::from([(name.to_owned(), SecretString::from(value.to_owned()))])
    }

    #[test]
    fn secrets_are_checked_before_any_work() {
        assert!(check_secrets(&secrets("MY_TOKEN", "v")).is_ok());
        for name in ["", "worker_1", "LLM_API_KEY", "llm_x", "A=B", "A\0B"] {
            assert!(check_secrets(&secrets(name, "v")).is_err(), "{name:?}");
        }
        assert!(check_secrets(&secrets(&"n".repeat(257), "v")).is_err());
        assert!(check_secrets(&secrets("N", &"v".repeat(65_537))).is_err());
        let many = (0..51)
            .map(|n| (format!("S{n}"), SecretString::from("v")))
            .collect();
        assert!(check_secrets(&many).is_err());
    }

    #[test]
    fn a_refused_secret_does_not_show_its_value() {
        let error = check_secrets(&secrets("N", &"hunter2".repeat(10_000))).expect_err("too large");
        assert!(!error.contains("hunter2"));
    }

    #[test]
    fn a_suggested_task_is_a_message_about_its_repository() {
        let task = |kind: &str| json!({"git_provider": "gitlab", "task_type": kind, "repo": "o/r", "issue_number": 7, "title": "It breaks"});
        for (kind, begins) in [
            (
                "MERGE_CONFLICTS",
                "Resolve the merge conflicts of pull request #7 of o/r",
            ),
            ("OPEN_ISSUE", "Solve issue #7 of o/r: It breaks"),
        ] {
            let mut request = StartRequest {
                suggested_task: Some(task(kind)),
                ..StartRequest::default()
            };
            check_request(&mut request).expect("it makes sense");
            let message = request.initial_message.as_ref().expect("a message");
            let text = message.content[0]["text"].as_str().expect("text");
            assert!(text.starts_with(begins), "{text}");
            assert_eq!(request.selected_repository.as_deref(), Some("o/r"));
            assert_eq!(request.git_provider, Some(GitProvider::Gitlab));
            assert!(
                check_request(&mut request).is_err(),
                "a message is there already"
            );
        }
        let mut elsewhere = StartRequest {
            suggested_task: Some(task("OPEN_PR")),
            selected_repository: Some("me/fork".to_owned()),
            git_provider: Some(GitProvider::Github),
            ..StartRequest::default()
        };
        check_request(&mut elsewhere).expect("it makes sense");
        assert_eq!(elsewhere.selected_repository.as_deref(), Some("me/fork"));
        assert_eq!(elsewhere.git_provider, Some(GitProvider::Github));
    }

    #[test]
    fn titles_are_automatic_unless_the_client_set_one() {
        let with = |title: Option<&str>, processors: Option<Vec<Value>>| {
            let title = title.map(str::to_owned);
            wants_auto_title(&StartRequest {
                title,
                processors,
                ..StartRequest::default()
            })
        };
        assert!(with(None, None));
        assert!(with(None, Some(vec![json!({"kind": TITLE_PROCESSOR})])));
        assert!(!with(
            None,
            Some(vec![json!({"kind": "LoggingCallbackProcessor"})])
        ));
        assert!(!with(Some("T"), None));
    }
}
