//! Pull requests: the one request that each provider gets, and the result of its response.

use std::time::Duration;

use domain::git::GitProvider::{
    self, AzureDevops, Bitbucket, BitbucketDataCenter, EnterpriseSso, Forgejo, Github, Gitlab,
};
use domain::git::{GitError, GitHosting as _, NewPullRequest};
use git_hosting::{Config, HttpGitHosting, PrivateHosts};
use serde_json::{Value, json};

use crate::scripts::root;
use crate::server::{ReceivedRequest, ScriptedResponse, Server, access, hosting};

const ALL: [GitProvider; 6] = [
    Github,
    Gitlab,
    Bitbucket,
    BitbucketDataCenter,
    Forgejo,
    AzureDevops,
];

fn request(provider: GitProvider) -> NewPullRequest {
    NewPullRequest {
        repository: if provider == AzureDevops {
            "org/p x/r".into()
        } else {
            "o/r".into()
        },
        source_branch: "fix/it".into(),
        target_branch: "main".into(),
        title: "Fix it".into(),
        body: Some("It was broken.".into()),
        draft: true,
        labels: Vec::new(),
    }
}

/// Responds that pull request 7 is open, in the format of every provider.
fn opens(received: &ReceivedRequest) -> ScriptedResponse {
    let url = "https://git.example.com/o/r/7";
    ScriptedResponse {
        status: 201,
        ..ScriptedResponse::json(
            &json!({"number": 7, "id": 7, "iid": 7, "pullRequestId": 7, "html_url": url, "web_url": url,
            "links": {"html": {"href": url}, "self": [{"href": url}]}, "title": received.body["title"]}),
        )
    }
}

fn expected(provider: GitProvider) -> (&'static str, Value) {
    let (title, body) = ("Fix it", "It was broken.");
    let branch = |name: &str| json!({"branch": {"name": name}});
    let reference = |name: &str| json!({"id": format!("refs/heads/{name}"), "repository": {"slug": "r", "project": {"key": "o"}}});
    match provider {
        Github => (
            "/api/v3/repos/o/r/pulls",
            json!({"title": title, "body": body, "draft": true, "head": "fix/it", "base": "main"}),
        ),
        Gitlab => (
            "/api/v4/projects/o%2Fr/merge_requests",
            json!({"title": "Draft: Fix it", "source_branch": "fix/it", "target_branch": "main", "description": body}),
        ),
        Bitbucket => (
            "/2.0/repositories/o/r/pullrequests",
            json!({"title": title, "description": body, "source": branch("fix/it"), "destination": branch("main"),
                "draft": true}),
        ),
        BitbucketDataCenter => (
            "/rest/api/1.0/projects/o/repos/r/pull-requests",
            json!({"title": title, "description": body, "fromRef": reference("fix/it"), "toRef": reference("main"),
                "draft": true}),
        ),
        Forgejo => (
            "/forgejo/api/v1/repos/o/r/pulls",
            json!({"title": "WIP: Fix it", "body": body, "head": "fix/it", "base": "main"}),
        ),
        AzureDevops => (
            "/tfs/org/p%20x/_apis/git/repositories/r/pullrequests",
            json!({"title": title, "description": body, "isDraft": true, "sourceRefName": "refs/heads/fix/it",
                "targetRefName": "refs/heads/main"}),
        ),
        EnterpriseSso => unreachable!("EnterpriseSso has no pull requests"),
    }
}

#[tokio::test]
async fn each_provider_gets_one_request_in_its_format() {
    let git = hosting();
    for provider in ALL {
        let server = Server::start(opens).await;
        let access = access(provider, &server.url(root(provider)), "t");
        let opened = git
            .open_pull_request(&access, &request(provider))
            .await
            .unwrap();
        let address = if provider == AzureDevops {
            server.url("/tfs/org/p%20x/_git/r/pullrequest/7")
        } else {
            "https://git.example.com/o/r/7".to_owned()
        };
        assert_eq!(
            (opened.url.as_str(), opened.number, opened.note),
            (address.as_str(), Some(7), None),
            "{provider}"
        );
        let received = server.received();
        assert_eq!(received.len(), 1, "{provider}");
        let (path, body) = expected(provider);
        assert_eq!(
            (
                received[0].method.as_str(),
                received[0].path.as_str(),
                &received[0].body
            ),
            ("POST", path, &body),
            "{provider}"
        );
        assert!(
            received[0].headers.contains_key("authorization"),
            "{provider}"
        );
    }
    let sso = access(EnterpriseSso, "https://127.0.0.1", "t");
    let result = git.open_pull_request(&sso, &request(Github)).await;
    assert!(matches!(result, Err(GitError::Unsupported { .. })));
}

#[tokio::test]
async fn labels_that_fail_leave_the_pull_request_open() {
    let git = hosting();
    for (provider, refused, expected) in [
        (
            Github,
            None,
            Ok((
                "/api/v3/repos/o/r/issues/7/labels",
                json!({"labels": ["a b", "c"]}),
            )),
        ),
        (
            Github,
            Some(403),
            Err("its labels were not set: the token stored for github lacks the scope"),
        ),
        (
            Github,
            Some(422),
            Err("its labels were not set: github refuses"),
        ),
        (Forgejo, None, Err("forgejo does not support labels here")),
    ] {
        let server = Server::start(move |received| match refused {
            Some(status) if received.path.ends_with("/labels") => ScriptedResponse::status(status),
            _ => opens(received),
        })
        .await;
        let mut request = request(provider);
        request.labels = vec!["a b".into(), "c".into()];
        let access = access(provider, &server.url(root(provider)), "t");
        let opened = git.open_pull_request(&access, &request).await.unwrap();
        match expected {
            Ok((path, body)) => {
                let received = server.received();
                assert_eq!(
                    (received.len(), opened.note, received[1].path.as_str()),
                    (2, None, path)
                );
                assert_eq!(received[1].body, body);
            }
            Err(why) => {
                let note = opened.note.unwrap_or_default();
                assert!(note.contains(why), "{provider} {refused:?}: {note}");
            }
        }
    }
    let server = Server::start(opens).await;
    let mut request = request(Gitlab);
    (request.labels, request.repository) = (vec!["a b".into(), "c".into()], "4711".into());
    let opened = git
        .open_pull_request(&access(Gitlab, &server.url(""), "t"), &request)
        .await
        .unwrap();
    let received = server.received();
    assert_eq!((received.len(), opened.note), (1, None));
    assert_eq!(received[0].path, "/api/v4/projects/4711/merge_requests");
    assert_eq!(received[0].body["labels"], "a b,c");
}

#[tokio::test]
async fn refused_pull_requests_have_a_reason_and_are_not_repeated() {
    let git = hosting();
    for (status, name) in [
        (401, "Denied"),
        (403, "NotAllowed"),
        (404, "NotFound"),
        (409, "Refused"),
        (422, "Refused"),
        (429, "Limited"),
        (307, "Refused"),
        (500, "Unavailable"),
        // Created, but the response has no URL.
        (201, "Unavailable"),
    ] {
        let server = Server::start(move |received| {
            let echo = &received.headers["authorization"];
            let mut response =
                ScriptedResponse::json(&json!({"message": format!("exists already; {echo}")}));
            response.status = status;
            response.header("location", "/elsewhere")
        })
        .await;
        for provider in ALL {
            let before = server.received().len();
            let access = access(provider, &server.url(root(provider)), "hush-hush");
            let result = git.open_pull_request(&access, &request(provider)).await;
            let shown = format!("{result:?}");
            assert!(
                shown.starts_with(&format!("Err({name}")),
                "{provider} {status}: {shown}"
            );
            assert!(
                !shown.contains("hush") && !shown.contains("aHVzaC1odXNo"),
                "{shown}"
            );
            assert_eq!(server.received().len() - before, 1, "{provider} {status}");
        }
    }
    let server = Server::start(|_| {
        let mut response = ScriptedResponse::json(&json!({"message": "exists already"}));
        response.status = 422;
        response
    })
    .await;
    let result = git
        .open_pull_request(&access(Github, &server.url(""), "t"), &request(Github))
        .await;
    let shown = result.unwrap_err().to_string();
    assert_eq!(shown, "github refuses: exists already");
}

#[tokio::test]
async fn pull_requests_obey_the_guard_the_deadline_and_the_name_rules() {
    let server = Server::start(|received| ScriptedResponse {
        delay: Duration::from_secs(3600),
        ..opens(received)
    })
    .await;
    let config = |private_hosts| Config {
        private_hosts,
        // Long enough for the request to arrive.
        timeout: Duration::from_secs(2),
        ..Config::default()
    };
    let git = HttpGitHosting::new(&config(PrivateHosts::Refused)).unwrap();
    for provider in ALL {
        let access = access(provider, &server.url(root(provider)), "t");
        let result = git.open_pull_request(&access, &request(provider)).await;
        assert!(
            matches!(result, Err(GitError::Forbidden { .. })),
            "{result:?}"
        );
    }
    assert!(server.received().is_empty());
    let git = HttpGitHosting::new(&config(PrivateHosts::Allowed)).unwrap();
    for provider in ALL {
        let access = access(provider, &server.url(root(provider)), "t");
        for name in ["", "r", "o/../r", "o/r?x", "a/b/c/d"] {
            if provider == Gitlab && name == "a/b/c/d" {
                continue;
            }
            let mut request = request(provider);
            request.repository = name.into();
            let result = git.open_pull_request(&access, &request).await;
            assert!(
                matches!(result, Err(GitError::InvalidRepository { .. })),
                "{provider} {name}: {result:?}"
            );
        }
    }
    assert!(server.received().is_empty());
    let slow = access(Github, &server.url(""), "t");
    let result = git.open_pull_request(&slow, &request(Github)).await;
    assert!(
        matches!(result, Err(GitError::Unavailable { .. })),
        "{result:?}"
    );
    assert_eq!(server.received().len(), 1);
}
