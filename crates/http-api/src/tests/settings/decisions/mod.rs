//! Every row of both tables in `docs/reference/wire/legacy.md` (`D1` to `D27`, `T1` to `T14`): the request and the required
//! response. Each row starts with a user without stored settings.

mod rows;

use application::settings::MASK;
use domain::git::{GitError, GitProvider};
use serde_json::json;
use store_memory::{FakeGitHosting, FakeProvider};

use super::*;

const SETTINGS: &str = "/api/settings";
const PROVIDERS: &str = "/api/add-git-providers";
const MISSING: &str = r#"{"detail":[{"loc":["header","X-Session-API-Key"],"msg":"Field required","type":"missing"}]}"#;
const WRONG: &str = r#"{"detail":[{"loc":["header","X-Session-API-Key"],"msg":"Invalid API key","type":"invalid_api_key"}]}"#;
const STORED: &str = r#"{"message":"Git providers stored"}"#;

/// A request, and the checks of its response.
struct DecisionStep {
    key: &'static str,
    method: Method,
    path: &'static str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
    status: u16,
    checks: Vec<BodyCheck>,
}

enum BodyCheck {
    /// The whole body.
    Is(Value),
    /// The value at a JSON pointer.
    At(&'static str, Value),
    /// The body does not have this member.
    Lacks(&'static str),
    /// `loc` of the only item of `detail`, after `body`, and its type.
    FieldError(&'static [&'static str], &'static str),
    /// The body does not contain this text.
    Never(&'static str),
}
use BodyCheck::{At, FieldError, Is, Lacks, Never};

fn get(checks: Vec<BodyCheck>) -> DecisionStep {
    DecisionStep {
        key: KEY,
        method: Method::GET,
        path: SETTINGS,
        content_type: None,
        body: Vec::new(),
        status: 200,
        checks,
    }
}

fn post(
    path: &'static str,
    body: impl AsRef<[u8]>,
    status: u16,
    checks: Vec<BodyCheck>,
) -> DecisionStep {
    DecisionStep {
        method: Method::POST,
        path,
        content_type: Some("application/json"),
        body: body.as_ref().to_vec(),
        status,
        checks,
        ..get(Vec::new())
    }
}

/// Stores git tokens successfully.
fn tokens(body: &str) -> DecisionStep {
    let body = format!("{{\"provider_tokens\":{body}}}");
    post(PROVIDERS, body, 200, vec![Is(json_of(STORED))])
}

/// Git tokens, or servers, that are refused with one error.
fn refused(body: &str, loc: &'static [&'static str], kind: &'static str) -> DecisionStep {
    post(PROVIDERS, body, 422, vec![FieldError(loc, kind)])
}

fn by(key: &'static str, step: DecisionStep) -> DecisionStep {
    DecisionStep { key, ..step }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn has_tokens(set: Value) -> DecisionStep {
    get(vec![At("/provider_tokens_set", set)])
}

fn rows() -> Vec<(&'static str, Vec<DecisionStep>)> {
    let mut all = rows::first_rows();
    all.extend(rows::further_rows());
    all.extend(rows::target_rows());
    all
}

impl BodyCheck {
    fn holds(&self, answer: &SettingsResponse, row: &str) {
        let failure = format!("{row}: {}", answer.text);
        match self {
            Is(body) => assert_eq!(answer.json(), *body, "{row}"),
            At(pointer, value) => {
                assert_eq!(answer.json().pointer(pointer), Some(value), "{failure}");
            }
            Lacks(pointer) => assert_eq!(answer.json().pointer(pointer), None, "{failure}"),
            FieldError(loc, kind) => {
                let body = answer.json();
                let items = body["detail"].as_array().unwrap();
                let whole: Vec<&str> = ["body"].iter().chain(*loc).copied().collect();
                assert_eq!(items.len(), 1, "{failure}");
                assert_eq!(
                    (&items[0]["loc"], &items[0]["type"]),
                    (&json!(whole), &json!(kind)),
                    "{failure}"
                );
                assert_eq!(items[0].as_object().unwrap().len(), 3, "{failure}");
            }
            Never(text) => assert!(!answer.text.contains(text), "{failure}"),
        }
    }
}

#[actix_web::test]
async fn every_row_holds() {
    for (row, steps) in rows() {
        let world = SettingsFixture::new();
        for step in steps {
            let mut request = request(step.method, step.path, step.key).set_payload(step.body);
            if let Some(content_type) = step.content_type {
                request = request.insert_header(("Content-Type", content_type));
            }
            let answer = world.send(request).await;
            assert_eq!(answer.status, step.status, "{row}: {}", answer.text);
            for check in &step.checks {
                check.holds(&answer, row);
            }
        }
    }
}

/// `D18`: where tokens are verified, a rejected one is 401 in both forms, and nothing is stored.
#[actix_web::test]
async fn d18_a_token_that_its_provider_refuses_is_401_in_both_forms() {
    let git = FakeGitHosting::default();
    git.set(GitProvider::Github, FakeProvider::default());
    let git = Arc::new(git);
    let mut world = SettingsFixture::new();
    world.application.settings = world.application.settings.verifying(git.clone());
    let text = "Invalid token. Please make sure it is a valid github token.";
    for path in [PROVIDERS, "/api/v1/secrets/git-providers"] {
        let body =
            json!({"provider_tokens": {"github": {"token": "t0p"}, "gitlab": {"token": ""}}});
        let answer = world.post(path, &body).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text);
        let item = json!({"type": "invalid_token", "loc": ["body", "provider_tokens", "github", "token"], "msg": text});
        assert_eq!(
            answer.json(),
            json!({"error": text, "detail": [item]}),
            "{path}"
        );
    }
    assert_eq!(
        git.calls(),
        vec![(GitProvider::Github, "t0p".to_owned()); 2]
    );
    assert_eq!(world.stored().await, None);
    // An unreachable provider does not prevent storing a token.
    let away = |provider| GitError::Unavailable {
        provider,
        source: "no route to host".into(),
    };
    let fault = Some(away as fn(GitProvider) -> GitError);
    git.set(
        GitProvider::Github,
        FakeProvider {
            fault,
            ..FakeProvider::default()
        },
    );
    let body = json!({"provider_tokens": {"github": {"token": "t0p"}}});
    world
        .post_ok(PROVIDERS, &body, "Git providers stored")
        .await;
}

/// `D26`: the rate limit of a user; callers without a valid key get the same response as before.
#[actix_web::test]
async fn d26_too_many_requests_get_a_retry_after() {
    let world = SettingsFixture::limited(sandbox(), 3);
    let app = test::init_service(crate::app(world.state.clone(), world.application.clone())).await;
    for (key, path, status) in [
        (KEY, SETTINGS, 200),
        ("nope", SETTINGS, 401),
        (KEY, "/api/v1/settings/profiles", 200),
        (KEY, SETTINGS, 200),
        (OTHER_KEY, SETTINGS, 200),
        (KEY, SETTINGS, 429),
        (KEY, "/api/v1/settings", 429),
        // Health checks are not counted.
        (KEY, "/health", 200),
        (KEY, "/alive", 200),
        ("nope", SETTINGS, 401),
    ] {
        let request = request(Method::GET, path, key).to_request();
        let (answer, retry_after) = match app.call(request).await {
            Ok(response) => {
                let retry_after = response.headers().get("Retry-After").cloned();
                (response.into_parts().1.status().as_u16(), retry_after)
            }
            Err(error) => {
                let response = error.error_response();
                let retry_after = response.headers().get("Retry-After").cloned();
                (response.status().as_u16(), retry_after)
            }
        };
        assert_eq!(answer, status, "{key} {path}");
        assert_eq!(retry_after.is_some(), status == 429, "{key} {path}");
    }
    assert_eq!(
        RequestLimits::default().requests_per_second,
        1_000,
        "generous"
    );
}

/// `T14`, and that no concurrent change is lost.
#[actix_web::test]
async fn t14_fifty_posts_at_once_lose_nothing() {
    let world = SettingsFixture::new();
    let app = crate::app(world.state.clone(), world.application.clone());
    let app = &test::init_service(app).await;
    let providers = ["github", "gitlab", "bitbucket", "forgejo", "azure_devops"];
    let posts = (0..50).map(|n| {
        let tokens = json!({providers[n % 5]: {"token": format!("t{n}")}});
        let (path, body) = match n % 10 {
            0..5 => (PROVIDERS, json!({"provider_tokens": tokens})),
            field => {
                let field = [
                    "language",
                    "agent",
                    "email",
                    "git_user_name",
                    "git_user_email",
                ][field - 5];
                (SETTINGS, json!({field: "x"}))
            }
        };
        async move {
            ask(app, posting(path, &body.to_string()).to_request())
                .await
                .status
        }
    });
    let statuses = futures::future::join_all(posts).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let settings = world.get(SETTINGS).await.json();
    assert_eq!(
        settings["provider_tokens_set"].as_object().unwrap().len(),
        5
    );
    for field in [
        "language",
        "agent",
        "email",
        "git_user_name",
        "git_user_email",
    ] {
        assert_eq!(settings[field], "x", "{field}");
    }
}

/// All rows are covered. `D18`, `D26` and `T14` are separate tests above.
#[test]
fn every_row_is_here() {
    let named: Vec<&str> = rows().into_iter().map(|(row, _)| row).collect();
    let all = (1..=27)
        .map(|n| format!("D{n}"))
        .chain((1..=14).map(|n| format!("T{n}")));
    let apart = ["D18", "D26", "T14"];
    let missing: Vec<String> = all
        .filter(|row| !named.contains(&row.as_str()) && !apart.contains(&row.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
