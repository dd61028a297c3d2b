//! Hosts that must not be called, and answers that must not be waited for or read.

use std::time::{Duration, Instant};

use domain::conversation::GitProvider::{Forgejo, Gitlab};
use domain::git::{GitAccess, GitError, GitHosting as _, GitPageRequest, GitUser};
use futures::future::join_all;
use git_hosting::{AllowedHost, Config, HttpGitHosting, PrivateHosts};
use serde_json::json;

use crate::server::{Answer, Server, access, hosting};

fn listed(entries: &[&str]) -> HttpGitHosting {
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
async fn private_hosts_are_refused_before_anything_is_sent() {
    let server = Server::start(|_| Answer::json(&json!({"id": 1}))).await;
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
        (listed(&["other.example.com"]), names("127.0.0.1"), false),
        (listed(&["10.0.0.0/8"]), names("127.0.0.1"), false),
        // By its address it may be called, but not without TLS by a name that only happens to have it.
        (listed(&["127.0.0.0/8"]), names("localhost"), false),
        (listed(&["127.0.0.0/8"]), names("127.0.0.1"), true),
        (listed(&["localhost"]), names("localhost"), true),
        (with(PrivateHosts::Allowed), names("127.0.0.1"), true),
        (with(PrivateHosts::Allowed), names("169.254.169.254"), false),
    ] {
        let before = server.asked().len();
        let answer = user(&git, &access(Gitlab, &host, "t")).await;
        let reached = server.asked().len() > before;
        if is_allowed {
            assert!(answer.is_ok() && reached, "{host}: {answer:?}");
        } else {
            assert!(
                matches!(answer, Err(GitError::Forbidden { .. })),
                "{host}: {answer:?}"
            );
            assert!(!reached, "{host}");
        }
    }
}

#[tokio::test]
async fn git_is_not_sent_there_either() {
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
    let git = listed(&["localhost"]);
    let source = git
        .clone_source(&access(Forgejo, "http://localhost:1", "t"), "o/r")
        .await;
    assert_eq!(source.unwrap().url.as_str(), "http://localhost:1/o/r.git");
    // A provider's own host needs no looking up.
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
async fn another_host_is_never_redirected_to() {
    let target = Server::start(|_| Answer::json(&json!({"id": 1, "username": "mallory"}))).await;
    for to in [
        target.url("/api/v4/user"),
        format!("//{}/api/v4/user", target.address),
    ] {
        for status in [301, 302, 307, 308] {
            let to = to.clone();
            let server =
                Server::start(move |_| Answer::status(status).header("location", &*to)).await;
            let answer = user(&hosting(), &access(Gitlab, &server.url(""), "t")).await;
            assert!(
                matches!(answer, Err(GitError::Unavailable { .. })),
                "{answer:?}"
            );
        }
    }
    assert!(target.asked().is_empty());
}

#[tokio::test]
async fn the_same_host_may_say_where_something_went() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/api/v4/user" => Answer::status(301).header("location", "/api/v4/users/1"),
        "/api/v4/users/1" => Answer::json(&json!({"id": 1, "username": "ada"})),
        _ => Answer::status(404),
    })
    .await;
    let found = user(&hosting(), &access(Gitlab, &server.url(""), "t"))
        .await
        .unwrap();
    assert_eq!(found.login, "ada");
    let endless = Server::start(|_| Answer::status(302).header("location", "/again")).await;
    let answer = user(&hosting(), &access(Gitlab, &endless.url(""), "t")).await;
    assert!(matches!(answer, Err(GitError::Unavailable { .. })));
    assert!(endless.asked().len() <= 4);
}

#[tokio::test]
async fn slow_and_large_answers_are_bounded() {
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let git = HttpGitHosting::new(&config).unwrap();
    let slow = Server::start(|_| Answer {
        delay: Duration::from_secs(3600),
        ..Answer::status(200)
    })
    .await;
    let started = Instant::now();
    let answer = user(&git, &access(Gitlab, &slow.url(""), "t")).await;
    assert!(matches!(answer, Err(GitError::Unavailable { .. })));
    assert!(started.elapsed() < Duration::from_secs(60));
    let large = Server::start(|_| Answer {
        body: vec![b' '; 1 << 20],
        ..Answer::status(200)
    })
    .await;
    let answer = user(
        &with(PrivateHosts::Allowed),
        &access(Gitlab, &large.url(""), "t"),
    )
    .await;
    let text = format!("{answer:?}");
    assert!(text.contains("TooLarge(4096)"), "{text}");
}

#[tokio::test]
async fn an_answer_that_would_take_much_memory_is_not_read() {
    let server = Server::start(|asked| {
        let bytes = if asked.path.ends_with("/user") {
            // Short, and some fifty times as large once it is read.
            format!("[{}0]", "0,".repeat(500_000))
        } else {
            format!("[\"{}\"]", "x".repeat(3 << 20))
        };
        Answer {
            body: bytes.into_bytes(),
            ..Answer::status(200)
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
async fn a_host_that_does_not_answer_is_not_asked_without_end() {
    let silent = Server::start(|_| Answer {
        delay: Duration::from_secs(3600),
        ..Answer::status(200)
    })
    .await;
    let config = Config {
        private_hosts: PrivateHosts::Allowed,
        timeout: Duration::from_secs(600),
        ..Config::default()
    };
    for (tokens, expected) in [(1, 4), (40, 32)] {
        let git = HttpGitHosting::new(&config).unwrap();
        let before = silent.asked().len();
        let of: Vec<_> = (0..40)
            .map(|n| access(Gitlab, &silent.url(""), &format!("t{}", n % tokens)))
            .collect();
        let all = join_all(of.iter().map(|access| user(&git, access)));
        let watch = async {
            while silent.asked().len() < before + expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Time enough for what must not come.
            tokio::time::sleep(Duration::from_millis(300)).await;
            silent.asked().len() - before
        };
        let watch = tokio::time::timeout(Duration::from_secs(60), watch);
        tokio::select! {
            _ = all => panic!("nobody answers"),
            asked = watch => assert_eq!(asked.unwrap(), expected),
        }
    }
}

#[tokio::test]
async fn nobody_there() {
    // Held, and nobody listens there.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = format!("http://{}", nobody.local_addr().unwrap());
    let answer = user(&hosting(), &access(Gitlab, &host, "t")).await;
    assert!(
        matches!(answer, Err(GitError::Unavailable { .. })),
        "{answer:?}"
    );
}
