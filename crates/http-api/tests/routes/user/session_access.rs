//! Every operation × (no session, an ended one, a living one) × (a page of this origin, of another one, no origin); and the
//! paths that no session opens.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use http_api::Listener;

use super::access_matrix::{Objects, Policy, operations, policy};
use super::sign_in::{Accounts, get, post};
use crate::fixture::ADA;
use crate::user::tenancy::request_at;

/// What a request with this session and this sender gets from the checks: `None` if it passes them.
fn refusal(
    policy: Policy,
    method: &str,
    session: Option<bool>,
    (sender, is_same_origin): (Option<(&str, &str)>, bool),
) -> Option<u16> {
    let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS");
    // A page could read the answer.
    let is_safe = is_safe && sender.is_none_or(|(header, _)| header != "origin");
    match (policy, session) {
        (Policy::Public, _) => None,
        // These take the keys of sandboxes, or keys only.
        (_, None) | (Policy::Sandbox | Policy::UserOrSandbox, _) => Some(401),
        (_, Some(_)) if !is_safe && !is_same_origin => Some(403),
        (_, Some(false)) => Some(401),
        (Policy::Admin, Some(true)) => Some(403),
        (Policy::User, Some(true)) => None,
    }
}

/// Whether the checks refused, and not the operation, which may need a token of a git provider.
fn is_refusal(text: &str) -> bool {
    [
        "\"Unauthorized\"",
        "session cookie",
        "Invalid API key",
        "Only administrators",
    ]
    .into_iter()
    .any(|refusal| text.contains(refusal))
}

#[actix_web::test]
async fn every_operation_checks_session_and_origin() {
    let it = Accounts::new().await;
    let ended = it.log_in("ada").await;
    let out = post("/logout").insert_header(("cookie", ended.as_str()));
    assert_eq!(it.world.send(out).await.status, 303);
    let unused = Objects::unused();
    let senders = [
        (Some(("sec-fetch-site", "same-origin")), true),
        (Some(("sec-fetch-site", "cross-site")), false),
        (Some(("origin", "https://agents.example")), true),
        (Some(("origin", "https://evil.example")), false),
        (None, false),
    ];
    for operation in operations() {
        let name = operation.name();
        let policy = policy(&operation).unwrap();
        for session in [None, Some(false), Some(true)] {
            // Anew for each operation: some end sessions.
            let cookie = match session {
                None => None,
                Some(false) => Some(ended.clone()),
                Some(true) => Some(it.log_in("ada").await),
            };
            let requests = senders.iter().map(|(sender, _)| {
                let mut request = request_at(None, &name, &unused.path(&operation));
                if let Some(cookie) = &cookie {
                    request = request.insert_header(("cookie", cookie.as_str()));
                }
                match sender {
                    Some(sender) => request.insert_header(*sender),
                    None => request,
                }
            });
            // The refused ones first: others may end the session.
            let (mut expected, mut sent) = (Vec::new(), Vec::new());
            for (request, sender) in requests.zip(senders) {
                let refusal = refusal(policy, &operation.method, session, sender);
                let at = if refusal.is_some() { 0 } else { sent.len() };
                sent.insert(at, request);
                expected.insert(at, refusal);
            }
            let answers = it.world.send_all(Listener::Public, sent).await;
            let ends_session = name == "POST /api/logout";
            for (answer, refusal) in answers.iter().zip(&expected) {
                let status = answer.status;
                match refusal {
                    Some(refusal) => assert_eq!(status, *refusal, "{name} {session:?}"),
                    None if ends_session => assert!(matches!(status, 204 | 401), "{name}"),
                    None => assert!(
                        !is_refusal(&answer.text) && (status < 500 || status == 501),
                        "{name} {session:?}: {status} {}",
                        answer.text
                    ),
                }
            }
        }
    }
}

/// A session opens the service's own routes, and nothing that leads to a sandbox.
#[actix_web::test]
async fn a_session_opens_no_path_of_sandboxes() {
    let it = Accounts::new().await;
    let world = &it.world;
    let cookie = it.log_in("ada").await;
    let id = "123e4567-e89b-12d3-a456-426614174000";
    for path in [
        format!("/sockets/events/{id}"),
        format!("/api/conversations/{id}/events/search"),
        format!("/api/conversations/{id}/run"),
        "/api/bash/start_bash_command".to_owned(),
        "/api/file/upload/x".to_owned(),
        "/api/git/changes/x".to_owned(),
        "/api/v1/webhooks/conversations".to_owned(),
        format!("/api/v1/webhooks/events/{id}"),
        "/mcp/mcp".to_owned(),
        "/api/v1/sandboxes/s/settings/secrets".to_owned(),
    ] {
        for method in [Method::GET, Method::POST] {
            let request = TestRequest::with_uri(&path)
                .method(method.clone())
                .insert_header(("sec-fetch-site", "same-origin"))
                .insert_header(("cookie", cookie.as_str()));
            let status = world.send(request).await.status;
            assert!(
                matches!(status, 401 | 404 | 405),
                "{method} {path}: {status}"
            );
        }
        let socket = get(&path)
            .insert_header(("connection", "upgrade"))
            .insert_header(("upgrade", "websocket"))
            .insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
            .insert_header(("sec-websocket-version", "13"))
            .insert_header(("cookie", cookie.as_str()));
        let status = world.send(socket).await.status;
        assert!(matches!(status, 401 | 404 | 405), "socket {path}: {status}");
    }
    let signed = get("/s/a/VSCODE/f00/").insert_header(("cookie", cookie.as_str()));
    assert_eq!(world.send(signed).await.status, 404);
}

#[actix_web::test]
async fn an_event_stream_ends_with_its_session() {
    let it = Accounts::new().await;
    let cookie = it.log_in("ada").await;
    let it = Accounts {
        world: it.world.at_work().await,
        ..it
    };
    let id = it.world.conversation(ADA).await;
    let path = format!("/api/v1/conversation/{id}/events/stream");
    let request = get(&path).insert_header(("cookie", cookie.as_str()));
    let mut stream = it.world.open_as(request).await;
    assert_eq!(stream.status, 200);
    let mut text = stream.next().await.unwrap();
    let out = post("/api/logout").insert_header(("cookie", cookie.as_str()));
    assert_eq!(it.world.send(out).await.status, 204);
    while let Some(more) = stream.next().await {
        text.push_str(&more);
    }
    assert!(
        text.ends_with("event: end\ndata: {\"reason\":\"unauthorized\"}\n\n"),
        "{text}"
    );
}
