//! A service with a real agent server and a scripted model, and assertions that hold for every conversation.

use std::collections::BTreeSet;
use std::time::Duration;

use acceptance::client::{Conversation, Task};
use acceptance::print_line;
use acceptance::wait::wait_for;
use acceptance::{Builder, Client, Sandboxing, ScriptedLlm, Service, Version};
use serde_json::{Value, json};

/// Time for changes that a periodic pass of the reconciler makes.
pub(crate) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time for changes that an event of the backend causes, shorter than the 30 s between two periodic lists. Usually
/// milliseconds, but a busy engine takes seconds to report the end of a container.
pub(crate) const NOTICE_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until the events of a conversation satisfy `says`. The agent server reports each event separately, and that of a
/// status may arrive before others of the same run.
pub(crate) async fn wait_for_events(
    user: &Client,
    id: &str,
    what: &str,
    says: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    wait_for(what, RECONCILE_TIMEOUT, || async {
        let events = user.events(id).await;
        says(&events).then_some(events)
    })
    .await
}

/// Agent server version and sandbox backend of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) version: Version,
    pub(crate) sandboxing: Sandboxing,
    /// Whether the agent server is configured by its command, as for processes that boot the usual way.
    is_command: bool,
}

impl Setup {
    pub(crate) fn new(version: Version, sandboxing: Sandboxing) -> Self {
        Self {
            version,
            sandboxing,
            is_command: true,
        }
    }

    /// Confined processes that boot.
    pub(crate) fn process(version: Version) -> Self {
        Self::new(version, Sandboxing::Process)
    }

    /// Confined processes that are forked.
    pub(crate) fn forked(version: Version) -> Self {
        Self {
            is_command: false,
            ..Self::process(version)
        }
    }

    pub(crate) fn unconfined(version: Version) -> Self {
        Self::new(version, Sandboxing::UnconfinedProcess)
    }

    pub(crate) fn docker(version: Version) -> Self {
        Self::new(version, Sandboxing::docker())
    }

    /// A service with these sandboxes.
    pub(crate) fn service(&self) -> Builder {
        let builder = Service::builder().sandboxing(&self.sandboxing);
        if self.is_command {
            return builder.agent_server(self.version);
        }
        // A start waits for the fork server.
        let builder = builder.env("WORKSPACE_PROCESS__FORK_SERVER", "on");
        builder.installed_agent_server(self.version)
    }
}

/// Waits for the title that the model generates some time after the first message.
pub(crate) async fn wait_for_title(user: &Client, id: &str) -> String {
    wait_for("a title that the model made", RECONCILE_TIMEOUT, || async {
        let title = user.conversation(id).await.title.unwrap_or_default();
        (!title.is_empty() && !title.starts_with("Conversation ")).then_some(title)
    })
    .await
}

pub(crate) struct World {
    pub(crate) llm: ScriptedLlm,
    pub(crate) service: Service,
    pub(crate) user: Client,
    setup: Setup,
}

impl World {
    pub(crate) async fn start(setup: Setup) -> Self {
        Self::with_model(setup, "openai/scripted").await
    }

    pub(crate) async fn with_model(setup: Setup, model: &str) -> Self {
        let llm = setup.sandboxing.model().await;
        let service = setup.service().start().await;
        let user = service.admin();
        user.use_model(model, &llm.base_url(), "sk-scripted").await;
        Self {
            llm,
            service,
            user,
            setup,
        }
    }

    /// Lets the agent repeat the model calls that fail while the service, which makes them, is away.
    pub(crate) async fn repeat_model_calls(&self) {
        let llm = json!({"num_retries": 60, "retry_min_wait": 1, "retry_max_wait": 1});
        let change = json!({"agent_settings_diff": {"llm": llm}});
        let _ = self.user.post("/api/v1/settings", &change).await.ok();
    }

    /// Asserts that the service has all events of the agent server, each once, and that `count` agrees. Returns them.
    pub(crate) async fn assert_complete(&self, id: &str) -> Vec<Value> {
        let conversation = self.user.conversation(id).await;
        let theirs = self.user.events_at_agent_server(&conversation).await;
        let theirs: BTreeSet<String> = theirs
            .iter()
            .filter(|event| event["kind"] != "StreamingDeltaEvent")
            .map(event_id)
            .collect();
        assert!(!theirs.is_empty(), "the agent server has no events");
        // Some events arrive later (a title, a state). The list and the count belong together if they agree.
        let ours = wait_for(
            "all events of the agent server in our store, as many as are counted",
            RECONCILE_TIMEOUT,
            || async {
                let ours = self.user.events(id).await;
                let ids: BTreeSet<String> = ours.iter().map(event_id).collect();
                let counted = self.user.count_events(id).await;
                (ids.is_superset(&theirs) && counted == ours.len()).then_some(ours)
            },
        )
        .await;
        let ids: BTreeSet<String> = ours.iter().map(event_id).collect();
        assert_eq!(ids.len(), ours.len(), "an event is in the store twice");
        ours
    }

    /// Asserts that there is one sandbox with one agent server, and one conversation in both. Returns the conversation.
    pub(crate) async fn assert_exactly_one(&self) -> Conversation {
        let conversations = self.user.conversations().await;
        let [conversation] = conversations.as_slice() else {
            panic!("not one conversation: {conversations:#?}");
        };
        let sandboxes = self.user.sandboxes().await;
        assert_eq!(sandboxes.len(), 1, "{sandboxes:#?}");
        let servers = self.service.agent_servers();
        assert_eq!(servers.len(), 1, "{servers:#?}");
        self.service.assert_no_orphans(&[&self.user]).await;
        assert_not_slowed(&self.service, &conversation.sandbox_id);
        let url = conversation.conversation_url.as_deref();
        let (server, _) = url.unwrap_or_default().rsplit_once('/').expect("a URL");
        let key = conversation.session_api_key.as_deref().expect("a key");
        let direct = Client::new(server.to_owned(), key);
        assert_eq!(direct.get("/count").await.ok(), 1, "at the agent server");
        conversation.clone()
    }

    pub(crate) fn file(&self, conversation: &Conversation, name: &str) -> Option<String> {
        let text = self.service.workspace_file(&conversation.sandbox_id, name);
        text.map(|text| text.trim().to_owned())
    }
}

/// Asserts that the fork server, if there is one, has started the agent server.
pub(crate) fn assert_not_slowed(service: &Service, sandbox: &str) {
    let log = service.agent_server_log(sandbox);
    assert!(!log.contains("boots more slowly"), "not forked: {log}");
}

/// Prints the times of a start, without an assertion.
pub(crate) fn show_timings(world: &World, task: &Task) {
    let Setup {
        version,
        sandboxing,
        ..
    } = &world.setup;
    print_line(&format!(
        "agent server {version} ({sandboxing:?}): start to READY by step (ms): {}",
        task.timings
    ));
}

pub(crate) fn event_id(event: &Value) -> String {
    event["id"].as_str().unwrap_or_default().to_owned()
}

/// The messages of the user, oldest first.
pub(crate) fn user_messages(events: &[Value]) -> Vec<String> {
    let messages = events
        .iter()
        .filter(|event| event["kind"] == "MessageEvent" && event["source"] == "user");
    messages
        .map(|event| event["llm_message"]["content"][0]["text"].to_string())
        .collect()
}

/// The number of calls of a tool by the agent.
pub(crate) fn actions(events: &[Value], tool: &str) -> usize {
    let actions = events.iter().filter(|event| event["kind"] == "ActionEvent");
    actions.filter(|event| event["tool_name"] == tool).count()
}

/// The outputs of the agent's tools.
pub(crate) fn tool_outputs(events: &[Value]) -> String {
    let seen = events
        .iter()
        .filter(|event| event["kind"] == "ObservationEvent");
    seen.map(|event| event["observation"].to_string())
        .collect::<Vec<_>>()
        .join("\n")
}
