//! GitLab.com and self-managed GitLab (`https://host/api/v4`).

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, RepositoryQuery, RepositorySortKey, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use crate::http::client::Http;
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, id, items, number, text};
use crate::providers::lists::ApiList;
use crate::providers::paging::{ProviderPage, page};
use crate::providers::pull_request::{self, short_branch_name, with_draft_prefix};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, branch, or_default, owner_type, repository_in_url,
    search_text, sort_order, task,
};
use crate::repository_url::{join_segments, segments};

const PROVIDER: GitProvider = GitProvider::Gitlab;
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Bearer,
    name: "gitlab",
    paging: Paging {
        position: "page",
        length: "per_page",
        max_items: 100,
        next: NextPage::NumberHeader("x-next-page"),
    },
};

pub(crate) struct Gitlab {
    session: ProviderSession,
    graphql: Url,
}

impl Gitlab {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let base = |web: &_| join_segments(PROVIDER, web, &["api", "v4"]);
        let session = ProviderSession::new(http, access, &SPEC, base)?;
        let graphql = join_segments(PROVIDER, &session.web, &["api", "graphql"])?;
        Ok(Self { session, graphql })
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    let is_group = text(value, "/namespace/kind").is_some_and(|kind| kind == "group");
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/path_with_namespace")?,
        git_provider: PROVIDER,
        is_public: text(value, "/visibility").is_some_and(|visibility| visibility == "public"),
        stargazers_count: value.pointer("/star_count").and_then(Value::as_u64),
        pushed_at: text(value, "/last_activity_at"),
        owner_type: Some(owner_type(is_group)),
        main_branch: text(value, "/default_branch"),
    })
}

const TASKS: &str = "query{currentUser{authoredMergeRequests(state:opened,sort:UPDATED_DESC,first:50){\
    nodes{iid title conflicts project{fullPath} headPipeline{status}\
    resolvableDiscussionsCount resolvedDiscussionsCount}}}}";

fn merge_request(value: &Value) -> Option<SuggestedTask> {
    let count = |name| number(value, name).unwrap_or_default();
    let has_open_discussions =
        count("/resolvableDiscussionsCount") > count("/resolvedDiscussionsCount");
    let task_type = if flag(value, "/conflicts").unwrap_or_default() {
        SuggestedTaskType::MergeConflicts
    } else if text(value, "/headPipeline/status").is_some_and(|status| status == "FAILED") {
        SuggestedTaskType::FailingChecks
    } else if has_open_discussions {
        SuggestedTaskType::UnresolvedComments
    } else {
        return None;
    };
    let repo = text(value, "/project/fullPath")?;
    task((PROVIDER, task_type), repo, value, "/iid")
}

fn issue(value: &Value) -> Option<SuggestedTask> {
    // `group/project#7`
    let reference = text(value, "/references/full")?;
    let (repo, _) = reference.rsplit_once('#')?;
    let kind = (PROVIDER, SuggestedTaskType::OpenIssue);
    task(kind, repo.to_owned(), value, "/iid")
}

#[async_trait]
impl Api for Gitlab {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        Ok(GitUser {
            id: id(&user, "/id").unwrap_or_default(),
            login: text(&user, "/username").unwrap_or_default(),
            avatar_url: text(&user, "/avatar_url").unwrap_or_default(),
            company: text(&user, "/organization"),
            name: text(&user, "/name"),
            email: text(&user, "/email"),
        })
    }

    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let search_text = search_text(query);
        let sort = format!("{:?}", query.sort);
        let parts = [search_text.unwrap_or_default(), &sort];
        let id = self.session.list_id("repositories", &parts);
        if let Some(path) = search_text.and_then(|text| repository_in_url(text, &self.session.web))
        {
            let fetch = async |_, _| {
                let project = or_default(self.session.get(&["projects", &path], &[]).await)?;
                let values = vec![project.body];
                Ok(ProviderPage { values, next: None })
            };
            return page(id, request, SPEC.paging.max_items, repository, fetch).await;
        }
        // The API cannot sort by forks.
        let by_stars = query
            .sort
            .is_some_and(|sort| sort.by == RepositorySortKey::Stars);
        let order_by = if by_stars {
            "star_count"
        } else {
            "last_activity_at"
        };
        let mut parameters = vec![
            ("membership", "true"),
            ("order_by", order_by),
            ("sort", sort_order(query)),
        ];
        if let Some(search_text) = search_text {
            parameters.extend([("search", search_text), ("search_namespaces", "true")]);
        }
        let list = ApiList::new(self.session.url(&["projects"], &parameters)?, None);
        self.session.page(id, request, &list, repository).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        // The name is one segment of the path, with encoded slashes.
        let project = segments(PROVIDER, repository)?.join("/");
        let path = ["projects", &project, "repository", "branches"];
        let url = self.session.url(&path, &[("search", search_text)])?;
        let list = ApiList::new(url, None);
        let branch = |value: &_| branch(value, "/commit/id", "/commit/committed_date");
        let id = self.session.list_id("branches", &[repository, search_text]);
        self.session.page(id, request, &list, branch).await
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let issues = [
            ("scope", "assigned_to_me"),
            ("state", "opened"),
            ("per_page", "50"),
        ];
        let query = json!({"query": TASKS});
        let (merge_requests, issues) = tokio::join!(
            self.session.post_query(self.graphql.clone(), &query),
            self.session.get(&["issues"], &issues),
        );
        let merge_requests = merge_requests?.body;
        let path = "/data/currentUser/authoredMergeRequests/nodes";
        let merge_requests = items(&merge_requests, path).filter_map(merge_request);
        let issues = issues?.list(None);
        Ok(merge_requests
            .chain(issues.iter().filter_map(issue))
            .take(MAX_TASKS)
            .collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let repository = request.repository.as_str();
        let is_number = !repository.is_empty() && repository.bytes().all(|b| b.is_ascii_digit());
        let project = if is_number {
            repository.to_owned()
        } else {
            segments(PROVIDER, repository)?.join("/")
        };
        let path = ["projects", &project, "merge_requests"];
        let mut body = json!({"title": with_draft_prefix(&request.title, request.draft, "Draft:"),
            "source_branch": short_branch_name(&request.source_branch),
            "target_branch": short_branch_name(&request.target_branch),
            "description": request.body});
        if !request.labels.is_empty() {
            body["labels"] = json!(request.labels.join(","));
        }
        pull_request::open(&self.session, &path, &body, ("/web_url", "/iid")).await
    }

    /// Does nothing: the request that opens the merge request carries the labels.
    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<Option<()>, GitError> {
        Ok(Some(()))
    }
}
