//! Organizations: an invitation by link, roles, the current organization, and a kill while a stranger joins.

use acceptance::Service;
use reqwest::header::LOCATION;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::{Browser, COMMIT, PASSWORD, code_in, start, stdout_of};

const SECRETS: &str = "/api/v1/secrets/search";

/// The JSON of a request by a browser session, with its status.
pub(crate) async fn call(
    browser: &Browser,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let sent = browser.request(method, path).json(body).send().await;
    let answer = sent.expect("the service answers");
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

/// Makes an invitation; returns the code of its link.
async fn invite(owner: &Browser, organization: &str, role: &str) -> String {
    let path = format!("{organization}/members/invite");
    let body = json!({"emails": ["mia@example.org"], "role": role});
    let (status, made) = call(owner, Method::POST, &path, &body).await;
    assert_eq!(status, 201, "{made}");
    let link = made["successful"][0]["invite_url"].as_str();
    let (_, code) = link
        .and_then(|link| link.split_once("/invite#"))
        .expect("a link");
    code.to_owned()
}

pub(crate) async fn enrol(browser: &mut Browser, code: &str, name: &str) -> Option<Response> {
    let form = [
        ("token", code),
        ("name", name),
        ("password", PASSWORD),
        ("repeat", PASSWORD),
    ];
    browser.try_post("/invite", &form).await
}

/// An organization with its owner, who administers the installation.
pub(crate) async fn found_organization(service: &Service) -> (Browser, String) {
    let mut root = Browser::new(service);
    let link = stdout_of(&service.run(&["users", "link", "admin"]));
    let set = root.set_password(&code_in(&link), PASSWORD).await;
    assert_eq!(set.expect("an answer").status(), StatusCode::SEE_OTHER);
    let body = json!({"name": "Crew"});
    let (status, made) = call(&root, Method::POST, "/api/organizations", &body).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().expect("an id").to_owned();
    (root, id)
}

/// A stranger creates an account by the link of an invitation, which works once.
async fn join_as_stranger(service: &Service, root: &Browser, organization: &str) -> Browser {
    let code = invite(root, organization, "member").await;
    let mut mia = Browser::new(service);
    let page = mia.get("/invite").await.text().await.expect("a page");
    assert!(page.contains("Create an account and join"));
    let accept = format!("/api/organizations/members/invite/accept?token={code}");
    let accept = mia.get(&accept).await;
    assert_eq!(accept.headers()[LOCATION], format!("/invite#{code}"));
    let short = [
        ("token", code.as_str()),
        ("name", "mia"),
        ("password", "x"),
        ("repeat", "x"),
    ];
    let refused = mia.post("/invite", &short).await.status();
    assert_eq!(refused, StatusCode::BAD_REQUEST);
    let joined = enrol(&mut mia, &code, "mia").await.expect("an answer");
    assert_eq!(joined.status(), StatusCode::SEE_OTHER);
    assert_eq!(mia.who().await.expect("a session")["role"], "user");
    let mut other = Browser::new(service);
    let again = enrol(&mut other, &code, "eve").await.expect("an answer");
    assert_eq!(again.status(), StatusCode::BAD_REQUEST);
    mia
}

/// The session acts in the organization after the switch, and elsewhere where a header says so.
async fn switch_to_it(mia: &Browser, id: &str) {
    let switch = format!("/api/organizations/{id}/switch");
    let secret = json!({"name": "SHARED", "value": "v"});
    assert_eq!(call(mia, Method::POST, &switch, &json!({})).await.0, 200);
    assert!(call(mia, Method::POST, "/api/v1/secrets", &secret).await.0 < 300);
    let (_, list) = call(mia, Method::GET, "/api/organizations", &json!({})).await;
    assert_eq!(list["current_org_id"], json!(id));
    let (_, found) = call(mia, Method::GET, SECRETS, &json!({})).await;
    assert_eq!(found["items"][0]["name"], "SHARED", "{found}");
    let personal = list["items"][0]["id"].as_str().expect("an id");
    let request = mia
        .request(Method::GET, SECRETS)
        .header("X-Org-Id", personal);
    let found = request.send().await.expect("an answer");
    let found: Value = found.json().await.expect("JSON");
    assert_eq!(found["items"], json!([]), "not in the personal one");
}

/// A stranger joins by a link, roles and the current organization act, an outsider finds nothing, and a removed member loses
/// access at once.
#[tokio::test]
async fn an_organization_is_shared_by_invitation() {
    let service = start(None).await;
    let (root, id) = found_organization(&service).await;
    let (organization, nothing) = (format!("/api/organizations/{id}"), json!({}));
    let mia = join_as_stranger(&service, &root, &organization).await;
    let me = format!("{organization}/me");
    let (_, shown) = call(&mia, Method::GET, &me, &nothing).await;
    assert_eq!(shown["role"], "member", "{shown}");
    let (rename, role) = (json!({"name": "Mine"}), json!({"role": "owner"}));
    let (status, refusal) = call(&mia, Method::PATCH, &organization, &rename).await;
    assert_eq!(status, 403, "{refusal}");
    let member = format!("{organization}/members/mia");
    assert_eq!(call(&root, Method::PATCH, &member, &role).await.0, 200);
    let renamed = call(&mia, Method::PATCH, &organization, &rename).await;
    assert_eq!(renamed.0, 200);
    switch_to_it(&mia, &id).await;

    let link = stdout_of(&service.run(&["users", "link", "olaf", "--create"]));
    let mut olaf = Browser::new(&service);
    let set = olaf.set_password(&code_in(&link), PASSWORD).await;
    assert!(set.is_some());
    assert_eq!(call(&olaf, Method::GET, &me, &nothing).await.0, 404);
    let request = olaf.request(Method::GET, SECRETS).header("X-Org-Id", &id);
    let refused = request.send().await.expect("an answer").status();
    assert_eq!(refused, StatusCode::FORBIDDEN);

    let removed = call(&root, Method::DELETE, &member, &nothing).await;
    assert_eq!(removed.0, 200);
    assert_eq!(call(&mia, Method::GET, &me, &nothing).await.0, 404);
    let (_, found) = call(&mia, Method::GET, SECRETS, &nothing).await;
    assert_eq!(found["items"], json!([]), "back in the personal one");
}

/// A disabled user has no session, and signs in again when enabled.
#[tokio::test]
async fn a_disabled_user_is_out_until_enabled() {
    let service = start(None).await;
    let (root, id) = found_organization(&service).await;
    let organization = format!("/api/organizations/{id}");
    let mut mia = join_as_stranger(&service, &root, &organization).await;
    let user = "/api/v1/admin/users/mia";
    for (disabled, log_in) in [
        (true, StatusCode::UNAUTHORIZED),
        (false, StatusCode::SEE_OTHER),
    ] {
        let change = json!({"disabled": disabled});
        let changed = call(&root, Method::PATCH, user, &change).await;
        assert_eq!(changed.0, 200, "{}", changed.1);
        assert!(mia.who().await.is_none());
        assert_eq!(mia.log_in("mia", PASSWORD).await, log_in);
    }
}

/// The service dies at each of its next commits while a stranger joins. Afterwards the link works, or the account does.
#[tokio::test]
async fn a_kill_while_a_stranger_joins_loses_nothing() {
    let plans = tempfile::tempdir().expect("a temporary directory can be made");
    let mut service = start(Some(plans.path())).await;
    let (root, id) = found_organization(&service).await;
    let organization = format!("/api/organizations/{id}");
    let mut kills = 0;
    for (count, place) in ["before", "after"].into_iter().enumerate() {
        for number in 1..=2 {
            let code = invite(&root, &organization, "member").await;
            let plan = format!("{count}{number}\n{number}\n{place} {COMMIT}\n");
            std::fs::write(plans.path().join("plan"), plan).expect("the directory is writable");
            let name = format!("{place}{number}");
            let mut stranger = Browser::new(&service);
            let answer = enrol(&mut stranger, &code, &name).await;
            std::fs::remove_file(plans.path().join("plan")).expect("there is a plan");
            kills += usize::from(answer.is_none());
            service.restart().await;
            if stranger.log_in(&name, PASSWORD).await != StatusCode::SEE_OTHER {
                let joined = enrol(&mut stranger, &code, &name).await.expect("an answer");
                assert_eq!(joined.status(), StatusCode::SEE_OTHER, "{place} {number}");
            }
            let me = format!("{organization}/me");
            let (status, shown) = call(&stranger, Method::GET, &me, &json!({})).await;
            assert_eq!(
                (status, &shown["role"]),
                (200, &json!("member")),
                "{place} {number}"
            );
        }
    }
    assert_eq!(kills, 4, "each plan kills the service");
}
