//! Users, tasks and credentials.

use domain::git::GitProvider::{
    self, AzureDevops, Bitbucket, BitbucketDataCenter, EnterpriseSso, Forgejo, Github, Gitlab,
};
use domain::git::SuggestedTaskType::{
    FailingChecks, MergeConflicts, OpenIssue, UnresolvedComments,
};
use domain::git::{GitError, GitHosting as _, SuggestedTaskType};
use serde_json::json;

use crate::server::{ReceivedRequest, ScriptedResponse, Server, access, hosting};

/// One script for all providers: their paths differ.
fn all_users(received: &ReceivedRequest) -> ScriptedResponse {
    let body = match received.path.as_str() {
        "/api/v3/user" => {
            json!({"id": 1, "login": "ada", "avatar_url": "a", "company": "c", "name": "Ada", "email": null})
        }
        "/api/v3/user/emails" => json!([{"email": "no", "primary": false, "verified": true},
            {"email": "ada@example.com", "primary": true, "verified": true}]),
        "/api/v4/user" => {
            json!({"id": 1, "username": "ada", "avatar_url": "a", "organization": "c", "name": "Ada",
            "email": "ada@example.com"})
        }
        "/2.0/user" => {
            json!({"account_id": "1", "nickname": "ada", "display_name": "Ada", "links": {"avatar": {"href": "a"}}})
        }
        "/2.0/user/emails" => {
            json!({"values": [{"email": "ada@example.com", "is_primary": true, "is_confirmed": true}]})
        }
        "/rest/api/1.0/projects" => {
            return ScriptedResponse::json(&json!({"values": []})).header("X-AUSERNAME", "ad%61");
        }
        "/rest/api/1.0/users" => {
            json!({"values": [{"id": 9, "name": "adalbert"}, {"id": 1, "name": "ada",
            "displayName": "Ada", "emailAddress": "ada@example.com"}]})
        }
        "/api/v1/user" => {
            json!({"id": 1, "login": "ada", "full_name": "Ada", "avatar_url": "a", "email": "ada@example.com"})
        }
        "/tfs/org/_apis/connectionData" => {
            json!({"authenticatedUser": {"id": "1", "providerDisplayName": "Ada",
            "properties": {"Account": {"$value": "ada@example.com"}}}})
        }
        _ => return tasks(received),
    };
    ScriptedResponse::json(&body)
}

fn tasks(received: &ReceivedRequest) -> ScriptedResponse {
    let review = |n: i64, extra: serde_json::Value| {
        let mut all = json!({"number": n, "iid": n.to_string(), "title": format!("T{n}"),
            "repository": {"nameWithOwner": "o/r"}, "project": {"fullPath": "o/r"}});
        all.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        all
    };
    let checks =
        |state: &str| json!({"nodes": [{"commit": {"statusCheckRollup": {"state": state}}}]});
    let body = match received.path.as_str() {
        "/api/graphql" if received.body["query"].as_str().unwrap().contains("viewer") => {
            json!({"data": {
                "viewer": {"pullRequests": {"nodes": [
                    review(1, json!({"mergeable": "CONFLICTING"})),
                    review(2, json!({"mergeable": "MERGEABLE", "commits": checks("FAILURE")})),
                    review(3, json!({"commits": checks("SUCCESS"), "reviews": {"totalCount": 1}})),
                    review(4, json!({"commits": checks("SUCCESS"), "reviews": {"totalCount": 0}})),
                    null,
                ]}},
                "search": {"nodes": [review(5, json!({})), {}]},
            }})
        }
        "/api/graphql" => json!({"data": {"currentUser": {"authoredMergeRequests": {"nodes": [
            review(1, json!({"conflicts": true})),
            review(2, json!({"conflicts": false, "headPipeline": {"status": "FAILED"}})),
            review(3, json!({"resolvableDiscussionsCount": 2, "resolvedDiscussionsCount": 1})),
            review(4, json!({"resolvableDiscussionsCount": 1, "resolvedDiscussionsCount": 1})),
        ]}}}}),
        "/api/v4/issues" => json!([{"iid": 5, "title": "T5", "references": {"full": "o/r#5"}}]),
        "/rest/api/1.0/dashboard/pull-requests" => {
            let to = json!({"repository": {"slug": "r", "project": {"key": "P"}}});
            json!({"values": [
                {"id": 1, "title": "T1", "toRef": to, "reviewers": [], "properties": {"mergeResult": {"outcome": "CONFLICTED"}}},
                {"id": 3, "title": "T3", "toRef": to, "reviewers": [{"status": "NEEDS_WORK"}]},
                {"id": 4, "title": "T4", "toRef": to, "reviewers": [{"status": "APPROVED"}]},
            ]})
        }
        "/api/v1/repos/issues/search" => {
            json!([{"number": 5, "title": "T5", "repository": {"full_name": "o/r"}}])
        }
        "/tfs/org/_apis/git/pullrequests" => {
            let repository = json!({"name": "r", "project": {"name": "p"}});
            json!({"value": [
                {"pullRequestId": 1, "title": "T1", "repository": repository, "mergeStatus": "conflicts", "reviewers": []},
                {"pullRequestId": 3, "title": "T3", "repository": repository, "reviewers": [{"vote": -5}]},
                {"pullRequestId": 4, "title": "T4", "repository": repository, "reviewers": [{"vote": 10}]},
            ]})
        }
        "/tfs/org/_apis/wit/wiql" => json!({"workItems": [{"id": 5}]}),
        "/tfs/org/_apis/wit/workitems" => {
            json!({"value": [{"id": 5, "fields": {"System.Title": "T5",
            "System.TeamProject": "p"}}]})
        }
        _ => return ScriptedResponse::status(404),
    };
    ScriptedResponse::json(&body)
}

fn host(provider: GitProvider, server: &Server) -> String {
    server.url(match provider {
        Bitbucket => "/2.0",
        AzureDevops => "/tfs/org",
        _ => "",
    })
}

#[tokio::test]
async fn users_of_all_providers() {
    let (git, server) = (hosting(), Server::start(all_users).await);
    for provider in [
        Github,
        Gitlab,
        Bitbucket,
        BitbucketDataCenter,
        Forgejo,
        AzureDevops,
    ] {
        let user = git
            .user(&access(provider, &host(provider, &server), "t"))
            .await
            .unwrap();
        let login = if provider == AzureDevops {
            "ada@example.com"
        } else {
            "ada"
        };
        assert_eq!(
            (user.id.as_str(), user.login.as_str()),
            ("1", login),
            "{provider}"
        );
        assert_eq!(user.name.as_deref(), Some("Ada"), "{provider}");
        assert_eq!(user.email.as_deref(), Some("ada@example.com"), "{provider}");
    }
    let sso = git.user(&access(EnterpriseSso, &server.url(""), "t")).await;
    assert!(matches!(sso, Err(GitError::Unsupported { .. })));
}

#[tokio::test]
async fn suggested_tasks_of_all_providers() {
    let (git, server) = (hosting(), Server::start(all_users).await);
    let all = [
        (1, MergeConflicts),
        (2, FailingChecks),
        (3, UnresolvedComments),
        (5, OpenIssue),
    ];
    let table: [(GitProvider, &[(i64, SuggestedTaskType)]); 6] = [
        (Github, &all),
        (Gitlab, &all),
        (Bitbucket, &[]),
        (BitbucketDataCenter, &[all[0], all[2]]),
        (Forgejo, &all[3..]),
        (AzureDevops, &[all[0], all[2], all[3]]),
    ];
    for (provider, expected) in table {
        let access = access(provider, &host(provider, &server), "t");
        let tasks = git.suggested_tasks(&access).await.unwrap();
        let seen: Vec<_> = tasks
            .iter()
            .map(|task| (task.issue_number, task.task_type))
            .collect();
        assert_eq!(seen, expected, "{provider}");
        assert!(
            tasks
                .iter()
                .all(|task| task.title == format!("T{}", task.issue_number))
        );
    }
}

#[tokio::test]
async fn each_provider_gets_its_authentication_scheme() {
    let git = hosting();
    for (provider, token, expected) in [
        (Github, "t", "Bearer t"),
        (Gitlab, "t", "Bearer t"),
        (Bitbucket, "t", "Bearer t"),
        // ada@example.com:api
        (
            Bitbucket,
            "ada@example.com:api",
            "Basic YWRhQGV4YW1wbGUuY29tOmFwaQ==",
        ),
        (BitbucketDataCenter, "t", "Bearer t"),
        (BitbucketDataCenter, "ada:pw", "Basic YWRhOnB3"),
        (Forgejo, "t", "token t"),
        // :t
        (AzureDevops, "t", "Basic OnQ="),
        (AzureDevops, "eyJh.eyJi.c", "Bearer eyJh.eyJi.c"),
    ] {
        let server = Server::start(all_users).await;
        git.user(&access(provider, &host(provider, &server), token))
            .await
            .unwrap();
        for received in server.received() {
            assert_eq!(received.headers["authorization"], expected, "{provider}");
            assert!(received.headers["user-agent"].starts_with("agent-workspace/"));
            assert_eq!(received.method, "GET");
        }
    }
}

#[tokio::test]
async fn error_statuses_of_all_providers() {
    let git = hosting();
    for (status, header, name) in [
        (401, None, "Denied"),
        (403, None, "NotAllowed"),
        (203, None, "Denied"),
        (403, Some(("x-ratelimit-remaining", "0")), "Limited"),
        (403, Some(("retry-after", "7")), "Limited"),
        (429, Some(("retry-after", "7")), "Limited"),
        (404, None, "NotFound"),
        (400, None, "Unavailable"),
        (500, None, "Unavailable"),
        (503, Some(("retry-after", "7")), "Unavailable"),
    ] {
        let server = Server::start(move |_| match header {
            Some((name, value)) => ScriptedResponse::status(status).header(name, value),
            None => ScriptedResponse::status(status),
        })
        .await;
        for provider in [
            Github,
            Gitlab,
            Bitbucket,
            BitbucketDataCenter,
            Forgejo,
            AzureDevops,
        ] {
            let error = git
                .user(&access(provider, &host(provider, &server), "hush-hush"))
                .await;
            let shown = format!("{error:?}");
            assert!(
                shown.starts_with(&format!("Err({name}")),
                "{provider} {status}: {shown}"
            );
            assert!(!shown.contains("hush"), "{shown}");
            if let (Err(GitError::Limited { retry_after, .. }), Some(("retry-after", _))) =
                (&error, header)
            {
                assert_eq!(*retry_after, Some(7));
            }
        }
    }
    let garbage = Server::start(|_| ScriptedResponse {
        body: b"<html>".to_vec(),
        ..ScriptedResponse::status(200)
    })
    .await;
    let error = git.user(&access(Gitlab, &garbage.url(""), "t")).await;
    assert!(matches!(error, Err(GitError::Unavailable { .. })));
    let odd = git.user(&access(Gitlab, &garbage.url(""), "a\nb")).await;
    assert!(matches!(odd, Err(GitError::Denied { .. })));
}
