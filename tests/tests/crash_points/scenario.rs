//! The scenarios during which the service is killed. They act as clients that repeat failed requests.

use acceptance::client::{Conversation, text};
use acceptance::world::count_finished_runs;
use acceptance::{Client, Sandboxing};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{ClientRequest, CrashBench};
use crate::check::{self, ExpectedState};

const CONVERSATIONS: &str = "/api/v1/app-conversations";

/// A sequence of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A conversation in a new sandbox, until its run has finished.
    Start,
    /// A sandbox is paused and resumed.
    PauseAndResume,
    /// The last conversation of a sandbox is deleted, and the sandbox with it.
    DeleteConversation,
    /// One of two conversations of a sandbox is deleted; the other one stays.
    DeleteOneOfTwo,
    /// A sandbox is deleted.
    DeleteSandbox,
    /// An agent server reports events and a state.
    Append,
}

/// The data at the start of a case.
pub(crate) struct StateBefore {
    conversations: Vec<Conversation>,
}

impl Scenario {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Start,
        Self::PauseAndResume,
        Self::DeleteConversation,
        Self::DeleteOneOfTwo,
        Self::DeleteSandbox,
        Self::Append,
    ];

    /// Whether the scenario changes a sandbox.
    pub(crate) fn calls_the_engine(self) -> bool {
        !matches!(self, Self::DeleteOneOfTwo | Self::Append)
    }

    /// Operations before and after which the service must be killed at least once.
    pub(crate) fn essential(self, sandboxing: &Sandboxing) -> &'static [&'static str] {
        match (self, sandboxing) {
            (Self::Start, Sandboxing::Process | Sandboxing::UnconfinedProcess) => &[
                "commit of StartTaskRepository::insert",
                "process: spawning",
                "process: writing that it starts",
                "process: writing that it runs",
                "agent: creating the conversation",
            ],
            (Self::Start, Sandboxing::Docker(_)) => {
                &["creating the container", "starting the container"]
            }
            (Self::PauseAndResume, Sandboxing::Process | Sandboxing::UnconfinedProcess) => &[
                "process: SIGTERM",
                "process: writing that it is stopped",
                "commit of SandboxKeyRepository::replace_session_key",
                "process: spawning",
            ],
            (Self::PauseAndResume, Sandboxing::Docker(_)) => {
                &["stopping the container", "starting the container"]
            }
            (
                Self::DeleteConversation | Self::DeleteSandbox,
                Sandboxing::Process | Sandboxing::UnconfinedProcess,
            ) => &[
                "process: SIGKILL",
                "process: deleting files",
                "process: deleting its lock",
            ],
            (Self::DeleteConversation | Self::DeleteSandbox, Sandboxing::Docker(_)) => {
                &["removing the container", "removing the volume"]
            }
            (Self::DeleteOneOfTwo, _) => &["agent: deleting a conversation"],
            (Self::Append, _) => &["commit of EventStore::append"],
        }
    }

    /// Creates the initial data, without kills.
    pub(crate) async fn prepare(self, bench: &mut CrashBench) -> StateBefore {
        let user = &bench.user;
        let mut conversations = Vec::new();
        if self != Self::Start {
            conversations.push(finished_conversation(user, None).await);
        }
        if self == Self::DeleteOneOfTwo {
            let first = &conversations[0];
            let second = finished_conversation(user, Some(&first.sandbox_id)).await;
            conversations.push(second);
        }
        StateBefore { conversations }
    }

    /// Runs the scenario, during which the service is killed. Returns the expected state.
    pub(crate) async fn act(self, bench: &mut CrashBench, before: StateBefore) -> ExpectedState {
        let StateBefore { mut conversations } = before;
        let mut events = Vec::new();
        match self {
            Self::Start => conversations.push(start(bench).await),
            Self::PauseAndResume => pause_and_resume(bench, &conversations[0].sandbox_id).await,
            Self::DeleteConversation => {
                let deleted = conversations.remove(0);
                delete(bench, &format!("{CONVERSATIONS}/{}", deleted.id)).await;
                check::wait_until_deleted(bench, &deleted.sandbox_id).await;
            }
            Self::DeleteOneOfTwo => {
                let deleted = conversations.remove(0);
                delete(bench, &format!("{CONVERSATIONS}/{}", deleted.id)).await;
                check::wait_until_forgotten(bench, &deleted).await;
            }
            Self::DeleteSandbox => {
                let id = conversations[0].sandbox_id.clone();
                delete(bench, &format!("/api/v1/sandboxes/{id}?sandbox_id={id}")).await;
                check::wait_until_deleted(bench, &id).await;
            }
            Self::Append => events = append(bench, &conversations[0]).await,
        }
        ExpectedState {
            conversations,
            has_sandbox: self != Self::DeleteSandbox,
            events,
        }
    }
}

/// A conversation whose run has finished, in a new sandbox or in this one.
async fn finished_conversation(user: &Client, sandbox: Option<&str>) -> Conversation {
    let task = user.start(&start_body(sandbox)).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await
}

fn start_body(sandbox: Option<&str>) -> Value {
    let first = json!({"role": "user", "content": text("hello"), "run": true});
    let mut request = json!({"initial_message": first});
    if let Some(sandbox) = sandbox {
        request["sandbox_id"] = sandbox.into();
    }
    request
}

async fn start(bench: &mut CrashBench) -> Conversation {
    let key = bench.name();
    let request = ClientRequest {
        body: Some(start_body(None)),
        key: Some(&key),
        ..ClientRequest::new(Method::POST, CONVERSATIONS)
    };
    let task_id = bench.send(&request).await.0.ok()["id"].clone();
    let path = format!(
        "{CONVERSATIONS}/start-tasks?ids={}",
        task_id.as_str().expect("a task has an id")
    );
    let task = bench
        .until("a finished start", async |bench| {
            let task = bench.read(&path).await[0].take();
            assert!(!task.is_null(), "an acknowledged start task does not exist");
            match task["status"].as_str() {
                Some("READY" | "ERROR") => Ok(task),
                _ => Err(task.to_string()),
            }
        })
        .await;
    assert_eq!(task["status"], "READY", "{task}");
    let id = &task["app_conversation_id"];
    let path = format!(
        "{CONVERSATIONS}?ids={}",
        id.as_str().expect("READY names a conversation")
    );
    let conversation = bench
        .until("a finished run", async |bench| {
            let found = bench.read(&path).await[0].take();
            let is_done = found["execution_status"] == "finished";
            is_done.then_some(found.clone()).ok_or(found.to_string())
        })
        .await;
    // Repeat the request, as a client that did not receive the response.
    let (again, _) = bench.send(&request).await;
    assert_eq!(
        again.ok()["id"],
        task_id,
        "the Idempotency-Key created a second start task"
    );
    let again = bench
        .read(&format!(
            "{CONVERSATIONS}/start-tasks?ids={}",
            task["id"].as_str().unwrap_or_default()
        ))
        .await;
    assert_eq!(
        again[0]["updated_at"], task["updated_at"],
        "the start task was completed twice"
    );
    serde_json::from_value(conversation).expect("a conversation")
}

async fn pause_and_resume(bench: &mut CrashBench, id: &str) {
    for (verb, status) in [("pause", "PAUSED"), ("resume", "RUNNING")] {
        let request = ClientRequest {
            body: Some(json!({})),
            ..ClientRequest::new(Method::POST, format!("/api/v1/sandboxes/{id}/{verb}"))
        };
        let _ = bench.send(&request).await.0.ok();
        let path = format!("/api/v1/sandboxes?id={id}");
        bench
            .until(status, async |bench| {
                let sandbox = bench.read(&path).await[0].take();
                let (is, servers) = (sandbox["status"] == status, bench.service.agent_servers());
                let expected = usize::from(status == "RUNNING");
                if is && servers.len() == expected {
                    return Ok(());
                }
                Err(format!("{sandbox} with {servers:?}"))
            })
            .await;
    }
}

async fn delete(bench: &mut CrashBench, path: &str) {
    let (reply, is_first) = bench.send(&ClientRequest::new(Method::DELETE, path)).await;
    let is_repeated = reply.status == 404 && !is_first;
    assert!(
        is_repeated || (200..300).contains(&reply.status),
        "{reply:?}"
    );
}

/// Reports two batches of events and the state of the conversation, as an agent server does. Returns the ids of the events.
async fn append(bench: &mut CrashBench, conversation: &Conversation) -> Vec<String> {
    let key = conversation.session_api_key.as_deref();
    let caller = bench
        .user
        .with_key(key.expect("a running sandbox has a key"));
    let hex = conversation.id.replace('-', "");
    let event = |name: &str| {
        json!({"id": format!("{}-{name}", bench.name()), "kind": "MessageEvent", "source": "agent",
            "timestamp": "2030-01-01T00:00:00.000001",
            "llm_message": {"role": "assistant", "content": text(name)}})
    };
    let batches = [
        json!([event("a"), event("b")]),
        // With the last event of the first batch again: agent servers repeat unacknowledged events.
        json!([event("b"), event("c")]),
    ];
    let ids = ["a", "b", "c"].map(|name| format!("{}-{name}", bench.name()));
    for batch in batches {
        let request = ClientRequest {
            body: Some(batch),
            caller: Some(caller.clone()),
            ..ClientRequest::new(Method::POST, format!("/api/v1/webhooks/events/{hex}"))
        };
        let _ = bench.send(&request).await.0.ok();
    }
    let record = json!({"id": conversation.id, "execution_status": "finished", "title": bench.name(),
        "updated_at": "2030-01-01T00:00:01"});
    let request = ClientRequest {
        body: Some(record),
        caller: Some(caller),
        ..ClientRequest::new(Method::POST, "/api/v1/webhooks/conversations")
    };
    let _ = bench.send(&request).await.0.ok();
    ids.into()
}

/// Whether the events are those of exactly one run.
pub(crate) fn is_one_run(events: &[Value]) -> bool {
    count_finished_runs(events) == 1 && acceptance::world::count_user_messages(events) == 1
}
