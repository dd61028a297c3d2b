//! Requests to agent servers inside a request to the service.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use super::forwarding::ForwardingFixture;
use crate::fixture::{ADA, BOB, TestResponse};

const HOST: &str = "http://127.0.0.1:1";

impl ForwardingFixture {
    /// The response to an envelope with these members beside the usual ones.
    async fn proxy(&self, key: &str, members: Value) -> TestResponse {
        let mut envelope = json!({
            "host": HOST,
            "method": "GET",
            "path": format!("/api/conversations/{}/events/count?kind=a%20b", self.conversation),
            "headers": {"X-Session-API-Key": self.key, "X-Org-Id": "o"},
            "body": null,
        });
        if let (Value::Object(all), Value::Object(members)) = (&mut envelope, members) {
            all.extend(members);
        }
        self.world.post(key, "/api/cloud-proxy", &envelope).await
    }
}

#[actix_web::test]
async fn an_enveloped_request_reaches_the_callers_sandbox() {
    let stage = ForwardingFixture::set().await;
    let echoed = stage.proxy(ADA, json!({})).await.ok();
    let path = format!(
        "/api/conversations/{}/events/count?kind=a%20b",
        stage.conversation
    );
    assert_eq!(echoed["asked"], format!("GET {path}"));
    assert_eq!(echoed["key"], stage.key.as_str());
    assert_eq!(echoed["body"], "");
    let condense = format!("/api/conversations/{}/condense", stage.conversation);
    let body = json!({"a": [1, "ü"], "b": null});
    let posted = json!({"method": "POST", "path": condense, "body": body, "timeout_seconds": 30});
    let echoed = stage.proxy(ADA, posted).await.ok();
    assert_eq!(echoed["asked"], format!("POST {condense}"));
    assert_eq!(echoed["type"], "application/json");
    let sent: Value = serde_json::from_str(echoed["body"].as_str().unwrap()).unwrap();
    assert_eq!(sent, body);
    let confined = json!({"path": "/api/file/download?path=/etc/passwd"});
    let refused = stage.proxy(ADA, confined).await;
    refused.refuses(404, "The path leads out of the workspace of this sandbox");
    stage.end().await;
}

#[actix_web::test]
async fn an_envelope_carries_no_identity_and_no_forwarding_headers() {
    let stage = ForwardingFixture::set().await;
    let headers = json!({"headers": {
        "x-session-api-key": stage.key,
        "Cookie": "c=1",
        "Authorization": "Bearer t",
        "Host": "evil.example",
        "Connection": "upgrade",
        "Upgrade": "websocket",
        "Content-Length": "70",
        "Transfer-Encoding": "chunked",
        "X-Forwarded-Host": "evil.example",
        "X-Request-Id": "theirs",
    }});
    let echoed = stage.proxy(ADA, headers).await.ok();
    assert_eq!(echoed["key"], stage.key.as_str());
    for absent in ["cookie", "bearer"] {
        assert_eq!(echoed[absent], Value::Null, "{absent}");
    }
    assert_ne!(echoed["forwarded"], "evil.example");
    assert_ne!(echoed["id"], "theirs");
    assert!(
        echoed["id"].as_str().is_some_and(|id| !id.is_empty()),
        "{echoed}"
    );
    stage.end().await;
}

#[actix_web::test]
async fn only_the_owner_and_only_agent_server_paths_are_served() {
    let stage = ForwardingFixture::set().await;
    let unknown = "None of your sandboxes has this X-Session-API-Key; read the conversation again for the present one";
    stage.proxy(BOB, json!({})).await.refuses(404, unknown);
    let wrong = json!({"headers": {"X-Session-API-Key": "wrong"}});
    stage.proxy(ADA, wrong).await.refuses(404, unknown);
    let users = json!({"headers": {"X-Session-API-Key": ADA}});
    stage.proxy(ADA, users).await.refuses(404, unknown);
    let missing = "headers must have the X-Session-API-Key of a sandbox";
    let none = json!({"headers": {}});
    stage.proxy(ADA, none).await.refuses(400, missing);
    for path in [
        "/api/v1/users/me",
        "/api/init",
        "/api/file/../init",
        "/",
        "/docs",
        "/sockets/events/x",
        "api/tools",
        "http://evil.example/api/tools",
        "//evil.example/api/tools",
        "/api/cloud-proxy",
    ] {
        let answer = stage.proxy(ADA, json!({"path": path})).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
    for headers in [json!({"a b": "1"}), json!({"a": "1\r\nb: 2"})] {
        let answer = stage.proxy(ADA, json!({"headers": headers})).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    let answer = stage.proxy(ADA, json!({"method": "CONNECT"})).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let answer = stage.proxy(ADA, json!({"headers": [stage.key]})).await;
    assert_eq!(answer.status, 422);
    assert!(!answer.text.contains(&stage.key), "{}", answer.text);
    // A sandbox's key is no user's.
    let answer = stage.proxy(&stage.key, json!({})).await;
    answer.refuses(401, "Unauthorized");
    let request = TestRequest::post().uri("/api/cloud-proxy");
    assert_eq!(stage.world.send(request).await.status, 401);
    stage.end().await;
}

#[actix_web::test]
async fn a_response_is_restricted_and_cut_when_it_takes_too_long() {
    let stage = ForwardingFixture::set().await;
    let path = format!("/api/conversations/{}/endless", stage.conversation);
    let envelope = json!({
        "host": HOST,
        "method": "GET",
        "path": path,
        "headers": {"X-Session-API-Key": stage.key},
        "timeout_seconds": 0,
    });
    let request = TestRequest::post()
        .uri("/api/cloud-proxy")
        .insert_header(("X-Session-API-Key", ADA))
        .set_json(envelope);
    let mut opened = stage.world.open_as(request).await;
    let header = |name: &str| {
        opened
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(header("set-cookie"), None);
    assert_eq!(header("referrer-policy"), Some("no-referrer"));
    assert!(header("content-security-policy").is_some_and(|it| it.starts_with("sandbox")));
    assert_eq!(opened.next().await.as_deref(), Some("begun"));
    assert!(opened.breaks_off().await, "its time is over");
    let silent = json!({"path": "/api/tools/silent", "timeout_seconds": 1});
    let answer = stage.proxy(ADA, silent).await;
    answer.refuses(
        504,
        "The sandbox's server did not answer in time. Try again, or look at the sandbox's status.",
    );
    stage.end().await;
}
