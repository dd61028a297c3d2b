//! Signing in: the pages, the cookie, links, and attacks on all of them.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::HeaderMap;
use actix_web::test::TestRequest;
use application::AuthMode;
use domain::clock::Clock as _;
use http_api::{AddressConfig, HttpConfig};
use secrecy::ExposeSecret as _;
use serde_json::json;
use store_memory::{FakeMailer, SequentialIds};

use crate::fixture::{BOB, ROOT, TestResponse, World};
use crate::seed;

pub(super) const PASSWORD: &str = "correct horse battery";
const NAME: &str = "__Host-aw_session";

/// A service whose users sign in; Ada and root have a password.
pub(super) struct Accounts {
    pub(super) world: World,
    pub(super) ids: SequentialIds,
}

impl Accounts {
    pub(super) async fn new() -> Self {
        Self::with_mailer(None).await
    }

    pub(super) async fn with_mailer(mailer: Option<Arc<FakeMailer>>) -> Self {
        let addresses = AddressConfig {
            public_url: "https://agents.example/".parse().ok(),
            ..AddressConfig::default()
        };
        let config = HttpConfig {
            addresses,
            ..HttpConfig::default()
        };
        let world = World::build_with(config, AuthMode::Accounts, mailer).await;
        let ids = SequentialIds::default();
        let now = world.clock.now();
        for user in ["ada", "root"] {
            seed::set_password(&world.store, now, &ids, (user, PASSWORD)).await;
        }
        Self { world, ids }
    }

    pub(super) async fn log_in(&self, name: &str) -> String {
        let answer = self.world.send(login(name, PASSWORD, "/")).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        cookie_of(&answer.headers)
    }

    async fn is_active(&self, cookie: &str) -> bool {
        let read = get("/api/v1/users/me").insert_header(("cookie", cookie));
        self.world.send(read).await.status == 200
    }

    async fn send(&self, request: TestRequest) -> TestResponse {
        self.world.send(request).await
    }
}

pub(super) fn get(path: &str) -> TestRequest {
    TestRequest::get().uri(path)
}

pub(super) fn post(path: &str) -> TestRequest {
    TestRequest::post()
        .uri(path)
        .insert_header(("sec-fetch-site", "same-origin"))
}

pub(super) fn form(path: &str, fields: &[(&str, &str)]) -> TestRequest {
    let peer = "203.0.113.9:4000".parse().unwrap();
    post(path).peer_addr(peer).set_form(fields)
}

fn login(name: &str, password: &str, return_to: &str) -> TestRequest {
    form(
        "/login",
        &[
            ("name", name),
            ("password", password),
            ("returnTo", return_to),
        ],
    )
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// The cookie that an answer sets, as a browser sends it.
fn cookie_of(headers: &HeaderMap) -> String {
    let set = header(headers, "set-cookie");
    let attributes = "; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax; Secure";
    let cookie = set.strip_suffix(attributes);
    cookie.unwrap_or_else(|| panic!("{set}")).to_owned()
}

#[actix_web::test]
async fn a_person_signs_in_works_and_signs_out() {
    let it = Accounts::new().await;
    let page = it
        .send(get("/login?returnTo=%2Fconversations%2F1%3Fa%3Db"))
        .await;
    assert_eq!(
        (page.status, page.content_type.as_str()),
        (200, "text/html; charset=utf-8")
    );
    assert!(
        page.text.contains("value=\"/conversations/1?a=b\""),
        "{}",
        page.text
    );
    let policy = header(&page.headers, "content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'self'"));
    assert_eq!(header(&page.headers, "x-frame-options"), "DENY");
    // With `no-referrer`, browsers would send `Origin: null` with the form.
    assert_eq!(header(&page.headers, "referrer-policy"), "same-origin");

    let answer = it
        .send(login("ada", PASSWORD, "/conversations/1?a=b"))
        .await;
    assert_eq!(answer.status, 303);
    assert_eq!(header(&answer.headers, "location"), "/conversations/1?a=b");
    assert!(header(&answer.headers, "cache-control").contains("no-store"));
    let cookie = cookie_of(&answer.headers);
    let read = get("/api/v1/users/me/access").insert_header(("cookie", cookie.as_str()));
    let read = it.send(read).await;
    assert_eq!((read.status, &read.json()["user_id"]), (200, &json!("ada")));
    let vary = read.headers.get_all("vary").any(|value| value == "Cookie");
    assert!(vary && header(&read.headers, "cache-control").contains("no-store"));
    let known = post("/api/authenticate").insert_header(("cookie", cookie.as_str()));
    assert_eq!(it.send(known).await.status, 204);

    let out = post("/logout").insert_header(("cookie", cookie.as_str()));
    let out = it.send(out).await;
    assert_eq!(
        (out.status, header(&out.headers, "location")),
        (303, "/login")
    );
    assert!(header(&out.headers, "set-cookie").starts_with(&format!("{NAME}=; ")));
    assert!(!it.is_active(&cookie).await);
    let dead = post("/api/authenticate").insert_header(("cookie", cookie.as_str()));
    let dead = it.send(dead).await;
    assert_eq!(dead.status, 401);
    assert!(
        header(&dead.headers, "set-cookie").contains("Max-Age=0"),
        "a dead cookie goes"
    );
    let none = it.send(post("/api/authenticate")).await;
    assert_eq!(
        (none.status, header(&none.headers, "set-cookie")),
        (401, "")
    );
}

/// Unknown names, users without a password, wrong passwords and names that cannot exist get the same page.
#[actix_web::test]
async fn all_failed_logins_look_the_same() {
    let it = Accounts::new().await;
    let long = "p".repeat(5_000);
    let mut pages = Vec::new();
    for (name, password) in [
        ("ada", "wrong"),
        ("ada", ""),
        ("ada", long.as_str()),
        ("ada", "Correct horse battery"),
        ("bob", PASSWORD),
        ("bob", ""),
        ("stranger", PASSWORD),
        ("", PASSWORD),
        ("a b", PASSWORD),
        ("ada\0", PASSWORD),
        ("<script>", PASSWORD),
    ] {
        let answer = it.send(login(name, password, "/")).await;
        assert_eq!(answer.status, 401, "{name} {password}");
        assert_eq!(header(&answer.headers, "set-cookie"), "");
        assert!(!answer.text.contains("<script>"));
        let start = answer.text.find("id=\"name\"").unwrap();
        let end = start + answer.text[start..].find(" required").unwrap();
        pages.push(format!("{}{}", &answer.text[..start], &answer.text[end..]));
    }
    pages.dedup();
    assert_eq!(pages.len(), 1, "{pages:#?}");
    assert!(pages[0].contains("The name or the password is wrong."));
    // Other bodies than a form.
    let json = post("/login").set_json(json!({"name": "ada", "password": PASSWORD}));
    assert_eq!(it.send(json).await.status, 415);
    let huge = "x".repeat(20_000);
    assert_eq!(it.send(login("ada", &huge, "/")).await.status, 413);
    assert_eq!(it.send(form("/login", &[])).await.status, 401);
}

#[actix_web::test]
async fn a_login_returns_to_this_origin_only() {
    let it = Accounts::new().await;
    for evil in [
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "/\r\nSet-Cookie: a=b",
        "evil",
        "",
    ] {
        let answer = it.send(login("ada", PASSWORD, evil)).await;
        assert_eq!(
            (answer.status, header(&answer.headers, "location")),
            (303, "/"),
            "{evil}"
        );
        let escaped: String = url::form_urlencoded::byte_serialize(evil.as_bytes()).collect();
        let page = it.send(get(&format!("/login?returnTo={escaped}"))).await;
        assert!(
            page.text.contains("name=\"returnTo\" value=\"\""),
            "{evil}: {}",
            page.text
        );
    }
}

/// A session that an attacker planted in the browser is not taken over, and each login begins another one.
#[actix_web::test]
async fn a_login_begins_a_new_session() {
    let it = Accounts::new().await;
    let planted = format!("{NAME}=planted");
    let answer = login("ada", PASSWORD, "/").insert_header(("cookie", planted.as_str()));
    let first = cookie_of(&it.send(answer).await.headers);
    let again = login("ada", PASSWORD, "/").insert_header(("cookie", first.as_str()));
    let second = cookie_of(&it.send(again).await.headers);
    assert!(first != planted && first != second);
    assert!(!it.is_active(&planted).await);
    assert!(it.is_active(&first).await && it.is_active(&second).await);
}

/// Forms and calls of pages of other origins are refused, with the cookie that a browser adds.
#[actix_web::test]
async fn other_origins_cannot_use_the_cookie() {
    let it = Accounts::new().await;
    let cookie = it.log_in("ada").await;
    let fields = [("name", "ada"), ("password", PASSWORD)];
    for path in [
        "/login",
        "/logout",
        "/password",
        "/password/forgot",
        "/api/authenticate",
        "/api/logout",
    ] {
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "https://evil.example"),
            ("origin", "https://agents.example:8443"),
            ("origin", "null"),
            ("x-nothing", ""),
        ] {
            let request = TestRequest::post()
                .uri(path)
                .insert_header(("cookie", cookie.as_str()))
                .insert_header((name, value))
                .set_form(fields);
            let answer = it.send(request).await;
            assert_eq!(answer.status, 403, "{path} {name}: {value}");
            assert_eq!(header(&answer.headers, "set-cookie"), "");
        }
    }
    assert!(it.is_active(&cookie).await);
    let of_old_browser = TestRequest::post()
        .uri("/api/authenticate")
        .insert_header(("cookie", cookie.as_str()))
        .insert_header(("origin", "https://agents.example"));
    assert_eq!(it.send(of_old_browser).await.status, 204);
}

/// A key decides alone: it needs no origin, and a wrong one is not replaced by the session.
#[actix_web::test]
async fn a_key_decides_before_the_cookie() {
    let it = Accounts::new().await;
    let cookie = it.log_in("ada").await;
    for name in ["x-session-api-key", "authorization"] {
        let key = |key: &str| match name {
            "authorization" => (name, format!("Bearer {key}")),
            _ => (name, key.to_owned()),
        };
        for (text, status) in [("aw_wrong", 401), (BOB, 200)] {
            let request = get("/api/v1/users/me/access")
                .insert_header(("cookie", cookie.as_str()))
                .insert_header(key(text));
            let answer = it.send(request).await;
            assert_eq!(answer.status, status, "{name} {text}");
            if status == 200 {
                assert_eq!(answer.json()["user_id"], "bob");
            }
        }
    }
    let request = TestRequest::post()
        .uri("/api/authenticate")
        .insert_header(("cookie", cookie.as_str()))
        .insert_header(("x-session-api-key", "aw_wrong"));
    let answer = it.send(request).await;
    assert_eq!(
        (answer.status, header(&answer.headers, "set-cookie")),
        (401, "")
    );
    assert!(it.is_active(&cookie).await, "the cookie stays");
    let made = TestRequest::post()
        .uri("/api/v1/keys")
        .insert_header(("cookie", cookie.as_str()))
        .insert_header(("x-session-api-key", BOB));
    assert_eq!(it.send(made).await.status, 201);
}

#[actix_web::test]
async fn passwords_cannot_be_guessed() {
    let it = Accounts::new().await;
    for _ in 0..10 {
        assert_eq!(it.send(login("ada", "wrong", "/")).await.status, 401);
    }
    let right = it.send(login("ada", PASSWORD, "/")).await;
    assert_eq!(right.status, 429, "even the right one");
    let elsewhere = login("ada", PASSWORD, "/").peer_addr("198.51.100.1:9".parse().unwrap());
    assert_eq!(it.send(elsewhere).await.status, 303);
    assert_eq!(it.send(login("root", PASSWORD, "/")).await.status, 303);
    it.world.clock.advance(Duration::from_secs(5 * 60));
    assert_eq!(it.send(login("ada", PASSWORD, "/")).await.status, 303);
}

/// Opening the link uses nothing; the form works once, and begins a session.
#[actix_web::test]
async fn a_link_sets_a_password_once() {
    let it = Accounts::new().await;
    let now = it.world.clock.now();
    let token = seed::add_link(&it.world.store, now, &it.ids, "bob").await;
    let token = token.expose_secret();
    let set = |code: &str, password: &str, repeat: &str| {
        let fields = [("token", code), ("password", password), ("repeat", repeat)];
        form("/password", &fields)
    };
    let (good, other) = ("bobs new password", "bobs other password");
    for _ in 0..2 {
        let page = it.send(get("/password")).await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains("Set a password"));
    }
    for (code, password, repeat, status) in [
        (token, "short", "short", 400),
        (token, good, other, 400),
        ("wrong", good, good, 401),
        ("", good, good, 401),
    ] {
        let answer = it.send(set(code, password, repeat)).await;
        assert_eq!(answer.status, status, "{code} {password}");
    }
    // Pasted with the whole address.
    let link = format!(" https://agents.example/password#{token} ");
    let done = it.send(set(&link, good, good)).await;
    assert_eq!(
        (done.status, header(&done.headers, "location")),
        (303, "/"),
        "{}",
        done.text
    );
    assert!(it.is_active(&cookie_of(&done.headers)).await);
    let again = it.send(set(token, other, other)).await;
    assert_eq!(again.status, 401);
    assert_eq!(it.send(login("bob", good, "/")).await.status, 303);
    let expired = seed::add_link(&it.world.store, now, &it.ids, "bob").await;
    it.world.clock.advance(Duration::from_secs(24 * 60 * 60));
    let late = it.send(set(expired.expose_secret(), other, other)).await;
    assert_eq!(late.status, 401);
}

#[actix_web::test]
async fn sessions_are_listed_and_revoked_by_their_user() {
    let it = Accounts::new().await;
    let (mine, other) = (it.log_in("ada").await, it.log_in("ada").await);
    let roots = it.log_in("root").await;
    let list = async |cookie: &str| {
        let request = get("/api/v1/sessions").insert_header(("cookie", cookie));
        it.send(request).await.ok()["items"]
            .as_array()
            .unwrap()
            .clone()
    };
    let all = list(&mine).await;
    assert_eq!(all.len(), 2);
    assert_eq!(
        (&all[0]["is_current"], &all[1]["is_current"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(all[0]["address"], "203.0.113.9");
    assert!(all[0].get("hash").is_none());
    let end = async |cookie: &str, id: &serde_json::Value| {
        let request = TestRequest::delete()
            .uri(&format!("/api/v1/sessions/{}", id.as_str().unwrap()))
            .insert_header(("sec-fetch-site", "same-origin"))
            .insert_header(("cookie", cookie));
        it.send(request).await.status
    };
    assert_eq!(end(&roots, &all[1]["id"]).await, 404, "another user's");
    assert_eq!(end(&mine, &all[1]["id"]).await, 200);
    assert!(!it.is_active(&other).await && it.is_active(&mine).await);
    assert_eq!(end(&mine, &all[1]["id"]).await, 404);
    // Idle and absolute ends.
    it.world.clock.advance(Duration::from_secs(12 * 60 * 60));
    assert!(!it.is_active(&mine).await);
    assert_eq!(
        it.world.get(ROOT, "/api/v1/sessions").await.ok()["items"],
        json!([])
    );
}

#[actix_web::test]
async fn a_changed_password_ends_other_sessions() {
    let it = Accounts::new().await;
    let (mine, other) = (it.log_in("ada").await, it.log_in("ada").await);
    let change = async |current: &str, new: &str| {
        let body = json!({"current_password": current, "new_password": new});
        let request = post("/api/v1/users/me/password").insert_header(("cookie", mine.as_str()));
        it.send(request.set_json(body)).await
    };
    let new = "another good password";
    assert_eq!(change("wrong", new).await.status, 403);
    assert_eq!(change(PASSWORD, "too short").await.status, 400);
    assert_eq!(change(PASSWORD, &"x".repeat(201)).await.status, 400);
    assert_eq!(change(PASSWORD, new).await.status, 200);
    assert!(it.is_active(&mine).await && !it.is_active(&other).await);
    assert_eq!(it.send(login("ada", PASSWORD, "/")).await.status, 401);
    assert_eq!(it.send(login("ada", new, "/")).await.status, 303);
    let body = json!({"current_password": "", "new_password": new});
    let bobs = it.world.post(BOB, "/api/v1/users/me/password", &body).await;
    assert_eq!(bobs.status, 409, "without a password");
}

/// A session has the present role of its user, and ends with the user.
#[actix_web::test]
async fn a_session_follows_its_user() {
    let it = Accounts::new().await;
    let cookie = it.log_in("ada").await;
    let users = async || {
        let request = get("/api/v1/admin/users").insert_header(("cookie", cookie.as_str()));
        it.send(request).await.status
    };
    let set = async |role: &str| {
        let body = json!({"role": role});
        it.world
            .patch(ROOT, "/api/v1/admin/users/ada", &body)
            .await
            .ok();
    };
    assert_eq!(users().await, 403);
    set("admin").await;
    assert_eq!(users().await, 200);
    let made = post("/api/v1/keys").insert_header(("cookie", cookie.as_str()));
    assert_eq!(it.send(made).await.status, 201);
    set("user").await;
    assert_eq!(users().await, 403);
    it.world.delete(ROOT, "/api/v1/admin/users/ada").await.ok();
    assert_eq!(users().await, 401);
}

/// Where users do not sign in, there are no pages, and no cookie counts.
#[actix_web::test]
async fn other_modes_have_no_sessions() {
    let world = World::idle().await;
    for path in ["/login", "/password", "/password/forgot"] {
        assert_eq!(world.send(get(path)).await.status, 404, "{path}");
        let answer = world.send(form(path, &[("name", "ada")])).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    assert_eq!(world.send(post("/logout")).await.status, 404);
    assert_eq!(world.send(post("/api/authenticate")).await.status, 401);
    let with_key = post("/api/authenticate").insert_header(("x-session-api-key", BOB));
    assert_eq!(world.send(with_key).await.status, 204);
    let body = json!({"current_password": "", "new_password": PASSWORD});
    let changed = world.post(BOB, "/api/v1/users/me/password", &body).await;
    assert_eq!(changed.status, 404);
}
