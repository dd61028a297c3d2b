//! Conversations as JSON, and changes of them.

use serde_json::json;

use super::*;
use crate::decode::decode;

fn empty() -> ConversationDto {
    ConversationDto {
        id: ConversationId::new(Uuid::from_u128(7)),
        created_by_user_id: UserId::parse("ada").unwrap(),
        sandbox_id: SandboxId::parse("box").unwrap(),
        selected_repository: None,
        selected_branch: None,
        git_provider: None,
        title: None,
        trigger: None,
        pr_number: Vec::new(),
        llm_model: None,
        agent_kind: "openhands".to_owned(),
        metrics: Metrics::default().into(),
        parent_conversation_id: None,
        sub_conversation_ids: Vec::new(),
        public: None,
        tags: BTreeMap::new(),
        created_at: Timestamp::from_micros(1),
        updated_at: Timestamp::from_micros(2),
        sandbox_status: SandboxStatus::Missing,
        execution_status: None,
        conversation_url: None,
        session_api_key: None,
        acp_server: None,
        launched_agent_profile: None,
    }
}

fn full() -> ConversationDto {
    let text = || Some("a \"b\" \\ é \u{1}\n".to_owned());
    let id = ConversationId::new(Uuid::from_u128(8));
    ConversationDto {
        selected_repository: text(),
        selected_branch: text(),
        git_provider: Some(GitProvider::Github),
        title: text(),
        trigger: Some(Trigger::ALL[0].1),
        pr_number: vec![1, -2],
        llm_model: text(),
        metrics: Metrics {
            accumulated_cost: 0.1,
            max_budget_per_task: Some(2.0),
            prompt_tokens: 3,
            completion_tokens: 4,
            cache_read_tokens: 5,
            cache_write_tokens: 6,
            reasoning_tokens: 7,
            context_window: 8,
            per_turn_token: 9,
        }
        .into(),
        parent_conversation_id: Some(id),
        sub_conversation_ids: vec![id, id],
        public: Some(true),
        tags: BTreeMap::from([("a\"".to_owned(), "b".to_owned())]),
        sandbox_status: SandboxStatus::Running,
        execution_status: Some(ExecutionStatus::Running),
        conversation_url: text(),
        session_api_key: Some(SecretText::Own("key".into())),
        acp_server: text(),
        launched_agent_profile: Some(LaunchedProfileDto {
            agent_profile_id: Uuid::from_u128(9),
            revision: 1,
        }),
        ..empty()
    }
}

#[test]
fn conversation_json_equals_serde() {
    for it in [empty(), full()] {
        let mut written = Vec::new();
        it.write(&mut written).unwrap();
        let expected = serde_json::to_string(&it).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}

#[test]
fn long_titles_are_accepted_up_to_the_limit() {
    for (chars, is_taken) in [(20_000, true), (20_001, false)] {
        let body = json!({"title": "é".repeat(chars)});
        let update = decode::<ConversationUpdateDto>(&body, &Path::body(false));
        assert_eq!(update.is_ok(), is_taken, "{chars}");
    }
    let body = json!({"title": null});
    let cleared = decode::<ConversationUpdateDto>(&body, &Path::body(false));
    assert_eq!(cleared.unwrap().title, Patch::Clear);
}
