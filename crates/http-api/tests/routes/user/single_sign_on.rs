//! The way to an identity provider and back, as a browser sees it.

use std::collections::BTreeMap;

use actix_web::http::header::HeaderMap;
use domain::user::sign_in::UserEmail;
use domain::user::single_sign_on::ProvenIdentity;
use serde_json::{Value, json};
use url::Url;

use super::organization_matrix::crew;
use super::sign_in::{Accounts, get};
use crate::fixture::{ADA, TestResponse};

const ATTRIBUTES: &str = "; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure";

/// The value of the cookie of this name that an answer sets; `Some("")` if it removes it.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut set = headers.get_all("set-cookie").map(|it| it.to_str().unwrap());
    let line = set.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.split(';').next().unwrap().to_owned())
}

async fn send(it: &Accounts, path: &str, cookies: &str, site: &str) -> TestResponse {
    let request = get(path)
        .insert_header(("cookie", cookies))
        .insert_header(("sec-fetch-site", site));
    it.world.send(request).await
}

/// Begins a login or link; returns its cookie and state.
async fn start(it: &Accounts, query: &str, cookies: &str) -> (String, String) {
    let path = format!("/oauth/corp/login?{query}");
    let answer = send(it, &path, cookies, "same-origin").await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let set = answer.headers.get("set-cookie").unwrap().to_str().unwrap();
    assert!(
        set.starts_with("__Host-aw_login=") && set.ends_with(ATTRIBUTES),
        "{set}"
    );
    let location = answer.headers.get("location").unwrap().to_str().unwrap();
    let location = Url::parse(location).unwrap();
    let query: BTreeMap<_, _> = location.query_pairs().into_owned().collect();
    assert_eq!(
        query["redirect_uri"],
        "https://agents.example/oauth/corp/callback"
    );
    let login = cookie(&answer.headers, "__Host-aw_login").unwrap();
    (format!("__Host-aw_login={login}"), query["state"].clone())
}

fn ada() -> ProvenIdentity {
    ProvenIdentity {
        subject: "ada at corp".to_owned(),
        ..ProvenIdentity::default()
    }
}

#[actix_web::test]
async fn an_identity_is_linked_and_then_signs_in() {
    let it = Accounts::new().await;
    let session = it.log_in("ada").await;
    let (login, state) = start(&it, "link=1&returnTo=%2Fsettings", &session).await;
    it.world.providers.add("one", ada());
    let path = format!("/oauth/corp/callback?code=one&state={state}");
    let done = send(&it, &path, &format!("{session}; {login}"), "cross-site").await;
    assert_eq!(done.status, 303, "{}", done.text);
    assert_eq!(done.headers.get("location").unwrap(), "/settings");
    assert_eq!(
        cookie(&done.headers, "__Host-aw_login").as_deref(),
        Some("")
    );

    // Without a session, the identity signs in.
    let (login, state) = start(&it, "returnTo=%2F%2Fevil.example", "").await;
    it.world.providers.add("two", ada());
    let path = format!("/oauth/corp/callback?code=two&state={state}");
    let done = send(&it, &path, &login, "cross-site").await;
    assert_eq!(done.status, 303, "{}", done.text);
    assert_eq!(done.headers.get("location").unwrap(), "/");
    let begun = cookie(&done.headers, "__Host-aw_session").unwrap();
    let own = format!("__Host-aw_session={begun}");
    let listed = send(&it, "/api/v1/users/me/identities", &own, "same-origin").await;
    let listed = listed.json();
    assert_eq!(listed["items"][0]["provider"], "corp");
    assert!(!listed.to_string().contains("ada at corp"), "{listed}");
}

#[actix_web::test]
async fn other_members_see_a_verified_address_only() {
    let it = Accounts::new().await;
    let crew = crew(&it.world).await;
    let members = format!("/api/organizations/{}/members", crew.id);
    let email_of = async |path: &str| {
        let found = it.world.get(&crew.member, path).await.ok();
        let items = found["items"].as_array().cloned().unwrap_or(vec![found]);
        let hers = items.into_iter().find(|it| it["name"] == "ada").unwrap();
        hers["email"].clone()
    };
    let session = it.log_in("ada").await;
    let (login, state) = start(&it, "link=1", &session).await;
    it.world.providers.add("link", ada());
    let path = format!("/oauth/corp/callback?code=link&state={state}");
    let cookies = format!("{session}; {login}");
    assert_eq!(send(&it, &path, &cookies, "cross-site").await.status, 303);
    for (code, is_verified, shown) in [
        ("unverified", false, Value::Null),
        ("verified", true, json!("ada@corp.example")),
    ] {
        let email = UserEmail {
            address: "ada@corp.example".to_owned(),
            is_verified,
        };
        let proven = ProvenIdentity {
            email: Some(email),
            ..ada()
        };
        it.world.providers.add(code, proven);
        let (login, state) = start(&it, "", "").await;
        let path = format!("/oauth/corp/callback?code={code}&state={state}");
        assert_eq!(send(&it, &path, &login, "cross-site").await.status, 303);
        for path in [members.clone(), format!("{members}/ada")] {
            assert_eq!(email_of(&path).await, shown, "{code} {path}");
        }
    }
    let listed = it.world.get(ADA, &members).await.ok();
    let others = listed["items"].as_array().unwrap().iter();
    let others: Vec<&Value> = others.filter(|it| it["name"] != "ada").collect();
    assert!(!others.is_empty() && others.iter().all(|it| it["email"].is_null()));
}

#[actix_web::test]
async fn failures_lead_to_the_login_page_with_a_plain_text() {
    let it = Accounts::new().await;
    let (login, state) = start(&it, "", "").await;
    let evil = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for (query, cookies) in [
        (String::new(), login.as_str()),
        ("state=x&code=y".to_owned(), login.as_str()),
        (format!("state={state}&code=y"), ""),
        (format!("state={state}&code=y"), "__Host-aw_login=v1.x.y"),
        (format!("state={state}&code=a&code=b"), login.as_str()),
        (
            format!("error={evil}&error_description={evil}"),
            login.as_str(),
        ),
        (
            format!("state={state}&error=access_denied&error_description={evil}"),
            login.as_str(),
        ),
        (format!("state={state}&code=y"), login.as_str()),
    ] {
        let path = format!("/oauth/corp/callback?{query}");
        let answer = send(&it, &path, cookies, "cross-site").await;
        assert_eq!(answer.status, 401, "{query}: {}", answer.text);
        assert!(
            answer.text.contains("role=\"alert\"") && answer.text.contains("Sign in with corp")
        );
        let scripts = answer.text.matches("<script").count();
        assert_eq!(scripts, 1, "only its own: {}", answer.text);
        assert_eq!(cookie(&answer.headers, "__Host-aw_session"), None);
    }
    // A stranger: the identity is not linked, and new users are not admitted.
    let (login, state) = start(&it, "", "").await;
    it.world.providers.add("code", ada());
    let path = format!("/oauth/corp/callback?code=code&state={state}");
    assert_eq!(send(&it, &path, &login, "cross-site").await.status, 401);
    it.world.providers.set_away(true);
    let away = send(&it, "/oauth/corp/login?returnTo=%2Fx", "", "same-origin").await;
    assert_eq!(away.status, 503);
    assert!(away.text.contains("does not answer") && away.text.contains("value=\"/x\""));
}

#[actix_web::test]
async fn only_a_page_of_the_service_begins_a_link() {
    let it = Accounts::new().await;
    let session = it.log_in("ada").await;
    let path = "/oauth/corp/login?link=1";
    for site in ["cross-site", "same-site", ""] {
        assert_eq!(send(&it, path, &session, site).await.status, 403, "{site}");
    }
    let away = send(&it, path, "", "same-origin").await;
    assert_eq!(away.status, 302, "to the login page");
    for unknown in [
        "/oauth/other/login",
        "/oauth/..%2Fx/login",
        "/oauth/other/callback?state=x",
    ] {
        let answer = send(&it, unknown, "", "same-origin").await;
        assert!(
            matches!(answer.status, 401 | 404),
            "{unknown}: {}",
            answer.status
        );
    }
    // The session that ends in between links nothing.
    let (login, state) = start(&it, "link=1", &session).await;
    it.world.providers.add("code", ada());
    let path = format!("/oauth/corp/callback?code=code&state={state}");
    let other = it.log_in("root").await;
    let done = send(&it, &path, &format!("{other}; {login}"), "cross-site").await;
    assert_eq!(done.status, 401, "{}", done.text);
}
