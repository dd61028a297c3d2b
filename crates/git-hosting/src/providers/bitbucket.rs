//! Bitbucket Cloud (`https://api.bitbucket.org/2.0`).
//!
//! The API cannot list repositories of all workspaces, so a list without a workspace reads one workspace after the other.

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, OwnerType, RepositoryQuery, RepositorySortKey, SuggestedTask,
};
use serde_json::{Value, json};
use url::Url;

use crate::http::client::{Http, unavailable};
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, text};
use crate::providers::lists::ApiList;
use crate::providers::paging::{ProviderPage, page};
use crate::providers::pull_request::{self, short_branch_name};
use crate::providers::{
    Api, ParsedPullRequest, branch, parts, repository_in_url, search_text, usable_email,
};
use crate::repository_url::{is_segment, join_segments};

const PROVIDER: GitProvider = GitProvider::Bitbucket;
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Pair,
    name: "bitbucket",
    paging: Paging {
        position: "page",
        length: "pagelen",
        max_items: 100,
        next: NextPage::NumberInUrl,
    },
};
/// The only host whose API has another host name.
const BITBUCKET_CLOUD_HOST: &str = "bitbucket.org";

pub(crate) struct Bitbucket(ProviderSession);

impl Bitbucket {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        ProviderSession::new(http, access, &SPEC, api_base).map(Self)
    }

    fn list(&self, path: &[&str], parameters: &[(&str, &str)]) -> Result<ApiList, GitError> {
        let url = self.0.url(path, parameters)?;
        Ok(ApiList::new(url, Some("values")))
    }

    /// Lists repositories of all workspaces. The cursor is `WORKSPACE/NEXT/PAGE`: a workspace, the number of the next workspace
    /// and the page of this one; or `/NEXT` to begin with the next workspace.
    async fn list_all_workspaces(
        &self,
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let (workspace, next_workspace, inner) = match cursor.as_deref() {
            Some(cursor) if !cursor.starts_with('/') => {
                let parts: Vec<&str> = cursor.split('/').collect();
                let [workspace, next, inner] = parts[..] else {
                    return Err(GitError::InvalidPageToken);
                };
                let next = Some(next.to_owned()).filter(|next| !next.is_empty());
                (workspace.to_owned(), next, Some(inner.to_owned()))
            }
            cursor => {
                let number = cursor.map(|cursor| cursor[1..].to_owned());
                let (workspace, next) = self.workspace(number).await?;
                (workspace, next, None)
            }
        };
        let next_workspace_cursor = next_workspace.as_ref().map(|next| format!("/{next}"));
        if workspace.is_empty() {
            return Ok(ProviderPage {
                values: Vec::new(),
                next: next_workspace_cursor,
            });
        }
        if !is_segment(&workspace) {
            return Err(GitError::InvalidPageToken);
        }
        let list = self.list(&["repositories", &workspace], parameters)?;
        let provider_page = self.0.provider_page(&list, inner, size).await?;
        let next = match provider_page.next {
            Some(inner) => {
                let next_workspace = next_workspace.unwrap_or_default();
                Some(format!("{workspace}/{next_workspace}/{inner}"))
            }
            None => next_workspace_cursor,
        };
        Ok(ProviderPage {
            values: provider_page.values,
            next,
        })
    }

    /// The name of the workspace with this number (empty if there is none), and the number of the next workspace. The API lists
    /// workspaces with one to a page.
    async fn workspace(
        &self,
        number: Option<String>,
    ) -> Result<(String, Option<String>), GitError> {
        let list = self.list(&["user", "workspaces"], &[])?;
        let provider_page = self.0.provider_page(&list, number, 1).await?;
        let name = provider_page
            .values
            .first()
            .and_then(workspace)
            .unwrap_or_default();
        Ok((name, provider_page.next))
    }
}

/// The base URL of the API. A URL that ends with `/2.0` is one already.
fn api_base(web: &Url) -> Result<Url, GitError> {
    if web.path().trim_end_matches('/').ends_with("/2.0") {
        return Ok(web.clone());
    }
    let mut api = web.clone();
    if web.host_str() == Some(BITBUCKET_CLOUD_HOST) {
        api.set_host(Some(&format!("api.{BITBUCKET_CLOUD_HOST}")))
            .map_err(|error| unavailable(PROVIDER, error))?;
    }
    join_segments(PROVIDER, &api, &["2.0"])
}

/// A filter by name, in Bitbucket's query language. No filter without a text.
fn name_filter(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
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

#[async_trait]
impl Api for Bitbucket {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.0.get(&["user"], &[]).await?.body;
        // Refused for tokens without a scope for e-mail addresses.
        let emails = self.0.get(&["user", "emails"], &[]).await;
        let emails = emails.unwrap_or_default().list(Some("values"));
        let email = usable_email(&emails, ["/is_primary", "/is_confirmed"]);
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
        let search_text = search_text(query).unwrap_or_default();
        let named = repository_in_url(search_text, &self.0.web);
        let search_text = named.as_deref().unwrap_or(search_text);
        let (workspace, name) = match search_text.split_once('/') {
            Some((workspace, name)) => (workspace, name),
            None => (
                query.installation.as_deref().unwrap_or_default(),
                search_text,
            ),
        };
        let ascending = query
            .sort
            .is_some_and(|s| s.by == RepositorySortKey::Updated && !s.descending);
        let sort = if ascending {
            "updated_on"
        } else {
            "-updated_on"
        };
        let filter = name_filter(name);
        let parameters = [("role", "member"), ("sort", sort), ("q", filter.as_str())];
        let id = self.0.list_id("repositories", &[workspace, name, sort]);
        if workspace.is_empty() {
            let fetch = |cursor, size| self.list_all_workspaces(&parameters, cursor, size);
            return page(id, request, SPEC.paging.max_items, repository, fetch).await;
        }
        if !is_segment(workspace) {
            return Ok(GitPage {
                items: Vec::new(),
                next: None,
            });
        }
        // Without `role=member`: a named workspace also shows public repositories.
        let list = self.list(&["repositories", workspace], &parameters[1..])?;
        self.0.page(id, request, &list, repository).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let [workspace, name] = parts(PROVIDER, repository)?;
        let path = ["repositories", workspace, name, "refs", "branches"];
        let filter = name_filter(search_text);
        let list = self.list(&path, &[("sort", "-target.date"), ("q", filter.as_str())])?;
        // The list omits whether a branch is protected.
        let branch = |value: &_| branch(value, "/target/hash", "/target/date");
        let id = self.0.list_id("branches", &[repository, search_text]);
        self.0.page(id, request, &list, branch).await
    }

    async fn installations(
        &self,
        request: &GitPageRequest,
    ) -> Result<Option<GitPage<String>>, GitError> {
        let id = self.0.list_id("workspaces", &[]);
        let list = self.list(&["user", "workspaces"], &[])?;
        self.0.page(id, request, &list, workspace).await.map(Some)
    }

    /// Returns nothing, because the list would take a request for each workspace.
    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        Ok(Vec::new())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let [workspace, name] = parts(PROVIDER, &request.repository)?;
        let path = ["repositories", workspace, name, "pullrequests"];
        let reference = |branch: &str| json!({"branch": {"name": short_branch_name(branch)}});
        let body = json!({"title": request.title, "description": request.body.as_deref().unwrap_or_default(),
            "source": reference(&request.source_branch), "destination": reference(&request.target_branch),
            "draft": request.draft});
        pull_request::open(&self.0, &path, &body, ("/links/html/href", "/id")).await
    }
}
