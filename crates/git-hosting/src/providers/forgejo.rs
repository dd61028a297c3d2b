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
use crate::providers::paging::{ListId, ProviderPage, following, page, page_number};
use crate::providers::pull_request::{address, branch as short, no_labels, titled};
use crate::providers::{Api, MAX_TASKS, ParsedPullRequest, named_by_url, words};
use crate::repository_url::{below, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Forgejo;
/// As long as pages are unless an administrator says otherwise; longer ones are cut without a word.
const MAX_PAGE_ITEMS: usize = 50;

pub(crate) struct Forgejo {
    session: ProviderSession,
    web: Url,
}

impl Forgejo {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let base = below(PROVIDER, &web, &["api", "v1"])?;
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
        let next = following(number, answer.has_next_link());
        Ok(ProviderPage {
            values: answer.list(member),
            next,
        })
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/private") == Some(false),
        stargazers_count: value.pointer("/stars_count").and_then(Value::as_u64),
        pushed_at: text(value, "/updated_at"),
        // Owners are shown as users, whatever they are.
        owner_type: None,
        main_branch: text(value, "/default_branch"),
    })
    .map(|found| GitRepository {
        owner_type: text(value, "/owner/type")
            .map(|kind| kind.eq_ignore_ascii_case("organization"))
            .map(|is| {
                if is {
                    OwnerType::Organization
                } else {
                    OwnerType::User
                }
            }),
        ..found
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
        let words = words(query).unwrap_or_default();
        let sort = format!("{:?}", query.sort);
        let list = ListId::new(&["forgejo repositories", self.web.as_str(), words, &sort]);
        if words.is_empty() {
            let mine = (&["user", "repos"][..], None);
            let fetch = |cursor, size| self.list(mine, &[], cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        let named = named_by_url(words, &self.web);
        // It searches in names without their owner; that is compared here.
        let words = named.as_deref().unwrap_or(words);
        let (owner, name) = match words.split_once('/') {
            Some((owner, name)) => (format!("{}/", owner.to_lowercase()), name),
            None => (String::new(), words),
        };
        let by = query.sort.map_or("updated", |sort| match sort.by {
            RepositorySortKey::Stars => "stars",
            RepositorySortKey::Forks => "forks",
            RepositorySortKey::Updated => "updated",
        });
        let ascending = query.sort.is_some_and(|sort| !sort.descending);
        let order = if ascending { "asc" } else { "desc" };
        let parameters = [("q", name), ("sort", by), ("order", order)];
        let theirs = |value: &Value| {
            let found = repository(value)?;
            found
                .full_name
                .to_lowercase()
                .starts_with(&owner)
                .then_some(found)
        };
        let all = (&["repos", "search"][..], Some("data"));
        let fetch = |cursor, size| self.list(all, &parameters, cursor, size);
        page(list, request, MAX_PAGE_ITEMS, theirs, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        words: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let parts = segments(PROVIDER, repository)?;
        let [owner, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["repos", owner, name, "branches"];
        let list = ListId::new(&["forgejo branches", self.web.as_str(), repository, words]);
        // It knows no words here.
        let lower = words.to_lowercase();
        let named =
            |value: &Value| branch(value).filter(|b| b.name.to_lowercase().contains(&lower));
        let fetch = |cursor, size| self.list((&path, None), &[], cursor, size);
        page(list, request, MAX_PAGE_ITEMS, named, fetch).await
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
        let body = json!({"title": titled(&request.title, request.draft, "WIP:"),
            "body": request.body.as_deref().unwrap_or_default(),
            "head": short(&request.source_branch), "base": short(&request.target_branch)});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: address(PROVIDER, &answer, "/html_url")?,
            number: number(&answer, "/number"),
        })
    }

    /// Labels have numbers there, which only a list of all of them tells.
    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        no_labels(PROVIDER)
    }
}
