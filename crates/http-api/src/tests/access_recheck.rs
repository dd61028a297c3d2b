//! Access rechecks while keys are added and revoked.

use std::sync::{Arc, Mutex};

use actix_web::dev::Payload;
use actix_web::test::TestRequest;
use actix_web::web;
use async_trait::async_trait;
use domain::id::UserId;
use domain::sandbox::Sandbox;
use secrecy::{ExposeSecret, SecretString};

use super::fixture::{config, state};
use crate::access_recheck::AccessRecheck;
use crate::decode::{ErrorFormat, FieldErrors};
use crate::extract::{Actor, Authenticator, RequestInput, RequestPart};
use crate::problem::Problem;
use crate::state::HttpState;

/// The keys and their users; `None` simulates an unavailable store.
type Keys = Mutex<Option<Vec<(&'static str, &'static str)>>>;

struct FakeKeyStore(Keys);

fn actor(name: &str) -> Actor {
    let user = UserId::parse(name).unwrap();
    Actor::plain(user)
}

#[async_trait]
impl Authenticator for FakeKeyStore {
    async fn user(&self, key: Option<&SecretString>) -> Result<Option<Actor>, Problem> {
        let keys = self.0.lock().unwrap();
        let keys = keys.as_ref().ok_or_else(|| Problem::internal("away"))?;
        let key = key.map(ExposeSecret::expose_secret);
        let found = keys.iter().find(|(text, _)| Some(*text) == key);
        Ok(found.map(|(_, name)| actor(name)))
    }

    async fn sandbox(&self, _: &SecretString) -> Result<Option<Sandbox>, Problem> {
        Ok(None)
    }
}

#[actix_web::test]
async fn access_lasts_as_long_as_one_key_is_valid() {
    let key_store = Arc::new(FakeKeyStore(Mutex::default()));
    let mut ports = state(&config(), None).ports.clone();
    ports.authenticator = key_store.clone();
    let request = TestRequest::get()
        .app_data(web::Data::new(HttpState::new(&config(), ports)))
        .insert_header(("X-Session-API-Key", "of-a-sandbox"))
        .insert_header(("Authorization", "Bearer mine"))
        .to_http_request();
    let mut input = RequestInput {
        req: &request,
        payload: &mut Payload::None,
        error_format: ErrorFormat::V1,
        errors: FieldErrors::new(),
    };
    let recheck = AccessRecheck::extract(&mut input).await.unwrap().unwrap();
    let is_refused = async |keys: Option<Vec<(&'static str, &'static str)>>| {
        *key_store.0.lock().unwrap() = keys;
        recheck.is_refused(&actor("ada")).await
    };
    assert!(!is_refused(Some(vec![("mine", "ada")])).await);
    assert!(!is_refused(Some(vec![("of-a-sandbox", "ada")])).await);
    assert!(is_refused(Some(vec![("another", "ada")])).await);
    assert!(is_refused(Some(vec![("mine", "bob")])).await);
    assert!(!is_refused(None).await, "the store does not answer");
}
