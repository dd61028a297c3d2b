//! Extraction: the caller, then parameters, then the body; one response lists all errors.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use super::fixture::{ID, KEY, SANDBOX_KEY, ask, ask_all, getting, posting};

fn things(query: &str) -> String {
    format!("/api/v1/things/{ID}{query}")
}

#[actix_web::test]
async fn a_good_request_arrives_whole() {
    let answer = ask(posting(
        &things("?limit=5.0&x=y"),
        "{\"title\": \"a\", \"token\": \"t\"}",
    ))
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let id = ID.replace('-', "");
    assert_eq!(
        answer.json(),
        json!({"user": "ada", "id": id, "limit": 5, "title": "a", "token": true})
    );
}

#[actix_web::test]
async fn authentication_fails_before_validation() {
    let table = [
        things(""),
        things("?limit=0"),
        "/api/v1/things/nope".to_owned(),
    ];
    let mut requests = Vec::new();
    for path in &table {
        for body in ["{\"title\": \"a\"}", "{\"a\": ", "", &"x".repeat(5000)] {
            for header in [
                None,
                Some(("X-Session-API-Key", "wrong")),
                Some(("Authorization", "Basic x")),
            ] {
                let request = TestRequest::post().uri(path).set_payload(body.to_owned());
                requests.push(match header {
                    Some(header) => request.insert_header(header),
                    None => request,
                });
            }
        }
    }
    for answer in ask_all(requests).await {
        assert_eq!(
            (answer.status, answer.json()),
            (401, json!({"detail": "Unauthorized"}))
        );
    }
}

#[actix_web::test]
async fn both_headers_carry_a_key() {
    for (header, status) in [
        (("X-Session-API-Key", KEY.to_owned()), 200),
        (("x-session-api-key", format!(" {KEY} ")), 200),
        (("Authorization", format!("Bearer {KEY}")), 200),
        (("Authorization", format!("bearer {KEY}")), 200),
        (("Authorization", KEY.to_owned()), 401),
        (("X-Session-API-Key", KEY.to_uppercase()), 401),
        (("X-Session-API-Key", "k".repeat(10_000)), 401),
        (("X-Session-API-Key", SANDBOX_KEY.to_owned()), 401),
    ] {
        let answer = ask(getting("/api/v1/things/search").insert_header(header.clone())).await;
        assert_eq!(answer.status, status, "{header:?}");
    }
}

/// The SDK's client sends its sandbox's key and the user's as a bearer token.
#[actix_web::test]
async fn a_users_key_counts_beside_a_sandboxs() {
    for (beside, status) in [(KEY, 200), ("nope", 401)] {
        let request = getting("/api/v1/things/search")
            .insert_header(("X-Session-API-Key", SANDBOX_KEY))
            .insert_header(("Authorization", format!("Bearer {beside}")));
        assert_eq!(ask(request).await.status, status, "{beside}");
    }
}

#[actix_web::test]
async fn path_query_and_body_report_together() {
    let answer = ask(posting("/api/v1/things/nope?limit=101", "{\"title\": 5}")).await;
    assert_eq!(answer.status, 422);
    let detail = answer.json()["detail"].clone();
    assert_eq!(
        detail,
        json!([
            {"type": "uuid_parsing", "loc": ["path", "conversation_id"], "msg": "Input should be a valid UUID, invalid character: found `n` at 0", "input": "nope", "ctx": {"error": "invalid character: found `n` at 0"}},
            {"type": "less_than_equal", "loc": ["query", "limit"], "msg": "Input should be less than or equal to 100", "input": "101", "ctx": {"le": 100}},
            {"type": "string_type", "loc": ["body", "title"], "msg": "Input should be a valid string", "input": 5},
        ])
    );
}

/// Type, location and input of the only error of a body.
async fn body_error(body: &str, content_type: Option<&str>) -> (u16, Value) {
    let mut request = TestRequest::post()
        .uri("/api/v1/large")
        .insert_header(("X-Session-API-Key", KEY));
    if let Some(content_type) = content_type {
        request = request.insert_header(("Content-Type", content_type));
    }
    let answer = ask(request.set_payload(body.to_owned())).await;
    (answer.status, answer.json()["detail"].clone())
}

#[actix_web::test]
async fn bodies_that_are_none() {
    let json_type = Some("application/json");
    let missing =
        json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}]);
    assert_eq!(body_error("", json_type).await, (422, missing.clone()));
    assert_eq!(body_error("", None).await, (422, missing.clone()));
    assert_eq!(body_error("null", json_type).await, (422, missing));
    let invalid = json!([{"type": "json_invalid", "loc": ["body", 6], "msg": "JSON decode error", "input": {}, "ctx": {"error": "Expecting value"}}]);
    assert_eq!(body_error("{\"a\": ", json_type).await, (422, invalid));
    let deep = "[".repeat(2000);
    assert_eq!(
        body_error(&deep, json_type).await,
        (400, json!("There was an error parsing the body"))
    );
}

#[actix_web::test]
async fn content_types() {
    let raw = |text: &str| json!([{"type": "list_type", "loc": ["body"], "msg": "Input should be a valid list", "input": text}]);
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonx"),
        Some("json"),
    ] {
        assert_eq!(
            body_error("[]", content_type).await,
            (422, raw("[]")),
            "{content_type:?}"
        );
    }
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/vnd.api+json",
    ] {
        let (status, _) = body_error("[]", Some(content_type)).await;
        assert_eq!(status, 200, "{content_type}");
    }
}

#[actix_web::test]
async fn an_invalid_body_does_not_quote_its_secret() {
    for content_type in ["text/plain", "application/json"] {
        let body = "\"ghp_topsecret\"";
        let request = posting(&things(""), body).insert_header(("Content-Type", content_type));
        let answer = ask(request).await;
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["detail"][0]["type"], "model_attributes_type");
        assert!(!answer.body.contains("ghp_"), "{}", answer.body);
    }
}

#[actix_web::test]
async fn sizes_are_bounded_by_header_and_by_count() {
    let fits = format!("[\"{}\"]", "x".repeat(2000));
    assert_eq!(ask(posting("/api/v1/large", &fits)).await.status, 200);
    let over = format!("[\"{}\"]", "x".repeat(4000));
    for request in [
        posting("/api/v1/large", &over),
        posting("/api/v1/large", "[]").insert_header(("Content-Length", "99999999")),
    ] {
        let answer = ask(request).await;
        assert_eq!(
            (answer.status, answer.json()),
            (413, json!({"detail": "The body is larger than 3000 bytes"}))
        );
    }
    assert_eq!(ask(posting(&things(""), &fits)).await.status, 413);
    let encoded = posting(&things(""), "{}").insert_header(("Content-Encoding", "gzip"));
    assert_eq!(ask(encoded).await.status, 415);
}

#[actix_web::test]
async fn an_idempotency_key_is_visible_ascii() {
    let sent = |key: &str| {
        posting("/api/v1/large", "[]").insert_header(("Idempotency-Key", key.to_owned()))
    };
    assert_eq!(
        ask(sent("abc-1")).await.json(),
        json!({"items": 0, "key": "abc-1"})
    );
    for bad in ["", "a b", &"x".repeat(256)] {
        let answer = ask(sent(bad)).await;
        assert_eq!(answer.status, 422, "{bad}");
        assert_eq!(
            answer.json()["detail"][0]["loc"],
            json!(["header", "Idempotency-Key"])
        );
    }
}

#[actix_web::test]
async fn legacy_operations_have_their_own_shape() {
    let request = || TestRequest::post().uri("/api/legacy");
    let answer = ask(request().set_payload("{")).await;
    let missing = json!({"detail": [{"loc": ["header", "X-Session-API-Key"], "msg": "Field required", "type": "missing"}]});
    assert_eq!((answer.status, answer.json()), (401, missing));
    let answer = ask(request().insert_header(("X-Session-API-Key", "wrong"))).await;
    let wrong = json!({"detail": [{"loc": ["header", "X-Session-API-Key"], "msg": "Invalid API key", "type": "invalid_api_key"}]});
    assert_eq!((answer.status, answer.json()), (401, wrong));

    // Without a content type, JSON is assumed.
    let keyed = || request().insert_header(("X-Session-API-Key", KEY));
    assert_eq!(
        ask(keyed().set_payload("{\"title\": \"a\"}")).await.json(),
        json!("a")
    );
    let answer = ask(keyed().set_payload("{\"provider_tokens\": ")).await;
    let invalid = json!({"detail": [{"loc": ["body", "20"], "msg": "JSON decode error", "type": "json_invalid"}]});
    assert_eq!((answer.status, answer.json()), (422, invalid));
    for undecodable in [b"{\"a\": \"\xff\"}".to_vec(), vec![b'['; 500]] {
        let answer = ask(keyed().set_payload(undecodable)).await;
        assert_eq!(
            (answer.status, &answer.json()["detail"][0]["type"]),
            (422, &json!("json_invalid"))
        );
    }
}

#[actix_web::test]
async fn invalid_session_keys_have_specific_errors() {
    let answer = ask(TestRequest::post().uri("/api/v1/webhook")).await;
    assert_eq!(
        (answer.status, answer.json()),
        (
            401,
            json!({"detail": "X-Session-API-Key header is required"})
        )
    );
    let answer = ask(posting("/api/v1/webhook", "{}")).await;
    assert_eq!(
        (answer.status, answer.json()),
        (401, json!({"detail": "Invalid session API key"}))
    );
}
