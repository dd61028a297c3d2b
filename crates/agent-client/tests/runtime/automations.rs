//! Reads from the automations service.

use std::collections::HashSet;
use std::sync::Arc;

use agent_client::AutomationsClient;
use endpoint_guard::Unguarded;
use serde_json::{Value, json};

use crate::stub::{Stub, StubAction};
use crate::support::{sandbox, secret};

fn client() -> AutomationsClient {
    AutomationsClient::new(Arc::new(Unguarded), sandbox())
}

fn page(items: &str, all: &[Value]) -> StubAction {
    StubAction::Json(200, json!({items: all, "total": 7}))
}

#[tokio::test]
async fn needed_sandboxes_are_those_of_unfinished_runs_and_kept_ones() {
    let automations = [
        json!({"id": "a-1", "keep_alive": null}),
        json!({"id": "a-2", "keep_alive": true}),
    ];
    let run = |status: &str, sandbox: Value| json!({"status": status, "sandbox_id": sandbox});
    let mut runs = vec![run("COMPLETED", json!("over")); 99];
    runs.push(run("RUNNING", json!("one")));
    let stub = Stub::start([
        page("automations", &automations),
        page("runs", &runs),
        page("runs", &[run("PENDING", Value::Null)]),
        page("runs", &[run("COMPLETED", json!("two"))]),
    ])
    .await;
    let needed = client().needed_sandboxes(&stub.url, secret("key")).await;
    let expected = ["one", "two"].map(str::to_owned);
    assert_eq!(needed.unwrap(), HashSet::from(expected));
    let seen = stub.requests();
    let lines: Vec<&str> = seen.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "GET /api/automation/v1?limit=100&offset=0&created_by=me",
            "GET /api/automation/v1/a-1/runs?limit=100&offset=0",
            "GET /api/automation/v1/a-1/runs?limit=100&offset=100",
            "GET /api/automation/v1/a-2/runs?limit=100&offset=0",
        ]
    );
    assert!(seen.iter().all(|it| it.key.as_deref() == Some("key")));
}

#[tokio::test]
async fn an_answer_without_a_list_says_nothing_about_needed_sandboxes() {
    for action in [
        StubAction::Json(200, json!({"items": []})),
        StubAction::Json(502, json!({"detail": "who are you?"})),
        StubAction::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{".to_vec()),
    ] {
        let stub = Stub::start([action]).await;
        let kept = client().needed_sandboxes(&stub.url, secret("key")).await;
        assert!(kept.is_err(), "{kept:?}");
    }
}

#[tokio::test]
async fn it_is_ready_when_its_database_is() {
    for (status, expected) in [(200, true), (503, false)] {
        let stub = Stub::start([StubAction::Json(status, json!({}))]).await;
        assert_eq!(client().is_ready(&stub.url).await, expected);
    }
    assert!(
        !client()
            .is_ready(&"http://127.0.0.1:9".parse().unwrap())
            .await
    );
}
