//! GitHub (`https://api.github.com`, `https://api.NAME.ghe.com`) and Enterprise Server (`https://host/api/v3`).
//!
//! REST for what it lists well; GraphQL for branches by words and for tasks, which REST cannot tell in few requests.

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
    ProviderResponse, ProviderSession, TokenScheme, flag, id, number, text, unavailable,
};
use crate::providers::paging::{ListId, ProviderPage, following, page, page_number};
use crate::providers::pull_request::{address, branch as short};
use crate::providers::{Api, MAX_TASKS, ParsedPullRequest, named_by_url, or_nothing, words};
use crate::repository_url::{below, segments, web_base};

const PROVIDER: GitProvider = GitProvider::Github;
/// Longest page, and as many repositories as a search shows at all.
const MAX_PAGE_ITEMS: usize = 100;
const MAX_SEARCH_RESULTS: usize = 1000;
/// Organisations that a search is widened to; a query must not become too long.
const MAX_ORGANIZATIONS: usize = 30;

pub(crate) struct Github {
    session: ProviderSession,
    web: Url,
    graphql: Url,
}

impl Github {
    pub(crate) fn new(http: &Http, access: &GitAccess) -> Result<Self, GitError> {
        let web = web_base(access)?;
        let (base, graphql) = addresses(&web)?;
        Ok(Self {
            session: ProviderSession::new(http, access, base, TokenScheme::Bearer)?,
            web,
            graphql,
        })
    }

    async fn graphql(&self, query: &str, variables: Value) -> Result<Value, GitError> {
        let body = json!({"query": query, "variables": variables});
        let mut answer = self.session.ask(self.graphql.clone(), &body).await?;
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
            return Err(unavailable(PROVIDER, format!("no data ({kinds})")));
        }
        // Errors beside data are about parts that this token may not see.
        Ok(answer.body["data"].take())
    }

    /// The words of a search as GitHub's query, within what the user can be expected to mean.
    async fn search_terms(&self, words: &str) -> Result<String, GitError> {
        if let Some(name) = named_by_url(words, &self.web) {
            return Ok(format!("repo:{name} fork:true"));
        }
        // Not to be read as qualifiers.
        let clean = |text: &str| text.replace(['"', ':'], " ").trim().to_owned();
        if let Some((owner, name)) = words.split_once('/') {
            let (owner, name) = (clean(owner), clean(name));
            return Ok(format!("{name} in:name user:{owner} fork:true"));
        }
        let login = self.session.get(&["user"], &[]).await?;
        let login = text(&login.body, "/login").unwrap_or_default();
        let organizations = self
            .session
            .get(&["user", "orgs"], &[("per_page", "100")])
            .await;
        let organizations = or_nothing(organizations.map(Some))?;
        let mut terms = format!("{} in:name fork:true user:{login}", clean(words));
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

    async fn found(
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
        let reply = self.session.read(url).await?;
        // An owner that does not exist (or a page beyond what is shown) is a refusal of the whole query.
        if reply.status == 422 {
            let values = Vec::new();
            return Ok(ProviderPage { values, next: None });
        }
        let answer = self.session.understand(reply)?;
        let shown = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let is_shown = shown.saturating_mul(size) <= MAX_SEARCH_RESULTS;
        Ok(chunk(answer, Some("items"), number, is_shown))
    }
}

fn addresses(web: &Url) -> Result<(Url, Url), GitError> {
    let host = web.host_str().unwrap_or_default();
    if host == "github.com" || host.ends_with(".ghe.com") {
        let api = format!("https://api.{host}");
        let api: Url = api
            .parse()
            .map_err(|_| unavailable(PROVIDER, "no address of an API".into()))?;
        let graphql = below(PROVIDER, &api, &["graphql"])?;
        return Ok((api, graphql));
    }
    Ok((
        below(PROVIDER, web, &["api", "v3"])?,
        below(PROVIDER, web, &["api", "graphql"])?,
    ))
}

/// A page of REST: the `Link` header names the next page.
fn chunk(
    mut answer: ProviderResponse,
    member: Option<&str>,
    number: u32,
    is_shown: bool,
) -> ProviderPage {
    let next = following(number, is_shown && answer.has_next_link());
    ProviderPage {
        values: answer.list(member),
        next,
    }
}

fn repository(value: &Value) -> Option<GitRepository> {
    let is_organization = text(value, "/owner/type").is_some_and(|kind| kind == "Organization");
    Some(GitRepository {
        id: id(value, "/id")?,
        full_name: text(value, "/full_name")?,
        git_provider: PROVIDER,
        is_public: flag(value, "/private") == Some(false),
        stargazers_count: value.pointer("/stargazers_count").and_then(Value::as_u64),
        pushed_at: text(value, "/pushed_at"),
        owner_type: Some(if is_organization {
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
        commit_sha: text(value, "/commit/sha").unwrap_or_default(),
        protected: flag(value, "/protected").unwrap_or_default(),
        last_push_date: text(value, "/commit/commit/committer/date"),
    })
}

fn ref_node(value: &Value) -> Option<GitBranch> {
    Some(GitBranch {
        name: text(value, "/name")?,
        commit_sha: text(value, "/target/oid").unwrap_or_default(),
        protected: value
            .pointer("/branchProtectionRule")
            .is_some_and(|rule| !rule.is_null()),
        last_push_date: text(value, "/target/committedDate"),
    })
}

const BRANCHES: &str = "query($owner:String!,$name:String!,$text:String!,$first:Int!,$after:String){\
    repository(owner:$owner,name:$name){refs(refPrefix:\"refs/heads/\",query:$text,first:$first,after:$after){\
    nodes{name branchProtectionRule{id} target{oid ...on Commit{committedDate}}}\
    pageInfo{hasNextPage endCursor}}}}";

const TASKS: &str = "query{viewer{pullRequests(first:50,states:[OPEN],orderBy:{field:UPDATED_AT,direction:DESC}){\
    nodes{number title mergeable repository{nameWithOwner}\
    commits(last:1){nodes{commit{statusCheckRollup{state}}}}\
    reviews(first:50,states:[CHANGES_REQUESTED,COMMENTED]){totalCount}}}}\
    search(query:\"is:issue is:open archived:false assignee:@me sort:updated-desc\",type:ISSUE,first:50){\
    nodes{...on Issue{number title repository{nameWithOwner}}}}}";

/// Why a pull request wants attention; `None` when it does not.
fn attention(pull_request: &Value) -> Option<SuggestedTaskType> {
    let checks = text(
        pull_request,
        "/commits/nodes/0/commit/statusCheckRollup/state",
    );
    if text(pull_request, "/mergeable").is_some_and(|state| state == "CONFLICTING") {
        Some(SuggestedTaskType::MergeConflicts)
    } else if matches!(checks.as_deref(), Some("FAILURE" | "ERROR")) {
        Some(SuggestedTaskType::FailingChecks)
    } else if number(pull_request, "/reviews/totalCount").is_some_and(|count| count > 0) {
        Some(SuggestedTaskType::UnresolvedComments)
    } else {
        None
    }
}

fn task(value: &Value, task_type: SuggestedTaskType) -> Option<SuggestedTask> {
    Some(SuggestedTask {
        git_provider: PROVIDER,
        task_type,
        repo: text(value, "/repository/nameWithOwner")?,
        issue_number: number(value, "/number")?,
        title: text(value, "/title").unwrap_or_default(),
    })
}

fn nodes<'a>(data: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    data.pointer(path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[async_trait]
impl Api for Github {
    async fn user(&self) -> Result<GitUser, GitError> {
        let user = self.session.get(&["user"], &[]).await?.body;
        let mut email = text(&user, "/email");
        if email.is_none() {
            // A private address is elsewhere, for tokens that may read it.
            let emails = self.session.get(&["user", "emails"], &[]).await.map(Some);
            let emails = emails
                .unwrap_or_default()
                .map(|mut answer| answer.list(None));
            email = emails.unwrap_or_default().iter().find_map(|entry| {
                let is_theirs = flag(entry, "/primary")? && flag(entry, "/verified")?;
                is_theirs.then(|| text(entry, "/email"))?
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
        let words = words(query);
        let list = ListId::new(&[
            "github repositories",
            self.web.as_str(),
            words.unwrap_or_default(),
            installation,
            &sort,
        ]);
        if let Some(words) = words {
            let terms = self.search_terms(words).await?;
            let fetch = |cursor, size| self.found(&terms, query, cursor, size);
            return page(list, request, MAX_PAGE_ITEMS, repository, fetch).await;
        }
        let fetch = async |cursor: Option<String>, size: usize| {
            let number = page_number(cursor.as_deref())?;
            let (page, per_page) = (number.to_string(), size.to_string());
            let parameters = [("sort", "pushed"), ("per_page", &per_page), ("page", &page)];
            if installation.is_empty() {
                let answer = self.session.get(&["user", "repos"], &parameters).await?;
                return Ok(chunk(answer, None, number, true));
            }
            let path = ["user", "installations", installation, "repositories"];
            let answer = self.session.get(&path, &parameters[1..]).await?;
            Ok(chunk(answer, Some("repositories"), number, true))
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
        let [owner, name] = parts[..] else {
            return Err(GitError::NotFound { provider: PROVIDER });
        };
        let list = ListId::new(&["github branches", self.web.as_str(), repository, words]);
        if words.is_empty() {
            let fetch = async |cursor: Option<String>, size: usize| {
                let number = page_number(cursor.as_deref())?;
                let (page, per_page) = (number.to_string(), size.to_string());
                let parameters = [("per_page", per_page.as_str()), ("page", &page)];
                let path = ["repos", owner, name, "branches"];
                let answer = self.session.get(&path, &parameters).await?;
                Ok(chunk(answer, None, number, true))
            };
            return page(list, request, MAX_PAGE_ITEMS, branch, fetch).await;
        }
        let fetch = async |after: Option<String>, size: usize| {
            let variables = json!({"owner": owner, "name": name, "text": words, "first": size,
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
            let reply = self.session.read(url).await?;
            // Only tokens that an app got for its user have installations; GitHub refuses the request for other tokens.
            if reply.status == 404 || (reply.status == 403 && !reply.is_limit()) {
                let values = Vec::new();
                return Ok(ProviderPage { values, next: None });
            }
            let answer = self.session.understand(reply)?;
            Ok(chunk(answer, Some("installations"), number, true))
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
            .filter_map(|value| task(value, attention(value)?));
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
            "head": short(&request.source_branch), "base": short(&request.target_branch)});
        let answer = self.session.create(url, &body).await?.body;
        Ok(ParsedPullRequest {
            url: address(PROVIDER, &answer, "/html_url")?,
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
