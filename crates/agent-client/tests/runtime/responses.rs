//! How the adapter converts responses and refusals.

use domain::agent::{AgentConversationReader, AgentError, AgentRuntime, MessageDelivery};
use domain::clock::{Clock, Timestamp};
use serde_json::json;

use crate::stub::{Stub, StubAction};
use crate::support::{
    ID, NoonClock, OTHER_ID, conversation_id, endpoint_of, hello_message, runtime,
};

#[tokio::test]
async fn statuses_become_errors_of_the_port() {
    let wrong = json!({"detail": "Bad Request"});
    let stub = Stub::start([
        StubAction::Json(200, json!({"success": true})),
        StubAction::Json(429, wrong.clone()),
        StubAction::Json(404, wrong.clone()),
        StubAction::Json(401, wrong.clone()),
        StubAction::Json(400, wrong.clone()),
        StubAction::Json(404, wrong.clone()),
        StubAction::Json(409, wrong.clone()),
        StubAction::Json(400, wrong.clone()),
        StubAction::Json(404, wrong.clone()),
        StubAction::Json(500, wrong),
    ])
    .await;
    let (runtime, at, id) = (runtime(), endpoint_of(&stub), conversation_id(ID));
    assert_eq!(
        runtime.send(&at, id, &hello_message()).await.unwrap(),
        MessageDelivery::Delivered
    );
    assert_eq!(
        runtime.send(&at, id, &hello_message()).await.unwrap(),
        MessageDelivery::RunRefused
    );
    assert!(matches!(
        runtime.send(&at, id, &hello_message()).await,
        Err(AgentError::NotFound)
    ));
    let unauthorized = runtime.send(&at, id, &hello_message()).await;
    assert!(matches!(
        unauthorized,
        Err(AgentError::Rejected { status: 401, .. })
    ));
    assert!(matches!(
        runtime.interrupt(&at, id).await,
        Err(AgentError::NotFound)
    ));
    assert!(matches!(
        runtime.interrupt(&at, id).await,
        Err(AgentError::NotFound)
    ));
    let busy = runtime.interrupt(&at, id).await;
    assert!(matches!(
        busy,
        Err(AgentError::Rejected { status: 409, .. })
    ));
    runtime.delete_conversation(&at, id).await.unwrap();
    runtime.delete_conversation(&at, id).await.unwrap();
    let failed = runtime.delete_conversation(&at, id).await;
    assert!(matches!(
        failed,
        Err(AgentError::Rejected { status: 500, .. })
    ));
}

#[tokio::test]
async fn conversations_keep_the_requested_order() {
    let one = json!({"id": OTHER_ID, "execution_status": "hibernating", "title": "T"});
    let stub = Stub::start([StubAction::Json(200, json!([one, null, {"id": "?"}]))]).await;
    let asked = [conversation_id(ID), conversation_id(OTHER_ID)];
    let seen = runtime()
        .snapshot_many(&endpoint_of(&stub), &asked)
        .await
        .unwrap();
    assert!(seen[0].is_none());
    let conversation = seen[1].as_ref().unwrap();
    assert_eq!(
        (conversation.execution_status, conversation.title.as_deref()),
        (None, Some("T"))
    );
    assert_eq!(
        stub.request_lines(),
        [format!("GET /api/conversations?ids={ID}&ids={OTHER_ID}")]
    );
    assert!(
        runtime()
            .snapshot_many(&endpoint_of(&stub), &[])
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn many_conversations_are_read_in_several_requests() {
    let stub = Stub::start([
        StubAction::Json(200, json!([])),
        StubAction::Json(200, json!([])),
    ])
    .await;
    let asked = vec![conversation_id(ID); 21];
    assert_eq!(
        runtime()
            .snapshot_many(&endpoint_of(&stub), &asked)
            .await
            .unwrap(),
        vec![None; 21]
    );
    assert_eq!(stub.request_lines().len(), 2);
}

#[tokio::test]
async fn events_are_read_from_a_time_or_a_cursor() {
    let event =
        json!({"id": "e1", "kind": "New", "timestamp": "2026-11-21T08:59:14.384696", "x": 1});
    let page = json!({"items": [event, {"kind": "no id"}, {"id": "e2"}], "next_page_id": "e3"});
    let last = json!({"items": [], "next_page_id": null});
    let stub = Stub::start([
        StubAction::Json(200, page),
        StubAction::Json(200, last),
        StubAction::Json(200, json!(7)),
    ])
    .await;
    let (runtime, at) = (runtime(), endpoint_of(&stub));
    let from = Timestamp::from_micros(1_000_000);
    let first = runtime
        .events(&at, conversation_id(ID), Some(from), None)
        .await
        .unwrap();
    assert_eq!(first.next.as_deref(), Some("e3"));
    assert_eq!(
        first
            .items
            .iter()
            .map(|e| e.id.as_str())
            .collect::<Vec<_>>(),
        ["e1", "e2"]
    );
    assert_eq!(first.items[0].body["x"], 1);
    assert_eq!(first.items[1].timestamp, NoonClock.now());
    let rest = runtime
        .events(&at, conversation_id(ID), Some(from), Some("e3 &x=/"))
        .await
        .unwrap();
    assert!(rest.items.is_empty() && rest.next.is_none());
    assert_eq!(
        runtime
            .count_events(&at, conversation_id(ID))
            .await
            .unwrap(),
        7
    );
    let search =
        format!("GET /api/conversations/{ID}/events/search?limit=100&sort_order=TIMESTAMP");
    assert_eq!(
        stub.request_lines(),
        [
            format!("{search}&timestamp__gte=1970-01-01T00%3A00%3A01.000000Z"),
            format!("{search}&page_id=e3+%26x%3D%2F"),
            format!("GET /api/conversations/{ID}/events/count"),
        ]
    );
}
