//! Bitbucket Cloud (`https://api.bitbucket.org/2.0`).
//!
//! The API cannot list repositories of all workspaces, so a list without a workspace reads one workspace after the other.

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
use crate::providers::pull_request::{no_labels, short_branch_name, web_url};
use crate::providers::{Api, ParsedPullRequest, repository_in_url, search_text};
use crate::repository_url::{is_segment, join_segments, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Bitbucket;
const MAX_PAGE_ITEMS: usize = 100;
/// The only host whose API has another host name.
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
        // The API returns the next page as a URL. Only its page number is used, so that the token cannot go to another host.
        let next = text(&answer.body, "/next").and_then(|next| page_number_in(&next));
        Ok(ProviderPage {
            values: answer.list(Some("values")),
            next,
        })
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
            Some(cursor) if cursor.starts_with('/') => {
                let (workspace, next) = self.workspace(Some(&cursor[1..])).await?;
                (workspace, next, None)
            }
            None => {
                let (workspace, next) = self.workspace(None).await?;
                (workspace, next, None)
            }
            Some(cursor) => {
                let parts: Vec<&str> = cursor.split('/').collect();
                let [workspace, next, inner] = parts[..] else {
                    return Err(GitError::InvalidPageToken);
                };
                let next = Some(next.to_owned()).filter(|next| !next.is_empty());
                (workspace.to_owned(), next, Some(inner))
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
        let path = ["repositories", &workspace];
        let provider_page = self.list(&path, parameters, inner, size).await?;
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
    async fn workspace(&self, number: Option<&str>) -> Result<(String, Option<String>), GitError> {
        let provider_page = self.list(&["user", "workspaces"], &[], number, 1).await?;
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
    let host = web.host_str().unwrap_or_default();
    if host != BITBUCKET_CLOUD_HOST {
        return join_segments(PROVIDER, &api, &["2.0"]);
    }
    api.set_host(Some(&format!("api.{host}")))
        .map_err(|_| unavailable(PROVIDER, "the URL of the API is invalid".into()))?;
    join_segments(PROVIDER, &api, &["2.0"])
}

/// The page number in the URL of a page.
fn page_number_in(next: &str) -> Option<String> {
    let url: Url = next.parse().ok()?;
    let page = url.query_pairs().find(|(name, _)| name == "page")?.1;
    page.parse::<u32>().ok().map(|number| number.to_string())
}

/// A filter by name, in Bitbucket's query language.
fn name_filter(text: &str) -> String {
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
        // Unknown: the list of branches omits it.
        protected: false,
        last_push_date: text(value, "/target/date"),
    })
}

#[async_trait]
impl Api for Bitbucket {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        // Refused for tokens without a scope for e-mail addresses.
        let emails = self.session.get(&["user", "emails"], &[]).await;
        let emails = emails.map(|mut answer| answer.list(Some("values")));
        let email = emails.unwrap_or_default().iter().find_map(|entry| {
            let is_usable = flag(entry, "/is_primary")? && flag(entry, "/is_confirmed")?;
            is_usable.then(|| text(entry, "/email"))?
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
        let search_text = search_text(query).unwrap_or_default();
        let named = repository_in_url(search_text, &self.web);
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
            let fetch = |cursor, size| self.list_all_workspaces(&parameters, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        if !is_segment(workspace) {
            return Ok(GitPage {
                items: Vec::new(),
                next: None,
            });
        }
        let path = ["repositories", workspace];
        // Without `role=member`: a named workspace also shows public repositories.
        let parameters = &parameters[1..];
        let fetch = async |cursor: Option<String>, size| {
            self.list(&path, parameters, cursor.as_deref(), size).await
        };
        page(list, request, MAX_PAGE_ITEMS, repository, fetch).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let parts = segments(PROVIDER, repository)?;
        let [workspace, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let path = ["repositories", workspace, name, "refs", "branches"];
        let filter = name_filter(search_text);
        let parameters = [("sort", "-target.date"), ("q", filter.as_str())];
        let parameters = if search_text.is_empty() {
            &parameters[..1]
        } else {
            &parameters
        };
        let list = ListId::new(&[
            "bitbucket branches",
            self.web.as_str(),
            repository,
            search_text,
        ]);
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

    /// Returns nothing, because the list would take a request for each workspace.
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
        let reference = |branch: &str| json!({"branch": {"name": short_branch_name(branch)}});
        let body = json!({"title": request.title, "description": request.body.as_deref().unwrap_or_default(),
            "source": reference(&request.source_branch), "destination": reference(&request.target_branch),
            "draft": request.draft});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: web_url(PROVIDER, &answer, "/links/html/href")?,
            number: number(&answer, "/id"),
        })
    }

    async fn label(&self, _: &NewPullRequest, _: i64) -> Result<(), GitError> {
        no_labels(PROVIDER)
    }
}
