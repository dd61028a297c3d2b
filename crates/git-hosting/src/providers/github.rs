//! GitHub (`https://api.github.com`, `https://api.NAME.ghe.com`) and Enterprise Server (`https://host/api/v3`).
//!
//! Uses REST where it lists well, and GraphQL for searches of branches and for tasks, which take many requests with
//! REST.

mod responses;

use async_trait::async_trait;
use domain::conversation::GitProvider;
use domain::git::{
    GitAccess, GitBranch, GitError, GitPage, GitPageRequest, GitRepository, GitUser,
    NewPullRequest, RepositoryQuery, RepositorySortKey, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use url::Url;

use self::responses::{
    BRANCHES, TASKS, branch, nodes, pull_request_task_type, ref_node, repository, task,
};
use crate::http::client::Http;
use crate::http::session::{
    ProviderResponse, ProviderSession, TokenScheme, flag, id, number, text, unavailable,
};
use crate::providers::paging::{ListId, ProviderPage, next_page_number, page, page_number};
use crate::providers::pull_request::{short_branch_name, web_url};
use crate::providers::{
    Api, MAX_TASKS, ParsedPullRequest, or_default, repository_in_url, search_text,
};
use crate::repository_url::{join_segments, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Github;
const MAX_PAGE_ITEMS: usize = 100;
/// GitHub's limit of results of one search, over all pages.
const MAX_SEARCH_RESULTS: usize = 1000;
/// Maximum number of organisations that a search includes. GitHub limits the length of the query.
const MAX_ORGANIZATIONS: usize = 30;

pub(crate) struct Github {
    session: ProviderSession,
    web: Url,
    graphql: Url,
}

impl Github {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let (base, graphql) = api_urls(&web)?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Bearer)?,
            web,
            graphql,
        })
    }

    /// Reads a page of REST: the items of the body, or of this member of it.
    async fn list(
        &self,
        (path, member): (&[&str], Option<&str>),
        parameters: &[(&str, &str)],
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let number = page_number(cursor.as_deref())?;
        let (page, per_page) = (number.to_string(), size.to_string());
        let mut all = parameters.to_vec();
        all.extend([("per_page", per_page.as_str()), ("page", &page)]);
        let answer = self.session.get(path, &all).await?;
        Ok(to_provider_page(answer, member, number, true))
    }

    async fn graphql(&self, query: &str, variables: Value) -> Result<Value, GitError> {
        let body = json!({"query": query, "variables": variables});
        let mut answer = self.session.post_query(self.graphql.clone(), &body).await?;
        let errors = nodes(&answer.body, "/errors");
        let kinds: Vec<_> = errors.filter_map(|error| text(error, "/type")).collect();
        if kinds.iter().any(|kind| kind.starts_with("RATE_LIMIT")) {
            return Err(GitError::Limited {
                provider: PROVIDER,
                retry_after: None,
            });
        }
        if answer.body["data"].is_null() {
            let kinds = kinds.join(", ");
            return Err(unavailable(
                PROVIDER,
                format!("the GraphQL response has no data (errors: {kinds})"),
            ));
        }
        // Errors beside data concern parts that this token must not see.
        Ok(answer.body["data"].take())
    }

    /// Converts a search text to GitHub's query. Restricts it to a named owner, or to the user and the user's
    /// organisations.
    async fn search_terms(&self, search_text: &str) -> Result<String, GitError> {
        if let Some(name) = repository_in_url(search_text, &self.web) {
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
        let organizations = self
            .session
            .get(&["user", "orgs"], &[("per_page", "100")])
            .await;
        let organizations = or_default(organizations.map(Some))?;
        let mut terms = format!("{} in:name fork:true user:{login}", clean(search_text));
        for organization in organizations
            .map(|mut answer| answer.list(None))
            .unwrap_or_default()
            .iter()
            .filter_map(|organization| text(organization, "/login"))
            .take(MAX_ORGANIZATIONS)
        {
            terms.push_str(" org:");
            terms.push_str(&organization);
        }
        Ok(terms)
    }

    async fn search_page(
        &self,
        terms: &str,
        query: &RepositoryQuery,
        cursor: Option<String>,
        size: usize,
    ) -> Result<ProviderPage, GitError> {
        let number = page_number(cursor.as_deref())?;
        let (page, per_page) = (number.to_string(), size.to_string());
        let (sort, order) = match query.sort {
            None => ("stars", "desc"),
            Some(sort) => {
                let by = match sort.by {
                    RepositorySortKey::Stars => "stars",
                    RepositorySortKey::Forks => "forks",
                    RepositorySortKey::Updated => "updated",
                };
                (by, if sort.descending { "desc" } else { "asc" })
            }
        };
        let parameters = [
            ("q", terms),
            ("sort", sort),
            ("order", order),
            ("per_page", &per_page),
            ("page", &page),
        ];
        let url = self.session.url(&["search", "repositories"], &parameters)?;
        let reply = self.session.send_get(url).await?;
        // GitHub refuses the query if an owner does not exist or the page is beyond the limit.
        if reply.status == 422 {
            let values = Vec::new();
            return Ok(ProviderPage { values, next: None });
        }
        let answer = self.session.parse(reply)?;
        let next = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let may_have_next = next.saturating_mul(size) <= MAX_SEARCH_RESULTS;
        Ok(to_provider_page(
            answer,
            Some("items"),
            number,
            may_have_next,
        ))
    }
}

/// The base URLs of REST and GraphQL.
fn api_urls(web: &Url) -> Result<(Url, Url), GitError> {
    let host = web.host_str().unwrap_or_default();
    if host == "github.com" || host.ends_with(".ghe.com") {
        let api = format!("https://api.{host}");
        let api: Url = api
            .parse()
            .map_err(|_| unavailable(PROVIDER, "the URL of the API is invalid".into()))?;
        let graphql = join_segments(PROVIDER, &api, &["graphql"])?;
        return Ok((api, graphql));
    }
    Ok((
        join_segments(PROVIDER, web, &["api", "v3"])?,
        join_segments(PROVIDER, web, &["api", "graphql"])?,
    ))
}

/// Converts a page of REST. The `Link` header names the next page.
fn to_provider_page(
    mut answer: ProviderResponse,
    member: Option<&str>,
    number: u32,
    may_have_next: bool,
) -> ProviderPage {
    let next = next_page_number(number, may_have_next && answer.has_next_link());
    ProviderPage {
        values: answer.list(member),
        next,
    }
}

#[async_trait]
impl Api for Github {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        let mut email = text(&user, "/email");
        if email.is_none() {
            // The profile omits a private address. Tokens with the scope can read it here.
            let emails = self.session.get(&["user", "emails"], &[]).await.map(Some);
            let emails = emails
                .unwrap_or_default()
                .map(|mut answer| answer.list(None));
            email = emails.unwrap_or_default().iter().find_map(|entry| {
                let is_usable = flag(entry, "/primary")? && flag(entry, "/verified")?;
                is_usable.then(|| text(entry, "/email"))?
            });
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
        let list = ListId::new(&[
            "github repositories",
            self.web.as_str(),
            search_text.unwrap_or_default(),
            installation,
            &sort,
        ]);
        if let Some(search_text) = search_text {
            let terms = self.search_terms(search_text).await?;
            let fetch = |cursor, size| self.search_page(&terms, query, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        if installation.is_empty() {
            let sort = [("sort", "pushed")];
            let fetch = |cursor, size| self.list((&["user", "repos"], None), &sort, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        let path = ["user", "installations", installation, "repositories"];
        let fetch = |cursor, size| self.list((&path, Some("repositories")), &[], cursor, size);
        page(list, request, MAX_PAGE_ITEMS, repository, fetch).await
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
        let list = ListId::new(&[
            "github branches",
            self.web.as_str(),
            repository,
            search_text,
        ]);
        if search_text.is_empty() {
            let path = ["repos", owner, name, "branches"];
            let fetch = |cursor, size| self.list((&path, None), &[], cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, branch, fetch).await;
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
        page(list, request, MAX_PAGE_ITEMS, ref_node, fetch).await
    }

    async fn installations(&self, request: &GitPageRequest) -> Result<GitPage<String>, GitError> {
        let list = ListId::new(&["github installations", self.web.as_str()]);
        let fetch = async |cursor: Option<String>, size: usize| {
            let number = page_number(cursor.as_deref())?;
            let (page, per_page) = (number.to_string(), size.to_string());
            let parameters = [("per_page", per_page.as_str()), ("page", &page)];
            let url = self.session.url(&["user", "installations"], &parameters)?;
            let reply = self.session.send_get(url).await?;
            // Only tokens of a GitHub app have installations; GitHub refuses the request for other tokens.
            if reply.status == 404 || (reply.status == 403 && !reply.is_rate_limited()) {
                let values = Vec::new();
                return Ok(ProviderPage { values, next: None });
            }
            let answer = self.session.parse(reply)?;
            Ok(to_provider_page(
                answer,
                Some("installations"),
                number,
                true,
            ))
        };
        page(
            list,
            request,
            MAX_PAGE_ITEMS,
            |value| id(value, "/id"),
            fetch,
        )
        .await
    }

    async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let data = self.graphql(TASKS, json!({})).await?;
        let pull_requests = nodes(&data, "/viewer/pullRequests/nodes")
            .filter_map(|value| task(value, pull_request_task_type(value)?));
        let issues = nodes(&data, "/search/nodes")
            .filter_map(|value| task(value, SuggestedTaskType::OpenIssue));
        Ok(pull_requests.chain(issues).take(MAX_TASKS).collect())
    }

    async fn open_pull_request(
        &self,
        request: &NewPullRequest,
    ) -> Result<ParsedPullRequest, GitError> {
        let parts = segments(PROVIDER, &request.repository)?;
        let url = self
            .session
            .url(&[&["repos"], &parts[..], &["pulls"]].concat(), &[])?;
        let body = json!({"title": request.title, "body": request.body, "draft": request.draft,
            "head": short_branch_name(&request.source_branch), "base": short_branch_name(&request.target_branch)});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: web_url(PROVIDER, &answer, "/html_url")?,
            number: number(&answer, "/number"),
        })
    }

    async fn label(&self, request: &NewPullRequest, number: i64) -> Result<(), GitError> {
        let parts = segments(PROVIDER, &request.repository)?;
        let number = number.to_string();
        let path = [&["repos"], &parts[..], &["issues", &number, "labels"]].concat();
        let url = self.session.url(&path, &[])?;
        let body = json!({"labels": request.labels});
        self.session.create(url, &body).await.map(drop)
    }
}
