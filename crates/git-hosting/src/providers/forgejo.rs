//! Forgejo and Gitea (`https://host/api/v1`).

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};

use crate::http::client::Http;
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, id, text};
use crate::providers::lists::ApiList;
use crate::providers::pull_request::{self, short_branch_name, with_draft_prefix};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, branch, if_named, owner_type, parts, repository_in_url,
    search_text, sort_parameters, task,
};
use crate::repository_url::join_segments;

const PROVIDER: GitProvider = GitProvider::Forgejo;
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Token,
    name: "forgejo",
    paging: Paging {
        position: "page",
        length: "limit",
        // The server's default limit (`[api] MAX_RESPONSE_ITEMS`). The server silently shortens longer pages.
        max_items: 50,
        next: NextPage::Link,
    },
};

pub(crate) struct Forgejo(ProviderSession);

impl Forgejo {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let base = |web: &_| join_segments(PROVIDER, web, &["api", "v1"]);
        ProviderSession::new(http, access, &SPEC, base).map(Self)
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    let is_organization = |kind: String| kind.eq_ignore_ascii_case("organization");
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/private") == Some(false),
        stargazers_count: value.pointer("/stars_count").and_then(Value::as_u64),
        pushed_at: text(value, "/updated_at"),
        owner_type: text(value, "/owner/type").map(|kind| owner_type(is_organization(kind))),
        main_branch: text(value, "/default_branch"),
    })
}

fn issue(value: &Value) -> Option<SuggestedTask> {
    let repo = text(value, "/repository/full_name")?;
    let kind = (PROVIDER, SuggestedTaskType::OpenIssue);
    task(kind, repo, value, "/number")
}

#[async_trait]
impl Api for Forgejo {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.0.get(&["user"], &[]).await?.body;
        let login = text(&user, "/login").or_else(|| text(&user, "/username"));
        Ok(GitUser {
            id: id(&user, "/id").unwrap_or_default(),
            login: login.unwrap_or_default(),
            avatar_url: text(&user, "/avatar_url").unwrap_or_default(),
            company: None,
            name: text(&user, "/full_name"),
            email: text(&user, "/email"),
        })
    }

    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let search_text = search_text(query).unwrap_or_default();
        let sort = format!("{:?}", query.sort);
        let id = self.0.list_id("repositories", &[search_text, &sort]);
        if search_text.is_empty() {
            let url = self.0.url(&["user", "repos"], &[])?;
            let list = ApiList::new(url, None);
            return self.0.page(id, request, &list, repository).await;
        }
        let named = repository_in_url(search_text, &self.0.web);
        // The API searches in names without the owner, so `matching` compares the owner.
        let search_text = named.as_deref().unwrap_or(search_text);
        let (owner, name) = match search_text.split_once('/') {
            Some((owner, name)) => (format!("{}/", owner.to_lowercase()), name),
            None => (String::new(), search_text),
        };
        let [sort, order] = sort_parameters(query, "updated");
        let parameters = [("q", name), sort, order];
        let url = self.0.url(&["repos", "search"], &parameters)?;
        let matching = |value: &_| if_named(repository(value), |name| name.starts_with(&owner));
        let list = ApiList::new(url, Some("data"));
        self.0.page(id, request, &list, matching).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let [owner, name] = parts(PROVIDER, repository)?;
        let url = self.0.url(&["repos", owner, name, "branches"], &[])?;
        // The API has no filter for branches.
        let lower = search_text.to_lowercase();
        let matching = |value: &Value| {
            branch(value, "/commit/id", "/commit/timestamp")
                .filter(|branch| branch.name.to_lowercase().contains(&lower))
        };
        let id = self.0.list_id("branches", &[repository, search_text]);
        let list = ApiList::new(url, None);
        self.0.page(id, request, &list, matching).await
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let path = ["repos", "issues", "search"];
        let parameters = [
            ("state", "open"),
            ("type", "issues"),
            ("assigned", "true"),
            ("limit", "50"),
        ];
        let mut answer = self.0.get(&path, &parameters).await?;
        let values = answer.list(None);
        Ok(values.iter().filter_map(issue).take(MAX_TASKS).collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let [owner, name] = parts(PROVIDER, &request.repository)?;
        let path = ["repos", owner, name, "pulls"];
        let body = json!({"title": with_draft_prefix(&request.title, request.draft, "WIP:"),
            "body": request.body.as_deref().unwrap_or_default(),
            "head": short_branch_name(&request.source_branch), "base": short_branch_name(&request.target_branch)});
        pull_request::open(&self.0, &path, &body, ("/html_url", "/number")).await
    }

    // Labels are unsupported: the API takes them by number, and only the list of all labels shows the numbers.
}
