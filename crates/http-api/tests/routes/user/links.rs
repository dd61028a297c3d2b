//! Links of administrators that set a password, and the pages that need a session.

use actix_web::http::StatusCode;
use serde_json::Value;

use super::sign_in::{Accounts, get, post};
use crate::fixture::{ADA, ROOT, World};

fn path(user: &str) -> String {
    format!("/api/v1/admin/users/{user}/password-link")
}

#[actix_web::test]
async fn an_administrator_makes_a_link_that_sets_a_password() {
    let it = Accounts::new().await;
    let cookie = it.log_in("root").await;
    let ask = |user: &str| post(&path(user)).insert_header(("cookie", cookie.as_str()));
    let made = it.world.send(ask("bob")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let link: Value = serde_json::from_str(&made.text).unwrap();
    let link = link["link"].as_str().unwrap();
    let code = link.strip_prefix("https://agents.example/password#");
    let fields = [
        ("token", code.unwrap()),
        ("password", "bobs new password"),
        ("repeat", "bobs new password"),
    ];
    let set = post("/password").set_form(fields);
    assert_eq!(it.world.send(set).await.status, StatusCode::SEE_OTHER);

    assert_eq!(
        it.world.send(ask("stranger")).await.status,
        StatusCode::NOT_FOUND
    );
    let ada = it.log_in("ada").await;
    let refused = post(&path("root")).insert_header(("cookie", ada.as_str()));
    assert_eq!(it.world.send(refused).await.status, StatusCode::FORBIDDEN);
    let log = it.world.get(ROOT, "/api/v1/audit?object=user:bob").await;
    let log = log.ok().to_string();
    assert!(log.contains("password-link") && !log.contains(code.unwrap()));
}

#[actix_web::test]
async fn services_without_accounts_make_no_links() {
    let world = World::idle().await;
    for key in [ADA, ROOT] {
        let status = world.post(key, &path("bob"), &Value::Null).await.status;
        let expected = if key == ROOT { 404 } else { 403 };
        assert_eq!(status, expected);
    }
}

/// The page of the console itself sends visitors to the login page: only its script knows the view.
#[actix_web::test]
async fn the_settings_lead_to_the_login_page_and_back() {
    let it = Accounts::new().await;
    for (page, back) in [
        ("/settings?org=1", "%2Fsettings%3Forg%3D1"),
        ("/settings/skills", "%2Fsettings%2Fskills"),
    ] {
        let answer = it.world.send(get(page)).await;
        assert_eq!(answer.status, StatusCode::FOUND, "{page}");
        let to = answer.headers.get("location").unwrap();
        assert_eq!(
            to.to_str().unwrap(),
            format!("/login?returnTo={back}"),
            "{page}"
        );
        let cookie = it.log_in("ada").await;
        let page = get(page).insert_header(("cookie", cookie.as_str()));
        let shown = it.world.send(page).await;
        assert_eq!(shown.status, StatusCode::OK);
        assert!(shown.text.contains("data-sign-in=\"session\""));
    }
    let console = it.world.send(get("/console/")).await;
    assert_eq!(console.status, StatusCode::OK);
    // There is no web application.
    let start = it.world.send(get("/")).await;
    assert_eq!(start.status, StatusCode::FOUND);
    assert_eq!(start.headers.get("location").unwrap(), "/console/");
}
