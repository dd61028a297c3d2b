//! Cut connections, silence, lost answers and refusals, against a scripted service.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod server;

use std::time::Duration;

use client::{
    Client, ClientTimeouts, ConversationFilter, Error, FollowFrom, FollowItem, IdempotencyKey,
    StartRequest,
};
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use crate::server::{ScriptedServer, Step, http_response, stream};

fn client(service: &ScriptedServer) -> Client {
    let timeouts = ClientTimeouts {
        connect: Duration::from_secs(5),
        request: Duration::from_secs(5),
        idle: Duration::from_secs(5),
    };
    Client::with_timeouts(&service.url, Some("canary-key".into()), timeouts).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// Numbers of events, or why it ended.
async fn followed(events: impl Stream<Item = Result<FollowItem, Error>>) -> Vec<String> {
    let yielded = events.map(|next| match next {
        Ok(FollowItem::Event { seq, event }) => format!("{seq} {}", event.id()),
        Ok(FollowItem::Ended { reason }) => reason,
        Err(error) => format!("{error}"),
    });
    yielded.collect().await
}

const TASK: &str = r#"{"id":"t","created_by_user_id":null,"status":"READY","detail":null,"app_conversation_id":"c",
    "sandbox_id":"s","agent_server_url":null,"request":{},"created_at":"2026-01-01T00:00:00Z",
    "updated_at":"2026-01-01T00:00:00Z","notes":[],"timings":{},"of_a_newer_service":1}"#;

#[test]
fn a_broken_stream_continues_after_the_last_event() {
    let service = ScriptedServer::new(vec![
        Step::Respond(stream(
            "retry: 10\n\nid: 1\ndata: {\"id\":\"a\"}\n\nid: 4\ndata: {\"id\":\"b\"}\n\nid: 5\ndata: {\"id",
        )),
        // A service that is being started again, and one that repeats itself and then says nothing more.
        http_response(
            "503 Unavailable",
            "Retry-After: 0\r\n",
            "{\"detail\":\"later\"}",
        ),
        Step::Hold(stream(
            ": hello\n\nid: 4\ndata: {\"id\":\"b\"}\n\nid: 5\ndata: {\"id\":\"c\"}\n\n",
        )),
        Step::Respond(stream("event: end\ndata: {\"reason\":\"shutdown\"}\n\n")),
        Step::Respond(stream(
            "id: 9\ndata: {\"id\":\"d\"}\n\nevent: end\ndata: {\"reason\":\"deleted\"}\n\n",
        )),
    ]);
    let events = client(&service)
        .events("x")
        .follow(FollowFrom::Start, Some("MessageEvent"));
    assert_eq!(
        run(followed(events)),
        ["1 a", "4 b", "5 c", "9 d", "deleted"]
    );
    let first = service.request();
    assert!(
        first
            .starts_with("get /api/v1/conversation/x/events/stream?kind__eq=messageevent http/1.1")
            && first.contains("x-session-api-key: canary-key")
            && !first.contains("last-event-id"),
        "{first}"
    );
    for last in ["4", "4", "5", "5"] {
        let request = service.request();
        assert!(
            request.contains(&format!("last-event-id: {last}\n"))
                || request.contains(&format!("last-event-id: {last}\r\n")),
            "{request}"
        );
    }
}

#[test]
fn only_final_reasons_end_a_stream() {
    let end = |reason| {
        stream(&format!(
            "retry: 1\n\nevent: end\ndata: {{\"reason\":\"{reason}\"}}\n\n"
        ))
    };
    let event = stream("retry: 1\n\nid: 3\ndata: {\"id\":\"a\"}\n\n");
    let ends = ["shutdown", "failed", "of a newer service", "unauthorized"];
    let steps = std::iter::once(event)
        .chain(ends.map(end))
        .map(Step::Respond);
    let service = ScriptedServer::new(steps.collect());
    let events = client(&service).events("x").follow(FollowFrom::Start, None);
    assert_eq!(run(followed(events)), ["3 a", "unauthorized"]);
    assert!(!service.request().contains("last-event-id"));
    for _ in ends {
        let again = service.request();
        assert!(again.contains("last-event-id: 3"), "{again}");
    }
}

#[test]
fn repeated_failures_end_a_stream() {
    const MAX_ATTEMPTS: usize = 10;
    let failed = || {
        Step::Respond(stream(
            "retry: 1\n\nevent: end\ndata: {\"reason\":\"failed\"}\n\n",
        ))
    };
    let service = ScriptedServer::new((0..=MAX_ATTEMPTS).map(|_| failed()).collect());
    let events = client(&service).events("x").follow(FollowFrom::Start, None);
    let yielded = run(followed(events));
    assert_eq!(yielded.len(), 1);
    assert!(yielded[0].contains("broke before"), "{yielded:?}");
    for _ in 0..=MAX_ATTEMPTS {
        service.request();
    }
}

#[test]
fn following_from_now_keeps_its_position_before_the_first_event() {
    let service = ScriptedServer::new(vec![
        Step::Respond(stream("retry: 10\nid: 7\n\n")),
        Step::Respond(stream("event: end\ndata: {\"reason\":\"deleted\"}\n\n")),
    ]);
    let events = client(&service).events("x").follow(FollowFrom::Now, None);
    assert_eq!(run(followed(events)), ["deleted"]);
    assert!(service.request().contains("?from=now "));
    let again = service.request();
    assert!(
        again.contains("last-event-id: 7") && !again.contains("from=now"),
        "{again}"
    );
}

#[test]
fn a_refused_or_missing_stream_is_an_immediate_error() {
    let refusal = "{\"detail\":\"No such conversation\"}";
    let service = ScriptedServer::new(vec![http_response("404 Not Found", "", refusal)]);
    let client = client(&service);
    let yielded = run(followed(client.events("x").follow(FollowFrom::Start, None)));
    assert_eq!(yielded, ["refused with status 404: No such conversation"]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = Client::new(&format!("http://{gone}"), None).unwrap();
    let yielded = run(followed(client.events("x").follow(FollowFrom::Start, None)));
    assert_eq!(yielded, [format!("cannot reach http://{gone}")]);
}

#[test]
fn a_start_with_a_lost_response_is_repeated_with_the_same_key() {
    let service = ScriptedServer::new(vec![
        Step::Respond(String::new()),
        Step::Hold("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"id\"".into()),
        http_response(
            "409 Conflict",
            "Retry-After: 1\r\n",
            "{\"detail\":\"in flight\"}",
        ),
        http_response("200 OK", "", TASK),
    ]);
    let conversations = client(&service).conversations();
    let task = run(conversations.start(&StartRequest::saying("hello"))).unwrap();
    assert_eq!((task.id.as_str(), task.status.is_final()), ("t", true));
    let first = service.request();
    let key = first
        .lines()
        .find(|line| line.starts_with("idempotency-key: "))
        .unwrap();
    assert!(first.starts_with("post /api/v1/app-conversations ") && first.contains("hello"));
    for _ in 0..3 {
        let again = service.request();
        assert!(again.contains(key) && again.contains("hello"), "{again}");
    }
}

#[test]
fn permanent_refusals_are_not_repeated() {
    let service = ScriptedServer::new(vec![http_response(
        "429 Too Many Requests",
        "Retry-After: 3\r\n",
        "{\"detail\":\"Too many sandboxes\"}",
    )]);
    let key = IdempotencyKey::random();
    let conversations = client(&service).conversations();
    let error = run(conversations.start_once(&StartRequest::default(), &key)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "refused with status 429: Too many sandboxes; try again in 3 s"
    );
    assert_eq!(
        error.refusal().unwrap().retry_after,
        Some(Duration::from_secs(3))
    );
}

#[test]
fn states_of_a_start_are_streamed_and_a_truncated_list_is_an_error() {
    let states = format!("[\n{}", TASK.replace("READY", "WORKING"));
    let whole = format!("{states},\n{TASK}]");
    for (body, states, ends_well) in [(whole, 2, true), (states, 1, false)] {
        let text = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
        let service = ScriptedServer::new(vec![Step::Respond(text)]);
        let conversations = client(&service).conversations();
        let yielded: Vec<_> = run(async {
            let key = IdempotencyKey::random();
            let states = conversations
                .stream_start(&StartRequest::default(), &key)
                .await;
            states.unwrap().collect().await
        });
        assert_eq!(yielded.iter().filter(|state| state.is_ok()).count(), states);
        assert_eq!(yielded.iter().all(Result::is_ok), ends_well);
    }
}

#[test]
fn pages_are_requested_on_demand() {
    let page = |next: &str| {
        let item = r#"{"id":"s","created_by_user_id":null,"sandbox_spec_id":"x","status":"FROZEN","session_api_key":"canary",
            "exposed_urls":null,"created_at":"2026-01-01T00:00:00Z","status_detail":null}"#;
        http_response(
            "200 OK",
            "",
            &format!("{{\"items\":[{item},{item}],\"next_page_id\":{next}}}"),
        )
    };
    let service = ScriptedServer::new(vec![page("\"a b\""), page("null")]);
    let client = client(&service);
    let all: Vec<_> = run(client.sandboxes().all().try_collect()).unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].status, "FROZEN");
    assert!(!format!("{all:?}").contains("canary"));
    assert!(service.request().contains("/search?limit=100 "));
    assert!(service.request().contains("/search?limit=100&page_id=a+b "));

    let circle = ScriptedServer::new(vec![page("\"a\""), page("\"a\"")]);
    let all: Result<Vec<_>, _> = run(self::client(&circle).sandboxes().all().try_collect());
    assert!(all.unwrap_err().to_string().contains("cycle"));
}

#[test]
fn a_read_is_repeated_once_if_its_connection_breaks() {
    let cut = || Step::Respond(String::new());
    let service = ScriptedServer::new(vec![cut(), http_response("200 OK", "", "7"), cut(), cut()]);
    let conversations = client(&service).conversations();
    let filter = ConversationFilter::default();
    assert_eq!(run(conversations.count(&filter)).unwrap(), 7);
    let given_up = run(conversations.count(&filter)).unwrap_err();
    assert!(matches!(given_up, Error::Interrupted { .. }), "{given_up}");
}

#[test]
fn timeouts_and_malformed_responses_are_errors_without_the_key() {
    let service = ScriptedServer::new(vec![
        Step::Hold(String::new()),
        http_response("200 OK", "", "<html>"),
        http_response("302 Found", "Location: http://127.0.0.1:1/\r\n", ""),
    ]);
    let conversations = client(&service).conversations();
    let filter = ConversationFilter::default();
    let silent = run(conversations.count(&filter)).unwrap_err();
    assert!(
        silent.is_uncertain() && matches!(silent, Error::TimedOut { .. }),
        "{silent}"
    );
    let nonsense = run(conversations.count(&filter)).unwrap_err();
    assert!(matches!(nonsense, Error::Unreadable { .. }), "{nonsense}");
    // Not followed: the key is for one place.
    let elsewhere = run(conversations.count(&filter)).unwrap_err();
    assert_eq!(elsewhere.refusal().unwrap().status, 302);
    for error in [silent, nonsense, elsewhere] {
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}

#[test]
fn a_truncated_download_is_an_error() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let service = ScriptedServer::new(vec![
        Step::Respond(format!("{head}3\r\nabc\r\n0\r\n\r\n")),
        Step::Respond(format!("{head}3\r\nabc\r\n")),
    ]);
    let conversations = client(&service).conversations();
    let mut file = Vec::new();
    assert_eq!(run(conversations.download("x", &mut file)).unwrap(), 3);
    assert_eq!(file, b"abc");
    let interrupted = run(conversations.download("x", &mut Vec::new())).unwrap_err();
    assert!(
        matches!(interrupted, Error::Interrupted { .. }),
        "{interrupted}"
    );
}
