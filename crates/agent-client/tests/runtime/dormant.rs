//! Dormant agent servers: detection, prewarming and initialization.

use std::sync::Arc;
use std::time::Duration;

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::{AgentError, AgentLifecycle, InitRequest};
use domain::error::Classify;
use endpoint_guard::Unguarded;
use serde_json::json;

use crate::stub::{Stub, StubAction};
use crate::support::{NoonClock, runtime, sandbox, secret};

fn init_request() -> InitRequest {
    InitRequest {
        session_key: secret("session-key-1"),
        secret_key: secret("secret-key-1"),
        webhook_url: "http://service.test:3000/api/v1/webhooks/".parse().unwrap(),
        cors_origins: vec!["https://app.test".to_owned()],
    }
}

fn state(name: &str) -> StubAction {
    StubAction::Json(200, json!({"state": name, "error": null}))
}

fn refusal(status: u16, detail: &str) -> StubAction {
    StubAction::Json(status, json!({"detail": detail}))
}

#[tokio::test]
async fn only_a_dormant_or_initializing_state_is_dormant() {
    let page = b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n<html>".to_vec();
    for (answer, dormant) in [
        (state("dormant"), true),
        (state("initializing"), true),
        (state("ready"), false),
        (state("something else"), false),
        (
            refusal(404, "server is not running with deferred_init=True"),
            false,
        ),
        (refusal(401, "Unauthorized"), false),
        (refusal(405, "Method Not Allowed"), false),
        (StubAction::Json(404, json!({"state": "dormant"})), false),
        (StubAction::Json(200, json!(["dormant"])), false),
        (StubAction::Raw(page), false),
    ] {
        let stub = Stub::start([answer]).await;
        assert_eq!(
            runtime().is_dormant(&sandbox(), &stub.url).await.unwrap(),
            dormant
        );
        assert_eq!(stub.request_lines(), ["GET /api/init"]);
        assert_eq!(stub.requests()[0].key, None);
        assert_eq!(stub.requests()[0].wake_key, None);
    }
}

#[tokio::test]
async fn an_unavailable_agent_server_is_an_error() {
    let stub = Stub::start([refusal(503, "busy"), StubAction::Drop, StubAction::Drop]).await;
    let error = runtime()
        .is_dormant(&sandbox(), &stub.url)
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::Rejected { status: 503, .. }));
    let error = runtime()
        .is_dormant(&sandbox(), &stub.url)
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn prewarm_requests_carry_no_key_and_ignore_responses() {
    for answers in [
        [
            StubAction::Json(200, json!({"version": "1.58.0"})),
            refusal(404, "Not Found"),
        ],
        [refusal(503, "busy"), refusal(503, "busy")],
    ] {
        let stub = Stub::start(answers).await;
        runtime().prewarm(&sandbox(), &stub.url).await;
        let lines = ["GET /server_info", "GET /agent-workspace/no-such-path"];
        assert_eq!(stub.request_lines(), lines);
        let seen = stub.requests();
        let keys = seen.iter().map(|request| (&request.key, &request.wake_key));
        assert!(keys.into_iter().all(|keys| keys == (&None, &None)));
    }
}

#[tokio::test]
async fn the_init_request_carries_the_settings_of_a_cold_start() {
    let stub = Stub::start([state("ready")]).await;
    runtime()
        .wake(&sandbox(), &stub.url, &init_request())
        .await
        .unwrap();
    let seen = stub.requests();
    assert_eq!(stub.request_lines(), ["POST /api/init"]);
    assert_eq!(seen[0].key, None);
    assert_eq!(seen[0].wake_key.as_deref(), Some("secret-key-1"));
    let base = "http://service.test:3000/api/v1/webhooks";
    assert_eq!(
        seen[0].body,
        json!({
            "session_api_keys": ["session-key-1"],
            "secret_key": "secret-key-1",
            "webhooks": [{"base_url": base, "flush_delay": 1, "event_buffer_size": 5}],
            "allow_cors_origins": ["https://app.test"],
        })
    );
}

#[tokio::test]
async fn an_awake_agent_server_needs_no_initialization() {
    let woken = || refusal(400, "server already in state: ready");
    let cold = || refusal(404, "not available");
    let old = || refusal(401, "Unauthorized");
    for answers in [
        // Initialized before, perhaps by a request whose response was lost.
        vec![woken(), state("ready")],
        vec![StubAction::Drop, woken(), state("ready")],
        // Booted awake.
        vec![cold(), cold()],
        // An old release: every path below /api needs the session key.
        vec![old(), old()],
        // Another request initializes it.
        vec![
            refusal(400, "server already in state: initializing"),
            state("initializing"),
            woken(),
            state("ready"),
        ],
        // The other request has failed.
        vec![
            refusal(400, "server already in state: initializing"),
            state("dormant"),
            state("ready"),
        ],
    ] {
        let count = answers.len();
        let stub = Stub::start(answers).await;
        runtime()
            .wake(&sandbox(), &stub.url, &init_request())
            .await
            .unwrap();
        assert_eq!(stub.request_lines().len(), count);
    }
}

#[tokio::test]
async fn a_refused_initialization_contains_no_key() {
    for (status, detail) in [
        (401, "Unauthorized"),
        (422, "session-key-1 is no key"),
        (500, "OSError: secret-key-1"),
    ] {
        let stub = Stub::start([refusal(status, detail), state("dormant")]).await;
        let error = runtime()
            .wake(&sandbox(), &stub.url, &init_request())
            .await
            .unwrap_err();
        assert!(
            matches!(error, AgentError::Rejected { status: s, .. } if s == status),
            "{error:?}"
        );
        let text = format!("{error} {error:?} {} {:?}", error.public(), init_request());
        assert!(!text.contains("key-1"), "{text}");
    }
}

#[tokio::test]
async fn initialization_has_a_deadline() {
    let config = Config {
        wake: Duration::from_millis(100),
        ..Config::default()
    };
    let runtime = HttpAgentRuntime::new(config, Arc::new(NoonClock), Arc::new(Unguarded));
    let stub = Stub::start([StubAction::Hang]).await;
    let error = runtime
        .wake(&sandbox(), &stub.url, &init_request())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error:?}");
    let waking = || {
        let late = refusal(400, "server already in state: initializing");
        [late, state("initializing")]
    };
    let stub = Stub::start((0..100).flat_map(|_| waking())).await;
    let error = runtime
        .wake(&sandbox(), &stub.url, &init_request())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error:?}");
}

#[tokio::test]
async fn a_closed_connection_is_unreachable() {
    let stub = Stub::start([StubAction::Drop, StubAction::Drop]).await;
    let error = runtime()
        .wake(&sandbox(), &stub.url, &init_request())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::Unreachable(_)), "{error:?}");
}
