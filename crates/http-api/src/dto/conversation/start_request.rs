//! The request that starts a conversation; see `docs/reference/wire/start-tasks.md`.

use std::collections::BTreeMap;

use application::start::StartInput;
use domain::conversation::{MAX_PULL_REQUESTS, MessageInput, Trigger};
use domain::egress_list::{EgressList, MAX_EGRESS_ENTRIES};
use domain::git::{GitProvider, SuggestedTaskType};
use domain::id::{ConversationId, SandboxId};
use domain::start_task::{AgentType, StartRequest};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::decode::{Decode, FieldError, FieldErrors, Object, Path, model};
use crate::dto::conversation::message::FirstMessageDto;

/// Starts a conversation. All members are optional.
#[model(body = AppConversationStartRequest, into_default = StartRequest)]
pub(crate) struct StartConversationDto {
    /// Run in this sandbox; if absent, a new one is created.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    sandbox_id: Option<SandboxId>,
    /// Use this id. A repeated request with the same id returns the same task.
    #[schema(format = Uuid)]
    conversation_id: Option<ConversationId>,
    #[into(initial_message.map(MessageInput::from))]
    initial_message: Option<FirstMessageDto>,
    system_message_suffix: Option<String>,
    #[into(processors.as_deref().map(documents))]
    processors: Option<Vec<ProcessorDto>>,
    /// Overrides the model in the settings.
    #[validate(length(max = 1_000))]
    llm_model: Option<String>,
    #[validate(length(max = 1_000))]
    agent_profile_id: Option<String>,
    /// `owner/repo`, with groups in between where the provider has them.
    #[schema(
        pattern = "^\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*(/\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+$"
    )]
    selected_repository: Option<String>,
    /// A valid git branch name.
    selected_branch: Option<String>,
    git_provider: Option<GitProvider>,
    #[into(suggested_task.map(|task| json!(task)))]
    suggested_task: Option<SuggestedTaskInput>,
    #[validate(length(max = 20_000))]
    title: Option<String>,
    trigger: Option<Trigger>,
    #[decode(default)]
    #[validate(length(max = 100))]
    pr_number: Vec<i64>,
    #[schema(format = Uuid)]
    parent_conversation_id: Option<ConversationId>,
    #[decode(default = AgentType::Default)]
    #[schema(default = "default")]
    agent_type: AgentType,
    public: Option<bool>,
    #[validate(length(max = 20))]
    #[into(plugins.as_deref().map(documents))]
    plugins: Option<Vec<PluginInput>>,
    /// Hosts to which the new sandbox is limited, where the service limits what sandboxes reach. If absent, those in the
    /// settings.
    #[validate(length(max = 100), custom(function = check_egress))]
    egress_allow: Option<Vec<String>>,
    /// Secrets for the agent's environment; at most 50. Responses never contain their values.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    #[into(skip)]
    secrets: Option<BTreeMap<String, SecretString>>,
}

const _: () = assert!(MAX_PULL_REQUESTS == 100, "the bound of `pr_number`");
const _: () = assert!(MAX_EGRESS_ENTRIES == 100, "the bound of `egress_allow`");

impl From<StartConversationDto> for StartInput {
    fn from(mut body: StartConversationDto) -> Self {
        Self {
            secrets: body.secrets.take(),
            request: body.into(),
        }
    }
}

fn documents(list: &[impl Serialize]) -> Vec<Value> {
    list.iter().map(|one| json!(one)).collect()
}

/// A callback processor of the conversation's events.
// Only its kind has an effect.
#[model(response = EventCallbackProcessor)]
pub(crate) struct ProcessorDto {
    #[schema(pattern = "^(LoggingCallbackProcessor|SetTitleCallbackProcessor)$")]
    kind: String,
}

const PROCESSOR_KINDS: [&str; 2] = ["LoggingCallbackProcessor", "SetTitleCallbackProcessor"];

/// By hand: the error of an unknown kind has its own text, and quotes the other members only.
impl Decode for ProcessorDto {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        Object::<Self>::open(value, at, errors)?;
        // A missing or non-text kind counts as an unknown one.
        let kind = match value.get("kind") {
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        if PROCESSOR_KINDS.contains(&kind.as_str()) {
            return Some(Self { kind });
        }
        let mut rest = value.as_object().cloned().unwrap_or_default();
        rest.shift_remove("kind");
        let expected = PROCESSOR_KINDS.map(|name| format!("'{name}'")).join(", ");
        let fault = FieldError::value_error(format!(
            "Unknown kind '{kind}' for a processor; Expected one of: [{expected}]"
        ));
        errors.push(at, fault, &Value::Object(rest));
        None
    }
}

/// A suggested task.
#[model(body = SuggestedTask)]
#[derive(Serialize)]
pub(crate) struct SuggestedTaskInput {
    git_provider: GitProvider,
    #[schema(
        value_type = String,
        pattern = "^(MERGE_CONFLICTS|FAILING_CHECKS|UNRESOLVED_COMMENTS|OPEN_ISSUE|OPEN_PR)$"
    )]
    task_type: SuggestedTaskType,
    repo: String,
    issue_number: i64,
    title: String,
}

/// A plugin.
#[model(body = PluginSpec)]
#[derive(Serialize)]
pub(crate) struct PluginInput {
    /// `github:owner/repo`, a git URL, or a path.
    #[validate(custom(function = check_source))]
    source: String,
    r#ref: Option<String>,
    /// Relative to the repository, without `..`.
    #[validate(custom(function = check_repo_path))]
    repo_path: Option<String>,
    #[schema(value_type = Option<BTreeMap<String, Value>>)]
    parameters: Option<Map<String, Value>>,
}

fn check_egress(entries: &[String]) -> Result<(), String> {
    EgressList::parse(entries.iter().map(String::as_str)).map(drop)
}

/// Refuses a source with credentials: it is stored and shown in responses.
fn check_source(source: &str) -> Result<(), &'static str> {
    let Ok(url) = source.trim().parse::<url::Url>() else {
        return Ok(());
    };
    let is_named = !url.username().is_empty() && url.scheme() != "ssh" && url.scheme() != "git+ssh";
    if is_named || url.password().is_some() {
        return Err(
            "source must not contain a user name or password: it is stored and shown again",
        );
    }
    Ok(())
}

fn check_repo_path(path: &str) -> Result<(), &'static str> {
    if path.starts_with(['/', '\\']) {
        return Err("repo_path must be relative, not absolute");
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err("repo_path cannot contain '..' (parent directory traversal)");
    }
    Ok(())
}
