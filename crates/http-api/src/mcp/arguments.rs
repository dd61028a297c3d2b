//! What a tool is called with.

use domain::git::NewPullRequest;
use serde_json::Value;

use super::tools::Tool;
use crate::decode::{Errors, Fault, Flavour, Object, Path, characters, items};

const LONGEST_NAME: u64 = 1024;
const LONGEST_BRANCH: u64 = 255;
const LONGEST_TITLE: u64 = 1024;
const MOST_LABELS: u64 = 100;

/// The pull request that the arguments ask for, or what is wrong with each of them.
pub(super) fn read(tool: &Tool, given: &Value) -> Result<NewPullRequest, String> {
    let mut errors = Errors::new();
    match decode(tool, given, &mut errors) {
        Some(request) if errors.is_empty() => Ok(request),
        _ => Err(told(&errors)),
    }
}

fn decode(tool: &Tool, given: &Value, errors: &mut Errors) -> Option<NewPullRequest> {
    let at = Path::body(false);
    let mut object = Object::<Value>::open(given, &at, errors)?;
    let (name, _) = tool.repository;
    let repository = object.required::<Value>(name);
    let repository = repository.and_then(|value| {
        repository_of(tool, &value).or_else(|| {
            object.fault(name, Fault::string_type());
            None
        })
    });
    object.rule(name, repository.as_ref(), characters(1..=LONGEST_NAME));
    let mut branch = |key| {
        let branch = object.required::<String>(key);
        object.rule(key, branch.as_ref(), characters(1..=LONGEST_BRANCH));
        branch
    };
    let (source_branch, target_branch) = (branch("source_branch"), branch("target_branch"));
    let title = object.required::<String>("title");
    object.rule("title", title.as_ref(), characters(1..=LONGEST_TITLE));
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
        object.rule("labels", given, items(0..=MOST_LABELS));
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

/// GitLab's own tools write the slashes of a project as they stand in an address.
fn repository_of(tool: &Tool, value: &Value) -> Option<String> {
    match value {
        Value::String(name) if tool.takes_number => {
            Some(name.replace("%2F", "/").replace("%2f", "/"))
        }
        Value::String(name) => Some(name.clone()),
        Value::Number(number) if tool.takes_number => number.as_u64().map(|id| id.to_string()),
        _ => None,
    }
}

/// One line for each fault: where, and what.
fn told(errors: &Errors) -> String {
    let detail = errors.detail(Flavour::V1);
    let faults = detail.as_array().into_iter().flatten().map(|item| {
        let place = item["loc"].as_array().into_iter().flatten().skip(1);
        let place: Vec<String> = place
            .map(|step| {
                step.as_str()
                    .map_or_else(|| step.to_string(), str::to_owned)
            })
            .collect();
        let what = item["msg"].as_str().unwrap_or_default();
        if place.is_empty() {
            what.to_owned()
        } else {
            format!("{}: {what}", place.join("."))
        }
    });
    let lines: Vec<String> = faults.collect();
    format!("The arguments are not right:\n{}", lines.join("\n"))
}
