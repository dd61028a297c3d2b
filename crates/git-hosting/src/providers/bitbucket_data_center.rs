//! Bitbucket Data Center (`https://host/rest/api/1.0`).

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use crate::http::client::Http;
use crate::http::session::{ProviderSession, TokenScheme, flag, id, number, text};
use crate::providers::paging::{ListId, ProviderPage, page};
use crate::providers::pull_request::{full_branch_name, no_labels, web_url};
use crate::providers::{Api, MAX_TASKS, ParsedPullRequest, search_text};
use crate::repository_url::{is_segment, join_segments, percent_decoded, segments, web_base};

const PROVIDER: GitProvider = GitProvider::BitbucketDataCenter;
const MAX_PAGE_ITEMS: usize = 100;

pub(crate) struct BitbucketDataCenter {
    session: ProviderSession,
    web: Url,
    user: Option<String>,
}

impl BitbucketDataCenter {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let base = join_segments(PROVIDER, &web, &["rest", "api", "1.0"])?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Pair)?,
            web,
            user: access.user.clone(),
        })
    }

    async fn list(
        &self,
        path: &[&str],
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        // The cursor is the offset that the page before named. It need not be a multiple of the page length.
        let start = cursor.unwrap_or_else(|| "0".into());
        if start.parse::<u64>().is_err() {
            return Err(GitError::InvalidPageToken);
        }
        let size = size.to_string();
        let mut all = parameters.to_vec();
        all.extend([("start", start.as_str()), ("limit", &size)]);
        let mut answer = self.session.get(path, &all).await?;
        let is_last = flag(&answer.body, "/isLastPage").unwrap_or(true);
        let next = number(&answer.body, "/nextPageStart").filter(|_| !is_last);
        Ok(ProviderPage {
            values: answer.list(Some("values")),
            next: next.map(|next| next.to_string()),
        })
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
        owner_type: Some(if is_personal {
            OwnerType::User
        } else {
            OwnerType::Organization
        }),
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

fn task(value: &Value) -> Option<SuggestedTask> {
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
    Some(SuggestedTask {
        git_provider: PROVIDER,
        task_type,
        repo: format!("{project}/{slug}"),
        issue_number: number(value, "/id")?,
        title: text(value, "/title").unwrap_or_default(),
    })
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
            let users = users.map(|mut answer| answer.list(Some("values")));
            let has_login = |user: &Value| {
                text(user, "/name").is_some_and(|name| name.eq_ignore_ascii_case(&login))
            };
            user = users
                .unwrap_or_default()
                .into_iter()
                .find(has_login)
                .unwrap_or_default();
        }
        let id = id(&user, "/id").unwrap_or_else(|| login.clone());
        let avatar = text(&user, "/avatarUrl").and_then(|to| self.web.join(&to).ok());
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
        let list = ListId::new(&[
            "bitbucket dc repositories",
            self.web.as_str(),
            project,
            name,
        ]);
        if project.is_empty() {
            let parameters = [("name", name)];
            let parameters = if name.is_empty() {
                &[][..]
            } else {
                &parameters
            };
            let fetch = |cursor, size| self.list(&["repos"], parameters, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        if !is_segment(project) {
            return Ok(GitPage {
                items: Vec::new(),
                next: None,
            });
        }
        // The list of a project has no filter by name.
        let lower = name.to_lowercase();
        let matching = |value: &Value| {
            let repository = repository(value)?;
            let name = repository.full_name.to_lowercase();
            name.contains(&lower).then_some(repository)
        };
        let path = ["projects", project, "repos"];
        let fetch = |cursor, size| self.list(&path, &[], cursor, size);
        page(list, request, MAX_PAGE_ITEMS, matching, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let parts = segments(PROVIDER, repository)?;
        let [project, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["projects", project, "repos", name, "branches"];
        let parameters = [("orderBy", "MODIFICATION"), ("filterText", search_text)];
        let parameters = if search_text.is_empty() {
            &parameters[..1]
        } else {
            &parameters
        };
        let list = ListId::new(&[
            "bitbucket dc branches",
            self.web.as_str(),
            repository,
            search_text,
        ]);
        let fetch = |cursor, size| self.list(&path, parameters, cursor, size);
        page(list, request, MAX_PAGE_ITEMS, branch, fetch).await
    }

    /// Lists the keys of projects.
    async fn installations(&self, request: &GitPageRequest) -> Result<GitPage<String>, GitError> {
        let list = ListId::new(&["bitbucket dc projects", self.web.as_str()]);
        let fetch = |cursor, size| self.list(&["projects"], &[], cursor, size);
        page(
            list,
            request,
            MAX_PAGE_ITEMS,
            |value| text(value, "/key"),
            fetch,
        )
        .await
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let path = ["dashboard", "pull-requests"];
        let parameters = [("state", "OPEN"), ("role", "AUTHOR"), ("limit", "100")];
        let mut answer = self.session.get(&path, &parameters).await?;
        let values = answer.list(Some("values"));
        Ok(values.iter().filter_map(task).take(MAX_TASKS).collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let parts = segments(PROVIDER, &request.repository)?;
        let [project, slug] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["projects", project, "repos", slug, "pull-requests"];
        let url = self.session.url(&path, &[])?;
        let repository = json!({"slug": slug, "project": {"key": project}});
        let reference =
            |branch: &str| json!({"id": full_branch_name(branch), "repository": repository});
        let mut body = json!({"title": request.title, "description": request.body.as_deref().unwrap_or_default(),
            "fromRef": reference(&request.source_branch), "toRef": reference(&request.target_branch)});
        if request.draft {
            // Servers before 8.18 have no such member.
            body["draft"] = true.into();
        }
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: web_url(PROVIDER, &answer, "/links/self/0/href")?,
            number: number(&answer, "/id"),
        })
    }

    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        no_labels(PROVIDER)
    }
}
