//! Azure DevOps (`https://dev.azure.com/ORGANISATION`) and Azure DevOps Server (`https://host/tfs/COLLECTION`).

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use crate::clone_source::azure_base;
use crate::http::client::{Http, unavailable};
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, items, number, text};
use crate::providers::lists::ApiList;
use crate::providers::paging::{ProviderPage, page};
use crate::providers::pull_request::full_branch_name;
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, if_named, or_default, parts, repository_in_url, search_text,
    task,
};
use crate::repository_url::{is_segment, join_segments, percent_decoded};

const PROVIDER: GitProvider = GitProvider::AzureDevops;
const VERSION: (&str, &str) = ("api-version", "7.0");
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Azure,
    name: "azure",
    paging: Paging {
        position: "continuationToken",
        length: "$top",
        max_items: 100,
        next: NextPage::TokenHeader("x-ms-continuationtoken"),
    },
};
/// Work items whose titles are requested.
const MAX_WORK_ITEMS: usize = 50;

pub(crate) struct Azure(ProviderSession);

impl Azure {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        ProviderSession::new(http, access, &SPEC, |web| Ok(web.clone())).map(Self)
    }

    /// The organisation in the URL of the host.
    fn organization(&self) -> Result<String, GitError> {
        let host = self.0.web.host_str().unwrap_or_default();
        if let Some(name) = host.strip_suffix(".visualstudio.com") {
            return Ok(name.to_owned());
        }
        let mut path = self.0.web.path_segments().into_iter().flatten();
        let name = if host == "dev.azure.com" {
            path.next()
        } else {
            path.next_back()
        };
        let name = name.filter(|name| !name.is_empty()).map(percent_decoded);
        name.ok_or_else(|| GitError::Forbidden {
            provider: PROVIDER,
            reason: "its URL lacks the organization; use https://dev.azure.com/ORGANIZATION".into(),
        })
    }

    async fn list(
        &self,
        organization: &str,
        path: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<Vec<Value>, GitError> {
        let url = self.url(organization, path, parameters)?;
        let mut response = self.0.parse(self.0.send_get(url).await?)?;
        Ok(response.list(Some("value")))
    }

    fn url(
        &self,
        organization: &str,
        path: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<Url, GitError> {
        if !is_segment(organization) {
            return Err(GitError::NotFound { provider: PROVIDER });
        }
        let base = azure_base(&self.0.web, organization)?;
        let mut url = join_segments(PROVIDER, &base, path)?;
        url.query_pairs_mut()
            .extend_pairs(parameters)
            .append_pair(VERSION.0, VERSION.1);
        Ok(url)
    }

    async fn work_items(&self, organization: &str) -> Result<Vec<SuggestedTask>, GitError> {
        let top = [("$top", "50")];
        let url = self.url(organization, &["_apis", "wit", "wiql"], &top)?;
        let query = "SELECT [System.Id] FROM WorkItems WHERE [System.AssignedTo] = @Me AND [System.State] NOT IN \
                     ('Closed', 'Completed', 'Done', 'Inactive', 'Removed', 'Resolved') \
                     ORDER BY [System.ChangedDate] DESC";
        let response = self.0.post_query(url, &json!({"query": query})).await?.body;
        let ids = items(&response, "/workItems").filter_map(|item| number(item, "/id"));
        let ids: Vec<String> = ids.take(MAX_WORK_ITEMS).map(|id| id.to_string()).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.join(",");
        let fields = ("fields", "System.Title,System.TeamProject");
        let parameters = [("ids", ids.as_str()), fields];
        let path = ["_apis", "wit", "workitems"];
        let work_items = self.list(organization, &path, &parameters).await?;
        let task = |value: &Value| {
            Some(SuggestedTask {
                git_provider: PROVIDER,
                task_type: SuggestedTaskType::OpenIssue,
                // A work item belongs to a project, not to a repository.
                repo: format!(
                    "{organization}/{}",
                    text(value, "/fields/System.TeamProject")?
                ),
                issue_number: number(value, "/id")?,
                title: text(value, "/fields/System.Title").unwrap_or_default(),
            })
        };
        Ok(work_items.iter().filter_map(task).collect())
    }

    async fn pull_requests(
        &self,
        organization: &str,
        user: &str,
    ) -> Result<Vec<SuggestedTask>, GitError> {
        let parameters = [
            ("searchCriteria.creatorId", user),
            ("searchCriteria.status", "active"),
            ("$top", "100"),
        ];
        let path = ["_apis", "git", "pullrequests"];
        let pull_requests = self.list(organization, &path, &parameters).await?;
        let pull_request_task = |value: &Value| {
            let project = text(value, "/repository/project/name")?;
            let name = text(value, "/repository/name")?;
            // Negative votes: "waiting for the author" and "rejected".
            let mut reviewers = value.pointer("/reviewers")?.as_array()?.iter();
            let task_type = if text(value, "/mergeStatus").is_some_and(|s| s == "conflicts") {
                SuggestedTaskType::MergeConflicts
            } else if reviewers.any(|r| number(r, "/vote").is_some_and(|vote| vote < 0)) {
                SuggestedTaskType::UnresolvedComments
            } else {
                return None;
            };
            let repo = format!("{organization}/{project}/{name}");
            task((PROVIDER, task_type), repo, value, "/pullRequestId")
        };
        Ok(pull_requests.iter().filter_map(pull_request_task).collect())
    }

    async fn connection(&self, organization: &str) -> Result<Value, GitError> {
        let mut url = self.url(organization, &["_apis", "connectionData"], &[])?;
        // This resource exists only as a preview version.
        url.set_query(Some("api-version=7.0-preview.1"));
        Ok(self.0.parse(self.0.send_get(url).await?)?.body)
    }
}

fn repository(organization: &str, value: &Value) -> Option<GitRepository> {
    if flag(value, "/isDisabled").unwrap_or_default() {
        return None;
    }
    let project = text(value, "/project/name")?;
    let name = text(value, "/name")?;
    let main_branch = text(value, "/defaultBranch");
    Some(GitRepository {
        id: text(value, "/id")?,
        full_name: format!("{organization}/{project}/{name}"),
        git_provider: PROVIDER,
        is_public: text(value, "/project/visibility").is_some_and(|v| v == "public"),
        stargazers_count: None,
        pushed_at: None,
        owner_type: Some(OwnerType::Organization),
        main_branch: main_branch.map(|b| b.trim_start_matches("refs/heads/").to_owned()),
    })
}

fn branch(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?
            .strip_prefix("refs/heads/")?
            .to_owned(),
        commit_sha: text(value, "/objectId").unwrap_or_default(),
        // Unknown: reading the project's policies takes one request per branch.
        protected: false,
        last_push_date: None,
    })
}

#[async_trait]
impl Api for Azure {
    async fn user(&self) -> Result<GitUser, GitError> {
        let data = self.connection(&self.organization()?).await?;
        let name = text(&data, "/authenticatedUser/providerDisplayName");
        let account = text(&data, "/authenticatedUser/properties/Account/$value");
        let id = text(&data, "/authenticatedUser/id");
        // Without valid credentials the API returns an anonymous user.
        let anonymous = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let id = id.filter(|id| id != anonymous);
        Ok(GitUser {
            id: id.ok_or(GitError::Denied { provider: PROVIDER })?,
            login: account.clone().or_else(|| name.clone()).unwrap_or_default(),
            avatar_url: String::new(),
            company: None,
            name,
            email: account.filter(|account| account.contains('@')),
        })
    }

    /// The API returns all repositories in one response. Sorts them, so that pages of it are stable.
    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let organization = match &query.installation {
            Some(organization) if !organization.is_empty() => organization.clone(),
            _ => self.organization()?,
        };
        let search_text = search_text(query).unwrap_or_default();
        let id = self
            .0
            .list_id("repositories", &[&organization, search_text]);
        let host = self.0.web.join("/").unwrap_or_else(|_| self.0.web.clone());
        let named = repository_in_url(search_text, &host)
            .map(|path| percent_decoded(&path.replace("/_git/", "/")));
        let lower = named.as_deref().unwrap_or(search_text).to_lowercase();
        let fetch = async |_, _| {
            let path = ["_apis", "git", "repositories"];
            let mut values = self.list(&organization, &path, &[]).await?;
            values.sort_by_key(|v| (text(v, "/project/name"), text(v, "/name")));
            Ok(ProviderPage { values, next: None })
        };
        let matching = |value: &_| {
            if_named(repository(&organization, value), |name| {
                name.contains(&lower)
            })
        };
        page(id, request, SPEC.paging.max_items, matching, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let [organization, project, name] = parts(PROVIDER, repository)?;
        let path = [project, "_apis", "git", "repositories", name, "refs"];
        let mut parameters = vec![("filter", "heads/"), ("filterContains", search_text)];
        parameters.retain(|(_, text)| !text.is_empty());
        let list = ApiList::new(self.url(organization, &path, &parameters)?, Some("value"));
        let id = self.0.list_id("branches", &[repository, search_text]);
        self.0.page(id, request, &list, branch).await
    }

    /// Lists only the organisation of the host, because most tokens are valid for one organisation.
    async fn installations(
        &self,
        request: &GitPageRequest,
    ) -> Result<Option<GitPage<String>>, GitError> {
        let id = self.0.list_id("organizations", &[]);
        let organization = self.organization()?;
        let fetch = async |_, _| {
            let values = vec![Value::from(organization.clone())];
            Ok(ProviderPage { values, next: None })
        };
        let name = |value: &Value| value.as_str().map(str::to_owned);
        page(id, request, SPEC.paging.max_items, name, fetch)
            .await
            .map(Some)
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let organization = self.organization()?;
        let user = self.user().await?.id;
        let (pull_requests, items) = tokio::join!(
            self.pull_requests(&organization, &user),
            self.work_items(&organization),
        );
        // Many tokens have no scope for work items.
        let (mut tasks, items) = (or_default(pull_requests)?, or_default(items)?);
        tasks.extend(items);
        tasks.truncate(MAX_TASKS);
        Ok(tasks)
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let [organization, project, name] = parts(PROVIDER, &request.repository)?;
        let path = [
            project,
            "_apis",
            "git",
            "repositories",
            name,
            "pullrequests",
        ];
        let url = self.url(organization, &path, &[])?;
        let body = json!({"title": request.title, "description": request.body, "isDraft": request.draft,
            "sourceRefName": full_branch_name(&request.source_branch),
            "targetRefName": full_branch_name(&request.target_branch)});
        let answer = self.0.create(url, &body).await?.body;
        // The response contains only the URL in the API.
        let id = number(&answer, "/pullRequestId");
        let what = "the response has no pull request number";
        let id = id.ok_or_else(|| unavailable(PROVIDER, what))?;
        let base = azure_base(&self.0.web, organization)?;
        let path = [project, "_git", name, "pullrequest", &id.to_string()];
        Ok(ParsedPullRequest {
            url: join_segments(PROVIDER, &base, &path)?,
            number: Some(id),
        })
    }
}
