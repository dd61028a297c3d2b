//! The flow against a small provider with faults.

mod fake_provider;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::clock::{Clock, Timestamp};
use domain::id::ProviderName;
use domain::user::single_sign_on::{
    AuthorizationResponse, AuthorizationSecrets, IdentityProviders as _, ProvenIdentity,
    ProviderError,
};
use ring::hmac;
use serde_json::{Value, json};
use url::Url;

use self::fake_provider::{FakeProvider, SigningKey};
use super::*;

struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

struct Flow {
    fake: FakeProvider,
    providers: OidcProviders,
    clock: Arc<SetClock>,
    name: ProviderName,
    redirect: Url,
}

fn secrets(word: &str) -> AuthorizationSecrets {
    AuthorizationSecrets {
        state: format!("state {word}").into(),
        nonce: format!("nonce {word}").into(),
        verifier: format!("verifier-{word}").repeat(5).into(),
    }
}

impl Flow {
    async fn new() -> Self {
        let fake = FakeProvider::start().await;
        let clock = Arc::new(SetClock(AtomicI64::new(1_000)));
        let name = ProviderName::parse("corp").unwrap();
        let config = ProviderConfig {
            name: name.clone(),
            label: "Corp".to_owned(),
            issuer: fake.issuer.parse().unwrap(),
            client_id: "workspace".to_owned(),
            client_secret: Some("s3cret & more".into()),
            scopes: vec!["email".to_owned()],
            groups_claim: "groups".to_owned(),
        };
        let shared: Arc<dyn Clock> = clock.clone();
        Self {
            fake,
            providers: OidcProviders::new(vec![config], &shared).unwrap(),
            clock,
            name,
            redirect: "https://agents.example/oauth/corp/callback"
                .parse()
                .unwrap(),
        }
    }

    async fn url(&self, secrets: &AuthorizationSecrets) -> Result<Url, ProviderError> {
        let url = self
            .providers
            .authorization_url(&self.name, &self.redirect, secrets);
        url.await
    }

    async fn prove(
        &self,
        secrets: &AuthorizationSecrets,
        code: &str,
    ) -> Result<ProvenIdentity, ProviderError> {
        let response = AuthorizationResponse {
            code: code.into(),
            issuer: None,
        };
        self.providers
            .prove(&self.name, &self.redirect, secrets, &response)
            .await
    }

    async fn log_in(&self) -> Result<ProvenIdentity, ProviderError> {
        let secrets = secrets("a");
        let url = self.url(&secrets).await?;
        let code = self.fake.authorize(&url);
        self.prove(&secrets, &code).await
    }

    async fn refusal(&self) -> String {
        match self.log_in().await {
            Err(ProviderError::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    async fn is_away(&self) -> bool {
        matches!(self.log_in().await, Err(ProviderError::Unavailable { .. }))
    }
}

#[tokio::test]
async fn a_login_proves_an_identity() {
    let it = Flow::new().await;
    let url = it.url(&secrets("a")).await.unwrap();
    let query: std::collections::BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    for (name, value) in [
        ("tenant", "1"),
        ("response_type", "code"),
        ("client_id", "workspace"),
        ("scope", "openid email"),
        ("state", "state a"),
        ("nonce", "nonce a"),
        ("code_challenge_method", "S256"),
        ("redirect_uri", it.redirect.as_str()),
    ] {
        assert_eq!(query[name], value, "{name}");
    }
    let proven = it.log_in().await.unwrap();
    let email = proven.email.unwrap();
    assert_eq!((proven.subject.as_str(), email.is_verified), ("ada", true));
    assert_eq!(proven.groups, ["staff", "ops"]);
    assert_eq!(proven.preferred_name.as_deref(), Some("ada"));
    it.log_in().await.unwrap();
    let state = it.fake.state();
    let token = state.requests.iter().find(|it| it.0 == "/token").unwrap();
    assert!(token.1.to_lowercase().contains("authorization: basic "));
    assert!(!token.2.contains("s3cret"), "{}", token.2);
    drop(state);
    // Discovery and keys are kept, and the token said all that was asked for.
    for (path, count) in [
        ("/.well-known/openid-configuration", 1),
        ("/keys", 1),
        ("/me", 0),
    ] {
        assert_eq!(it.fake.count(path), count, "{path}");
    }
}

#[tokio::test]
async fn claims_that_the_token_lacks_come_from_the_user_info() {
    let it = Flow::new().await;
    let remove = |claims: &mut Value| {
        for claim in ["email", "email_verified", "preferred_username", "groups"] {
            claims.as_object_mut().unwrap().remove(claim);
        }
    };
    it.fake.state().change_claims = Box::new(remove);
    it.fake.state().user_info = json!({"sub": "ada", "email": "a@x.example", "groups": ["ops"]});
    let proven = it.log_in().await.unwrap();
    assert_eq!(proven.groups, ["ops"]);
    assert!(!proven.email.unwrap().is_verified);
    it.fake.state().user_info = json!({"sub": "eve", "email": "a@x.example"});
    assert!(it.refusal().await.contains("another subject"));
}

#[tokio::test]
async fn tokens_that_say_something_else_are_refused() {
    let it = Flow::new().await;
    let table: [(&str, Value, &str); 16] = [
        ("nonce", json!("nonce b"), "another login"),
        ("nonce", json!(null), "another login"),
        ("aud", json!("other"), "another audience"),
        ("aud", json!(["workspace", "other"]), "another client"),
        ("azp", json!("other"), "another client"),
        ("iss", json!("http://127.0.0.1:1"), "another issuer"),
        ("exp", json!(939), "expired"),
        ("exp", json!("1300"), "unreadable"),
        ("exp", json!(null), "unreadable"),
        ("iat", json!(1_061), "not valid yet"),
        ("nbf", json!(1_061), "not valid yet"),
        ("sub", json!(""), "invalid subject"),
        ("sub", json!("a".repeat(256)), "invalid subject"),
        ("sub", json!("a\nb"), "invalid subject"),
        ("sub", json!(7), "unreadable"),
        ("aud", json!([]), "another audience"),
    ];
    for (claim, value, expected) in table {
        let changed = value.clone();
        it.fake.state().change_claims = Box::new(move |claims| claims[claim] = changed.clone());
        let reason = it.refusal().await;
        assert!(reason.contains(expected), "{claim} = {value}: {reason}");
    }
    // Clocks may differ a little.
    for (claim, value) in [("exp", 950), ("iat", 1_050), ("nbf", 1_050)] {
        it.fake.state().change_claims = Box::new(move |claims| claims[claim] = json!(value));
        it.log_in().await.unwrap();
    }
    it.fake.state().change_claims = Box::new(|claims| {
        claims["aud"] = json!(["workspace", "other"]);
        claims["azp"] = json!("workspace");
    });
    it.log_in().await.unwrap();
    it.clock.0.store(1_400, Ordering::SeqCst);
    assert!(it.refusal().await.contains("expired"));
}

#[tokio::test]
async fn only_signatures_of_the_provider_count() {
    let it = Flow::new().await;
    // A name in the header does not make a signature.
    for alg in ["none", "HS256", "RS256", "ES384", "x"] {
        it.fake.state().change_header = Box::new(move |header| header["alg"] = json!(alg));
        let reason = it.refusal().await;
        let expected = if matches!(alg, "RS256" | "ES384") {
            "wrong signature"
        } else {
            "no permitted signature algorithm"
        };
        assert!(reason.contains(expected), "{alg}: {reason}");
    }
    it.fake.state().change_header = Box::new(|header| header["crit"] = json!(["exp"]));
    assert!(it.refusal().await.contains("unknown extension"));
    it.fake.state().change_header = Box::new(|_| {});

    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let claims = encode(json!({
        "iss": it.fake.issuer, "aud": "workspace", "sub": "admin", "nonce": "nonce a",
        "iat": 1_000, "exp": 1_300,
    }));
    let public = it.fake.state().published[0].to_string();
    let mac = hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes());
    let hs256 = format!("{}.{claims}", encode(json!({"alg": "HS256", "kid": "one"})));
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&mac, hs256.as_bytes()));
    let none = encode(json!({"alg": "none"}));
    for token in [
        format!("{hs256}.{signature}"),
        format!("{none}.{claims}."),
        format!("{none}.{claims}"),
        format!(
            "{}.{claims}.",
            encode(json!({"alg": "ES256", "kid": "one"}))
        ),
        format!("{}.{claims}.AAAA", encode(json!({"alg": "ES256"}))),
        String::new(),
        "..".to_owned(),
        "a.b.c.d.e".to_owned(),
        "é.é.é".to_owned(),
    ] {
        it.fake.state().token = Some(token.clone());
        let refused = it.log_in().await;
        assert!(
            matches!(refused, Err(ProviderError::Invalid(_))),
            "{token}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_code_works_once_and_only_for_the_browser_that_began() {
    let it = Flow::new().await;
    let (own, other) = (secrets("a"), secrets("b"));
    let code = it.fake.authorize(&it.url(&own).await.unwrap());
    it.prove(&own, &code).await.unwrap();
    let replayed = it.prove(&own, &code).await;
    assert!(matches!(replayed, Err(ProviderError::Invalid(_))));
    let code = it.fake.authorize(&it.url(&own).await.unwrap());
    let stolen = it.prove(&other, &code).await;
    assert!(matches!(stolen, Err(ProviderError::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_found_and_made_up_keys_cause_no_requests() {
    let it = Flow::new().await;
    it.log_in().await.unwrap();
    let new = SigningKey::new("two");
    it.fake.state().published = vec![new.public()];
    it.fake.state().signer = new;
    // The keys were read a moment ago.
    assert!(it.refusal().await.contains("unknown key"));
    assert_eq!(it.fake.count("/keys"), 1);
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    it.log_in().await.unwrap();
    assert_eq!(it.fake.count("/keys"), 2);
    it.fake.state().change_header = Box::new(|header| header["kid"] = json!("made up"));
    for _ in 0..5 {
        assert!(it.refusal().await.contains("unknown key"));
    }
    assert_eq!(it.fake.count("/keys"), 2);
}

#[tokio::test]
async fn the_response_must_name_the_issuer_where_the_provider_says_so() {
    let it = Flow::new().await;
    let own = secrets("a");
    let code = it.fake.authorize(&it.url(&own).await.unwrap());
    let response = AuthorizationResponse {
        code: code.into(),
        issuer: Some("https://evil.example".to_owned()),
    };
    let proven = it
        .providers
        .prove(&it.name, &it.redirect, &own, &response)
        .await;
    assert!(
        matches!(proven, Err(ProviderError::Invalid(_))),
        "{proven:?}"
    );
    assert_eq!(it.fake.count("/token"), 0);
}

#[tokio::test]
async fn answers_that_are_no_use_make_the_provider_unavailable() {
    let large = format!("{{\"issuer\": \"{}\"}}", "x".repeat(300 * 1024));
    let discovery = "/.well-known/openid-configuration";
    let document = |issuer: &str, token: &str| {
        json!({
            "issuer": issuer, "token_endpoint": token,
            "authorization_endpoint": "http://127.0.0.1:1/a", "jwks_uri": "http://127.0.0.1:1/k",
        })
        .to_string()
    };
    let other = document("http://127.0.0.1:1", "http://127.0.0.1:1/t");
    for (path, status, body) in [
        (discovery, 200, large.clone()),
        (discovery, 200, "no JSON".to_owned()),
        (discovery, 200, "{}".to_owned()),
        (discovery, 500, String::new()),
        (discovery, 302, String::new()),
        (discovery, 200, other),
        ("/keys", 200, large.clone()),
        ("/keys", 404, String::new()),
        ("/token", 200, large),
        ("/token", 200, "{}".to_owned()),
        ("/token", 503, String::new()),
        (
            "/token",
            401,
            json!({"error": "invalid_client"}).to_string(),
        ),
    ] {
        let it = Flow::new().await;
        it.fake.state().answers.insert(path, (status, body.clone()));
        assert!(it.is_away().await, "{path} {status}");
    }
    let it = Flow::new().await;
    let evil = document(&it.fake.issuer, "javascript:alert(1)");
    it.fake.state().answers.insert(discovery, (200, evil));
    assert!(it.is_away().await);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_answer_costs_a_deadline() {
    for path in ["/.well-known/openid-configuration", "/keys", "/token"] {
        let it = Flow::new().await;
        it.fake.state().hanging = Some(path);
        assert!(it.is_away().await, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_repeated_by_everyone_who_waits() {
    let it = Flow::new().await;
    let discovery = "/.well-known/openid-configuration";
    it.fake
        .state()
        .answers
        .insert(discovery, (500, String::new()));
    let all = (0..10).map(|_| it.is_away());
    for away in all {
        assert!(away.await);
    }
    assert_eq!(it.fake.count(discovery), 1);
    it.fake.state().answers.clear();
    tokio::time::advance(std::time::Duration::from_secs(3)).await;
    it.log_in().await.unwrap();
}

#[test]
fn issuers_are_encrypted_or_local() {
    for good in [
        "https://login.example",
        "https://x.example/realms/a",
        "http://127.0.0.1:80",
        "http://localhost/",
        "http://[::1]:1",
    ] {
        assert!(good.parse::<Issuer>().is_ok(), "{good}");
    }
    for bad in [
        "",
        "login.example",
        "http://login.example",
        "http://127.0.0.1.example",
        "https://x.example/?a=b",
        "https://x.example/#a",
        "https://u:p@x.example",
        "ftp://localhost",
        "javascript:1",
    ] {
        assert!(bad.parse::<Issuer>().is_err(), "{bad}");
    }
    let issuer: Issuer = "https://x.example/".parse().unwrap();
    assert!(issuer.is("https://x.example") && issuer.is("https://x.example/"));
    assert!(!issuer.is("https://x.example//") && !issuer.is("https://x.example.evil"));
}
