//! Responses of the bare handlers, typed for serde.

#![expect(missing_docs, reason = "fields are named as on the wire")]

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize, Serializer};

/// A page of a list.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_page_id: Option<String>,
}

/// The stored usage of a conversation.
#[derive(Debug, Deserialize)]
pub struct Metrics {
    accumulated_cost: f64,
    max_budget_per_task: Option<f64>,
    prompt_tokens: i64,
    completion_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    context_window: i64,
    per_turn_token: i64,
}

/// A conversation, with the types of the database for its id and times.
#[derive(Debug, Serialize)]
pub struct Conversation<Id, At> {
    pub id: Id,
    pub created_by_user_id: String,
    pub sandbox_id: String,
    pub selected_repository: Option<String>,
    pub selected_branch: Option<String>,
    pub git_provider: Option<String>,
    pub title: Option<String>,
    pub trigger: Option<String>,
    pub pr_number: Vec<i64>,
    pub llm_model: Option<String>,
    pub agent_kind: String,
    pub metrics: MetricsItem,
    pub parent_conversation_id: Option<String>,
    pub sub_conversation_ids: Vec<String>,
    pub public: Option<bool>,
    pub tags: BTreeMap<String, String>,
    pub created_at: At,
    pub updated_at: At,
    pub sandbox_status: String,
    pub execution_status: Option<String>,
    pub conversation_url: Option<String>,
    pub session_api_key: Option<String>,
    pub acp_server: Option<String>,
    pub launched_agent_profile: Option<String>,
    pub workspace: Option<WorkspaceItem>,
}

/// Where the agent of a conversation works.
#[derive(Debug, Serialize)]
pub struct WorkspaceItem {
    pub working_dir: String,
}

/// The usage of a conversation.
#[derive(Debug, Serialize)]
pub struct MetricsItem {
    model_name: &'static str,
    accumulated_cost: f64,
    max_budget_per_task: Option<f64>,
    accumulated_token_usage: Tokens,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Tokens {
    model: &'static str,
    prompt_tokens: i64,
    completion_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    context_window: i64,
    per_turn_token: i64,
    response_id: &'static str,
}

impl From<Metrics> for MetricsItem {
    fn from(it: Metrics) -> Self {
        Self {
            model_name: "default",
            accumulated_cost: it.accumulated_cost,
            max_budget_per_task: it.max_budget_per_task,
            accumulated_token_usage: Tokens {
                model: "",
                prompt_tokens: it.prompt_tokens,
                completion_tokens: it.completion_tokens,
                cache_read_tokens: it.cache_read_tokens,
                cache_write_tokens: it.cache_write_tokens,
                reasoning_tokens: it.reasoning_tokens,
                context_window: it.context_window,
                per_turn_token: it.per_turn_token,
                response_id: "",
            },
        }
    }
}

/// Writes a time with microseconds.
///
/// # Errors
/// Errors of the serializer.
pub fn micros<S: Serializer>(at: &DateTime<Utc>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Micros, true))
}
