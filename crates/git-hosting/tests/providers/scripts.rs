//! Scripted providers after their documentation, with lists of known lengths.

use domain::git::GitProvider::{
    self, AzureDevops, Bitbucket, BitbucketDataCenter, Forgejo, Github, Gitlab,
};
use serde_json::{Value, json};

use crate::server::{ReceivedRequest, ScriptedResponse};

/// Items of every list.
pub(crate) const REPOSITORY_COUNT: usize = 123;
/// Repositories of Bitbucket's second workspace. The first one has `REPOSITORY_COUNT`.
pub(crate) const SECOND_WORKSPACE_COUNT: usize = 10;

/// The path of the provider's host below the server's address.
pub(crate) fn root(provider: GitProvider) -> &'static str {
    match provider {
        Bitbucket => "/2.0",
        AzureDevops => "/tfs/org",
        Forgejo => "/forgejo",
        _ => "",
    }
}

fn slice(
    received: &ReceivedRequest,
    length: &str,
    longest: usize,
    total: usize,
) -> (Vec<usize>, bool) {
    let length = received.number(length).unwrap_or(30).min(longest);
    let page = received.number("page").unwrap_or(1);
    let from = (page - 1) * length;
    let items: Vec<usize> = (from..total.min(from + length)).collect();
    let more = from + items.len() < total;
    (items, more)
}

fn linked(
    received: &ReceivedRequest,
    length: &str,
    longest: usize,
    item: fn(usize) -> Value,
) -> (Vec<Value>, String) {
    let (numbers, more) = slice(received, length, longest, REPOSITORY_COUNT);
    let link = if more {
        "<http://elsewhere.example.com/?page=2>; rel=\"next\", <http://x/>; rel=\"last\""
    } else {
        "<http://x/>; rel=\"first\""
    };
    (numbers.into_iter().map(item).collect(), link.to_owned())
}

fn github(received: &ReceivedRequest) -> ScriptedResponse {
    let repository = |n| {
        json!({"id": n, "full_name": format!("o/r{n}"), "private": n % 2 == 0,
        "owner": {"type": "Organization"}, "default_branch": "main", "stargazers_count": 1,
        "pushed_at": "2026-01-01T00:00:00Z"})
    };
    let branch = |n| json!({"name": format!("b{n}"), "commit": {"sha": "abc"}, "protected": true});
    let (items, link, member) = match received.path.as_str() {
        "/api/v3/user/repos" => {
            let (items, link) = linked(received, "per_page", 100, repository);
            (items, link, None)
        }
        "/api/v3/user/installations/7/repositories" => {
            let (items, link) = linked(received, "per_page", 100, repository);
            (items, link, Some("repositories"))
        }
        "/api/v3/search/repositories" => {
            let (items, link) = linked(received, "per_page", 100, repository);
            (items, link, Some("items"))
        }
        "/api/v3/user/installations" => {
            let (items, link) = linked(received, "per_page", 100, |n| json!({"id": n}));
            (items, link, Some("installations"))
        }
        "/api/v3/repos/o/r/branches" => {
            let (items, link) = linked(received, "per_page", 100, branch);
            (items, link, None)
        }
        "/api/v3/user" => return ScriptedResponse::json(&json!({"login": "ada"})),
        "/api/v3/user/orgs" => return ScriptedResponse::json(&json!([{"login": "acme"}])),
        "/api/graphql" => return graphql(received),
        _ => return ScriptedResponse::status(404),
    };
    let body = member.map_or(json!(items), |member| json!({member: items}));
    ScriptedResponse::json(&body).header("Link", link)
}

fn graphql(received: &ReceivedRequest) -> ScriptedResponse {
    let variables = &received.body["variables"];
    let first = usize::try_from(variables["first"].as_u64().unwrap()).unwrap();
    let after = variables["after"]
        .as_str()
        .map_or(0, |text| text[1..].parse().unwrap());
    let end = REPOSITORY_COUNT.min(after + first);
    let nodes: Vec<_> = (after..end)
        .map(|n| {
            json!({"name": format!("b{n}"), "target": {"oid": "abc", "committedDate": "d"},
            "branchProtectionRule": null})
        })
        .collect();
    let page = json!({"hasNextPage": end < REPOSITORY_COUNT, "endCursor": format!("c{end}")});
    ScriptedResponse::json(
        &json!({"data": {"repository": {"refs": {"nodes": nodes, "pageInfo": page}}}}),
    )
}

fn gitlab(received: &ReceivedRequest) -> ScriptedResponse {
    let (numbers, more) = slice(received, "per_page", 100, REPOSITORY_COUNT);
    let item: fn(usize) -> Value = match received.path.as_str() {
        "/api/v4/projects" => |n| {
            json!({"id": n, "path_with_namespace": format!("g/s/r{n}"),
            "visibility": "public", "namespace": {"kind": "group"}, "star_count": 4})
        },
        "/api/v4/projects/g%2Fs%2Fr/repository/branches" => |n| {
            json!({"name": format!("b{n}"),
            "commit": {"id": "abc", "committed_date": "d"}, "protected": false})
        },
        _ => return ScriptedResponse::status(404),
    };
    let items: Vec<_> = numbers.into_iter().map(item).collect();
    let next = if more {
        (received.number("page").unwrap() + 1).to_string()
    } else {
        String::new()
    };
    ScriptedResponse::json(&json!(items)).header("X-Next-Page", next)
}

fn bitbucket(received: &ReceivedRequest) -> ScriptedResponse {
    let repository: fn(usize) -> Value = |n| {
        json!({"uuid": format!("{{{n}}}"), "full_name": format!("w/r{n}"),
        "is_private": true, "updated_on": "d", "mainbranch": {"name": "main"}})
    };
    let (total, item): (usize, fn(usize) -> Value) = match received.path.as_str() {
        "/2.0/user/workspaces" => (2, |n| json!({"workspace": {"slug": format!("w{n}")}})),
        "/2.0/repositories/w0" => (REPOSITORY_COUNT, repository),
        "/2.0/repositories/w1" => (SECOND_WORKSPACE_COUNT, |n| {
            json!({"uuid": format!("{{w1-{n}}}"),
            "full_name": format!("w1/r{n}"), "is_private": false})
        }),
        "/2.0/repositories/w/r/refs/branches" => (REPOSITORY_COUNT, |n| {
            json!({"name": format!("b{n}"),
            "target": {"hash": "abc", "date": "d"}})
        }),
        _ => return ScriptedResponse::status(404),
    };
    let (numbers, more) = slice(received, "pagelen", 100, total);
    let values: Vec<_> = numbers.into_iter().map(item).collect();
    let mut body = json!({"values": values});
    if more {
        let next = received.number("page").unwrap() + 1;
        body["next"] = json!(format!("https://elsewhere.example.com/2.0/x?page={next}"));
    }
    ScriptedResponse::json(&body)
}

fn data_center(received: &ReceivedRequest) -> ScriptedResponse {
    let repository: fn(usize) -> Value = |n| {
        json!({"id": n, "slug": format!("r{n}"), "public": false,
        "project": {"key": "P", "type": "NORMAL"}})
    };
    let item: fn(usize) -> Value = match received.path.as_str() {
        "/rest/api/1.0/repos" | "/rest/api/1.0/projects/P/repos" => repository,
        "/rest/api/1.0/projects" => |n| json!({"key": format!("P{n}")}),
        "/rest/api/1.0/projects/P/repos/r/branches" => |n| {
            json!({"id": format!("refs/heads/b{n}"),
            "displayId": format!("b{n}"), "latestCommit": "abc"})
        },
        _ => return ScriptedResponse::status(404),
    };
    let (start, limit) = (
        received.number("start").unwrap(),
        received.number("limit").unwrap(),
    );
    // Pages omit items that the user must not see, so the next page begins later.
    let visible = |n: &usize| !n.is_multiple_of(3);
    let end = (start + limit * 2).min(REPOSITORY_COUNT * 2);
    let values: Vec<_> = (start..end).filter(visible).take(limit).collect();
    let next = values.last().map_or(end, |last| last + 1).max(start + 1);
    let is_last = next >= REPOSITORY_COUNT * 2;
    let values: Vec<_> = values.into_iter().map(item).collect();
    let next = if is_last { Value::Null } else { json!(next) };
    ScriptedResponse::json(&json!({"values": values, "isLastPage": is_last, "nextPageStart": next}))
}

fn forgejo(received: &ReceivedRequest) -> ScriptedResponse {
    let repository: fn(usize) -> Value = |n| {
        json!({"id": n, "full_name": format!("o/r{n}"), "private": false,
        "stars_count": 2, "updated_at": "d", "default_branch": "main", "owner": {"login": "o"}})
    };
    let item: fn(usize) -> Value = match received.path.as_str() {
        "/forgejo/api/v1/user/repos" | "/forgejo/api/v1/repos/search" => repository,
        "/forgejo/api/v1/repos/o/r/branches" => |n| {
            json!({"name": format!("b{n}"),
            "commit": {"id": "abc", "timestamp": "d"}, "protected": false})
        },
        _ => return ScriptedResponse::status(404),
    };
    // The administrator limits pages to 20 items.
    let (items, link) = linked(received, "limit", 20, item);
    let body = if received.path.ends_with("/search") {
        json!({"ok": true, "data": items})
    } else {
        json!(items)
    };
    ScriptedResponse::json(&body).header("Link", link)
}

fn azure(received: &ReceivedRequest) -> ScriptedResponse {
    match received.path.as_str() {
        "/tfs/org/_apis/git/repositories" => {
            // Unordered.
            let numbers = (0..REPOSITORY_COUNT).map(|n| (n * 50) % REPOSITORY_COUNT);
            let repositories: Vec<_> = numbers
                .map(|n| {
                    json!({"id": format!("id{n}"), "name": format!("r{n:03}"),
                    "project": {"name": "My project", "visibility": "private"},
                    "defaultBranch": "refs/heads/main"})
                })
                .collect();
            ScriptedResponse::json(&json!({"value": repositories}))
        }
        "/tfs/org/My%20project/_apis/git/repositories/r/refs" => {
            let top = received.number("$top").unwrap();
            let from = received.query.get("continuationToken");
            let from = from.map_or(0, |token| token[1..].parse().unwrap());
            let end = REPOSITORY_COUNT.min(from + top);
            let refs: Vec<_> = (from..end)
                .map(|n| json!({"name": format!("refs/heads/b{n}"), "objectId": "abc"}))
                .collect();
            let response = ScriptedResponse::json(&json!({"value": refs}));
            if end < REPOSITORY_COUNT {
                response.header("x-ms-continuationtoken", format!("t{end}"))
            } else {
                response
            }
        }
        _ => ScriptedResponse::status(404),
    }
}

pub(crate) fn script(provider: GitProvider) -> fn(&ReceivedRequest) -> ScriptedResponse {
    match provider {
        Github => github,
        Gitlab => gitlab,
        Bitbucket => bitbucket,
        BitbucketDataCenter => data_center,
        Forgejo => forgejo,
        AzureDevops => azure,
        GitProvider::EnterpriseSso => unreachable!("EnterpriseSso has no lists"),
    }
}
