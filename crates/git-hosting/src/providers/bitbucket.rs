//! Bitbucket Cloud (`https://api.bitbucket.org/2.0`).
//!
//! Nothing there lists repositories over all workspaces any more, so a list without a workspace goes through one after the
//! other.

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, RepositorySortKey, SuggestedTask,
};
use serde_json::{Value, json};
use url::Url;

use crate::http::client::Http;
use crate::http::session::{ProviderSession, TokenScheme, flag, number, text, unavailable};
use crate::providers::paging::{ListId, ProviderPage, page, page_number};
use crate::providers::pull_request::{address, branch as short, no_labels};
use crate::providers::{Api, ParsedPullRequest, named_by_url, words};
use crate::repository_url::{below, is_segment, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Bitbucket;
const MAX_PAGE_ITEMS: usize = 100;
/// The only host whose API has another name.
const BITBUCKET_CLOUD_HOST: &str = "bitbucket.org";

pub(crate) struct Bitbucket {
    session: ProviderSession,
    web: Url,
}

impl Bitbucket {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let base = api_base(&web)?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Pair)?,
            web,
        })
    }

    async fn list(
        &self,
        path: &[&str],
        parameters: &[(&str, &str)],
        cursor: Option<&str>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let (number, size) = (page_number(cursor)?.to_string(), size.to_string());
        let mut all = parameters.to_vec();
        all.extend([("pagelen", size.as_str()), ("page", &number)]);
        let mut answer = self.session.get(path, &all).await?;
        // Its next page is an address; that it is ours to make up from the number is what keeps tokens from leading elsewhere.
        let next = text(&answer.body, "/next").and_then(|next| page_of(&next));
        Ok(ProviderPage {
            values: answer.list(Some("values")),
            next,
        })
    }

    /// Repositories of all workspaces: the cursor is `workspace/page of workspaces/page`, the page of workspaces (of one
    /// each) being the one after it.
    async fn everywhere(
        &self,
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let (workspace, after, inner) = match cursor.as_deref() {
            Some(cursor) if cursor.starts_with('/') => self.workspace(Some(&cursor[1..])).await?,
            None => self.workspace(None).await?,
            Some(cursor) => {
                let mut parts = cursor.split('/').map(str::to_owned);
                let (Some(workspace), Some(after), Some(inner), None) =
                    (parts.next(), parts.next(), parts.next(), parts.next())
                else {
                    return Err(GitError::InvalidPageToken);
                };
                (
                    workspace,
                    Some(after).filter(|after| !after.is_empty()),
                    Some(inner),
                )
            }
        };
        let following = after.as_ref().map(|after| format!("/{after}"));
        if workspace.is_empty() {
            let values = Vec::new();
            return Ok(ProviderPage {
                values,
                next: following,
            });
        }
        if !is_segment(&workspace) {
            return Err(GitError::InvalidPageToken);
        }
        let path = ["repositories", &workspace];
        let chunk = self.list(&path, parameters, inner.as_deref(), size).await?;
        let next = match chunk.next {
            Some(inner) => Some(format!("{workspace}/{}/{inner}", after.unwrap_or_default())),
            None => following,
        };
        Ok(ProviderPage {
            values: chunk.values,
            next,
        })
    }

    /// One workspace, and the page on which the next one is. No name: there is none.
    async fn workspace(
        &self,
        at: Option<&str>,
    ) -> Result<(String, Option<String>, Option<String>), GitError> {
        let chunk = self.list(&["user", "workspaces"], &[], at, 1).await?;
        let name = chunk.values.first().and_then(workspace).unwrap_or_default();
        Ok((name, chunk.next, None))
    }
}

/// Only bitbucket.org has its API under another name. A configured API address (`…/2.0`) is used as it is.
fn api_base(web: &Url) -> Result<Url, GitError> {
    if web.path().trim_end_matches('/').ends_with("/2.0") {
        return Ok(web.clone());
    }
    let mut api = web.clone();
    let host = web.host_str().unwrap_or_default();
    if host != BITBUCKET_CLOUD_HOST {
        return below(PROVIDER, &api, &["2.0"]);
    }
    api.set_host(Some(&format!("api.{host}")))
        .map_err(|_| unavailable(PROVIDER, "no address of an API".into()))?;
    below(PROVIDER, &api, &["2.0"])
}

/// The number in the address of a page.
fn page_of(next: &str) -> Option<String> {
    let url: Url = next.parse().ok()?;
    let page = url.query_pairs().find(|(name, _)| name == "page")?.1;
    page.parse::<u32>().ok().map(|number| number.to_string())
}

/// A literal in its query language.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("name~\"{escaped}\"")
}

fn workspace(value: &Value) -> Option<String> {
    text(value, "/workspace/slug").or_else(|| text(value, "/slug"))
}

fn repository(value: &Value) -> Option<GitRepository> {
    Some(GitRepository {
        id: text(value, "/uuid")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/is_private") == Some(false),
        stargazers_count: None,
        pushed_at: text(value, "/updated_on"),
        owner_type: Some(OwnerType::Organization),
        main_branch: text(value, "/mainbranch/name"),
    })
}

fn branch(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, "/target/hash").unwrap_or_default(),
        // The list of branches does not have it.
        protected: false,
        last_push_date: text(value, "/target/date"),
    })
}

#[async_trait]
impl Api for Bitbucket {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        // For tokens that may read them.
        let emails = self.session.get(&["user", "emails"], &[]).await;
        let emails = emails.map(|mut answer| answer.list(Some("values")));
        let email = emails.unwrap_or_default().iter().find_map(|entry| {
            let is_theirs = flag(entry, "/is_primary")? && flag(entry, "/is_confirmed")?;
            is_theirs.then(|| text(entry, "/email"))?
        });
        let login = text(&user, "/username").or_else(|| text(&user, "/nickname"));
        let id = text(&user, "/account_id").or_else(|| text(&user, "/uuid"));
        Ok(GitUser {
            id: id.unwrap_or_default(),
            login: login.unwrap_or_default(),
            avatar_url: text(&user, "/links/avatar/href").unwrap_or_default(),
            company: None,
            name: text(&user, "/display_name"),
            email,
        })
    }

    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let words = words(query).unwrap_or_default();
        let named = named_by_url(words, &self.web);
        let words = named.as_deref().unwrap_or(words);
        let (workspace, name) = match words.split_once('/') {
            Some((workspace, name)) => (workspace, name),
            None => (query.installation.as_deref().unwrap_or_default(), words),
        };
        let ascending = query
            .sort
            .is_some_and(|s| s.by == RepositorySortKey::Updated && !s.descending);
        let sort = if ascending {
            "updated_on"
        } else {
            "-updated_on"
        };
        let filter = quoted(name);
        let mut parameters = vec![("role", "member"), ("sort", sort)];
        if !name.is_empty() {
            parameters.push(("q", &filter));
        }
        let parts = [
            "bitbucket repositories",
            self.web.as_str(),
            workspace,
            name,
            sort,
        ];
        let list = ListId::new(&parts);
        if workspace.is_empty() {
            let fetch = |cursor, size| self.everywhere(&parameters, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        if !is_segment(workspace) {
            return Ok(GitPage {
                items: Vec::new(),
                next: None,
            });
        }
        let path = ["repositories", workspace];
        // Public repositories of others too, when they are named by their workspace.
        let parameters = &parameters[1..];
        let fetch = async |cursor: Option<String>, size| {
            self.list(&path, parameters, cursor.as_deref(), size).await
        };
        page(list, request, MAX_PAGE_ITEMS, repository, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        words: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let parts = segments(PROVIDER, repository)?;
        let [workspace, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["repositories", workspace, name, "refs", "branches"];
        let filter = quoted(words);
        let parameters = [("sort", "-target.date"), ("q", filter.as_str())];
        let parameters = if words.is_empty() {
            &parameters[..1]
        } else {
            &parameters
        };
        let list = ListId::new(&["bitbucket branches", self.web.as_str(), repository, words]);
        let fetch = async |cursor: Option<String>, size| {
            self.list(&path, parameters, cursor.as_deref(), size).await
        };
        page(list, request, MAX_PAGE_ITEMS, branch, fetch).await
    }

    async fn installations(&self, request: &GitPageRequest) -> Result<GitPage<String>, GitError> {
        let list = ListId::new(&["bitbucket workspaces", self.web.as_str()]);
        let fetch = async |cursor: Option<String>, size| {
            let path = ["user", "workspaces"];
            self.list(&path, &[], cursor.as_deref(), size).await
        };
        page(list, request, MAX_PAGE_ITEMS, workspace, fetch).await
    }

    /// None: what it would take is a request for every workspace.
    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        Ok(Vec::new())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let parts = segments(PROVIDER, &request.repository)?;
        let path = [&["repositories"], &parts[..], &["pullrequests"]].concat();
        let url = self.session.url(&path, &[])?;
        let end = |branch: &str| json!({"branch": {"name": short(branch)}});
        let body = json!({"title": request.title, "description": request.body.as_deref().unwrap_or_default(),
            "source": end(&request.source_branch), "destination": end(&request.target_branch),
            "draft": request.draft});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: address(PROVIDER, &answer, "/links/html/href")?,
            number: number(&answer, "/id"),
        })
    }

    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        no_labels(PROVIDER)
    }
}
