//! What a document gets without a session.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use actix_web::{HttpRequest, web};
use async_trait::async_trait;
use domain::id::UserId;
use domain::sandbox::Sandbox;
use secrecy::{ExposeSecret as _, SecretString};

use super::fixture::{config, state};
use crate::extract::{Actor, Authenticator};
use crate::problem::Problem;
use crate::routes::service::login_redirect::login_redirect;
use crate::state::HttpState;

/// Knows one session.
struct OneSession;

#[async_trait]
impl Authenticator for OneSession {
    async fn user(&self, _: Option<&SecretString>) -> Result<Option<Actor>, Problem> {
        Ok(None)
    }

    async fn session(&self, token: &SecretString) -> Result<Option<Actor>, Problem> {
        match token.expose_secret() {
            "living" => Ok(Some(Actor::plain(UserId::parse("ada").unwrap()))),
            "store-down" => Err(Problem::internal("away")),
            _ => Ok(None),
        }
    }

    async fn sandbox(&self, _: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok(None)
    }
}

fn request(accounts: bool, cookie: &str, path: &str) -> HttpRequest {
    let mut config = config();
    config.accounts = accounts;
    config.addresses.public_url = "https://agents.example/team/".parse().ok();
    let mut ports = state(&config, None).ports.clone();
    ports.authenticator = Arc::new(OneSession);
    TestRequest::with_uri(path)
        .app_data(web::Data::new(HttpState::new(&config, ports)))
        .insert_header(("cookie", format!("__Host-aw_session={cookie}")))
        .to_http_request()
}

#[actix_web::test]
async fn documents_without_a_session_lead_to_the_login_page_and_back() {
    let to = async |accounts, cookie, path| {
        let redirect = login_redirect(&request(accounts, cookie, path)).await;
        redirect.unwrap().map(|answer| {
            assert_eq!(answer.status(), StatusCode::FOUND);
            let location = answer.headers().get("location").unwrap();
            location.to_str().unwrap().to_owned()
        })
    };
    let path = "/conversations/1?a=b&c=d";
    let login = "/team/login?returnTo=%2Fteam%2Fconversations%2F1%3Fa%3Db%26c%3Dd";
    assert_eq!(to(true, "ended", path).await.as_deref(), Some(login));
    assert_eq!(to(true, "living", path).await, None);
    assert_eq!(to(false, "living", path).await, None);
    let failed = login_redirect(&request(true, "store-down", path)).await;
    assert!(failed.is_err(), "no redirect while the store is away");
}
