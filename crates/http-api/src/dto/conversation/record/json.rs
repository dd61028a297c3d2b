//! Conversations by the hundred. The members are those of the types, in their order: a test compares with serde.

use super::{ConversationDto, MetricsDto};
use crate::dto::json_lists::{WriteJson, write_members};

impl WriteJson for ConversationDto {
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        write_members!(
            out,
            "id": &self.id,
            "created_by_user_id": &self.created_by_user_id,
            "sandbox_id": &self.sandbox_id,
            "selected_repository": &self.selected_repository,
            "selected_branch": &self.selected_branch,
            "git_provider": &self.git_provider,
            "title": &self.title,
            "trigger": &self.trigger,
            "pr_number": &self.pr_number,
            "llm_model": &self.llm_model,
            "agent_kind": &self.agent_kind,
        );
        out.extend_from_slice(br#","metrics":"#);
        self.metrics.write(out)?;
        write_members!(
            to out,
            "parent_conversation_id": &self.parent_conversation_id,
            "sub_conversation_ids": &self.sub_conversation_ids,
            "public": &self.public,
            "tags": &self.tags,
            "created_at": &self.created_at,
            "updated_at": &self.updated_at,
            "sandbox_status": &self.sandbox_status,
            "execution_status": &self.execution_status,
            "conversation_url": &self.conversation_url,
            "session_api_key": &self.session_api_key,
            "acp_server": &self.acp_server,
            "launched_agent_profile": &self.launched_agent_profile,
        );
        out.push(b'}');
        Ok(())
    }
}

impl WriteJson for MetricsDto {
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let tokens = &self.accumulated_token_usage;
        write_members!(
            out,
            "model_name": self.model_name,
            "accumulated_cost": &self.accumulated_cost,
            "max_budget_per_task": &self.max_budget_per_task,
        );
        out.extend_from_slice(br#","accumulated_token_usage":"#);
        write_members!(
            out,
            "model": tokens.model,
            "prompt_tokens": &tokens.prompt_tokens,
            "completion_tokens": &tokens.completion_tokens,
            "cache_read_tokens": &tokens.cache_read_tokens,
            "cache_write_tokens": &tokens.cache_write_tokens,
            "reasoning_tokens": &tokens.reasoning_tokens,
            "context_window": &tokens.context_window,
            "per_turn_token": &tokens.per_turn_token,
            "response_id": tokens.response_id,
        );
        out.extend_from_slice(b"}}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::clock::Timestamp;
    use domain::conversation::{ExecutionStatus, GitProvider, Metrics, Trigger};
    use domain::id::{ConversationId, SandboxId, UserId};
    use domain::sandbox::SandboxStatus;
    use uuid::Uuid;

    use super::super::LaunchedProfileDto;
    use super::*;
    use crate::dto::secret_text::SecretText;

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
}
