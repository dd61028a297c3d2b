//! GitLab.com and self-managed GitLab (`https://host/api/v4`).

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, RepositorySortKey, SuggestedTask,
    SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use crate::http::client::Http;
use crate::http::session::{
    ProviderResponse, ProviderSession, TokenScheme, flag, id, number, text,
};
use crate::providers::paging::{ListId, ProviderPage, page, page_number};
use crate::providers::pull_request::{short_branch_name, web_url, with_draft_prefix};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, or_default, repository_in_url, search_text,
};
use crate::repository_url::{join_segments, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Gitlab;
const MAX_PAGE_ITEMS: usize = 100;

pub(crate) struct Gitlab {
    session: ProviderSession,
    web: Url,
    graphql: Url,
}

impl Gitlab {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let base = join_segments(PROVIDER, &web, &["api", "v4"])?;
        let graphql = join_segments(PROVIDER, &web, &["api", "graphql"])?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Bearer)?,
            web,
            graphql,
        })
    }

    async fn list(
        &self,
        path: &[&str],
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let (number, size) = (
            page_number(cursor.as_deref())?.to_string(),
            size.to_string(),
        );
        let mut all = parameters.to_vec();
        all.extend([("page", number.as_str()), ("per_page", &size)]);
        Ok(to_provider_page(self.session.get(path, &all).await?))
    }
}

fn to_provider_page(mut answer: ProviderResponse) -> ProviderPage {
    let next = answer.header("x-next-page").map(str::to_owned);
    ProviderPage {
        values: answer.list(None),
        next,
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
        owner_type: Some(if is_group {
            OwnerType::Organization
        } else {
            OwnerType::User
        }),
        main_branch: text(value, "/default_branch"),
    })
}

fn branch(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, "/commit/id").unwrap_or_default(),
        protected: flag(value, "/protected").unwrap_or_default(),
        last_push_date: text(value, "/commit/committed_date"),
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
    task(value, task_type, text(value, "/project/fullPath")?)
}

fn task(value: &Value, task_type: SuggestedTaskType, repo: String) -> Option<SuggestedTask> {
    Some(SuggestedTask {
        git_provider: PROVIDER,
        task_type,
        repo,
        issue_number: number(value, "/iid")?,
        title: text(value, "/title").unwrap_or_default(),
    })
}

fn issue(value: &Value) -> Option<SuggestedTask> {
    // `group/project#7`
    let reference = text(value, "/references/full")?;
    let (repo, _) = reference.rsplit_once('#')?;
    task(value, SuggestedTaskType::OpenIssue, repo.to_owned())
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
        let parts = [
            "gitlab repositories",
            self.web.as_str(),
            search_text.unwrap_or_default(),
            &sort,
        ];
        let list = ListId::new(&parts);
        if let Some(path) =
            search_text.and_then(|search_text| repository_in_url(search_text, &self.web))
        {
            let fetch = async |_, _| {
                let project = self.session.get(&["projects", &path], &[]).await.map(Some);
                let values = or_default(project)?.map(|answer| vec![answer.body]);
                let values = values.unwrap_or_default();
                Ok(ProviderPage { values, next: None })
            };
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        // The API cannot sort by forks.
        let by_stars = query
            .sort
            .is_some_and(|sort| sort.by == RepositorySortKey::Stars);
        let ascending = query.sort.is_some_and(|sort| !sort.descending);
        let mut parameters = vec![
            ("membership", "true"),
            (
                "order_by",
                if by_stars {
                    "star_count"
                } else {
                    "last_activity_at"
                },
            ),
            ("sort", if ascending { "asc" } else { "desc" }),
        ];
        if let Some(search_text) = search_text {
            parameters.extend([("search", search_text), ("search_namespaces", "true")]);
        }
        let fetch = |cursor, size| self.list(&["projects"], &parameters, cursor, size);
        page(list, request, MAX_PAGE_ITEMS, repository, fetch).await
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
        let list = ListId::new(&[
            "gitlab branches",
            self.web.as_str(),
            repository,
            search_text,
        ]);
        let parameters = [("search", search_text)];
        let parameters = if search_text.is_empty() {
            &[][..]
        } else {
            &parameters
        };
        let fetch = |cursor, size| self.list(&path, parameters, cursor, size);
        page(list, request, MAX_PAGE_ITEMS, branch, fetch).await
    }

    async fn installations(&self, _: &GitPageRequest) -> Result<GitPage<String>, GitError> {
        Err(GitError::Unsupported {
            provider: PROVIDER,
            what: "installations",
        })
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
        let merge_requests = merge_requests.pointer(path).and_then(Value::as_array);
        let issues = issues?.list(None);
        let merge_requests = merge_requests
            .into_iter()
            .flatten()
            .filter_map(merge_request);
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
        let url = self.session.url(&path, &[])?;
        let mut body = json!({"title": with_draft_prefix(&request.title, request.draft, "Draft:"),
            "source_branch": short_branch_name(&request.source_branch),
            "target_branch": short_branch_name(&request.target_branch),
            "description": request.body});
        if !request.labels.is_empty() {
            body["labels"] = json!(request.labels.join(","));
        }
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: web_url(PROVIDER, &answer, "/web_url")?,
            number: number(&answer, "/iid"),
        })
    }

    /// Does nothing: the request that opens the merge request carries the labels.
    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        Ok(())
    }
}
