//! The layers around every route, and the routes without an application.

use actix_web::dev::Service as _;
use actix_web::http::{ConnectionType, Method};
use actix_web::test::{self, TestRequest};
use serde_json::{Value, json};
use store_memory::MemoryStore;

use super::fixture::{TestRoutes, ask, ask_all, config, getting, posting, send_to, state};
use super::memory::application;
use crate::route_table::RouteSet as _;

#[actix_web::test]
async fn every_response_forbids_caching_and_has_a_request_id() {
    let paths = [
        "/alive",
        "/nope",
        "/api/v1/things/search",
        "/api/v1/panic",
        "/api/v1/broken",
        "/alive/",
        "/openapi.json",
    ];
    for path in paths {
        let answer = ask(getting(path)).await;
        assert_eq!(
            answer.header("cache-control"),
            Some("no-cache, no-store, must-revalidate, max-age=0"),
            "{path}"
        );
        assert_eq!(answer.header("pragma"), Some("no-cache"), "{path}");
        assert_eq!(answer.header("expires"), Some("0"), "{path}");
        assert_eq!(
            answer.header("x-request-id"),
            Some("00000000000000000000000000000007"),
            "{path}"
        );
        assert_eq!(answer.header("vary"), Some("Origin"), "{path}");
    }
    let answer = ask(getting("/alive").insert_header(("x-request-id", "abc-1"))).await;
    assert_eq!(answer.header("x-request-id"), Some("abc-1"));
}

/// Pages on that host are untrusted; in open mode, reaching the API would suffice for them. A proxy without
/// `X-Forwarded-Host` passes on the page's own.
#[actix_web::test]
async fn a_page_cannot_leave_the_sandbox_host_by_headers() {
    let mut config = config();
    config.open = true;
    config.trusted_proxies = vec!["10.0.0.1/32".parse().unwrap()];
    config.addresses.public_url = "https://h.example/".parse().ok();
    config.addresses.sandbox_url = "https://boxes.example/".parse().ok();
    for (host, said, status) in [
        ("h.example", None, 200),
        ("boxes.example", None, 404),
        ("boxes.example", Some("h.example"), 404),
        ("127.0.0.1:3000", Some("h.example"), 200),
        ("127.0.0.1:3000", Some("boxes.example"), 404),
    ] {
        let request = getting("/alive")
            .peer_addr("10.0.0.1:4000".parse().unwrap())
            .insert_header(("host", host))
            .insert_header(("x-forwarded-for", "203.0.113.9"));
        let request = match said {
            Some(said) => request.insert_header(("x-forwarded-host", said)),
            None => request,
        };
        let answer = send_to(state(&config, None), request).await;
        assert_eq!(answer.status, status, "{host} {said:?}");
    }
}

#[actix_web::test]
async fn unknown_paths_and_methods_are_distinguished_without_a_key() {
    let not_found = json!({"detail": "Not Found"});
    for path in [
        "/nope",
        "/api/v1/nope",
        "/",
        "/api/v1/things/a/b",
        "//alive",
        "/docs/nope.js",
    ] {
        let answer = ask(getting(path)).await;
        assert_eq!(
            (answer.status, answer.json()),
            (404, not_found.clone()),
            "{path}"
        );
    }
    let table = [
        (Method::POST, "/health", "GET"),
        (Method::HEAD, "/alive", "GET"),
        (Method::OPTIONS, "/alive", "GET"),
        (Method::GET, "/api/legacy", "POST"),
        // Two routes match this path, one with a parameter.
        (Method::DELETE, "/api/v1/things/search", "GET, POST"),
    ];
    for (method, path, allow) in table {
        let answer = ask(TestRequest::default().method(method.clone()).uri(path)).await;
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some(allow)),
            "{method} {path}"
        );
        assert_eq!(answer.json(), json!({"detail": "Method Not Allowed"}));
    }
}

#[actix_web::test]
async fn a_trailing_slash_is_redirected_only_to_known_routes() {
    let answer = ask(getting("/api/v1/things/search/?limit=5&x=a%20b")).await;
    assert_eq!((answer.status, answer.body.as_str()), (307, ""));
    assert_eq!(
        answer.header("location"),
        Some("/api/v1/things/search?limit=5&x=a%20b")
    );
    for path in [
        "//evil.example/",
        "/\\evil.example/",
        "//alive/",
        "/https://evil.example/",
        "/nope/",
        "/",
        "//",
    ] {
        let answer = ask(getting(path)).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (404, None),
            "{path}"
        );
    }
}

#[actix_web::test]
async fn a_panic_is_a_500_and_the_next_request_works() {
    let answer = ask(getting("/api/v1/panic")).await;
    assert_eq!(
        (answer.status, answer.json()),
        (500, json!({"detail": "Internal Server Error"}))
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[actix_web::test]
async fn causes_stay_inside() {
    let answer = ask(getting("/api/v1/broken")).await;
    assert_eq!(
        (answer.status, answer.json()),
        (500, json!({"detail": "Internal Server Error"}))
    );
    let answer = ask(getting("/api/v1/busy")).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1"))
    );
}

#[actix_web::test]
async fn preflights_and_cross_origin_answers() {
    let preflight = |origin: &'static str| {
        TestRequest::default()
            .method(Method::OPTIONS)
            .uri("/api/legacy")
            .insert_header(("Origin", origin))
            .insert_header(("Access-Control-Request-Method", "POST"))
            .insert_header((
                "Access-Control-Request-Headers",
                "x-session-api-key,content-type",
            ))
    };
    let answer = ask(preflight("https://app.example")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
    let expected = [
        ("content-type", "text/plain; charset=utf-8"),
        ("vary", "Origin"),
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-credentials", "true"),
        (
            "access-control-allow-methods",
            "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
        ),
        (
            "access-control-allow-headers",
            "x-session-api-key,content-type",
        ),
        ("access-control-max-age", "600"),
    ];
    for (name, value) in expected {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    let answer = ask(preflight("http://evil.example")).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (400, "Disallowed CORS origin")
    );
    assert_eq!(answer.header("access-control-allow-origin"), None);

    let simple =
        |origin: &'static str| getting("/api/v1/things/search").insert_header(("Origin", origin));
    let answer = ask(simple("https://app.example")).await;
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (401, Some("https://app.example"))
    );
    assert_eq!(
        ask(simple("http://evil.example"))
            .await
            .header("access-control-allow-origin"),
        None
    );
}

#[actix_web::test]
async fn an_open_service_refuses_foreign_pages() {
    let mut open = config();
    open.open = true;
    let request = |origin: &'static str| {
        posting("/api/legacy", "{\"title\": \"a\"}")
            .insert_header(("Host", "127.0.0.1:3000"))
            .insert_header(("Origin", origin))
    };
    for (origin, status) in [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:3000", 200),
        ("https://app.example", 200),
    ] {
        assert_eq!(
            send_to(state(&open, None), request(origin)).await.status,
            status,
            "{origin}"
        );
    }
    assert_eq!(
        ask(request("http://evil.example")).await.status,
        200,
        "with keys the key decides"
    );
}

#[actix_web::test]
async fn health() {
    assert_eq!(ask(getting("/alive")).await.body, "{\"status\":\"ok\"}");
    assert_eq!(ask(getting("/health")).await.body, "\"OK\"");
    assert_eq!(ask(getting("/ready")).await.body, "\"OK\"");
    let answer = send_to(
        state(&config(), Some("no engine answers")),
        getting("/ready"),
    )
    .await;
    let expected = json!({"detail": "Not ready: sandboxes", "checks": {"store": "ok", "sandboxes": "no engine answers"}});
    assert_eq!((answer.status, answer.json()), (503, expected));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let info = ask(getting("/server_info")).await.json();
    for path in [
        "/uptime",
        "/idle_time",
        "/resources/cpu_percent",
        "/resources/memory/rss",
        "/resources/disk/free",
        "/resources/io/read_bytes",
    ] {
        assert!(
            info.pointer(path).is_some_and(Value::is_number),
            "{path} in {info}"
        );
    }
}

/// While draining, `/ready` fails, and a kept-alive connection is closed with the next response.
#[actix_web::test]
async fn a_draining_service_closes_connections_and_is_not_ready() {
    let stopping = || {
        let state = state(&config(), None);
        state.begin_draining();
        state
    };
    let answer = send_to(stopping(), getting("/ready")).await;
    assert_eq!(answer.status, 503);
    let body = answer.json();
    assert_eq!(body["detail"], "Not ready: draining");
    assert_eq!(body["checks"]["store"], "ok");
    let said = body["checks"]["draining"].as_str().unwrap();
    assert!(said.contains("about to stop"), "{said}");
    let state = stopping();
    let application = application(&MemoryStore::new(), &state.ports.clock);
    let app = test::init_service(crate::app(state, application)).await;
    // Routes of the service, and requests that are refused before forwarding.
    for (path, status) in [("/alive", 200), ("/api/bash/x", 401)] {
        let answer = match app.call(getting(path).to_request()).await {
            Ok(answer) => answer.into_parts().1,
            Err(refusal) => refusal.error_response(),
        };
        assert_eq!(answer.status(), status, "{path}");
        let kept = answer.head().connection_type();
        assert_eq!(kept, ConnectionType::Close, "{path}");
    }
}

#[actix_web::test]
async fn documentation_is_complete_and_local() {
    let answer = ask(getting("/openapi.json")).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["openapi"], "3.1.0");
    let document = TestRoutes.collect();
    let rename = &document["paths"]["/api/v1/things/{conversation_id}"]["post"];
    let statuses: Vec<_> = rename["responses"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        statuses,
        [
            "200", "400", "401", "404", "408", "413", "415", "422", "429", "500", "503", "507"
        ]
    );
    let schema = |operation: &Value, status: &str| {
        operation["responses"][status]["content"]["application/json"]["schema"]["$ref"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    assert_eq!(
        schema(rename, "422"),
        "#/components/schemas/HTTPValidationError"
    );
    assert_eq!(rename["responses"]["200"]["description"], "OK");
    assert_eq!(
        rename["operationId"],
        "rename_api_v1_things__conversation_id__post"
    );
    let legacy = &document["paths"]["/api/legacy"]["post"];
    assert_eq!(
        schema(legacy, "422"),
        "#/components/schemas/LegacyHTTPValidationError"
    );
    assert_eq!(
        schema(legacy, "401"),
        "#/components/schemas/LegacyHTTPValidationError"
    );
    assert_eq!(
        document["paths"]["/alive"]["get"]["responses"]["401"],
        Value::Null
    );

    let answer = ask(getting("/docs")).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some("/docs/"))
    );
    let page = ask(getting("/docs/")).await;
    assert_eq!(page.status, 200);
    assert!(
        !page.body.contains("http://") && !page.body.contains("https://"),
        "{}",
        page.body
    );
    let style = "/docs/swagger-ui.css";
    for (accepted, encoding, is_plain) in [
        (None, None, true),
        (Some("br, gzip"), Some("gzip"), false),
        (Some("gzip;q=0"), None, true),
    ] {
        let request = accepted.map_or_else(
            || getting(style),
            |it| getting(style).insert_header(("accept-encoding", it)),
        );
        let answer = ask(request).await;
        assert_eq!(answer.header("content-encoding"), encoding);
        assert_eq!(answer.body.contains(".swagger-ui"), is_plain);
    }
    assert!(
        ask(getting("/docs/swagger-initializer.js"))
            .await
            .body
            .contains("/openapi.json")
    );
}

/// Every documented operation that is not marked as public requires a key; a handler without a guard fails here.
#[actix_web::test]
async fn every_guarded_operation_requires_a_key() {
    let document = ask(getting("/openapi.json")).await.json();
    let (mut paths, mut requests) = (Vec::new(), Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let public = operation["security"]
                .as_array()
                .is_some_and(|list| list.contains(&json!({})));
            if public {
                continue;
            }
            let path = path.replace("{conversation_id}", "nope");
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            requests.push(TestRequest::default().method(method).uri(&path));
            paths.push(path);
        }
    }
    // The fixture alone has five.
    assert!(paths.len() >= 5, "{paths:?}");
    for (path, answer) in paths.iter().zip(ask_all(requests).await) {
        assert_eq!(answer.status, 401, "{path}");
    }
}

#[actix_web::test]
async fn unread_large_responses_are_limited() {
    let mut config = config();
    config.limits.unsent = crate::UnsentLimits {
        per_caller: 1,
        total: usize::MAX,
    };
    let state = state(&config, None);
    let application = application(&MemoryStore::new(), &state.ports.clock);
    let app = test::init_service(crate::app(state, application)).await;
    let get = async |path: &str| app.call(getting(path).to_request()).await.unwrap();
    let large = "/docs/swagger-ui-bundle.js";
    let unread = get(large).await;
    assert_eq!(unread.status(), 200);
    let refused = get(large).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(refused.headers().contains_key("x-request-id"));
    assert_eq!(get("/alive").await.status(), 200);
    drop((unread, refused));
    assert_eq!(get(large).await.status(), 200);
}
