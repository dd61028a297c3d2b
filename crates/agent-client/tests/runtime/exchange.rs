//! Deadlines, size limits and broken connections of all exchanges.

use std::sync::Arc;
use std::time::Duration;

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::{
    AgentConversationReader, AgentEndpoint, AgentError, AgentLifecycle, AgentRuntime,
};
use domain::error::Classify;
use endpoint_guard::Unguarded;
use serde_json::json;

use crate::stub::{Stub, StubAction};
use crate::support::{
    ID, NoonClock, conversation_id, endpoint_of, hello_message, runtime, sandbox, secret,
    server_info_response,
};

#[tokio::test]
async fn a_page_that_is_too_large_is_requested_in_smaller_ones() {
    let announced = StubAction::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 5000\r\n\r\n".to_vec());
    let mut bytes = b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend([b' '; 1001]);
    let good = StubAction::Json(200, json!({"items": [], "next_page_id": null}));
    let stub = Stub::start([announced, StubAction::Raw(bytes), good]).await;
    runtime()
        .events(&endpoint_of(&stub), conversation_id(ID), None, None)
        .await
        .unwrap();
    let limits: Vec<_> = stub
        .request_lines()
        .iter()
        .map(|line| line.contains("limit=1&"))
        .collect();
    assert_eq!(limits, [false, false, true]);
}

#[tokio::test]
async fn too_large_and_invalid_responses_are_malformed() {
    let endless =
        || StubAction::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 99999999999\r\n\r\n".to_vec());
    let stub = Stub::start([
        endless(),
        StubAction::Json(200, json!({"version": 5})),
        StubAction::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\nnope".to_vec()),
        StubAction::Json(200, json!({"items": 5})),
        StubAction::Json(200, json!({})),
        StubAction::Json(200, json!(-1)),
    ])
    .await;
    let (runtime, at, id) = (runtime(), endpoint_of(&stub), conversation_id(ID));
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
async fn requests_without_a_response_time_out() {
    let stub = Stub::start([StubAction::Hang, StubAction::Hang]).await;
    let config = Config {
        // Long enough for the request to arrive.
        read: Duration::from_secs(1),
        alive: Duration::from_secs(1),
        ..Config::default()
    };
    let runtime = HttpAgentRuntime::new(config, Arc::new(NoonClock), Arc::new(Unguarded));
    assert!(!runtime.is_alive(&sandbox(), &stub.url).await);
    let error = runtime.version(&endpoint_of(&stub)).await.unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error:?}");
    assert_eq!(stub.request_lines().len(), 2);
}

#[tokio::test]
async fn a_request_whose_connection_breaks_is_repeated_unless_it_is_a_message() {
    let stub = Stub::start([
        StubAction::Drop,
        server_info_response("1.58.0"),
        StubAction::Drop,
        StubAction::Drop,
        StubAction::Drop,
    ])
    .await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    assert_eq!(runtime.version(&at).await.unwrap(), "1.58.0");
    assert_eq!(stub.request_lines().len(), 2);
    let error = runtime
        .interrupt(&at, conversation_id(ID))
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.request_lines().len(), 4);
    let error = runtime
        .send(&at, conversation_id(ID), &hello_message())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
    assert_eq!(stub.request_lines().len(), 5);
    assert!(
        !format!("{error} {error:?} {}", error.public()).contains("127.0.0.1"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_port_without_a_listener_is_unreachable() {
    // A bound port without a listener refuses connections.
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
    let stub = Stub::start([
        StubAction::Raw(away),
        StubAction::Json(200, json!({"status": "ok"})),
    ])
    .await;
    let error = runtime().version(&endpoint_of(&stub)).await.unwrap_err();
    assert!(
        matches!(error, AgentError::Rejected { status: 302, .. }),
        "{error:?}"
    );
    assert!(runtime().is_alive(&sandbox(), &stub.url).await);
    assert_eq!(stub.request_lines(), ["GET /server_info", "GET /alive"]);
    assert!(stub.requests()[1].key.is_none());
}

#[tokio::test]
async fn an_invalid_url_or_key_is_an_error() {
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
    assert!(stub.requests().is_empty());
}
