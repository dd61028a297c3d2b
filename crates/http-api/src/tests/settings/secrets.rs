//! No error quotes a secret, in any form of request.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Map, json};

use super::*;

/// The text that no response may contain.
const PLANTED: &str = "pl4nted";

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => Just(json!(PLANTED)),
        1 => Just(json!(format!("https://{PLANTED}@h/{PLANTED}?k={PLANTED}"))),
        1 => Just(json!(format!("A={PLANTED},{PLANTED}"))),
        1 => Just(json!(format!("'{PLANTED}"))),
        1 => Just(json!(format!("{PLANTED}\n"))),
        1 => Just(Value::Null),
        1 => Just(json!(1.5)),
        1 => Just(json!(true)),
    ];
    leaf.prop_recursive(5, 32, 4, |inner| {
        let keys = prop::sample::select(&[
            "mcp_config", "provider_tokens", "github", "gitlab", "token", "host", "user_id", "sse_servers",
            "stdio_servers", "shttp_servers", "url", "api_key", "timeout", "name", "command", "args", "env", "KEY",
            "llm_api_key", "search_api_key", "max_iterations", "secrets_store", "agent_settings_diff", "llm",
            "extra_headers", "conversation_settings_diff", "registered_marketplaces", "source",
        ]);
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => prop::collection::vec((keys, inner), 0..5).prop_map(|members| {
                Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

const PATHS: [&str; 5] = [
    "/api/add-git-providers",
    "/api/settings",
    "/api/v1/settings",
    "/api/v1/secrets/git-providers",
    "/api/v1/settings/profiles/p",
];

#[test]
fn no_answer_repeats_a_planted_secret() {
    let system = actix_web::rt::System::new();
    let app = system.block_on(async {
        let world = SettingsFixture::new();
        test::init_service(crate::app(world.state.clone(), world.application.clone())).await
    });
    let mut runner = TestRunner::new(ProptestConfig::with_cases(200));
    let outcome = runner.run(&(any_json(), 0usize..200), |(body, cut)| {
        let whole = body.to_string();
        let mut broken = whole.clone();
        broken.truncate(cut.min(whole.len()));
        for path in PATHS {
            for text in [&whole, &broken] {
                let answer = system.block_on(ask(&app, posting(path, text).to_request()));
                let (status, text) = (answer.status, answer.text);
                prop_assert!(
                    [200, 201, 400, 404, 422].contains(&status),
                    "{} answered {}: {}",
                    path,
                    status,
                    text
                );
                prop_assert!(!text.contains(PLANTED), "{} answered {}", path, text);
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
