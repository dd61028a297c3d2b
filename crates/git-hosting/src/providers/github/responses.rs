//! Converts GitHub's responses, and holds the GraphQL queries that some of them answer.

use domain::git::{GitBranch, GitRepository, SuggestedTask, SuggestedTaskType};
use serde_json::Value;

use super::PROVIDER;
use crate::http::session::{flag, id, number, text};
use crate::providers::{self, owner_type};

pub(super) fn repository(value: &Value) -> Option<GitRepository> {
    let is_organization = text(value, "/owner/type").is_some_and(|kind| kind == "Organization");
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/private") == Some(false),
        stargazers_count: value.pointer("/stargazers_count").and_then(Value::as_u64),
        pushed_at: text(value, "/pushed_at"),
        owner_type: Some(owner_type(is_organization)),
        main_branch: text(value, "/default_branch"),
    })
}

pub(super) fn ref_node(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, "/target/oid").unwrap_or_default(),
        protected: value
            .pointer("/branchProtectionRule")
            .is_some_and(|rule| !rule.is_null()),
        last_push_date: text(value, "/target/committedDate"),
    })
}

pub(super) const BRANCHES: &str = "query($owner:String!,$name:String!,$text:String!,$first:Int!,$after:String){\
    repository(owner:$owner,name:$name){refs(refPrefix:\"refs/heads/\",query:$text,first:$first,after:$after){\
    nodes{name branchProtectionRule{id} target{oid ...on Commit{committedDate}}}\
    pageInfo{hasNextPage endCursor}}}}";

pub(super) const TASKS: &str = "query{viewer{pullRequests(first:50,states:[OPEN],orderBy:{field:UPDATED_AT,direction:DESC}){\
    nodes{number title mergeable repository{nameWithOwner}\
    commits(last:1){nodes{commit{statusCheckRollup{state}}}}\
    reviews(first:50,states:[CHANGES_REQUESTED,COMMENTED]){totalCount}}}}\
    search(query:\"is:issue is:open archived:false assignee:@me sort:updated-desc\",type:ISSUE,first:50){\
    nodes{...on Issue{number title repository{nameWithOwner}}}}}";

/// The reason why a pull request is a suggested task, if there is one.
pub(super) fn pull_request_task_type(pull_request: &Value) -> Option<SuggestedTaskType> {
    let checks = text(
        pull_request,
        "/commits/nodes/0/commit/statusCheckRollup/state",
    );
    if text(pull_request, "/mergeable").is_some_and(|state| state == "CONFLICTING") {
        Some(SuggestedTaskType::MergeConflicts)
    } else if matches!(checks.as_deref(), Some("FAILURE" | "ERROR")) {
        Some(SuggestedTaskType::FailingChecks)
    } else if number(pull_request, "/reviews/totalCount").is_some_and(|count| count > 0) {
        Some(SuggestedTaskType::UnresolvedComments)
    } else {
        None
    }
}

pub(super) fn task(value: &Value, task_type: SuggestedTaskType) -> Option<SuggestedTask> {
    let repo = text(value, "/repository/nameWithOwner")?;
    providers::task((PROVIDER, task_type), repo, value, "/number")
}
