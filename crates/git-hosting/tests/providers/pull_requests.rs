//! Pull requests: what each provider is sent, once, and what is told of its answer.

use std::time::Duration;

use domain::conversation::GitProvider::{
    self, AzureDevops, Bitbucket, BitbucketDataCenter, EnterpriseSso, Forgejo, Github, Gitlab,
};
use domain::git::{GitError, GitHosting as _, NewPullRequest};
use git_hosting::{Config, HttpGitHosting, PrivateHosts};
use serde_json::{Value, json};

use crate::scripts::root;
use crate::server::{Answer, Asked, Server, access, hosting};

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

/// Opens number 7 of every provider.
fn opens(asked: &Asked) -> Answer {
    let url = "https://git.example.com/o/r/7";
    Answer {
        status: 201,
        ..Answer::json(
            &json!({"number": 7, "id": 7, "iid": 7, "pullRequestId": 7, "html_url": url, "web_url": url,
            "links": {"html": {"href": url}, "self": [{"href": url}]}, "title": asked.body["title"]}),
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
        EnterpriseSso => unreachable!("it has no pull requests"),
    }
}

#[tokio::test]
async fn each_provider_is_asked_once_in_its_own_words() {
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
        let asked = server.asked();
        assert_eq!(asked.len(), 1, "{provider}");
        let (path, body) = expected(provider);
        assert_eq!(
            (
                asked[0].method.as_str(),
                asked[0].path.as_str(),
                &asked[0].body
            ),
            ("POST", path, &body),
            "{provider}"
        );
        assert!(asked[0].headers.contains_key("authorization"), "{provider}");
    }
    let nobody = access(EnterpriseSso, "https://127.0.0.1", "t");
    let answer = git.open_pull_request(&nobody, &request(Github)).await;
    assert!(matches!(answer, Err(GitError::Unsupported { .. })));
}

#[tokio::test]
async fn labels_go_along_or_after_it_and_never_cost_the_pull_request() {
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
        let server = Server::start(move |asked| match refused {
            Some(status) if asked.path.ends_with("/labels") => Answer::status(status),
            _ => opens(asked),
        })
        .await;
        let mut wanted = request(provider);
        wanted.labels = vec!["a b".into(), "c".into()];
        let access = access(provider, &server.url(root(provider)), "t");
        let opened = git.open_pull_request(&access, &wanted).await.unwrap();
        match expected {
            Ok((path, body)) => {
                let asked = server.asked();
                assert_eq!(
                    (asked.len(), opened.note, asked[1].path.as_str()),
                    (2, None, path)
                );
                assert_eq!(asked[1].body, body);
            }
            Err(why) => {
                let note = opened.note.unwrap_or_default();
                assert!(note.contains(why), "{provider} {refused:?}: {note}");
            }
        }
    }
    let server = Server::start(opens).await;
    let mut wanted = request(Gitlab);
    (wanted.labels, wanted.repository) = (vec!["a b".into(), "c".into()], "4711".into());
    let opened = git
        .open_pull_request(&access(Gitlab, &server.url(""), "t"), &wanted)
        .await
        .unwrap();
    let asked = server.asked();
    assert_eq!((asked.len(), opened.note), (1, None));
    assert_eq!(asked[0].path, "/api/v4/projects/4711/merge_requests");
    assert_eq!(asked[0].body["labels"], "a b,c");
}

#[tokio::test]
async fn refusals_say_why_and_nothing_is_sent_twice() {
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
        // Said to be open, without an address.
        (201, "Unavailable"),
    ] {
        let server = Server::start(move |asked| {
            let echo = &asked.headers["authorization"];
            let mut answer = Answer::json(&json!({"message": format!("exists already; {echo}")}));
            answer.status = status;
            answer.header("location", "/elsewhere")
        })
        .await;
        for provider in ALL {
            let before = server.asked().len();
            let access = access(provider, &server.url(root(provider)), "hush-hush");
            let answer = git.open_pull_request(&access, &request(provider)).await;
            let shown = format!("{answer:?}");
            assert!(
                shown.starts_with(&format!("Err({name}")),
                "{provider} {status}: {shown}"
            );
            assert!(
                !shown.contains("hush") && !shown.contains("aHVzaC1odXNo"),
                "{shown}"
            );
            assert_eq!(server.asked().len() - before, 1, "{provider} {status}");
        }
    }
    let server = Server::start(|_| {
        let mut answer = Answer::json(&json!({"message": "exists already"}));
        answer.status = 422;
        answer
    })
    .await;
    let answer = git
        .open_pull_request(&access(Github, &server.url(""), "t"), &request(Github))
        .await;
    let shown = answer.unwrap_err().to_string();
    assert_eq!(shown, "github refuses: exists already");
}

#[tokio::test]
async fn the_guard_the_deadline_and_the_names_hold_here_too() {
    let server = Server::start(|asked| Answer {
        delay: Duration::from_secs(3600),
        ..opens(asked)
    })
    .await;
    let config = |private_hosts| Config {
        private_hosts,
        // So long that what is asked has arrived by then.
        timeout: Duration::from_secs(2),
        ..Config::default()
    };
    let git = HttpGitHosting::new(&config(PrivateHosts::Refused)).unwrap();
    for provider in ALL {
        let access = access(provider, &server.url(root(provider)), "t");
        let answer = git.open_pull_request(&access, &request(provider)).await;
        assert!(
            matches!(answer, Err(GitError::Forbidden { .. })),
            "{answer:?}"
        );
    }
    assert!(server.asked().is_empty());
    let git = HttpGitHosting::new(&config(PrivateHosts::Allowed)).unwrap();
    for provider in ALL {
        let access = access(provider, &server.url(root(provider)), "t");
        for name in ["", "r", "o/../r", "o/r?x", "a/b/c/d"] {
            if provider == Gitlab && name == "a/b/c/d" {
                continue;
            }
            let mut wanted = request(provider);
            wanted.repository = name.into();
            let answer = git.open_pull_request(&access, &wanted).await;
            assert!(
                matches!(answer, Err(GitError::InvalidRepository { .. })),
                "{provider} {name}: {answer:?}"
            );
        }
    }
    assert!(server.asked().is_empty());
    let slow = access(Github, &server.url(""), "t");
    let answer = git.open_pull_request(&slow, &request(Github)).await;
    assert!(
        matches!(answer, Err(GitError::Unavailable { .. })),
        "{answer:?}"
    );
    assert_eq!(server.asked().len(), 1);
}
