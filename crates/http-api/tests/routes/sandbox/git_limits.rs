//! Limits of what agents do with git.

use std::time::Duration;

use actix_web::test::TestRequest;
use application::git::{BranchRule, GitPolicy, GitPush, GitRepositories};
use http_api::Listener;
use serde_json::{Value, json};

use super::git::{REFS, get, git_config, launch, place};
use super::models::{Endpoint, answer};
use crate::fixture::{ADA, ROOT, TestResponse, World};

const ZERO: &str = "0000000000000000000000000000000000000000";
const ONE: &str = "1111111111111111111111111111111111111111";
/// git-user:real-token
const CREDENTIALS: &str = "Basic Z2l0LXVzZXI6cmVhbC10b2tlbg==";

async fn world(repositories: GitRepositories, push: GitPush) -> World {
    let policy = GitPolicy { repositories, push };
    let world = World::build_with_git_policy(git_config(), policy);
    let world = world.await.at_work().await;
    let found = "private=/home/a/.agent-workspace/1\n";
    world.workspace.set_command_result("facts", Some(0), found);
    world
}

fn packet(line: &str) -> String {
    format!("{:04x}{line}", line.len() + 4)
}

fn push_of(reference: &str) -> String {
    let line = format!("{ZERO} {ONE} {reference}\0report-status\n");
    format!("{}0000PACK", packet(&line))
}

async fn post(world: &World, token: &str, path: &str, body: &str) -> TestResponse {
    let request = TestRequest::post()
        .uri(path)
        .insert_header(("X-Access-Token", token))
        .set_payload(body.to_owned());
    world.send_to(Listener::Callback, request).await
}

#[actix_web::test]
async fn a_push_of_another_branch_is_answered_as_by_a_host_that_accepts_none() {
    let host = Endpoint::answering(answer("200 OK", "", "from the host"));
    let push = GitPush::Branches(vec![BranchRule::Named("agent/*".into())]);
    let world = world(GitRepositories::All, push).await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    let path = format!("/git/{}/o/r.git/git-receive-pack", place(&host));
    for refused in ["refs/heads/main", "refs/tags/v1", "refs/heads/agent"] {
        let answer = post(&world, &token, &path, &push_of(refused)).await;
        let reason =
            format!("agents may not push {refused}, only branches agent/* of this repository");
        let line = packet(&format!("ng {refused} agent-workspace: {reason}\n"));
        assert_eq!(answer.text, format!("000eunpack ok\n{line}0000"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.content_type, "application/x-git-receive-pack-result");
    }
    let unreadable = post(&world, &token, &path, &packet("push-cert\0")).await;
    assert_eq!(unreadable.status, 403);
    assert!(unreadable.text.contains("cannot read which branches"));
    let compressed = TestRequest::post()
        .uri(&path)
        .insert_header(("X-Access-Token", token.as_str()))
        .insert_header(("content-encoding", "deflate"))
        .set_payload(push_of("refs/heads/agent/x"));
    let compressed = world.send_to(Listener::Callback, compressed).await;
    assert_eq!(compressed.status, 403, "{}", compressed.text);
    assert_eq!(host.requests().len(), 0);

    let allowed = push_of("refs/heads/agent/x");
    let answer = post(&world, &token, &path, &allowed).await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (200, "from the host")
    );
    let request = host.requests().pop().unwrap();
    assert!(request.contains(CREDENTIALS) && request.ends_with(&allowed));
    // What git sends before a large push.
    assert_eq!(post(&world, &token, &path, "0000").await.status, 200);

    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let entries = world.get(ROOT, "/api/v1/audit").await.ok();
    let object = format!("repository:{}/o/r", place(&host));
    // Equal refusals of a minute are counted.
    for (outcome, reference) in [("ok", "refs/heads/agent/x"), ("refused", "refs/heads/main")] {
        let detail = format!("{reference} {}..{}", &ZERO[..12], &ONE[..12]);
        let is_it = |entry: &&Value| {
            entry["action"] == "git push"
                && entry["outcome"] == outcome
                && entry["object"] == json!(object)
                && entry["detail"] == json!(detail)
        };
        let all = entries["items"].as_array().unwrap();
        assert_eq!(all.iter().filter(is_it).count(), 1, "{outcome}: {entries}");
    }
}

#[actix_web::test]
async fn a_push_whose_sandbox_leaves_before_the_answer_is_in_the_audit_log() {
    let host = Endpoint::silent();
    let world = world(GitRepositories::All, GitPush::All).await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    let path = format!("/git/{}/o/r.git/git-receive-pack", place(&host));
    let body = push_of("refs/heads/main");
    {
        let mut push = std::pin::pin!(post(&world, &token, &path, &body));
        while host.requests().is_empty() {
            let turn = tokio::time::timeout(Duration::from_millis(10), &mut push);
            assert!(turn.await.is_err(), "the host did not answer");
        }
    }
    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let entries = world.get(ROOT, "/api/v1/audit").await.ok();
    let all = entries["items"].as_array().unwrap().iter();
    let pushes: Vec<_> = all.filter(|it| it["action"] == "git push").collect();
    assert_eq!(pushes.len(), 1, "{entries}");
    assert!(pushes[0]["status"].is_null(), "{entries}");
    assert!(
        pushes[0]["detail"]
            .as_str()
            .unwrap()
            .contains("closed the connection")
    );
}

#[actix_web::test]
async fn a_repository_of_no_conversation_is_read_without_the_token_and_never_written() {
    let host = Endpoint::answering(answer("401 Unauthorized", "", "no"));
    let world = world(GitRepositories::OfConversations, GitPush::All).await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    let repository = format!("/git/{}/o/r.git", place(&host));
    let refs = get(&world, &token, &format!("/git/{}/{REFS}", place(&host))).await;
    assert_eq!(refs.status, 403);
    assert!(refs.text.contains("the host requires a token here"));
    let batch = |operation: &str| json!({"operation": operation, "objects": []}).to_string();
    let list = format!("{repository}/info/lfs/objects/batch");
    let _ = post(&world, &token, &list, &batch("download")).await;
    let requests = host.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert!(!request.to_ascii_lowercase().contains("authorization"));
    }
    let begin = format!("{repository}/info/refs?service=git-receive-pack");
    let begin = get(&world, &token, &begin).await;
    let mut answers = vec![begin];
    let any = push_of("refs/heads/main");
    for (path, body) in [
        ("git-receive-pack", any.as_str()),
        ("info/lfs/objects/batch", &batch("upload")),
        ("info/lfs/objects/batch", "broken"),
        ("info/lfs/locks", "{}"),
    ] {
        let path = format!("{repository}/{path}");
        answers.push(post(&world, &token, &path, body).await);
    }
    for answer in answers {
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert!(answer.text.contains("may not write to this repository"));
    }
    assert_eq!(host.requests().len(), 2);
}

#[actix_web::test]
async fn a_sandbox_with_limits_gets_the_token_in_no_form_and_opens_no_pull_requests() {
    let host = Endpoint::answering(answer("200 OK", "", "fine"));
    for (push, is_limited) in [(GitPush::All, false), (GitPush::Branches(Vec::new()), true)] {
        let world = world(GitRepositories::All, push).await;
        let (_, token) = launch(&world, ADA, &host.base).await;
        let begin = format!(
            "/git/{}/o/r.git/info/refs?service=git-receive-pack",
            place(&host)
        );
        let begin = get(&world, &token, &begin).await;
        assert_eq!(begin.status == 403, is_limited, "{}", begin.text);
        let launched = world.agents.launches().pop().unwrap();
        let has_token = launched.secrets.contains_key("FORGEJO_TOKEN");
        assert_eq!(has_token, !is_limited);
        assert_eq!(launched.mcp.is_empty(), is_limited);
    }
}
