//! Lists of all providers, in pages of many lengths.

use domain::git::GitProvider::{
    self, AzureDevops, Bitbucket, BitbucketDataCenter, Forgejo, Github, Gitlab,
};
use domain::git::{
    GitAccess, GitError, GitHosting as _, GitPageRequest, RepositoryQuery, RepositorySort,
    RepositorySortKey,
};
use git_hosting::HttpGitHosting;
use serde_json::json;

use crate::scripts::{REPOSITORY_COUNT, SECOND_WORKSPACE_COUNT, root, script};
use crate::server::{ScriptedResponse, Server, access, hosting};

async fn scripted(provider: GitProvider) -> (Server, GitAccess) {
    let server = Server::start(script(provider)).await;
    let access = access(provider, &server.url(root(provider)), "secret-token");
    (server, access)
}

#[derive(Debug, Clone)]
enum TestList {
    Repositories(RepositoryQuery),
    Branches(&'static str, &'static str),
    Installations,
}

/// The ids or names of all items, in pages of this length.
async fn walk(
    git: &HttpGitHosting,
    access: &GitAccess,
    list: &TestList,
    limit: usize,
) -> Vec<String> {
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = GitPageRequest { after, limit };
        let (items, next): (Vec<String>, _) = match list {
            TestList::Repositories(query) => {
                let result = git.repositories(access, query, &page).await.unwrap();
                (
                    result.items.into_iter().map(|r| r.id).collect(),
                    result.next,
                )
            }
            TestList::Branches(repository, words) => {
                let result = git
                    .branches(access, repository, words, &page)
                    .await
                    .unwrap();
                (
                    result.items.into_iter().map(|b| b.name).collect(),
                    result.next,
                )
            }
            TestList::Installations => {
                let result = git.installations(access, &page).await.unwrap();
                (result.items, result.next)
            }
        };
        assert!(items.len() <= limit);
        seen.extend(items);
        after = next;
        if after.is_none() {
            return seen;
        }
    }
}

/// Every list of the provider, with the number of its items.
fn lists(provider: GitProvider) -> Vec<(TestList, usize)> {
    let all = TestList::Repositories(RepositoryQuery::default());
    let search = |text: &str, installation: Option<&str>| {
        TestList::Repositories(RepositoryQuery {
            text: Some(text.to_owned()).filter(|text| !text.is_empty()),
            installation: installation.map(str::to_owned),
            sort: None,
        })
    };
    // Of `2 * REPOSITORY_COUNT` items, two of three are visible; the lists contain `visible * 2`.
    let visible = REPOSITORY_COUNT * 2 / 3 * 2 / 2;
    match provider {
        Github => vec![
            (all, REPOSITORY_COUNT),
            (search("words", None), REPOSITORY_COUNT),
            (search("", Some("7")), REPOSITORY_COUNT),
            (TestList::Branches("o/r", ""), REPOSITORY_COUNT),
            (TestList::Branches("o/r", "b"), REPOSITORY_COUNT),
            (TestList::Installations, REPOSITORY_COUNT),
        ],
        Gitlab => vec![
            (all, REPOSITORY_COUNT),
            (search("words", None), REPOSITORY_COUNT),
            (TestList::Branches("g/s/r", ""), REPOSITORY_COUNT),
            (TestList::Branches("g/s/r", "b"), REPOSITORY_COUNT),
        ],
        Bitbucket => vec![
            (all, REPOSITORY_COUNT + SECOND_WORKSPACE_COUNT),
            (
                search("words", None),
                REPOSITORY_COUNT + SECOND_WORKSPACE_COUNT,
            ),
            (search("w1/words", None), SECOND_WORKSPACE_COUNT),
            (search("", Some("w0")), REPOSITORY_COUNT),
            (TestList::Branches("w/r", ""), REPOSITORY_COUNT),
            (TestList::Installations, 2),
        ],
        BitbucketDataCenter => vec![
            (all, visible * 2),
            (search("", Some("P")), visible * 2),
            (TestList::Branches("P/r", ""), visible * 2),
            (TestList::Installations, visible * 2),
        ],
        Forgejo => vec![
            (all, REPOSITORY_COUNT),
            (search("words", None), REPOSITORY_COUNT),
            (TestList::Branches("o/r", ""), REPOSITORY_COUNT),
            // b12, b120, b121, b122
            (TestList::Branches("o/r", "B12"), 4),
        ],
        _ => vec![
            (all, REPOSITORY_COUNT),
            (search("r00", None), 10),
            (TestList::Branches("org/My project/r", ""), REPOSITORY_COUNT),
            (TestList::Installations, 1),
        ],
    }
}

const PROVIDERS: [GitProvider; 6] = [
    Github,
    Gitlab,
    Bitbucket,
    BitbucketDataCenter,
    Forgejo,
    AzureDevops,
];

#[tokio::test]
async fn every_limit_lists_each_item_once() {
    let git = hosting();
    for provider in PROVIDERS {
        let (_server, access) = scripted(provider).await;
        for (list, total) in lists(provider) {
            let whole = walk(&git, &access, &list, 100).await;
            assert_eq!(whole.len(), total, "{provider} {list:?}");
            for limit in [1, 2, 3, 7, 10, 19, 20, 21, 30, 49, 50, 51, 99] {
                // Short pages are slow here; the unit tests of `paging.rs` cover them.
                if limit < 7 && total > 30 {
                    continue;
                }
                let seen = walk(&git, &access, &list, limit).await;
                assert_eq!(seen, whole, "{provider} {list:?} {limit}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_of_another_list_is_refused() {
    let git = hosting();
    for provider in PROVIDERS {
        let (_server, access) = scripted(provider).await;
        let page = |after| GitPageRequest { after, limit: 5 };
        let all = RepositoryQuery::default();
        let first = git.repositories(&access, &all, &page(None)).await.unwrap();
        let words = RepositoryQuery {
            text: Some("other".into()),
            ..RepositoryQuery::default()
        };
        let refused = git.repositories(&access, &words, &page(first.next)).await;
        assert!(
            matches!(refused, Err(GitError::InvalidPageToken)),
            "{provider}: {refused:?}"
        );
        for token in ["Mg", "", "../..", "eyJsIjoxfQ"] {
            let refused = git
                .repositories(&access, &all, &page(Some(token.into())))
                .await;
            assert!(
                matches!(refused, Err(GitError::InvalidPageToken)),
                "{provider} {token}"
            );
        }
    }
}

#[tokio::test]
async fn a_full_page_takes_few_requests() {
    let git = hosting();
    for (provider, most) in [(Github, 1), (Gitlab, 1), (Forgejo, 5), (AzureDevops, 1)] {
        let (server, access) = scripted(provider).await;
        let page = GitPageRequest {
            after: None,
            limit: 50,
        };
        let result = git
            .repositories(&access, &RepositoryQuery::default(), &page)
            .await;
        assert_eq!(result.unwrap().items.len(), 50, "{provider}");
        assert!(
            server.received().len() <= most,
            "{provider}: {}",
            server.received().len()
        );
    }
}

#[tokio::test]
async fn search_texts_become_queries_of_the_provider() {
    let git = hosting();
    let page = GitPageRequest {
        after: None,
        limit: 10,
    };
    let query = |text: &str, by, descending| RepositoryQuery {
        text: Some(text.into()),
        installation: None,
        sort: Some(RepositorySort { by, descending }),
    };
    let (server, access) = scripted(Github).await;
    for (text, expected) in [
        (
            "some words",
            "some words in:name fork:true user:ada org:acme",
        ),
        ("acme/thing", "thing in:name user:acme fork:true"),
        ("a user:b", "a user b in:name fork:true user:ada org:acme"),
    ] {
        let query = query(text, RepositorySortKey::Forks, false);
        git.repositories(&access, &query, &page).await.unwrap();
        let last = server.received().pop().unwrap();
        assert_eq!(last.query["q"], expected);
        assert_eq!(
            (last.query["sort"].as_str(), last.query["order"].as_str()),
            ("forks", "asc")
        );
    }
    let url = server.url("/acme/thing");
    git.repositories(&access, &query(&url, RepositorySortKey::Stars, true), &page)
        .await
        .unwrap();
    assert_eq!(
        server.received().pop().unwrap().query["q"],
        "repo:acme/thing fork:true"
    );
    let (server, access) = scripted(Bitbucket).await;
    let query = query("w1/a\"b", RepositorySortKey::Updated, true);
    git.repositories(&access, &query, &page).await.unwrap();
    let last = server.received().pop().unwrap();
    assert_eq!(
        (last.query["q"].as_str(), last.query["sort"].as_str()),
        ("name~\"a\\\"b\"", "-updated_on")
    );
}

#[tokio::test]
async fn repositories_and_branches_are_converted() {
    let git = hosting();
    let page = GitPageRequest {
        after: None,
        limit: 1,
    };
    for (provider, full_name, main) in [
        (Github, "o/r0", Some("main")),
        (Gitlab, "g/s/r0", None),
        (Bitbucket, "w/r0", Some("main")),
        (BitbucketDataCenter, "P/r1", None),
        (Forgejo, "o/r0", Some("main")),
        (AzureDevops, "org/My project/r000", Some("main")),
    ] {
        let (_server, access) = scripted(provider).await;
        let result = git
            .repositories(&access, &RepositoryQuery::default(), &page)
            .await
            .unwrap();
        let first = &result.items[0];
        assert_eq!(
            (first.full_name.as_str(), first.main_branch.as_deref()),
            (full_name, main)
        );
        assert_eq!(first.git_provider, provider);
        let is_public = matches!(provider, Gitlab | Forgejo);
        assert_eq!(first.is_public, is_public, "{provider}");
        let TestList::Branches(repository, _) = lists(provider)
            .into_iter()
            .map(|(list, _)| list)
            .find(|list| matches!(list, TestList::Branches(..)))
            .unwrap()
        else {
            unreachable!()
        };
        let branches = git.branches(&access, repository, "", &page).await.unwrap();
        assert_eq!(branches.items[0].commit_sha, "abc", "{provider}");
        let tricky = git.branches(&access, "../..", "", &page).await;
        assert!(
            matches!(tricky, Err(GitError::InvalidRepository { .. })),
            "{tricky:?}"
        );
    }
}

#[tokio::test]
async fn an_error_response_is_not_an_empty_list() {
    let request = GitPageRequest {
        after: None,
        limit: 10,
    };
    for (header, is_limit) in [
        (Some(("x-ratelimit-remaining", "0")), true),
        (Some(("retry-after", "60")), true),
        (Some(("x-ratelimit-remaining", "7")), false),
        (None, false),
    ] {
        let server = Server::start(move |_| {
            let refusal = ScriptedResponse::status(403);
            match header {
                Some((name, value)) => refusal.header(name, value),
                None => refusal,
            }
        })
        .await;
        let access = access(Github, &server.url(""), "t");
        let result = hosting().installations(&access, &request).await;
        match result {
            Err(GitError::Limited { .. }) => assert!(is_limit, "{header:?}"),
            Ok(page) => assert!(!is_limit && page.items.is_empty(), "{header:?}"),
            other => panic!("{header:?}: {other:?}"),
        }
    }
    let errors = |kind: &str| json!([{"type": "X"}, {"type": kind, "message": "m"}]);
    for (body, expected) in [
        (
            json!({"data": null, "errors": errors("INTERNAL")}),
            "Err(Unavailable",
        ),
        (json!({"errors": errors("RATE_LIMITED")}), "Err(Limited"),
        (
            json!({"data": {"repository": null, "viewer": null}, "errors": errors("NOT_FOUND")}),
            "Ok",
        ),
    ] {
        let server = Server::start(move |_| ScriptedResponse::json(&body)).await;
        let access = access(Github, &server.url(""), "t");
        let tasks = format!("{:?}", hosting().suggested_tasks(&access).await);
        assert!(tasks.starts_with(expected), "{tasks}");
        let branches = hosting().branches(&access, "o/r", "words", &request).await;
        let expected = expected.replace("Ok", "Err(NotFound");
        let branches = format!("{branches:?}");
        assert!(branches.starts_with(&expected), "{branches}");
    }
}
