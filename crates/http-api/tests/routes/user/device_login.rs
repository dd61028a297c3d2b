//! Device login: a program, the person who confirms its code, and attacks.

use actix_web::http::header::ACCEPT;
use actix_web::test::TestRequest;
use application::AuthMode;
use http_api::HttpConfig;
use serde_json::{Value, json};

use super::sign_in::{Accounts, get, post};
use crate::fixture::{ADA, TestResponse, World};

const VERIFY: &str = "/oauth/device/verify-authenticated";
const PAGE: &str = "/oauth/device/verify";

fn from(request: TestRequest, last: u8) -> TestRequest {
    request.peer_addr(std::net::SocketAddr::from(([203, 0, 113, last], 4000)))
}

async fn begin(it: &Accounts) -> Value {
    let request = TestRequest::post().uri("/oauth/device/authorize");
    it.world.send(from(request, 1)).await.ok()
}

fn poll(code: &Value) -> TestRequest {
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", code["device_code"].as_str().unwrap()),
    ];
    let request = TestRequest::post().uri("/oauth/device/token");
    from(request.set_form(form), 1)
}

async fn poll_error(it: &Accounts, code: &Value) -> Value {
    let answer = it.world.send(poll(code)).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    answer.json()["error"].take()
}

fn decide(cookie: &str, user_code: &str, decision: &str) -> TestRequest {
    let request = post(VERIFY).insert_header(("cookie", cookie));
    from(
        request.set_form([("user_code", user_code), ("decision", decision)]),
        2,
    )
}

fn confirm(cookie: &str, user_code: &str) -> TestRequest {
    let request = post(VERIFY).insert_header(("cookie", cookie));
    from(request.set_form([("user_code", user_code)]), 2)
}

fn user_code(code: &Value) -> &str {
    code["user_code"].as_str().unwrap()
}

#[actix_web::test]
async fn a_program_gets_a_key_of_the_person_who_confirms() {
    let it = Accounts::new().await;
    let code = begin(&it).await;
    assert_eq!(
        code["verification_uri"],
        "https://agents.example/oauth/device/verify"
    );
    let complete = code["verification_uri_complete"].as_str().unwrap();
    assert!(complete.ends_with(&format!("?user_code={}", user_code(&code))));
    assert_eq!(
        (&code["expires_in"], &code["interval"]),
        (&json!(600), &json!(5))
    );
    assert_eq!(poll_error(&it, &code).await, "authorization_pending");

    let cookie = it.log_in("ada").await;
    let page = it
        .world
        .send(get(&format!("{PAGE}?user_code=x%22%3E")).insert_header(("cookie", cookie.as_str())))
        .await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("value=\"x&quot;&gt;\"") && page.text.contains("<strong>ada</strong>"),
        "{}",
        page.text
    );
    let typed = user_code(&code).to_lowercase().replace('-', " ");
    let done = it.world.send(confirm(&cookie, &typed)).await;
    done.is(200, &json!({"success": true}));
    let again = it.world.send(confirm(&cookie, &typed)).await;
    assert_eq!(again.status, 400, "{}", again.text);

    let issued = it.world.send(poll(&code)).await.ok();
    assert_eq!(
        (&issued["token_type"], &issued["expires_in"]),
        (&json!("Bearer"), &json!(604_800))
    );
    let key = issued["access_token"].as_str().unwrap();
    assert_eq!(
        it.world.get(key, "/api/v1/users/me/access").await.ok()["user_id"],
        "ada"
    );
    assert_eq!(poll_error(&it, &code).await, "expired_token");
    let listed = it.world.get(key, "/api/v1/keys").await.ok();
    let own = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["is_current"] == true);
    let own = own.unwrap().clone();
    assert_eq!(own["name"], format!("device {}", user_code(&code)));
    let audit = it
        .world
        .get(crate::fixture::ROOT, "/api/v1/audit?limit=100")
        .await;
    for said in ["device login", "confirmed", own["id"].as_str().unwrap()] {
        assert!(audit.text.contains(said), "{said}: {}", audit.text);
    }
    assert!(!audit.text.contains(key));
    // Signing out revokes it.
    let path = format!("/api/v1/keys/{}", own["id"].as_str().unwrap());
    assert_eq!(it.world.delete(key, &path).await.status, 200);
    assert_eq!(it.world.get(key, "/api/v1/keys").await.status, 401);
}

#[actix_web::test]
async fn a_denied_code_ends_the_login() {
    let it = Accounts::new().await;
    let (code, cookie) = (begin(&it).await, it.log_in("ada").await);
    let text = user_code(&code);
    // Neither an unknown button nor a request of another site denies it.
    let unknown = it.world.send(decide(&cookie, text, "later")).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text);
    let foreign = TestRequest::post()
        .uri(VERIFY)
        .insert_header(("cookie", cookie.as_str()))
        .insert_header(("sec-fetch-site", "cross-site"))
        .set_form([("user_code", text), ("decision", "deny")]);
    assert_eq!(it.world.send(from(foreign, 2)).await.status, 403);
    assert_eq!(poll_error(&it, &code).await, "authorization_pending");

    let form = decide(&cookie, text, "deny").insert_header((ACCEPT, "text/html,*/*"));
    let shown = it.world.send(form).await;
    assert!(
        shown.status == 200 && shown.text.contains("You denied the code"),
        "{}",
        shown.text
    );
    for decision in ["confirm", "deny", ""] {
        let late = it.world.send(decide(&cookie, text, decision)).await;
        assert_eq!(late.status, 400, "{decision}: {}", late.text);
    }
    for _ in 0..2 {
        assert_eq!(poll_error(&it, &code).await, "access_denied");
    }
    let audit = "/api/v1/audit?limit=100";
    let audit = it.world.get(crate::fixture::ROOT, audit).await;
    let detail = format!("device login {text} denied");
    assert!(audit.text.contains(&detail), "{}", audit.text);
}

#[actix_web::test]
async fn a_denied_code_is_no_wrong_attempt() {
    let it = Accounts::new().await;
    let cookie = it.log_in("ada").await;
    for _ in 0..12 {
        let code = begin(&it).await;
        let denied = decide(&cookie, user_code(&code), "deny");
        let denied = it.world.send(denied).await;
        denied.is(200, &json!({"success": true}));
    }
    // Guesses count, whichever button sends them.
    let mut statuses = Vec::new();
    for _ in 0..11 {
        let guess = decide(&cookie, "BBBB-BBBB", "deny");
        statuses.push(it.world.send(guess).await.status);
    }
    assert_eq!((&statuses[..10], statuses[10]), (&[400; 10][..], 429));
}

#[actix_web::test]
async fn only_a_person_on_a_page_of_the_service_confirms() {
    let it = Accounts::new().await;
    let (code, cookie) = (begin(&it).await, it.log_in("ada").await);
    let text = user_code(&code).to_owned();
    let refusals: Vec<(TestRequest, u16)> = vec![
        (from(post(VERIFY).set_form([("user_code", &text)]), 2), 401),
        (
            from(
                TestRequest::post()
                    .uri(VERIFY)
                    .insert_header(("cookie", cookie.as_str()))
                    .set_form([("user_code", &text)]),
                2,
            ),
            403,
        ),
        (
            from(
                TestRequest::post()
                    .uri(VERIFY)
                    .insert_header(("cookie", cookie.as_str()))
                    .insert_header(("sec-fetch-site", "cross-site"))
                    .set_form([("user_code", &text)]),
                2,
            ),
            403,
        ),
        (
            from(
                post(VERIFY)
                    .insert_header(("X-Session-API-Key", ADA))
                    .set_form([("user_code", &text)]),
                2,
            ),
            401,
        ),
        (
            from(
                post(VERIFY)
                    .insert_header(("cookie", cookie.as_str()))
                    .set_json(json!({"user_code": text})),
                2,
            ),
            415,
        ),
        (confirm(&cookie, "WDJB"), 400),
    ];
    for (request, status) in refusals {
        let answer = it.world.send(request).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    assert_eq!(poll_error(&it, &code).await, "authorization_pending");
    // A visitor without a session signs in first, and comes back.
    let path = format!("{PAGE}?user_code={text}");
    let visit = it.world.send(get(&path)).await;
    assert_eq!(visit.status, 302);
    let login = visit.headers.get("location").unwrap().to_str().unwrap();
    assert!(
        login.starts_with("/login?returnTo=%2Foauth%2Fdevice%2Fverify%3Fuser_code%3D"),
        "{login}"
    );
    // The form of the page gets a page.
    let form = confirm(&cookie, "WDJB").insert_header((ACCEPT, "text/html,*/*"));
    let shown: TestResponse = it.world.send(form).await;
    assert_eq!(shown.status, 400);
    assert!(shown.text.contains("role=\"alert\""), "{}", shown.text);
    let form = confirm(&cookie, &text).insert_header((ACCEPT, "text/html,*/*"));
    let shown = it.world.send(form).await;
    assert!(
        shown.status == 200 && shown.text.contains("signed in"),
        "{}",
        shown.text
    );
}

#[actix_web::test]
async fn codes_expire_and_guesses_are_limited() {
    let it = Accounts::new().await;
    let (code, cookie) = (begin(&it).await, it.log_in("ada").await);
    let statuses = async |count: usize| {
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(it.world.send(confirm(&cookie, "BBBB-BBBB")).await.status);
        }
        seen
    };
    assert_eq!(statuses(10).await, [400; 10]);
    assert_eq!(statuses(1).await, [429]);
    for _ in 0..100 {
        it.world.send(poll(&code)).await;
    }
    assert_eq!(poll_error(&it, &code).await, "slow_down");
    it.world.clock.advance(std::time::Duration::from_secs(601));
    assert_eq!(
        it.world
            .send(confirm(&cookie, user_code(&code)))
            .await
            .status,
        400
    );
    assert_eq!(poll_error(&it, &code).await, "expired_token");
    let mut last = 200;
    for _ in 0..100 {
        let request = TestRequest::post().uri("/oauth/device/authorize");
        last = it.world.send(from(request, 1)).await.status;
    }
    assert_eq!(last, 200);
    let request = TestRequest::post().uri("/oauth/device/authorize");
    assert_eq!(it.world.send(from(request, 1)).await.status, 429);
    let wrong = TestRequest::post()
        .uri("/oauth/device/token")
        .set_form([("grant_type", "password")]);
    let refused = it.world.send(wrong).await;
    assert_eq!(
        (refused.status, refused.json()["error"].clone()),
        (400, json!("unsupported_grant_type"))
    );
}

#[actix_web::test]
async fn without_accounts_there_is_no_device_login() {
    let world = World::build(HttpConfig::default(), AuthMode::ApiKey).await;
    let begun = TestRequest::post().uri("/oauth/device/authorize");
    assert_eq!(world.send(begun).await.status, 404);
    assert_eq!(world.send(get(PAGE)).await.status, 404);
    assert_eq!(world.send(confirm("x", "WDJB-MJHT")).await.status, 404);
}
