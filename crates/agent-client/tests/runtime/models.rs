//! Switching the model of a conversation, and the agent server's list of profiles.

use domain::agent::{AgentError, AgentRuntime, LlmConfig, LlmProfile};
use serde_json::{Map, json};

use crate::stub::{Stub, StubAction};
use crate::support::{ID, conversation_id, endpoint_of, runtime, secret, server_info_response};

fn profile(name: &str, key: &str) -> LlmProfile {
    LlmProfile {
        name: name.to_owned(),
        llm: LlmConfig {
            model: "openai/m".to_owned(),
            base_url: None,
            api_key: Some(secret(key)),
            options: Map::from_iter([("temperature".to_owned(), json!(0.5))]),
            secret_options: [("aws_session_token".to_owned(), secret("aws-hush"))].into(),
        },
    }
}

fn fine() -> StubAction {
    StubAction::Json(200, json!({"success": true}))
}

#[tokio::test]
async fn the_usage_id_of_a_switched_model_depends_on_its_configuration() {
    let actions = (0..4).flat_map(|n| {
        let version = if n < 3 { "1.58.0" } else { "1.34.0" };
        [server_info_response(version), fine()]
    });
    let stub = Stub::start(actions).await;
    let (runtime, at, id) = (runtime(), endpoint_of(&stub), conversation_id(ID));
    for key in ["sk-one", "sk-one", "sk-two", "sk-one"] {
        let profile = profile("fast", key);
        runtime.switch_llm(&at, id, &profile).await.unwrap();
    }
    let seen = stub.requests();
    let sent: Vec<_> = seen.iter().skip(1).step_by(2).collect();
    assert_eq!(
        sent[0].line,
        format!("POST /api/conversations/{ID}/switch_llm")
    );
    let names: Vec<&str> = sent
        .iter()
        .map(|seen| seen.body["llm"]["usage_id"].as_str().unwrap())
        .collect();
    let digest = names[0].strip_prefix("profile:fast:").unwrap();
    assert!(digest.len() == 12 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(names[0], names[1]);
    assert_ne!(names[0], names[2]);
    assert_eq!(
        sent[0].body,
        json!({"llm": {
            "model": "openai/m", "api_key": "sk-one", "temperature": 0.5, "stream": true,
            "aws_session_token": "aws-hush", "usage_id": names[0],
        }})
    );
    // An old agent server would post every fragment to the webhook.
    assert_eq!(sent[3].body["llm"]["stream"], false);
}

#[tokio::test]
async fn a_refused_switch_keeps_its_status_and_contains_no_key() {
    let refusal = |status| {
        let detail = "Unknown model for session-key-1, sk-one, aws-hush";
        StubAction::Json(status, json!({"detail": detail}))
    };
    let stub = Stub::start([
        server_info_response("1.58.0"),
        refusal(422),
        server_info_response("1.58.0"),
        refusal(404),
    ])
    .await;
    let (runtime, at, id) = (runtime(), endpoint_of(&stub), conversation_id(ID));
    let profile = profile("fast", "sk-one");
    let failed = runtime.switch_llm(&at, id, &profile).await.unwrap_err();
    let text = format!("{failed} {failed:?}");
    assert!(
        matches!(failed, AgentError::Rejected { status: 422, .. }),
        "{text}"
    );
    for secret in ["sk-one", "aws-hush", "session-key-1"] {
        assert!(!text.contains(secret), "{text}");
    }
    let failed = runtime.switch_llm(&at, id, &profile).await;
    assert!(matches!(failed, Err(AgentError::NotFound)), "{failed:?}");
}

#[tokio::test]
async fn an_acp_agent_gets_the_name_of_its_model() {
    let wrong = json!({"detail": "not an ACP agent"});
    let stub = Stub::start([
        fine(),
        StubAction::Json(400, wrong.clone()),
        StubAction::Json(504, wrong),
    ])
    .await;
    let (runtime, at, id) = (runtime(), endpoint_of(&stub), conversation_id(ID));
    runtime.switch_acp_model(&at, id, "m2").await.unwrap();
    let seen = &stub.requests()[0];
    assert_eq!(
        seen.line,
        format!("POST /api/conversations/{ID}/switch_acp_model")
    );
    assert_eq!(seen.body, json!({"model": "m2"}));
    for status in [400, 504] {
        let failed = runtime.switch_acp_model(&at, id, "m2").await;
        assert!(
            matches!(failed, Err(AgentError::Rejected { status: s, .. }) if s == status),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn seeding_replaces_the_list_of_profiles() {
    let listed = json!({"profiles": [{"name": "old"}, {"name": "b"}, {"name": "in use"}, {}], "active_profile": null});
    let stub = Stub::start([
        // A refused profile does not stop the others.
        StubAction::Json(422, json!({"detail": "a name like sk-one"})),
        StubAction::Json(201, json!({"name": "b"})),
        StubAction::Json(200, listed),
        StubAction::Json(200, json!({"name": "old"})),
        StubAction::Json(409, json!({"detail": "referenced"})),
    ])
    .await;
    let profiles = [profile("-a", "sk-one"), profile("b", "sk-two")];
    let failed = runtime()
        .seed_profiles(&endpoint_of(&stub), &profiles)
        .await;
    let failed = format!("{:?}", failed.unwrap_err());
    assert!(
        failed.contains("422") && !failed.contains("sk-one"),
        "{failed}"
    );
    assert_eq!(
        stub.request_lines(),
        [
            "POST /api/profiles/-a",
            "POST /api/profiles/b",
            "GET /api/profiles",
            "DELETE /api/profiles/old",
            "DELETE /api/profiles/in%20use",
        ]
    );
    let sent = &stub.requests()[1].body;
    assert_eq!(sent["llm"]["api_key"], "sk-two");
    assert_eq!(sent["llm"]["model"], "openai/m");
}

#[tokio::test]
async fn seeding_stops_when_the_agent_server_is_unreachable() {
    let stub = Stub::start([StubAction::Drop, StubAction::Drop]).await;
    let profiles = [profile("a", "sk-one"), profile("b", "sk-two")];
    let failed = runtime()
        .seed_profiles(&endpoint_of(&stub), &profiles)
        .await;
    assert!(matches!(failed, Err(AgentError::Unreachable(_))));
    assert!(
        stub.request_lines()
            .iter()
            .all(|line| line == "POST /api/profiles/a")
    );
}
