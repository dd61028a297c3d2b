//! Decodes the arguments of a tool call.

use domain::git::NewPullRequest;
use serde_json::Value;

use super::tool::McpTool;
use crate::decode::{FieldError, FieldErrors, Object, Path, characters, items};

const MAX_REPOSITORY_CHARS: u64 = 1024;
const MAX_BRANCH_CHARS: u64 = 255;
const MAX_PULL_REQUEST_TITLE_CHARS: u64 = 1024;
const MAX_LABELS: u64 = 100;

/// The pull request that the arguments describe, or a text with all errors.
pub(super) fn read(tool: &McpTool, given: &Value) -> Result<NewPullRequest, String> {
    let mut errors = FieldErrors::new();
    match decode(tool, given, &mut errors) {
        Some(request) if errors.is_empty() => Ok(request),
        _ => Err(describe_errors(&errors)),
    }
}

fn decode(tool: &McpTool, given: &Value, errors: &mut FieldErrors) -> Option<NewPullRequest> {
    let at = Path::body(false);
    let mut object = Object::<Value>::open(given, &at, errors)?;
    let (name, _) = tool.repository;
    let repository = object.required::<Value>(name);
    let repository = repository.and_then(|value| {
        repository_of(tool, &value).or_else(|| {
            object.add_error(name, FieldError::string_type());
            None
        })
    });
    object.rule(
        name,
        repository.as_ref(),
        characters(1..=MAX_REPOSITORY_CHARS),
    );
    let mut branch = |key| {
        let branch = object.required::<String>(key);
        object.rule(key, branch.as_ref(), characters(1..=MAX_BRANCH_CHARS));
        branch
    };
    let (source_branch, target_branch) = (branch("source_branch"), branch("target_branch"));
    let title = object.required::<String>("title");
    object.rule(
        "title",
        title.as_ref(),
        characters(1..=MAX_PULL_REQUEST_TITLE_CHARS),
    );
    let body = object.optional::<String>(tool.text);
    let draft = if tool.takes_draft {
        object.default("draft", || true)
    } else {
        Some(false)
    };
    let mut labels = Some(None);
    if tool.takes_labels {
        labels = object.optional::<Vec<String>>("labels");
        let given = labels.as_ref().and_then(Option::as_ref);
        object.rule("labels", given, items(0..=MAX_LABELS));
    }
    object.forbid_extra();
    Some(NewPullRequest {
        repository: repository?,
        source_branch: source_branch?,
        target_branch: target_branch?,
        title: title?,
        body: body?,
        draft: draft?,
        labels: labels?.unwrap_or_default(),
    })
}

/// The repository that a value names. GitLab's own tools escape the slashes of a project.
fn repository_of(tool: &McpTool, value: &Value) -> Option<String> {
    match value {
        Value::String(name) if tool.takes_number => {
            Some(name.replace("%2F", "/").replace("%2f", "/"))
        }
        Value::String(name) => Some(name.clone()),
        Value::Number(number) if tool.takes_number => number.as_u64().map(|id| id.to_string()),
        _ => None,
    }
}

/// One line per error: location and message.
fn describe_errors(errors: &FieldErrors) -> String {
    let lines = errors.texts().map(|(place, what)| {
        if place.is_empty() {
            what.to_owned()
        } else {
            format!("{place}: {what}")
        }
    });
    let lines: Vec<String> = lines.collect();
    format!("Invalid arguments:\n{}", lines.join("\n"))
}
