//! What is done while the service dies, each as a client would: what is cut off is asked again.

use acceptance::client::{Conversation, text};
use acceptance::world::count_finished_runs;
use acceptance::{Client, Sandboxing};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{ClientRequest, CrashBench};
use crate::check::{self, ExpectedState};

const CONVERSATIONS: &str = "/api/v1/app-conversations";

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A conversation in a new sandbox, until its run has finished.
    Start,
    /// A sandbox is paused and comes back.
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

/// What a case begins with.
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

    /// Whether the sandbox changes.
    pub(crate) fn calls_the_engine(self) -> bool {
        !matches!(self, Self::DeleteOneOfTwo | Self::Append)
    }

    /// Where the service must have died at least once, before and after.
    pub(crate) fn essential(self, sandboxing: &Sandboxing) -> &'static [&'static str] {
        match (self, sandboxing) {
            (Self::Start, Sandboxing::Process) => &[
                "commit of StartTaskRepository::insert",
                "process: spawning",
                "process: writing that it starts",
                "process: writing that it runs",
                "agent: making the conversation",
            ],
            (Self::Start, Sandboxing::Docker(_)) => {
                &["creating the container", "starting the container"]
            }
            (Self::PauseAndResume, Sandboxing::Process) => &[
                "process: SIGTERM",
                "process: writing that it is stopped",
                "commit of SandboxRepository::replace_session_key",
                "process: spawning",
            ],
            (Self::PauseAndResume, Sandboxing::Docker(_)) => {
                &["stopping the container", "starting the container"]
            }
            (Self::DeleteConversation | Self::DeleteSandbox, Sandboxing::Process) => &[
                "process: SIGKILL",
                "process: deleting files",
                "process: deleting its lock",
            ],
            (Self::DeleteConversation | Self::DeleteSandbox, Sandboxing::Docker(_)) => {
                &["removing the container", "removing the volume"]
            }
            (Self::DeleteOneOfTwo, _) => &["agent: forgetting"],
            (Self::Append, _) => &["commit of EventStore::append"],
        }
    }

    /// Makes what it needs; nobody dies.
    pub(crate) async fn prepare(self, bench: &mut CrashBench) -> StateBefore {
        let user = &bench.user;
        let mut conversations = Vec::new();
        if self != Self::Start {
            conversations.push(finished(user, None).await);
        }
        if self == Self::DeleteOneOfTwo {
            let first = &conversations[0];
            let second = finished(user, Some(&first.sandbox_id)).await;
            conversations.push(second);
        }
        StateBefore { conversations }
    }

    /// Does it, with the service dying somewhere, and waits for the end; what must be there then.
    pub(crate) async fn act(self, bench: &mut CrashBench, before: StateBefore) -> ExpectedState {
        let StateBefore { mut conversations } = before;
        let mut events = Vec::new();
        match self {
            Self::Start => conversations.push(start(bench).await),
            Self::PauseAndResume => pause_and_resume(bench, &conversations[0].sandbox_id).await,
            Self::DeleteConversation => {
                let gone = conversations.remove(0);
                delete(bench, &format!("{CONVERSATIONS}/{}", gone.id)).await;
                check::is_gone(bench, &gone.sandbox_id).await;
            }
            Self::DeleteOneOfTwo => {
                let gone = conversations.remove(0);
                delete(bench, &format!("{CONVERSATIONS}/{}", gone.id)).await;
                check::is_forgotten(bench, &gone).await;
            }
            Self::DeleteSandbox => {
                let id = conversations[0].sandbox_id.clone();
                delete(bench, &format!("/api/v1/sandboxes/{id}?sandbox_id={id}")).await;
                check::is_gone(bench, &id).await;
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
async fn finished(user: &Client, sandbox: Option<&str>) -> Conversation {
    let task = user.start(&request(sandbox)).await;
    let conversation = user.ready(&task).await;
    user.executed(&conversation.id, "finished").await
}

fn request(sandbox: Option<&str>) -> Value {
    let first = json!({"role": "user", "content": text("hello"), "run": true});
    let mut request = json!({"initial_message": first});
    if let Some(sandbox) = sandbox {
        request["sandbox_id"] = sandbox.into();
    }
    request
}

async fn start(bench: &mut CrashBench) -> Conversation {
    let key = bench.name();
    let ask = ClientRequest {
        body: Some(request(None)),
        key: Some(&key),
        ..ClientRequest::new(Method::POST, CONVERSATIONS)
    };
    let task = bench.ask(&ask).await.0.ok()["id"].clone();
    let path = format!(
        "{CONVERSATIONS}/start-tasks?ids={}",
        task.as_str().expect("a task has an id")
    );
    let done = bench
        .until("the end of the start", async |bench| {
            let task = bench.read(&path).await[0].take();
            assert!(!task.is_null(), "an acknowledged start is not there");
            match task["status"].as_str() {
                Some("READY" | "ERROR") => Ok(task),
                _ => Err(task.to_string()),
            }
        })
        .await;
    assert_eq!(done["status"], "READY", "{done}");
    let id = &done["app_conversation_id"];
    let path = format!(
        "{CONVERSATIONS}?ids={}",
        id.as_str().expect("READY names a conversation")
    );
    let conversation = bench
        .until("the end of the run", async |bench| {
            let found = bench.read(&path).await[0].take();
            let is_done = found["execution_status"] == "finished";
            is_done.then_some(found.clone()).ok_or(found.to_string())
        })
        .await;
    // The same request again, as by a client that did not get the answer.
    let (again, _) = bench.ask(&ask).await;
    assert_eq!(again.ok()["id"], task, "an Idempotency-Key started two");
    let again = bench
        .read(&format!(
            "{CONVERSATIONS}/start-tasks?ids={}",
            done["id"].as_str().unwrap_or_default()
        ))
        .await;
    assert_eq!(
        again[0]["updated_at"], done["updated_at"],
        "a start ended twice"
    );
    serde_json::from_value(conversation).expect("it is a conversation")
}

async fn pause_and_resume(bench: &mut CrashBench, id: &str) {
    for (verb, status) in [("pause", "PAUSED"), ("resume", "RUNNING")] {
        let ask = ClientRequest {
            body: Some(json!({})),
            ..ClientRequest::new(Method::POST, format!("/api/v1/sandboxes/{id}/{verb}"))
        };
        let _ = bench.ask(&ask).await.0.ok();
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
    let (reply, is_first) = bench.ask(&ClientRequest::new(Method::DELETE, path)).await;
    let is_gone = reply.status == 404 && !is_first;
    assert!(is_gone || (200..300).contains(&reply.status), "{reply:?}");
}

/// Two batches of events and the record of the conversation, as an agent server reports them: again until they are taken.
/// What was reported.
async fn append(bench: &mut CrashBench, conversation: &Conversation) -> Vec<String> {
    let key = conversation.session_api_key.as_deref();
    let caller = bench.user.with_key(key.expect("it is RUNNING"));
    let hex = conversation.id.replace('-', "");
    let event = |name: &str| {
        json!({"id": format!("{}-{name}", bench.name()), "kind": "MessageEvent", "source": "agent",
            "timestamp": "2030-01-01T00:00:00.000001",
            "llm_message": {"role": "assistant", "content": text(name)}})
    };
    let batches = [
        json!([event("a"), event("b")]),
        // The last one of the first batch again: agent servers send what they do not know to be there.
        json!([event("b"), event("c")]),
    ];
    let ids = ["a", "b", "c"].map(|name| format!("{}-{name}", bench.name()));
    for batch in batches {
        let ask = ClientRequest {
            body: Some(batch),
            caller: Some(caller.clone()),
            ..ClientRequest::new(Method::POST, format!("/api/v1/webhooks/events/{hex}"))
        };
        let _ = bench.ask(&ask).await.0.ok();
    }
    let record = json!({"id": conversation.id, "execution_status": "finished", "title": bench.name(),
        "updated_at": "2030-01-01T00:00:01"});
    let ask = ClientRequest {
        body: Some(record),
        caller: Some(caller),
        ..ClientRequest::new(Method::POST, "/api/v1/webhooks/conversations")
    };
    let _ = bench.ask(&ask).await.0.ok();
    ids.into()
}

/// Whether a log is that of exactly one run.
pub(crate) fn is_one_run(events: &[Value]) -> bool {
    count_finished_runs(events) == 1 && acceptance::world::count_user_messages(events) == 1
}
