//! Mails of invitations and of forgotten passwords: sent, refused, and not configured.

use std::sync::Arc;

use domain::clock::Clock as _;
use domain::user::mail::Mail;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use store_memory::FakeMailer;

use super::sign_in::{Accounts, form, get};
use crate::fixture::{ADA, ROOT, TestResponse, World};
use crate::seed;

const FORGOT: &str = "/password/forgot";

async fn with_mail() -> (Accounts, Arc<FakeMailer>) {
    let mailer = Arc::<FakeMailer>::default();
    let it = Accounts::with_mailer(Some(mailer.clone())).await;
    (it, mailer)
}

/// Ada invites people to her organization.
async fn invite(world: &World, emails: &[&str]) -> Value {
    let body = json!({"name": "Crew", "owner": "ada"});
    let made = world.post(ROOT, "/api/organizations", &body).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/organizations/{id}/members/invite");
    let invited = world.post(ADA, &path, &json!({"emails": emails})).await;
    assert_eq!(invited.status, 201, "{}", invited.text);
    let listed = world.get(ADA, &path).await.ok();
    let made = invited.json();
    let count = made["successful"].as_array().unwrap().len();
    assert_eq!(listed["items"].as_array().unwrap().len(), count);
    assert_eq!(listed["items"][0]["email_delivery"], json!(null));
    made
}

fn deliveries(made: &Value) -> Vec<&Value> {
    let all = made["successful"].as_array().unwrap().iter();
    all.map(|it| &it["email_delivery"]).collect()
}

#[actix_web::test]
async fn invitations_are_mailed_and_stand_when_the_mail_is_refused() {
    let (it, mailer) = with_mail().await;
    let made = invite(
        &it.world,
        &["mia@example.org", "refused@example.org", "no address"],
    )
    .await;
    assert_eq!(made["email_delivery_configured"], json!(true));
    assert_eq!(deliveries(&made), [&json!("sent"), &json!("failed")]);
    assert_eq!(made["failed"][0]["email"], "no address");
    let mails = mailer.take();
    let [mail] = mails.as_slice() else {
        panic!("{mails:?}");
    };
    assert_eq!(mail.to, "mia@example.org");
    assert_eq!(mail.subject, "Invitation to Crew");
    let text = mail.text.expose_secret();
    for invitation in made["successful"].as_array().unwrap() {
        let link = invitation["invite_url"].as_str().unwrap();
        assert!(link.starts_with("https://agents.example/invite#"), "{link}");
        let is_own = invitation["email"] == "mia@example.org";
        assert_eq!(text.contains(link), is_own, "{text}");
    }
    assert!(
        text.contains("ada invites you") && text.contains("\"Crew\""),
        "{text}"
    );
    assert!(text.contains("until 2026-01-08 00:00 UTC"), "{text}");

    let made = invite(&it.world, &[]).await;
    assert_eq!(
        deliveries(&made),
        [&json!(null)],
        "for anyone with the link"
    );
    assert!(mailer.take().is_empty());
}

#[actix_web::test]
async fn without_a_mail_server_the_inviter_has_the_link() {
    let it = Accounts::new().await;
    let made = invite(&it.world, &["mia@example.org"]).await;
    assert_eq!(made["email_delivery_configured"], json!(false));
    assert_eq!(deliveries(&made), [&json!(null)]);
    assert!(made["successful"][0]["invite_url"].is_string(), "{made}");
    let page = it.world.send(get("/login")).await;
    assert!(!page.text.contains(FORGOT), "{}", page.text);
    assert_eq!(it.world.send(get(FORGOT)).await.status, 404);
    assert_eq!(forgot(&it, "ada").await.status, 404);
}

async fn forgot(it: &Accounts, name: &str) -> TestResponse {
    it.world.send(form(FORGOT, &[("name", name)])).await
}

async fn set_email(it: &Accounts, user: &str, address: &str, is_verified: bool) {
    let (store, now) = (&it.world.store, it.world.clock.now());
    seed::set_email(store, now, &it.ids, (user, address, is_verified)).await;
}

/// The mails before the one to `root@example.org`.
async fn mails_before_root(it: &Accounts, mailer: &FakeMailer) -> Vec<Mail> {
    assert_eq!(forgot(it, "root").await.status, 200);
    until_root(mailer).await
}

async fn until_root(mailer: &FakeMailer) -> Vec<Mail> {
    let mut mails = Vec::new();
    while mails
        .last()
        .is_none_or(|it: &Mail| it.to != "root@example.org")
    {
        tokio::task::yield_now().await;
        mails.extend(mailer.take());
    }
    mails.pop();
    mails
}

#[actix_web::test]
async fn a_person_who_forgot_the_password_gets_a_link() {
    let (it, mailer) = with_mail().await;
    set_email(&it, "ada", "ada@example.org", true).await;
    set_email(&it, "root", "root@example.org", true).await;
    let page = it.world.send(get("/login")).await;
    assert!(
        page.text.contains("<a href=\"/password/forgot\">"),
        "{}",
        page.text
    );
    let page = it.world.send(get(FORGOT)).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("action=\"/password/forgot\""),
        "{}",
        page.text
    );
    for named in ["ada", " ADA@example.org "] {
        assert_eq!(forgot(&it, named).await.status, 200);
        let mails = mails_before_root(&it, &mailer).await;
        let [mail] = mails.as_slice() else {
            panic!("{named}: {mails:?}");
        };
        assert_eq!(mail.to, "ada@example.org");
        let text = mail.text.expose_secret();
        assert!(
            text.contains("the account ada") && text.contains("2026-01-02 00:00 UTC"),
            "{text}"
        );
        let (_, code) = text.split_once("https://agents.example/password#").unwrap();
        let code = code.lines().next().unwrap();
        let password = format!("new password of {}", named.trim());
        let fields = [
            ("token", code),
            ("password", password.as_str()),
            ("repeat", password.as_str()),
        ];
        assert_eq!(it.world.send(form("/password", &fields)).await.status, 303);
        let log = it.world.get(ROOT, "/api/v1/audit?object=user:ada").await;
        let log = log.ok().to_string();
        assert!(
            log.contains("/password/forgot") && log.contains("one-time link"),
            "{log}"
        );
        assert!(
            !log.contains(code) && !log.contains("ada@example.org"),
            "{log}"
        );
    }
}

/// Only people with a password and a verified address get a mail, and the page says nothing about it.
#[actix_web::test]
async fn the_page_says_the_same_for_every_name() {
    let (it, mailer) = with_mail().await;
    set_email(&it, "root", "root@example.org", true).await;
    // Ada's address is not verified, Bob has no password.
    set_email(&it, "ada", "ada@example.org", false).await;
    set_email(&it, "bob", "bob@example.org", true).await;
    let long = "x".repeat(5_000);
    let mut pages = Vec::new();
    for named in [
        "ada",
        "bob",
        "stranger",
        "ada@example.org",
        "bob@example.org",
        "stranger@example.org",
        "",
        "<script>",
        "root\r\nBcc: eve@example.org",
        long.as_str(),
        "root",
    ] {
        let answer = forgot(&it, named).await;
        assert_eq!(answer.status, 200, "{named}");
        assert!(!answer.text.contains("<script>"), "{}", answer.text);
        let start = answer.text.find("id=\"name\"").unwrap();
        let end = start + answer.text[start..].find(" required").unwrap();
        pages.push(format!("{}{}", &answer.text[..start], &answer.text[end..]));
    }
    pages.dedup();
    assert_eq!(pages.len(), 1, "{pages:#?}");
    assert!(pages[0].contains("a link is on its way"), "{}", pages[0]);
    let others = until_root(&mailer).await;
    assert!(others.is_empty(), "{others:?}");
}

#[actix_web::test]
async fn disabled_users_get_no_mail_and_others_not_many() {
    let (it, mailer) = with_mail().await;
    set_email(&it, "ada", "ada@example.org", true).await;
    set_email(&it, "root", "root@example.org", true).await;
    for _ in 0..4 {
        assert_eq!(forgot(&it, "ada").await.status, 200);
    }
    assert_eq!(mails_before_root(&it, &mailer).await.len(), 3);
    let disable = json!({"disabled": true});
    it.world.clock.advance(std::time::Duration::from_secs(300));
    let ada = "/api/v1/admin/users/ada";
    it.world.patch(ROOT, ada, &disable).await.ok();
    for _ in 0..10 {
        assert_eq!(forgot(&it, "ada").await.status, 200);
    }
    assert_eq!(mails_before_root(&it, &mailer).await.len(), 0);
    let refused = forgot(&it, "ada").await;
    assert_eq!(refused.status, 429, "as logins");
    assert!(refused.text.contains("role=\"alert\""), "{}", refused.text);
}
