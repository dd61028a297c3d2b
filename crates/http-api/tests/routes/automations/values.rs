//! Values that runs of an automation keep.

use std::pin::pin;

use actix_web::test::TestRequest;
use application::AuthMode;
use futures::poll;
use http_api::{AutomationsStatus, Listener};

use super::AutomationsFixture;
use crate::fixture::ADA;

#[actix_web::test]
async fn values_of_an_automation_are_read_by_the_token_of_a_run_or_by_users() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let token = "head.claims.signature";
    let put = || TestRequest::put().uri("/api/automation/v1/kv/counter");
    for listener in [Listener::Public, Listener::Callback] {
        let echoed = fixture.ask(listener, token, put()).await.ok();
        assert_eq!(echoed["bearer"], format!("Bearer {token}"));
    }
    let request_key = fixture.request_key(ADA).await;
    let read = fixture
        .world
        .get(ADA, "/api/automation/v1/kv?automation_id=a");
    assert_eq!(read.await.ok()["bearer"], format!("Bearer {request_key}"));
    let answer = fixture.ask(Listener::Callback, ADA, put()).await;
    assert_eq!(answer.status, 404, "{}", answer.text);
    for key in ["", "wrong"] {
        let answer = fixture.world.get(key, "/api/automation/v1/kv").await;
        assert_eq!(answer.status, 401, "{}", answer.text);
    }
    // Everybody can invent a token.
    let installing = AutomationsStatus::Unavailable("it is being installed".to_owned());
    fixture.status.send_replace(installing);
    let answer = fixture.ask(Listener::Public, token, put()).await;
    answer.refuses(503, "it is being installed");
    assert!(poll!(pin!(fixture.wanted.notified())).is_pending());
}

#[actix_web::test]
async fn guessed_tokens_are_limited_and_right_ones_go_on() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let sender = "192.0.2.7:1".parse().unwrap();
    let ask = async |token: &str, key: &str| {
        let path = format!("/api/automation/v1/kv/{key}");
        let request = TestRequest::get().uri(&path).peer_addr(sender);
        fixture.ask(Listener::Public, token, request).await.status
    };
    assert_eq!(ask("a.right.one", "counter").await, 200);
    let mut guesses = 0..1_000;
    let refused = loop {
        let guess = guesses.next().expect("guesses are limited");
        match ask(&format!("a.wrong.{guess}"), "refused").await {
            401 => {}
            status => break status,
        }
    };
    assert_eq!(refused, 429);
    assert_eq!(ask("another.right.one", "counter").await, 429);
    assert_eq!(ask("a.right.one", "counter").await, 200);
}
