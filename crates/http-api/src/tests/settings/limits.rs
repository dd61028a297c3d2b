//! Rate limits in responses, and their independence from each other.

use std::net::SocketAddr;
use std::task::Poll;

use actix_web::body::BoxBody;
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use actix_web::test::{self, TestRequest};
use actix_web::{Error, HttpResponse};

use super::{KEY, OTHER_KEY, SANDBOX_KEY, SettingsFixture, request, sandbox};
use crate::state::RequestLimits;

const SETTINGS: &str = "/api/v1/settings/profiles";
const INSIDE: &str = "/api/v1/sandboxes/s1/settings/secrets";
const REPORT: &str = "/api/v1/webhooks/conversations";

async fn ask<S, R>(app: &S, request: R) -> HttpResponse
where
    S: Service<R, Response = ServiceResponse<BoxBody>, Error = Error>,
{
    match app.call(request).await {
        Ok(response) => response.into_parts().1,
        Err(error) => error.error_response(),
    }
}

fn rate_limit_headers(headers: &HeaderMap) -> [Option<&str>; 4] {
    let names = ["limit", "remaining", "reset", "policy"];
    names.map(|name| headers.get(format!("RateLimit-{name}"))?.to_str().ok())
}

#[actix_web::test]
async fn responses_contain_the_rate_limit_of_the_key() {
    let world = SettingsFixture::limited(sandbox(), 2);
    let app = test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
    let left = |left| [Some("2"), Some(left), Some("1"), Some("2;w=1")];
    for (key, path, status, expected) in [
        (KEY, SETTINGS, 200, left("1")),
        (KEY, "/api/v1/nowhere", 404, [None; 4]),
        // A path of agent servers, without a conversation.
        (KEY, "/api/conversations/7/events/count", 404, left("0")),
        (KEY, SETTINGS, 429, left("0")),
        (SANDBOX_KEY, INSIDE, 200, left("1")),
        (OTHER_KEY, SETTINGS, 200, left("1")),
        ("nope", SETTINGS, 401, [None; 4]),
        ("", SETTINGS, 401, [None; 4]),
        ("", "/alive", 200, [None; 4]),
    ] {
        let answer = ask(&app, request(Method::GET, path, key).to_request()).await;
        assert_eq!(answer.status(), status, "{key} {path}");
        assert_eq!(
            rate_limit_headers(answer.headers()),
            expected,
            "{key} {path}"
        );
    }
    let none = SettingsFixture::limited(sandbox(), 0);
    let app = test::init_service(crate::app(none.state.clone(), none.application.clone())).await;
    let answer = ask(&app, request(Method::GET, SETTINGS, KEY).to_request()).await;
    assert_eq!(rate_limit_headers(answer.headers()), [None; 4]);
}

/// A client that repeats a refused request waits for further refusals; other clients do not.
#[actix_web::test]
async fn refusals_that_are_repeated_are_held() {
    let world = SettingsFixture::limited(sandbox(), 2);
    let app = test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
    let asked = |key| Box::pin(ask(&app, request(Method::GET, SETTINGS, key).to_request()));
    let mut refused = 0;
    let held = loop {
        let mut answer = asked(KEY);
        match futures::poll!(&mut answer) {
            Poll::Ready(answer) => refused += usize::from(answer.status() == 429),
            Poll::Pending => break answer,
        }
        assert!(refused < 1_000, "none is held");
    };
    assert!(
        refused >= 50,
        "the first ones are answered at once: {refused}"
    );
    assert_eq!(asked(OTHER_KEY).await.status(), 200);
    let answer = held.await;
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("Retry-After"));
}

fn from(address: &str, request: TestRequest) -> TestRequest {
    request.peer_addr(SocketAddr::new(address.parse().unwrap(), 4711))
}

/// An address that tries keys is refused before a look-up; others behind it and reporting sandboxes are not.
#[actix_web::test]
async fn guessing_keys_costs_others_nothing() {
    let world = SettingsFixture::limited(sandbox(), 0);
    let app = test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
    let status = async |address: &str, path: &str, key: &str| {
        let asked = from(address, request(Method::GET, path, key));
        ask(&app, asked.to_request()).await.status().as_u16()
    };
    let (here, elsewhere) = ("192.0.2.1", "192.0.2.2");
    assert_eq!(status(here, SETTINGS, KEY).await, 200);
    let most = RequestLimits::default().wrong_keys_per_second;
    // On all routes with keys.
    let paths = [
        SETTINGS,
        INSIDE,
        "/api/settings",
        "/api/conversations/7/events/count",
        // Paths of both the service and agent servers.
        "/api/agent-profiles/7",
        "/api/settings?session_api_key=guess",
    ];
    for n in 0..most {
        let path = paths[n as usize % paths.len()];
        let key = format!("guess-{n}");
        let found = status(here, path, &key).await;
        assert!(matches!(found, 401 | 404), "{n} {path} {found}");
    }
    for path in paths {
        let found = status(here, path, "guess").await;
        assert!(matches!(found, 429 | 404), "{path} {found}");
    }
    for (address, path, key, expected) in [
        (here, SETTINGS, KEY, 200),
        (here, "/alive", "guess", 200),
        (here, SETTINGS, "", 401),
        // Valid, but not known as such yet.
        (here, SETTINGS, OTHER_KEY, 429),
        (elsewhere, SETTINGS, OTHER_KEY, 200),
        (here, SETTINGS, OTHER_KEY, 200),
        (elsewhere, SETTINGS, "guess", 401),
    ] {
        let found = status(address, path, key).await;
        assert_eq!(found, expected, "{address} {path} {key}");
    }
    let report = async |key| {
        let asked = from(here, request(Method::POST, REPORT, key)).set_json(());
        ask(&app, asked.to_request()).await.status().as_u16()
    };
    assert_eq!(
        report("guess").await,
        401,
        "reports have a count of their own"
    );
    for _ in 1..most {
        report("guess").await;
    }
    assert_eq!(report("guess").await, 429);
    assert_eq!(status(elsewhere, SETTINGS, "guess").await, 401);
}

/// Also on routes that need no key: it is looked up, because it could be a sandbox's.
#[actix_web::test]
async fn wrong_keys_count_on_all_routes() {
    let most = RequestLimits::default().wrong_keys_per_second;
    for path in ["/alive", "/openapi.json", "/alive?session_api_key="] {
        let world = SettingsFixture::limited(sandbox(), 0);
        let app =
            test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
        let status = async |path: &str, key: &str| {
            let asked = from("192.0.2.1", request(Method::GET, path, key));
            ask(&app, asked.to_request()).await.status().as_u16()
        };
        for n in 0..most {
            let guess = format!("guess-{n}");
            let (path, key) = if path.ends_with('=') {
                (format!("{path}{guess}"), "")
            } else {
                (path.to_owned(), guess.as_str())
            };
            // A key in the form of a user's is not looked up here.
            assert_eq!(status("/alive", "aw_probe").await, 200);
            assert_eq!(status(&path, key).await, 200, "{n}");
        }
        assert_eq!(status(SETTINGS, "guess").await, 429, "{path}");
    }
}

/// Sandboxes that are processes share one address: wrong reports of one must not block the first report of another.
#[actix_web::test]
async fn wrong_report_keys_from_loopback_are_not_counted() {
    let world = SettingsFixture::limited(sandbox(), 0);
    let app = test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
    let report = async |key: &str, proxy: Option<&'static str>| {
        let asked = from("127.0.0.1", request(Method::POST, REPORT, key)).set_json(());
        let asked = match proxy {
            Some(client) => asked.insert_header(("X-Forwarded-For", client)),
            None => asked,
        };
        ask(&app, asked.to_request()).await.status().as_u16()
    };
    for _ in 0..=RequestLimits::default().wrong_keys_per_second {
        assert_eq!(report("guess", None).await, 401);
        report("guess", Some("192.0.2.1")).await;
    }
    assert_eq!(report("guess", Some("192.0.2.1")).await, 429, "a proxy's");
    assert_ne!(report(SANDBOX_KEY, None).await, 429);
}
