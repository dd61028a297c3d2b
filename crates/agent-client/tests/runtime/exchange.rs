//! The exchange itself: deadlines, sizes, broken connections.

use std::sync::Arc;
use std::time::Duration;

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::{AgentEndpoint, AgentError, AgentRuntime};
use domain::error::Classify;
use endpoint_guard::Unguarded;
use serde_json::json;

use crate::stub::{Act, Stub};
use crate::support::{ID, Noon, at, hello, id, runtime, sandbox, secret, server};

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    let announced = Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 5000\r\n\r\n".to_vec());
    let mut bytes = b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend([b' '; 1001]);
    let good = Act::Json(200, json!({"items": [], "next_page_id": null}));
    let stub = Stub::start([announced, Act::Raw(bytes), good]).await;
    runtime()
        .events(&at(&stub), id(ID), None, None)
        .await
        .unwrap();
    let limits: Vec<_> = stub
        .lines()
        .iter()
        .map(|line| line.contains("limit=1&"))
        .collect();
    assert_eq!(limits, [false, false, true]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_senseless_is_malformed() {
    let endless = || Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 99999999999\r\n\r\n".to_vec());
    let stub = Stub::start([
        endless(),
        Act::Json(200, json!({"version": 5})),
        Act::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\nnope".to_vec()),
        Act::Json(200, json!({"items": 5})),
        Act::Json(200, json!({})),
        Act::Json(200, json!(-1)),
    ])
    .await;
    let (runtime, at, id) = (runtime(), at(&stub), id(ID));
    for _ in 0..3 {
        assert!(matches!(
            runtime.version(&at).await,
            Err(AgentError::Malformed(_))
        ));
    }
    assert!(matches!(
        runtime.events(&at, id, None, None).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(matches!(
        runtime.snapshot_many(&at, &[id]).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(matches!(
        runtime.count_events(&at, id).await,
        Err(AgentError::Malformed(_))
    ));
}

#[tokio::test]
async fn a_server_that_never_answers_meets_the_deadline() {
    let stub = Stub::start([Act::Hang, Act::Hang]).await;
    let config = Config {
        // So long that what is asked has arrived by then.
        read: Duration::from_secs(1),
        alive: Duration::from_secs(1),
        ..Config::default()
    };
    let runtime = HttpAgentRuntime::new(config, Arc::new(Noon), Arc::new(Unguarded));
    assert!(!runtime.is_alive(&sandbox(), &stub.url).await);
    let error = runtime.version(&at(&stub)).await.unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 2);
}

#[tokio::test]
async fn a_broken_connection_is_tried_once_more_but_never_for_a_message() {
    let stub = Stub::start([Act::Drop, server("1.58.0"), Act::Drop, Act::Drop, Act::Drop]).await;
    let (runtime, at) = (runtime(), at(&stub));
    assert_eq!(runtime.version(&at).await.unwrap(), "1.58.0");
    assert_eq!(stub.lines().len(), 2);
    let error = runtime.interrupt(&at, id(ID)).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 4);
    let error = runtime.send(&at, id(ID), &hello()).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.lines().len(), 5);
    assert!(
        !format!("{error} {error:?} {}", error.public()).contains("127.0.0.1"),
        "{error:?}"
    );
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    // Bound and not listening: the port stays ours and refuses.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap())
        .parse()
        .unwrap();
    let gone = AgentEndpoint {
        sandbox: sandbox(),
        url,
        key: secret("k"),
    };
    assert!(!runtime().is_alive(&sandbox(), &gone.url).await);
    let error = runtime().version(&gone).await.unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(error.public(), "Failed to reach agent server.");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_alive_needs_no_key() {
    let away = b"HTTP/1.1 302 X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_vec();
    let stub = Stub::start([Act::Raw(away), Act::Json(200, json!({"status": "ok"}))]).await;
    let error = runtime().version(&at(&stub)).await.unwrap_err();
    assert!(
        matches!(error, AgentError::Rejected { status: 302, .. }),
        "{error:?}"
    );
    assert!(runtime().is_alive(&sandbox(), &stub.url).await);
    assert_eq!(stub.lines(), ["GET /server_info", "GET /alive"]);
    assert!(stub.seen()[1].key.is_none());
}

#[tokio::test]
async fn an_address_or_key_that_http_cannot_carry_is_an_error() {
    let mailbox = AgentEndpoint {
        sandbox: sandbox(),
        url: "mailto:a@b".parse().unwrap(),
        key: secret("k"),
    };
    assert!(!runtime().is_alive(&sandbox(), &mailbox.url).await);
    assert!(matches!(
        runtime().version(&mailbox).await,
        Err(AgentError::Malformed(_))
    ));
    let stub = Stub::start([]).await;
    let broken = AgentEndpoint {
        sandbox: sandbox(),
        url: stub.url.clone(),
        key: secret("a\nb"),
    };
    assert!(matches!(
        runtime().version(&broken).await,
        Err(AgentError::Malformed(_))
    ));
    assert!(stub.seen().is_empty());
}
