//! Git calls of sandboxes, through the service to a host of this test.

use actix_web::test::TestRequest;
use application::AuthMode;
use broker::{CaCertificates, GitBroker, PrivateHosts};
use http_api::{HttpConfig, Listener};
use serde_json::json;

use super::models::{Endpoint, answer};
use crate::fixture::{ADA, BOB, TestResponse, World};

pub(super) const REFS: &str = "o/r.git/info/refs?service=git-upload-pack";

pub(super) fn git_config() -> HttpConfig {
    let git = GitBroker::new(PrivateHosts::Allowed, CaCertificates::default());
    HttpConfig {
        git: Some(git.unwrap()),
        ..HttpConfig::default()
    }
}

async fn world() -> World {
    let world = World::build(git_config(), AuthMode::ApiKey)
        .await
        .at_work()
        .await;
    let found = "private=/home/a/.agent-workspace/1\n";
    world.workspace.set_command_result("facts", Some(0), found);
    world
}

/// Stores a token for the host, and starts a conversation; returns its id and the sandbox's token.
pub(super) async fn launch(world: &World, user: &str, host: &str) -> (String, String) {
    let tokens = json!({"provider_tokens": {"forgejo": {"token": "real-token", "host": host}}});
    let path = "/api/v1/secrets/git-providers";
    world.post(user, path, &tokens).await.ok();
    let id = world.conversation(user).await;
    let file = world.workspace.files();
    let file = file.get("/home/a/.agent-workspace/git").unwrap();
    assert!(!file.contains("real-token"), "{file}");
    let (_, rest) = file.split_once("extraHeader = \"X-Access-Token: ").unwrap();
    let (token, _) = rest.split_once('"').unwrap();
    (id, token.to_owned())
}

/// The place of a host in paths.
pub(super) fn place(endpoint: &Endpoint) -> &str {
    endpoint.base.strip_prefix("http://").unwrap()
}

pub(super) async fn get(world: &World, token: &str, path: &str) -> TestResponse {
    let request = TestRequest::get()
        .uri(path)
        .insert_header(("X-Access-Token", token))
        .insert_header(("Git-Protocol", "version=2"))
        .insert_header(("Cookie", "workspace=1"));
    world.send_to(Listener::Callback, request).await
}

#[actix_web::test]
async fn a_call_reaches_its_host_with_the_owners_token_and_nothing_else() {
    let headers =
        "content-type: application/x-git-upload-pack-advertisement\r\nset-cookie: a=b\r\n";
    let host = Endpoint::answering(answer("200 OK", headers, "001e# service"));
    let world = world().await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    assert!(token.starts_with("gb_"), "{token}");
    let refs = get(&world, &token, &format!("/git/{}/{REFS}", place(&host))).await;
    assert_eq!((refs.status, refs.text.as_str()), (200, "001e# service"));
    assert_eq!(
        refs.content_type,
        "application/x-git-upload-pack-advertisement"
    );
    assert!(!refs.headers.contains_key("set-cookie"));
    let push = TestRequest::post()
        .uri(&format!("/git/{}/o/r.git/git-receive-pack", place(&host)))
        .insert_header(("X-Access-Token", token.as_str()))
        .set_payload("0000PACK");
    assert_eq!(world.send_to(Listener::Callback, push).await.status, 200);
    let requests = host.requests();
    assert!(requests[0].starts_with(&format!("GET /{REFS} HTTP/1.1\r\n")));
    assert!(requests[0].contains("version=2"), "{}", requests[0]);
    assert!(requests[1].starts_with("POST /o/r.git/git-receive-pack HTTP/1.1\r\n"));
    assert!(requests[1].contains("0000PACK"), "{}", requests[1]);
    for request in requests {
        // git-user:real-token
        let credentials = "Basic Z2l0LXVzZXI6cmVhbC10b2tlbg==";
        assert!(request.contains(credentials), "{request}");
        let lower = request.to_ascii_lowercase();
        for stays in ["gb_", "x-access-token", "cookie"] {
            assert!(!lower.contains(stays), "{stays}: {request}");
        }
    }
}

#[actix_web::test]
async fn other_tokens_hosts_paths_and_states_are_refused_in_plain_text_without_401() {
    let host = Endpoint::answering(answer("200 OK", "", "fine"));
    let world = world().await;
    let (id, mine) = launch(&world, ADA, &host.base).await;
    let elsewhere = Endpoint::answering(answer("200 OK", "", "fine"));
    let (_, others) = launch(&world, BOB, &elsewhere.base).await;
    let refs = format!("/git/{}/{REFS}", place(&host));
    let (sandbox, _) = mine.split_once('.').unwrap();
    let (_, sealed) = others.split_once('.').unwrap();
    let mixed = format!("{sandbox}.{sealed}");
    for wrong in ["", "gb_", "gb_x.y", ADA, &mixed, &mine[..mine.len() - 1]] {
        let answer = get(&world, wrong, &refs).await;
        assert_eq!(answer.status, 403, "{wrong}");
        assert!(
            answer.text.contains("token is not valid"),
            "{}",
            answer.text
        );
        assert_eq!(answer.content_type, "text/plain; charset=utf-8");
    }
    // Another user's host, hosts of none, and a public one: the service opens no way to it.
    for host in [
        place(&host),
        "127.0.0.1:1",
        "git.acme.test",
        "github.example.com",
    ] {
        let answer = get(&world, &others, &format!("/git/{host}/{REFS}")).await;
        assert_eq!(answer.status, 403, "{host}");
        assert!(answer.text.contains("no token for this host"));
    }
    for (path, status) in [
        ("api/v1/user", 404),
        ("o/r.git/HEAD", 404),
        ("o/%2e%2e/api/v1/user/git-upload-pack", 404),
        ("o/r.git/info/refs", 404),
        ("", 404),
    ] {
        let answer = get(&world, &mine, &format!("/git/{}/{path}", place(&host))).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
    assert_eq!(host.requests().len() + elsewhere.requests().len(), 0);

    let sandbox = world.read(ADA, &id).await["sandbox_id"].clone();
    let path = format!("/api/v1/sandboxes/{}/", sandbox.as_str().unwrap());
    let change = async |what: &str| {
        let path = format!("{path}{what}");
        world.post(ADA, &path, &json!({})).await.ok();
    };
    change("pause").await;
    let paused = get(&world, &mine, &refs).await;
    assert_eq!(paused.status, 403);
    assert!(paused.text.contains("is not running"), "{}", paused.text);
    change("resume").await;
    assert_eq!(get(&world, &mine, &refs).await.status, 200);
}

#[actix_web::test]
async fn a_host_that_refuses_or_misbehaves_gets_no_second_request_and_no_password_prompt() {
    for (bytes, status, text) in [
        (
            answer("401 Unauthorized", "www-authenticate: Basic\r\n", "no"),
            403,
            "does not accept the stored token",
        ),
        (
            answer("302 Found", "location: http://127.0.0.1:1/o/r.git\r\n", ""),
            502,
            "redirects",
        ),
        (answer("404 Not Found", "", "gone"), 404, "gone"),
        ("nonsense".to_owned(), 502, "closed the connection"),
    ] {
        let host = Endpoint::answering(bytes.clone());
        let world = world().await;
        let (_, token) = launch(&world, ADA, &host.base).await;
        let answer = get(&world, &token, &format!("/git/{}/{REFS}", place(&host))).await;
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text);
        assert!(answer.text.contains(text), "{}", answer.text);
        for absent in ["www-authenticate", "location"] {
            assert!(!answer.headers.contains_key(absent), "{bytes}");
        }
        assert_eq!(host.requests().len(), 1, "{bytes}");
    }
}

#[actix_web::test]
async fn a_moved_repository_is_found_through_the_service() {
    let moved = answer("301 Moved", "location: /new/r.git/info/refs\r\n", "");
    let host = Endpoint::answering(moved);
    let world = world().await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    let answer = get(&world, &token, &format!("/git/{}/{REFS}", place(&host))).await;
    let location = answer.headers.get("location").unwrap().to_str().unwrap();
    let expected = format!("/git/{}/new/r.git/info/refs", place(&host));
    assert_eq!(answer.status, 301);
    assert_eq!(location, format!("http://127.0.0.1:3000{expected}"));
}

#[actix_web::test]
async fn a_replaced_token_takes_effect_at_once() {
    let host = Endpoint::answering(answer("200 OK", "", "fine"));
    let world = world().await;
    let (_, token) = launch(&world, ADA, &host.base).await;
    let tokens = json!({"provider_tokens": {"forgejo": {"token": "second", "host": host.base}}});
    let path = "/api/v1/secrets/git-providers";
    world.post(ADA, path, &tokens).await.ok();
    let refs = format!("/git/{}/{REFS}", place(&host));
    assert_eq!(get(&world, &token, &refs).await.status, 200);
    // git-user:second
    let request = host.requests().pop().unwrap();
    assert!(request.contains("Basic Z2l0LXVzZXI6c2Vjb25k"), "{request}");
}

#[actix_web::test]
async fn of_two_hosts_on_one_machine_the_nearest_gets_its_token() {
    let host = Endpoint::answering(answer("200 OK", "", "fine"));
    let world = world().await;
    let below = format!("{}/forge", host.base);
    let tokens = json!({"provider_tokens": {
        "forgejo": {"token": "of-root", "host": host.base},
        "gitlab": {"token": "of-forge", "host": below},
        "github": {"token": "real-token"},
    }});
    let path = "/api/v1/secrets/git-providers";
    world.post(ADA, path, &tokens).await.ok();
    let (_, token) = launch(&world, ADA, &host.base).await;
    let refs = format!("/git/{}/forge/{REFS}", place(&host));
    assert_eq!(get(&world, &token, &refs).await.status, 200);
    // git-user:of-forge
    let request = host.requests().pop().unwrap();
    assert!(
        request.contains("Basic Z2l0LXVzZXI6b2YtZm9yZ2U="),
        "{request}"
    );
    assert!(request.starts_with(&format!("GET /forge/{REFS} ")));
}
