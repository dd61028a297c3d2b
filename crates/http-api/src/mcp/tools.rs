//! The tools: opening a pull request at each git provider. Names and arguments are those of the reference; the one for
//! Forgejo is an addition.

use application::App;
use application::git::GitServiceError;
use application::pull_requests::{PullRequestCaller, failure_advice};
use domain::error::chain;
use domain::git::{GitProvider, OpenedPullRequest};
use serde_json::{Map, Value, json};

use super::arguments;
use super::rpc::{RpcError, RpcErrorCode, RpcResult};
use super::tool::McpTool;

const BITBUCKET: McpTool = McpTool {
    name: "create_bitbucket_pr",
    provider: GitProvider::Bitbucket,
    what: "pull request in Bitbucket",
    repository: ("repo_name", "workspace/repository"),
    takes_number: false,
    text: "description",
    takes_draft: false,
    takes_labels: false,
};

pub(super) const TOOLS: [McpTool; 6] = [
    McpTool {
        name: "create_pr",
        provider: GitProvider::Github,
        what: "pull request in GitHub",
        repository: ("repo_name", "owner/repository"),
        text: "body",
        takes_draft: true,
        takes_labels: true,
        ..BITBUCKET
    },
    McpTool {
        name: "create_mr",
        provider: GitProvider::Gitlab,
        what: "merge request in GitLab",
        repository: ("id", "number of the project, or group/project"),
        takes_number: true,
        takes_labels: true,
        ..BITBUCKET
    },
    BITBUCKET,
    McpTool {
        name: "create_bitbucket_data_center_pr",
        provider: GitProvider::BitbucketDataCenter,
        what: "pull request in Bitbucket Data Center",
        repository: ("repo_name", "PROJECT/repository"),
        ..BITBUCKET
    },
    McpTool {
        name: "create_azure_devops_pr",
        provider: GitProvider::AzureDevops,
        what: "pull request in Azure DevOps",
        repository: ("repo_name", "organization/project/repository"),
        ..BITBUCKET
    },
    McpTool {
        name: "create_forgejo_pr",
        provider: GitProvider::Forgejo,
        what: "pull request in Forgejo or Gitea",
        repository: ("repo_name", "owner/repository"),
        ..BITBUCKET
    },
];

impl McpTool {
    fn document(&self) -> Value {
        json!({
            "name": self.name,
            "description": format!("Opens a {} for a branch that was pushed. Returns its URL.", self.what),
            "inputSchema": self.schema(),
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "string"}},
                "required": ["result"],
                "x-fastmcp-wrap-result": true,
            },
        })
    }

    fn schema(&self) -> Value {
        let text = |what: &str| json!({"type": "string", "description": what});
        let nullable = |schema: Value, what: &str| json!({"anyOf": [schema, {"type": "null"}], "description": what});
        let (name, looks) = self.repository;
        let mut repository = text(&format!("The repository: {looks}"));
        if self.takes_number {
            repository = json!({"anyOf": [{"type": "integer"}, {"type": "string"}],
                "description": repository["description"]});
        }
        let title = if self.takes_draft {
            "Title"
        } else {
            "Title. The prefix \"Draft:\" makes a draft on providers that mark drafts in the title"
        };
        let mut properties = Map::from_iter([
            (name.to_owned(), repository),
            ("source_branch".into(), text("The branch with the changes")),
            ("target_branch".into(), text("The branch to merge into")),
            ("title".into(), text(title)),
            (
                self.text.into(),
                nullable(json!({"type": "string"}), "What the changes do, and why"),
            ),
        ]);
        let required: Vec<String> = properties.keys().cloned().collect();
        if self.takes_draft {
            let draft = json!({"type": "boolean", "default": true, "description": "Whether to open it as a draft"});
            properties.insert("draft".into(), draft);
        }
        if self.takes_labels {
            let list = json!({"type": "array", "items": {"type": "string"}});
            let mut labels = nullable(list, "Labels that the repository already has");
            labels["default"] = Value::Null;
            properties.insert("labels".into(), labels);
        }
        json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required})
    }
}

/// All tools, as `tools/list` returns them.
pub(super) fn list() -> Vec<Value> {
    TOOLS.iter().map(McpTool::document).collect()
}

/// Calls a tool for this caller. Failures are results, so that the agent reads them.
pub(super) async fn call(
    app: &App,
    opener: &PullRequestCaller,
    params: &Map<String, Value>,
) -> RpcResult {
    let name = params.get("name").and_then(Value::as_str);
    let tool = TOOLS.iter().find(|tool| Some(tool.name) == name);
    let tool = tool.ok_or(RpcError(RpcErrorCode::Params, "Unknown tool"))?;
    let none = json!({});
    let given = match params.get("arguments") {
        None | Some(Value::Null) => &none,
        Some(given) => given,
    };
    let request = match arguments::read(tool, given) {
        Ok(request) => request,
        Err(why) => return Ok(failed(&why)),
    };
    let provider = tool.provider;
    Ok(
        match app.git.open_pull_request(opener, provider, &request).await {
            Ok(answer) => {
                tracing::info!(git.provider = %provider, "opened a pull request");
                succeeded(&answer)
            }
            Err(failure) => {
                note(provider, &failure);
                failed(&failure_advice(provider, &failure))
            }
        },
    )
}

fn note(provider: GitProvider, failure: &GitServiceError) {
    match failure {
        GitServiceError::App(error) => {
            tracing::warn!(git.provider = %provider, error = %chain(&error), "failed to open a pull request");
        }
        refused => {
            tracing::info!(git.provider = %provider, error = %chain(&refused), "failed to open a pull request");
        }
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn succeeded(opened: &OpenedPullRequest) -> Value {
    let mut content = vec![text(opened.url.as_str())];
    content.extend(
        opened
            .note
            .iter()
            .map(|note| text(&format!("It is open, but {note}."))),
    );
    json!({"content": content, "structuredContent": {"result": opened.url}, "isError": false})
}

fn failed(why: &str) -> Value {
    json!({"content": [text(why)], "isError": true})
}
