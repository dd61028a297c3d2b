//! Bitbucket Data Center (`https://host/rest/api/1.0`).

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};

use crate::http::client::Http;
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, id, number, text};
use crate::providers::lists::ApiList;
use crate::providers::pull_request::{self, full_branch_name};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, if_named, owner_type, parts, search_text, task,
};
use crate::repository_url::{is_segment, join_segments, percent_decoded};

const PROVIDER: GitProvider = GitProvider::BitbucketDataCenter;
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Pair,
    name: "bitbucket dc",
    paging: Paging {
        position: "start",
        length: "limit",
        max_items: 100,
        next: NextPage::Offset,
    },
};

pub(crate) struct BitbucketDataCenter {
    session: ProviderSession,
    user: Option<String>,
}

impl BitbucketDataCenter {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let base = |web: &_| join_segments(PROVIDER, web, &["rest", "api", "1.0"]);
        Ok(Self {
            session: ProviderSession::new(http, access, &SPEC, base)?,
            user: access.user.clone(),
        })
    }

    fn list(&self, path: &[&str], parameters: &[(&str, &str)]) -> Result<ApiList, GitError> {
        let url = self.session.url(path, parameters)?;
        Ok(ApiList::new(url, Some("values")))
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    let project = text(value, "/project/key")?;
    let slug = text(value, "/slug")?;
    let is_personal = text(value, "/project/type").is_some_and(|kind| kind == "PERSONAL");
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: format!("{project}/{slug}"),
        git_provider: PROVIDER,
        is_public: flag(value, "/public").unwrap_or_default(),
        stargazers_count: None,
        pushed_at: None,
        owner_type: Some(owner_type(!is_personal)),
        // Missing in most responses: the API shows it with one request per repository.
        main_branch: text(value, "/defaultBranch"),
    })
}

fn branch(value: &Value) -> Option<GitBranch> {
    let name = text(value, "/displayId");
    let name = name.or_else(|| Some(text(value, "/id")?.strip_prefix("refs/heads/")?.to_owned()));
    Some(GitBranch {
        name: name?,
        commit_sha: text(value, "/latestCommit").unwrap_or_default(),
        protected: false,
        last_push_date: None,
    })
}

fn pull_request_task(value: &Value) -> Option<SuggestedTask> {
    let mut reviewers = value.pointer("/reviewers")?.as_array()?.iter();
    let outcome = text(value, "/properties/mergeResult/outcome");
    let task_type = if outcome.is_some_and(|outcome| outcome == "CONFLICTED") {
        SuggestedTaskType::MergeConflicts
    } else if reviewers.any(|r| text(r, "/status").is_some_and(|s| s == "NEEDS_WORK"))
        || number(value, "/properties/openTaskCount").is_some_and(|count| count > 0)
    {
        SuggestedTaskType::UnresolvedComments
    } else {
        return None;
    };
    let project = text(value, "/toRef/repository/project/key")?;
    let slug = text(value, "/toRef/repository/slug")?;
    let repo = format!("{project}/{slug}");
    task((PROVIDER, task_type), repo, value, "/id")
}

#[async_trait]
impl Api for BitbucketDataCenter {
    /// The API has no resource for the token's user. Each response names the user in a header, except for tokens of projects and
    /// repositories, which have no user.
    async fn user(&self) -> Result<GitUser, GitError> {
        let answer = self.session.get(&["projects"], &[("limit", "1")]).await?;
        let login = answer.header("x-ausername").map(percent_decoded);
        let login = login.or_else(|| self.user.clone()).unwrap_or_default();
        let mut user = Value::Null;
        if !login.is_empty() {
            let filter = [("filter", login.as_str()), ("limit", "25")];
            let users = self.session.get(&["users"], &filter).await;
            let users = users.unwrap_or_default().list(Some("values"));
            let has_login = |user: &Value| {
                text(user, "/name").is_some_and(|name| name.eq_ignore_ascii_case(&login))
            };
            user = users.into_iter().find(has_login).unwrap_or_default();
        }
        let id = id(&user, "/id").unwrap_or_else(|| login.clone());
        let avatar = text(&user, "/avatarUrl").and_then(|to| self.session.web.join(&to).ok());
        Ok(GitUser {
            id,
            login,
            avatar_url: avatar.map(String::from).unwrap_or_default(),
            company: None,
            name: text(&user, "/displayName"),
            email: text(&user, "/emailAddress"),
        })
    }

    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let search_text = search_text(query).unwrap_or_default();
        let (project, name) = match search_text.split_once('/') {
            Some((project, name)) if is_segment(project) => (project, name),
            _ => (
                query.installation.as_deref().unwrap_or_default(),
                search_text,
            ),
        };
        let id = self.session.list_id("repositories", &[project, name]);
        if project.is_empty() {
            let list = self.list(&["repos"], &[("name", name)])?;
            return self.session.page(id, request, &list, repository).await;
        }
        if !is_segment(project) {
            return Ok(GitPage {
                items: Vec::new(),
                next: None,
            });
        }
        // The list of a project has no filter by name.
        let lower = name.to_lowercase();
        let matching = |value: &_| if_named(repository(value), |name| name.contains(&lower));
        let list = self.list(&["projects", project, "repos"], &[])?;
        self.session.page(id, request, &list, matching).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let [project, name] = parts(PROVIDER, repository)?;
        let path = ["projects", project, "repos", name, "branches"];
        let parameters = [("orderBy", "MODIFICATION"), ("filterText", search_text)];
        let list = self.list(&path, &parameters)?;
        let id = self.session.list_id("branches", &[repository, search_text]);
        self.session.page(id, request, &list, branch).await
    }

    /// Lists the keys of projects.
    async fn installations(
        &self,
        request: &GitPageRequest,
    ) -> Result<Option<GitPage<String>>, GitError> {
        let id = self.session.list_id("projects", &[]);
        let list = self.list(&["projects"], &[])?;
        let key = |value: &_| text(value, "/key");
        self.session.page(id, request, &list, key).await.map(Some)
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let path = ["dashboard", "pull-requests"];
        let parameters = [("state", "OPEN"), ("role", "AUTHOR"), ("limit", "100")];
        let mut answer = self.session.get(&path, &parameters).await?;
        let values = answer.list(Some("values"));
        Ok(values
            .iter()
            .filter_map(pull_request_task)
            .take(MAX_TASKS)
            .collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let [project, slug] = parts(PROVIDER, &request.repository)?;
        let path = ["projects", project, "repos", slug, "pull-requests"];
        let repository = json!({"slug": slug, "project": {"key": project}});
        let reference =
            |branch: &str| json!({"id": full_branch_name(branch), "repository": repository});
        let mut body = json!({"title": request.title, "description": request.body.as_deref().unwrap_or_default(),
            "fromRef": reference(&request.source_branch), "toRef": reference(&request.target_branch)});
        if request.draft {
            // Servers before 8.18 have no such member.
            body["draft"] = true.into();
        }
        pull_request::open(&self.session, &path, &body, ("/links/self/0/href", "/id")).await
    }
}
