//! The request that starts a conversation; see `docs/reference/wire/start-tasks.md`.

use std::collections::BTreeMap;

use application::start::StartInput;
use domain::conversation::{GitProvider, MAX_PULL_REQUESTS};
use domain::start_task::{AgentType, StartRequest};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::decode::{Choice, Decode, FieldError, FieldErrors, Object, Path, characters, items};
use crate::dto::conversation::message::{FirstMessage, SendMessageRequest};
use crate::dto::enums::{AgentTypeSchema, GitProviderSchema, TriggerSchema};
use crate::dto::{MAX_NAME_CHARS, MAX_TITLE_CHARS};

/// Plugins in a request; each is checked before the agent gets it.
const MAX_PLUGINS: u64 = 20;

/// The decoded request.
#[derive(Debug, Clone)]
pub struct StartBody(pub StartInput);

impl Decode for StartBody {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let sandbox_id = object.optional("sandbox_id");
        let conversation_id = object.optional("conversation_id");
        let initial_message = object.optional::<FirstMessage>("initial_message");
        let system_message_suffix = object.optional("system_message_suffix");
        let processors = object.optional::<Vec<ProcessorInput>>("processors");
        let llm_model = text(&mut object, "llm_model", MAX_NAME_CHARS);
        let agent_profile_id = text(&mut object, "agent_profile_id", MAX_NAME_CHARS);
        let selected_repository = object.optional("selected_repository");
        let selected_branch = object.optional("selected_branch");
        let git_provider = object.optional("git_provider");
        let suggested_task = object.optional::<SuggestedTaskInput>("suggested_task");
        let title = text(&mut object, "title", MAX_TITLE_CHARS);
        let trigger = object.optional("trigger");
        let pr_number = object.default::<Vec<i64>>("pr_number", Vec::new);
        object.rule(
            "pr_number",
            pr_number.as_ref(),
            items(..=MAX_PULL_REQUESTS as u64),
        );
        let parent_conversation_id = object.optional("parent_conversation_id");
        let agent_type = object.default("agent_type", || AgentType::Default);
        let public = object.optional("public");
        let plugins = object.optional::<Vec<PluginInput>>("plugins");
        object.rule("plugins", plugins.as_ref(), items(..=MAX_PLUGINS));
        let secrets = object.optional::<BTreeMap<String, SecretString>>("secrets");
        let request = StartRequest {
            sandbox_id: sandbox_id?,
            conversation_id: conversation_id?,
            initial_message: initial_message?.map(|message| message.0),
            system_message_suffix: system_message_suffix?,
            processors: processors?
                .map(|all| all.into_iter().map(|processor| processor.0).collect()),
            llm_model: llm_model?,
            agent_profile_id: agent_profile_id?,
            selected_repository: selected_repository?,
            selected_branch: selected_branch?,
            git_provider: git_provider?,
            suggested_task: suggested_task?.map(|task| task.0),
            title: title?,
            trigger: trigger?,
            pr_number: pr_number?,
            parent_conversation_id: parent_conversation_id?,
            agent_type: agent_type?,
            public: public?,
            plugins: plugins?.map(|all| all.into_iter().map(|plugin| plugin.0).collect()),
            directory: None,
            trace: std::collections::BTreeMap::new(),
            secret_names: None,
        };
        Some(Self(StartInput {
            request,
            secrets: secrets?,
        }))
    }
}

/// Reads an optional text of at most this many characters.
#[expect(
    clippy::option_option,
    reason = "what a decoder gives: a fault, or an optional value"
)]
fn text(
    object: &mut Object<'_, StartBody>,
    key: &'static str,
    most: u64,
) -> Option<Option<String>> {
    let text = object.optional::<String>(key);
    object.rule(key, text.as_ref(), characters(..=most));
    text
}

/// A callback processor. Only its kind has an effect.
struct ProcessorInput(Value);

const PROCESSOR_KINDS: [&str; 2] = ["LoggingCallbackProcessor", "SetTitleCallbackProcessor"];

impl Decode for ProcessorInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        Object::<Self>::open(value, at, errors)?;
        // A missing or non-text kind counts as an unknown one.
        let kind = match value.get("kind") {
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        if PROCESSOR_KINDS.contains(&kind.as_str()) {
            return Some(Self(json!({"kind": kind})));
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

/// The kind of a suggested task.
#[derive(Debug, Clone, Copy)]
struct TaskType(&'static str);

impl Choice for TaskType {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("MERGE_CONFLICTS", Self("MERGE_CONFLICTS")),
        ("FAILING_CHECKS", Self("FAILING_CHECKS")),
        ("UNRESOLVED_COMMENTS", Self("UNRESOLVED_COMMENTS")),
        ("OPEN_ISSUE", Self("OPEN_ISSUE")),
        ("OPEN_PR", Self("OPEN_PR")),
    ];
}

/// A suggested task, with its members in the order in which responses show them.
struct SuggestedTaskInput(Value);

impl Decode for SuggestedTaskInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let provider = object.required::<GitProvider>("git_provider");
        let kind = object.required::<TaskType>("task_type");
        let repo = object.required::<String>("repo");
        let number = object.required::<i64>("issue_number");
        let title = object.required::<String>("title");
        Some(Self(json!({
            "git_provider": provider?,
            "task_type": kind?.0,
            "repo": repo?,
            "issue_number": number?,
            "title": title?,
        })))
    }
}

/// A plugin, with its members in the order in which responses show them.
struct PluginInput(Value);

impl Decode for PluginInput {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let source = object.required::<String>("source");
        object.rule("source", source.as_ref(), |source: &String| {
            credentials_in(source)
        });
        let reference = object.optional::<String>("ref");
        let repo_path = object.optional::<String>("repo_path");
        object.rule("repo_path", repo_path.as_ref(), |path: &Option<String>| {
            path.as_deref().and_then(inside_the_repository)
        });
        let parameters = object.optional::<PluginParameters>("parameters");
        Some(Self(json!({
            "source": source?,
            "ref": reference?,
            "repo_path": repo_path?,
            "parameters": parameters?.map(|parameters| parameters.0),
        })))
    }
}

/// Refuses a source with credentials: it is stored and shown in responses.
fn credentials_in(source: &str) -> Option<FieldError> {
    let url: url::Url = source.trim().parse().ok()?;
    let is_named = !url.username().is_empty() && url.scheme() != "ssh" && url.scheme() != "git+ssh";
    (is_named || url.password().is_some()).then(|| {
        FieldError::value_error(
            "source must not contain a user name or password: it is stored and shown again",
        )
    })
}

fn inside_the_repository(path: &str) -> Option<FieldError> {
    if path.starts_with(['/', '\\']) {
        return Some(FieldError::value_error(
            "repo_path must be relative, not absolute",
        ));
    }
    path.split(['/', '\\']).any(|part| part == "..").then(|| {
        FieldError::value_error("repo_path cannot contain '..' (parent directory traversal)")
    })
}

/// The parameters of a plugin.
struct PluginParameters(Map<String, Value>);

impl Decode for PluginParameters {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        if let Value::Object(map) = value {
            return Some(Self(map.clone()));
        }
        errors.push(at, FieldError::dict_type(), value);
        None
    }
}

/// Starts a conversation. All members are optional.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `StartBody`")]
pub struct AppConversationStartRequest {
    /// Run in this sandbox; if absent, a new one is created.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    sandbox_id: Option<String>,
    /// Use this id. A repeated request with the same id returns the same task.
    #[schema(format = Uuid)]
    conversation_id: Option<String>,
    initial_message: Option<SendMessageRequest>,
    /// Appended to the system prompt.
    system_message_suffix: Option<String>,
    processors: Option<Vec<ProcessorSchema>>,
    /// Overrides the model in the settings.
    #[schema(max_length = 1_000)]
    llm_model: Option<String>,
    #[schema(max_length = 1_000)]
    agent_profile_id: Option<String>,
    /// `owner/repo`, with groups in between where the provider has them.
    #[schema(
        pattern = "^\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*(/\\.?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+$"
    )]
    selected_repository: Option<String>,
    /// A valid git branch name.
    selected_branch: Option<String>,
    #[schema(value_type = Option<GitProviderSchema>)]
    git_provider: Option<String>,
    /// A suggested task that provides the first message.
    suggested_task: Option<SuggestedTaskSchema>,
    #[schema(max_length = 20_000)]
    title: Option<String>,
    #[schema(value_type = Option<TriggerSchema>)]
    trigger: Option<String>,
    #[schema(required = false)]
    #[schema(max_items = 100)]
    pr_number: Vec<i64>,
    /// The conversation that this one is a part of.
    #[schema(format = Uuid)]
    parent_conversation_id: Option<String>,
    #[schema(value_type = AgentTypeSchema, required = false, default = "default")]
    agent_type: String,
    public: Option<bool>,
    #[schema(max_items = 20)]
    plugins: Option<Vec<PluginSchema>>,
    /// Secrets for the agent's environment; at most 50. Responses never contain their values.
    secrets: Option<BTreeMap<String, String>>,
}

/// A callback processor of the conversation's events.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = EventCallbackProcessor)]
pub struct ProcessorSchema {
    #[schema(pattern = "^(LoggingCallbackProcessor|SetTitleCallbackProcessor)$")]
    kind: String,
}

/// A suggested task.
#[derive(Debug, ToSchema)]
#[schema(as = SuggestedTask)]
#[expect(dead_code, reason = "for the document only; see `SuggestedTask`")]
pub struct SuggestedTaskSchema {
    #[schema(value_type = GitProviderSchema)]
    git_provider: String,
    #[schema(
        pattern = "^(MERGE_CONFLICTS|FAILING_CHECKS|UNRESOLVED_COMMENTS|OPEN_ISSUE|OPEN_PR)$"
    )]
    task_type: String,
    repo: String,
    issue_number: i64,
    title: String,
}

/// A plugin.
#[derive(Debug, ToSchema)]
#[schema(as = PluginSpec)]
#[expect(dead_code, reason = "for the document only; see `Plugin`")]
pub struct PluginSchema {
    /// `github:owner/repo`, a git URL, or a path.
    source: String,
    r#ref: Option<String>,
    /// Relative to the repository, without `..`.
    repo_path: Option<String>,
    parameters: Option<BTreeMap<String, Value>>,
}
