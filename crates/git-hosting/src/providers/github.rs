//! GitHub (`https://api.github.com`, `https://api.NAME.ghe.com`) and Enterprise Server (`https://host/api/v3`).
//!
//! Uses REST where it lists well, and GraphQL for searches of branches and for tasks, which take many requests with
//! REST.

mod responses;

use async_trait::async_trait;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitProvider, GitRepository, GitUser,
    NewPullRequest, RepositoryQuery, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use self::responses::{BRANCHES, TASKS, pull_request_task_type, ref_node, repository, task};
use crate::http::client::{Http, unavailable};
use crate::http::paging::{NextPage, Paging};
use crate::http::session::{ApiSpec, ProviderSession, TokenScheme, flag, id, items, text};
use crate::providers::lists::ApiList;
use crate::providers::paging::{ListId, ProviderPage, page, page_number};
use crate::providers::pull_request::{self, short_branch_name};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, branch, or_default, parts, repository_in_url, search_text,
    sort_parameters, usable_email,
};
use crate::repository_url::join_segments;

const PROVIDER: GitProvider = GitProvider::Github;
const SPEC: ApiSpec = ApiSpec {
    provider: PROVIDER,
    scheme: TokenScheme::Bearer,
    name: "github",
    paging: Paging {
        position: "page",
        length: "per_page",
        max_items: 100,
        next: NextPage::Link,
    },
};
/// GitHub's limit of results of one search, over all pages.
const MAX_SEARCH_RESULTS: usize = 1000;
/// Maximum number of organisations that a search includes. GitHub limits the length of the query.
const MAX_ORGANIZATIONS: usize = 30;

pub(crate) struct Github {
    session: ProviderSession,
    graphql: Url,
}

impl Github {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let session = ProviderSession::new(http, access, &SPEC, |web| Ok(api_urls(web)?.0))?;
        let (_, graphql) = api_urls(&session.web)?;
        Ok(Self { session, graphql })
    }

    async fn graphql(&self, query: &str, variables: Value) -> Result<Value, GitError> {
        let body = json!({"query": query, "variables": variables});
        let mut answer = self.session.post_query(self.graphql.clone(), &body).await?;
        let errors = items(&answer.body, "/errors");
        let kinds: Vec<_> = errors.filter_map(|error| text(error, "/type")).collect();
        if kinds.iter().any(|kind| kind.starts_with("RATE_LIMIT")) {
            return Err(GitError::Limited {
                provider: PROVIDER,
                retry_after: None,
            });
        }
        if answer.body["data"].is_null() {
            let kinds = kinds.join(", ");
            let what = format!("the GraphQL response has no data (errors: {kinds})");
            return Err(unavailable(PROVIDER, what));
        }
        // Errors beside data concern parts that this token must not see.
        Ok(answer.body["data"].take())
    }

    /// Converts a search text to GitHub's query. Restricts it to a named owner, or to the user and the user's
    /// organisations.
    async fn search_terms(&self, search_text: &str) -> Result<String, GitError> {
        if let Some(name) = repository_in_url(search_text, &self.session.web) {
            return Ok(format!("repo:{name} fork:true"));
        }
        // GitHub reads `name:value` as a qualifier.
        let clean = |text: &str| text.replace(['"', ':'], " ").trim().to_owned();
        if let Some((owner, name)) = search_text.split_once('/') {
            let (owner, name) = (clean(owner), clean(name));
            return Ok(format!("{name} in:name user:{owner} fork:true"));
        }
        let login = self.session.get(&["user"], &[]).await?;
        let login = text(&login.body, "/login").unwrap_or_default();
        let all = [("per_page", "100")];
        let organizations = self.session.get(&["user", "orgs"], &all).await;
        let organizations = or_default(organizations)?.list(None);
        let names = organizations
            .iter()
            .filter_map(|organization| text(organization, "/login"));
        let mut terms = format!("{} in:name fork:true user:{login}", clean(search_text));
        for name in names.take(MAX_ORGANIZATIONS) {
            terms.push_str(" org:");
            terms.push_str(&name);
        }
        Ok(terms)
    }

    async fn search(
        &self,
        terms: &str,
        query: &RepositoryQuery,
        (id, request): (ListId, &GitPageRequest),
    ) -> Result<GitPage<GitRepository>, GitError> {
        let [sort, order] = sort_parameters(query, "stars");
        let parameters = [("q", terms), sort, order];
        let url = self.session.url(&["search", "repositories"], &parameters)?;
        let list = ApiList {
            // GitHub refuses the query if an owner does not exist or the page is beyond the limit.
            is_empty: |reply| reply.status == 422,
            ..ApiList::new(url, Some("items"))
        };
        let list = &list;
        let fetch = async |cursor: Option<String>, length: usize| {
            let next = page_number(cursor.as_deref(), 1)?.saturating_add(1);
            let mut provider_page = self.session.provider_page(list, cursor, length).await?;
            if next.saturating_mul(length) > MAX_SEARCH_RESULTS {
                provider_page.next = None;
            }
            Ok(provider_page)
        };
        page(id, request, SPEC.paging.max_items, repository, fetch).await
    }
}

/// The base URLs of REST and GraphQL.
fn api_urls(web: &Url) -> Result<(Url, Url), GitError> {
    let host = web.host_str().unwrap_or_default();
    if host == "github.com" || host.ends_with(".ghe.com") {
        let api = Url::parse(&format!("https://api.{host}"));
        let api = api.map_err(|error| unavailable(PROVIDER, error))?;
        let graphql = join_segments(PROVIDER, &api, &["graphql"])?;
        return Ok((api, graphql));
    }
    Ok((
        join_segments(PROVIDER, web, &["api", "v3"])?,
        join_segments(PROVIDER, web, &["api", "graphql"])?,
    ))
}

#[async_trait]
impl Api for Github {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        let mut email = text(&user, "/email");
        if email.is_none() {
            // The profile omits a private address. Tokens with the scope can read it here.
            let emails = self.session.get(&["user", "emails"], &[]).await;
            let emails = emails.unwrap_or_default().list(None);
            email = usable_email(&emails, ["/primary", "/verified"]);
        }
        Ok(GitUser {
            id: id(&user, "/id").unwrap_or_default(),
            login: text(&user, "/login").unwrap_or_default(),
            avatar_url: text(&user, "/avatar_url").unwrap_or_default(),
            company: text(&user, "/company"),
            name: text(&user, "/name"),
            email,
        })
    }

    async fn repositories(
        &self,
        query: &RepositoryQuery,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitRepository>, GitError> {
        let installation = query.installation.as_deref().unwrap_or_default();
        let sort = format!("{:?}", query.sort);
        let search_text = search_text(query);
        let parts = [search_text.unwrap_or_default(), installation, &sort];
        let id = self.session.list_id("repositories", &parts);
        if let Some(search_text) = search_text {
            let terms = self.search_terms(search_text).await?;
            return self.search(&terms, query, (id, request)).await;
        }
        let list = if installation.is_empty() {
            let url = self
                .session
                .url(&["user", "repos"], &[("sort", "pushed")])?;
            ApiList::new(url, None)
        } else {
            let path = ["user", "installations", installation, "repositories"];
            ApiList::new(self.session.url(&path, &[])?, Some("repositories"))
        };
        self.session.page(id, request, &list, repository).await
    }

    async fn branches(
        &self,
        repository: &str,
        search_text: &str,
        request: &GitPageRequest,
    ) -> Result<GitPage<GitBranch>, GitError> {
        let [owner, name] = parts(PROVIDER, repository)?;
        let id = self.session.list_id("branches", &[repository, search_text]);
        if search_text.is_empty() {
            let path = ["repos", owner, name, "branches"];
            let list = ApiList::new(self.session.url(&path, &[])?, None);
            let branch = |value: &_| branch(value, "/commit/sha", "/commit/commit/committer/date");
            return self.session.page(id, request, &list, branch).await;
        }
        let fetch = async |after: Option<String>, size: usize| {
            let variables = json!({"owner": owner, "name": name, "text": search_text, "first": size,
                "after": after});
            let mut data = self.graphql(BRANCHES, variables).await?;
            let mut refs = data["repository"]["refs"].take();
            if refs.is_null() {
                return Err(GitError::NotFound { provider: PROVIDER });
            }
            let has_next = flag(&refs, "/pageInfo/hasNextPage").unwrap_or_default();
            let next = text(&refs, "/pageInfo/endCursor").filter(|_| has_next);
            let values = match refs["nodes"].take() {
                Value::Array(values) => values,
                _ => Vec::new(),
            };
            Ok(ProviderPage { values, next })
        };
        page(id, request, SPEC.paging.max_items, ref_node, fetch).await
    }

    async fn installations(
        &self,
        request: &GitPageRequest,
    ) -> Result<Option<GitPage<String>>, GitError> {
        let list_id = self.session.list_id("installations", &[]);
        let url = self.session.url(&["user", "installations"], &[])?;
        let list = ApiList {
            // Only tokens of a GitHub app have installations; GitHub refuses the request for other tokens.
            is_empty: |reply| {
                reply.status == 404 || (reply.status == 403 && !reply.is_rate_limited())
            },
            ..ApiList::new(url, Some("installations"))
        };
        let installation = |value: &_| id(value, "/id");
        let installations = self.session.page(list_id, request, &list, installation);
        installations.await.map(Some)
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let data = self.graphql(TASKS, json!({})).await?;
        let pull_requests = items(&data, "/viewer/pullRequests/nodes")
            .filter_map(|value| task(value, pull_request_task_type(value)?));
        let issues = items(&data, "/search/nodes")
            .filter_map(|value| task(value, SuggestedTaskType::OpenIssue));
        Ok(pull_requests.chain(issues).take(MAX_TASKS).collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let [owner, name] = parts(PROVIDER, &request.repository)?;
        let path = ["repos", owner, name, "pulls"];
        let body = json!({"title": request.title, "body": request.body, "draft": request.draft,
            "head": short_branch_name(&request.source_branch), "base": short_branch_name(&request.target_branch)});
        pull_request::open(&self.session, &path, &body, ("/html_url", "/number")).await
    }

    async fn label(&self, request: &NewPullRequest, number: i64) -> Result<Option<()>, GitError> {
        let [owner, name] = parts(PROVIDER, &request.repository)?;
        let path = [
            "repos",
            owner,
            name,
            "issues",
            &number.to_string(),
            "labels",
        ];
        let url = self.session.url(&path, &[])?;
        let body = json!({"labels": request.labels});
        self.session.create(url, &body).await.map(|_| Some(()))
    }
}
