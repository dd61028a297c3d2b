//! Hosts that must not be called, and limits of time, size and concurrency.

use std::time::{Duration, Instant};

use domain::git::GitProvider::{Forgejo, Gitlab};
use domain::git::{
    CloneSourceResolver as _, GitAccess, GitError, GitHosting as _, GitPageRequest, GitUser,
};
use futures::future::join_all;
use git_hosting::{AllowedHost, Config, HttpGitHosting, PrivateHosts};
use serde_json::json;

use crate::server::{ScriptedResponse, Server, access, hosting};

fn hosting_with_allowed_hosts(entries: &[&str]) -> HttpGitHosting {
    let list: Vec<AllowedHost> = entries.iter().map(|e| e.parse().unwrap()).collect();
    with(PrivateHosts::Listed(list))
}

fn with(private_hosts: PrivateHosts) -> HttpGitHosting {
    let config = Config {
        private_hosts,
        timeout: Duration::from_secs(5),
        max_body: 4096,
        ..Config::default()
    };
    HttpGitHosting::new(&config).unwrap()
}

async fn user(git: &HttpGitHosting, access: &GitAccess) -> Result<GitUser, GitError> {
    git.user(access).await
}

#[tokio::test]
async fn private_hosts_are_refused_without_a_request() {
    let server = Server::start(|_| ScriptedResponse::json(&json!({"id": 1}))).await;
    let port = server.address.port();
    let names = |host: &str| format!("http://{host}:{port}");
    for (git, host, is_allowed) in [
        (with(PrivateHosts::Refused), names("127.0.0.1"), false),
        (with(PrivateHosts::Refused), names("localhost"), false),
        (
            with(PrivateHosts::Refused),
            format!("https://localhost:{port}"),
            false,
        ),
        (
            with(PrivateHosts::Refused),
            names("[::ffff:127.0.0.1]"),
            false,
        ),
        (with(PrivateHosts::Refused), names("2130706433"), false),
        (
            hosting_with_allowed_hosts(&["other.example.com"]),
            names("127.0.0.1"),
            false,
        ),
        (
            hosting_with_allowed_hosts(&["10.0.0.0/8"]),
            names("127.0.0.1"),
            false,
        ),
        // The address is listed, but plain HTTP needs the address or a listed name in the URL.
        (
            hosting_with_allowed_hosts(&["127.0.0.0/8"]),
            names("localhost"),
            false,
        ),
        (
            hosting_with_allowed_hosts(&["127.0.0.0/8"]),
            names("127.0.0.1"),
            true,
        ),
        (
            hosting_with_allowed_hosts(&["localhost"]),
            names("localhost"),
            true,
        ),
        (with(PrivateHosts::Allowed), names("127.0.0.1"), true),
        (with(PrivateHosts::Allowed), names("169.254.169.254"), false),
    ] {
        let before = server.received().len();
        let result = user(&git, &access(Gitlab, &host, "t")).await;
        let reached = server.received().len() > before;
        if is_allowed {
            assert!(result.is_ok() && reached, "{host}: {result:?}");
        } else {
            assert!(
                matches!(result, Err(GitError::Forbidden { .. })),
                "{host}: {result:?}"
            );
            assert!(!reached, "{host}");
        }
    }
}

#[tokio::test]
async fn clone_sources_of_private_hosts_are_refused() {
    let git = with(PrivateHosts::Refused);
    for host in [
        "http://127.0.0.1:1",
        "https://localhost",
        "http://git.example.com",
    ] {
        let source = git.clone_source(&access(Forgejo, host, "t"), "o/r").await;
        assert!(
            matches!(source, Err(GitError::Forbidden { .. })),
            "{host}: {source:?}"
        );
    }
    let git = hosting_with_allowed_hosts(&["localhost"]);
    let source = git
        .clone_source(&access(Forgejo, "http://localhost:1", "t"), "o/r")
        .await;
    assert_eq!(source.unwrap().url.as_str(), "http://localhost:1/o/r.git");
    // A provider's own host needs no DNS look-up.
    let own = GitAccess {
        host: None,
        ..access(Forgejo, "http://x", "t")
    };
    let source = git.clone_source(&own, "o/r").await.unwrap();
    assert_eq!(source.url.as_str(), "https://codeberg.org/o/r.git");
    let public = git.public_source(Forgejo, "o/r").await.unwrap();
    assert!(public.token.is_none() && public.url == source.url);
}

#[tokio::test]
async fn redirects_to_another_host_are_not_followed() {
    let target =
        Server::start(|_| ScriptedResponse::json(&json!({"id": 1, "username": "mallory"}))).await;
    for to in [
        target.url("/api/v4/user"),
        format!("//{}/api/v4/user", target.address),
    ] {
        for status in [301, 302, 307, 308] {
            let to = to.clone();
            let server =
                Server::start(move |_| ScriptedResponse::status(status).header("location", &*to))
                    .await;
            let result = user(&hosting(), &access(Gitlab, &server.url(""), "t")).await;
            assert!(
                matches!(result, Err(GitError::Unavailable { .. })),
                "{result:?}"
            );
        }
    }
    assert!(target.received().is_empty());
}

#[tokio::test]
async fn redirects_within_one_host_are_followed() {
    let server = Server::start(|received| match received.path.as_str() {
        "/api/v4/user" => ScriptedResponse::status(301).header("location", "/api/v4/users/1"),
        "/api/v4/users/1" => ScriptedResponse::json(&json!({"id": 1, "username": "ada"})),
        _ => ScriptedResponse::status(404),
    })
    .await;
    let user_of_token = user(&hosting(), &access(Gitlab, &server.url(""), "t"))
        .await
        .unwrap();
    assert_eq!(user_of_token.login, "ada");
    let endless =
        Server::start(|_| ScriptedResponse::status(302).header("location", "/again")).await;
    let result = user(&hosting(), &access(Gitlab, &endless.url(""), "t")).await;
    assert!(matches!(result, Err(GitError::Unavailable { .. })));
    assert!(endless.received().len() <= 4);
}

#[tokio::test]
async fn slow_and_large_responses_are_errors() {
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let git = HttpGitHosting::new(&config).unwrap();
    let slow = Server::start(|_| ScriptedResponse {
        delay: Duration::from_secs(3600),
        ..ScriptedResponse::status(200)
    })
    .await;
    let started = Instant::now();
    let result = user(&git, &access(Gitlab, &slow.url(""), "t")).await;
    assert!(matches!(result, Err(GitError::Unavailable { .. })));
    assert!(started.elapsed() < Duration::from_secs(60));
    let large = Server::start(|_| ScriptedResponse {
        body: vec![b' '; 1 << 20],
        ..ScriptedResponse::status(200)
    })
    .await;
    let result = user(
        &with(PrivateHosts::Allowed),
        &access(Gitlab, &large.url(""), "t"),
    )
    .await;
    let text = format!("{result:?}");
    assert!(text.contains("TooLarge(4096)"), "{text}");
}

#[tokio::test]
async fn a_response_that_needs_much_memory_is_not_parsed() {
    let server = Server::start(|received| {
        let bytes = if received.path.ends_with("/user") {
            // Parsed, it takes about fifty times as much memory.
            format!("[{}0]", "0,".repeat(500_000))
        } else {
            format!("[\"{}\"]", "x".repeat(3 << 20))
        };
        ScriptedResponse {
            body: bytes.into_bytes(),
            ..ScriptedResponse::status(200)
        }
    })
    .await;
    let access = access(Gitlab, &server.url(""), "t");
    let bomb = format!("{:?}", user(&hosting(), &access).await);
    assert!(bomb.contains("too many values"), "{bomb}");
    let first = GitPageRequest {
        after: None,
        limit: 10,
    };
    let long = hosting().branches(&access, "o/r", "", &first).await;
    let long = format!("{long:?}");
    assert!(long.contains("TooLarge(2097152)"), "{long}");
}

#[tokio::test]
async fn concurrent_requests_are_limited_per_token_and_in_total() {
    let silent = Server::start(|_| ScriptedResponse {
        delay: Duration::from_secs(3600),
        ..ScriptedResponse::status(200)
    })
    .await;
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        timeout: Duration::from_secs(600),
        ..Config::default()
    };
    for (tokens, expected) in [(1, 4), (40, 32)] {
        let git = HttpGitHosting::new(&config).unwrap();
        let before = silent.received().len();
        let accesses: Vec<_> = (0..40)
            .map(|n| access(Gitlab, &silent.url(""), &format!("t{}", n % tokens)))
            .collect();
        let all = join_all(accesses.iter().map(|access| user(&git, access)));
        let watch = async {
            while silent.received().len() < before + expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Enough time for requests beyond the limit.
            tokio::time::sleep(Duration::from_millis(300)).await;
            silent.received().len() - before
        };
        let watch = tokio::time::timeout(Duration::from_secs(60), watch);
        tokio::select! {
            _ = all => panic!("the server never responds"),
            received = watch => assert_eq!(received.unwrap(), expected),
        }
    }
}

#[tokio::test]
async fn an_unreachable_host_is_unavailable() {
    // A bound port without a listener.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = format!("http://{}", socket.local_addr().unwrap());
    let result = user(&hosting(), &access(Gitlab, &host, "t")).await;
    assert!(
        matches!(result, Err(GitError::Unavailable { .. })),
        "{result:?}"
    );
}
