//! Forgejo and Gitea (`https://host/api/v1`).

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
use crate::http::session::{ProviderSession, TokenScheme, flag, id, number, text};
use crate::providers::paging::{ListId, ProviderPage, next_page_number, page, page_number};
use crate::providers::pull_request::{no_labels, short_branch_name, web_url, with_draft_prefix};
use crate::providers::{Api, MAX_TASKS, ParsedPullRequest, repository_in_url, search_text};
use crate::repository_url::{join_segments, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Forgejo;
/// The server's default limit (`[api] MAX_RESPONSE_ITEMS`). The server silently shortens longer pages.
const MAX_PAGE_ITEMS: usize = 50;

pub(crate) struct Forgejo {
    session: ProviderSession,
    web: Url,
}

impl Forgejo {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let base = join_segments(PROVIDER, &web, &["api", "v1"])?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Token)?,
            web,
        })
    }

    async fn list(
        &self,
        (path, member): (&[&str], Option<&str>),
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let number = page_number(cursor.as_deref())?;
        let (page, limit) = (number.to_string(), size.to_string());
        let mut all = parameters.to_vec();
        all.extend([("page", page.as_str()), ("limit", &limit)]);
        let mut answer = self.session.get(path, &all).await?;
        let next = next_page_number(number, answer.has_next_link());
        Ok(ProviderPage {
            values: answer.list(member),
            next,
        })
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    let owner_type = text(value, "/owner/type").map(|kind| {
        if kind.eq_ignore_ascii_case("organization") {
            OwnerType::Organization
        } else {
            OwnerType::User
        }
    });
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/private") == Some(false),
        stargazers_count: value.pointer("/stars_count").and_then(Value::as_u64),
        pushed_at: text(value, "/updated_at"),
        owner_type,
        main_branch: text(value, "/default_branch"),
    })
}

fn branch(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, "/commit/id").unwrap_or_default(),
        protected: flag(value, "/protected").unwrap_or_default(),
        last_push_date: text(value, "/commit/timestamp"),
    })
}

fn task(value: &Value) -> Option<SuggestedTask> {
    Some(SuggestedTask {
        git_provider: PROVIDER,
        task_type: SuggestedTaskType::OpenIssue,
        repo: text(value, "/repository/full_name")?,
        issue_number: number(value, "/number")?,
        title: text(value, "/title").unwrap_or_default(),
    })
}

#[async_trait]
impl Api for Forgejo {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
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
        let list = ListId::new(&[
            "forgejo repositories",
            self.web.as_str(),
            search_text,
            &sort,
        ]);
        if search_text.is_empty() {
            let resource = (&["user", "repos"][..], None);
            let fetch = |cursor, size| self.list(resource, &[], cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        let named = repository_in_url(search_text, &self.web);
        // The API searches in names without the owner, so `matching` compares the owner.
        let search_text = named.as_deref().unwrap_or(search_text);
        let (owner, name) = match search_text.split_once('/') {
            Some((owner, name)) => (format!("{}/", owner.to_lowercase()), name),
            None => (String::new(), search_text),
        };
        let by = query.sort.map_or("updated", |sort| match sort.by {
            RepositorySortKey::Stars => "stars",
            RepositorySortKey::Forks => "forks",
            RepositorySortKey::Updated => "updated",
        });
        let ascending = query.sort.is_some_and(|sort| !sort.descending);
        let order = if ascending { "asc" } else { "desc" };
        let parameters = [("q", name), ("sort", by), ("order", order)];
        let matching = |value: &Value| {
            let repository = repository(value)?;
            let name = repository.full_name.to_lowercase();
            name.starts_with(&owner).then_some(repository)
        };
        let resource = (&["repos", "search"][..], Some("data"));
        let fetch = |cursor, size| self.list(resource, &parameters, cursor, size);
        page(list, request, MAX_PAGE_ITEMS, matching, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let parts = segments(PROVIDER, repository)?;
        let [owner, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["repos", owner, name, "branches"];
        let list = ListId::new(&[
            "forgejo branches",
            self.web.as_str(),
            repository,
            search_text,
        ]);
        // The API has no filter for branches.
        let lower = search_text.to_lowercase();
        let matching =
            |value: &Value| branch(value).filter(|b| b.name.to_lowercase().contains(&lower));
        let fetch = |cursor, size| self.list((&path, None), &[], cursor, size);
        page(list, request, MAX_PAGE_ITEMS, matching, fetch).await
    }

    async fn installations(&self, _: &GitPageRequest) -> Result<GitPage<String>, GitError> {
        Err(GitError::Unsupported {
            provider: PROVIDER,
            what: "installations",
        })
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let path = ["repos", "issues", "search"];
        let parameters = [
            ("state", "open"),
            ("type", "issues"),
            ("assigned", "true"),
            ("limit", "50"),
        ];
        let mut answer = self.session.get(&path, &parameters).await?;
        let values = answer.list(None);
        Ok(values.iter().filter_map(task).take(MAX_TASKS).collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let parts = segments(PROVIDER, &request.repository)?;
        let path = [&["repos"], &parts[..], &["pulls"]].concat();
        let url = self.session.url(&path, &[])?;
        let body = json!({"title": with_draft_prefix(&request.title, request.draft, "WIP:"),
            "body": request.body.as_deref().unwrap_or_default(),
            "head": short_branch_name(&request.source_branch), "base": short_branch_name(&request.target_branch)});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: web_url(PROVIDER, &answer, "/html_url")?,
            number: number(&answer, "/number"),
        })
    }

    /// Unsupported: the API takes labels by number, and only the list of all labels shows the numbers.
    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        no_labels(PROVIDER)
    }
}
