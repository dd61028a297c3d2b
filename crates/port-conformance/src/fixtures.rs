//! Small valid objects and their ids. Some ids consist of digits, because some databases treat these as numbers.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use domain::agent::AgentKind;
use domain::clock::Timestamp;
use domain::conversation::{Conversation, ConversationReport, ExecutionStatus, Metrics};
use domain::encryption::cipher::Sealed;
use domain::event::Event;
use domain::id::{
    ConversationId, EventId, HostId, InvalidId, SandboxId, SecretId, SpecId, StartTaskId,
};
use domain::page::{Page, PageLimit, PageRequest, PageToken};
use domain::sandbox::{
    DesiredState, ExposedUrl, Sandbox, SandboxCaps, SandboxEndpoints, SandboxStatus, WarmSandbox,
    WarmState,
};
use domain::start_task::{
    NewStartTask, SandboxAssignment, StartRequest, StartStatus, StartTask, StartTaskUpdate,
};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;
use domain::user::secret::{CustomSecret, SecretValue};
use serde_json::json;
use url::Url;
use uuid::Uuid;

/// Caps that no test reaches by accident.
pub const AMPLE_CAPS: SandboxCaps = SandboxCaps {
    per_user: 10_000,
    overall: 10_000,
};

/// An instant, `n` seconds into the test; never on a full millisecond.
pub fn at(n: i64) -> Timestamp {
    Timestamp::from_micros(1_795_251_552_215_877 + n * 1_000_000)
}

/// A user, or their membership in their personal organization.
pub fn user<T: FromStr<Err = InvalidId>>(name: &str) -> T {
    name.parse().expect("valid user id")
}

/// The scope of a user.
pub fn scope(name: &str) -> Scope {
    Scope::Owner(user(name))
}

/// The host of all sandboxes here.
pub fn host() -> HostId {
    HostId::parse("host-1").expect("valid host id")
}

/// A sandbox id.
pub fn sandbox_id(id: &str) -> SandboxId {
    SandboxId::parse(id).expect("valid sandbox id")
}

/// A UUID that sorts like `n`. For most `n` its text consists of digits.
pub fn uuid(n: u64) -> Uuid {
    Uuid::from_u128((0x1234_5678_9012_3456_u128 << 64) | u128::from(n))
}

/// A conversation id, see [`uuid()`].
pub fn conversation_id(n: u64) -> ConversationId {
    ConversationId::new(uuid(n))
}

/// A start-task id, see [`uuid()`].
pub fn task_id(n: u64) -> StartTaskId {
    StartTaskId::new(uuid(n))
}

/// A secret with a value under its own id.
pub fn secret(n: u64, owner: &str, name: &str, created_at: Timestamp) -> CustomSecret {
    CustomSecret {
        owner: user(owner),
        name: name.to_owned(),
        description: format!("purpose of {name} – é"),
        hosts: "api.example.org *.example.net:8443".parse().unwrap(),
        value: secret_value(n),
        created_at,
        updated_at: created_at,
    }
}

/// The sealed value with this id.
pub fn secret_value(n: u64) -> SecretValue {
    SecretValue {
        id: SecretId::new(uuid(n)),
        sealed: Sealed::from_text(format!("sealed {n}")),
    }
}

/// A new sandbox of `owner`, without a callback token, as earlier releases stored it.
pub fn sandbox(id: &str, owner: &str, created_at: Timestamp) -> Sandbox {
    Sandbox {
        id: sandbox_id(id),
        owner: user(owner),
        spec_id: SpecId::parse("agent-server:1.0").expect("valid spec id"),
        host: host(),
        desired: DesiredState::Running,
        status: SandboxStatus::Starting,
        status_detail: None,
        key_hash: KeyHash::of(id),
        session_key: Sealed::from_text("sealed session key"),
        secret_key: Sealed::from_text("sealed secret key"),
        callback_token_hash: None,
        agent_url: None,
        exposed_urls: Arc::default(),
        workspace: None,
        has_proxy: false,
        egress: None,
        automation_key: None,
        created_at,
        updated_at: created_at,
        paused_at: None,
    }
}

/// A booting warm sandbox with the spec and recipe of all fixtures.
pub fn warm(id: &str, created_at: Timestamp) -> WarmSandbox {
    let becomes = sandbox(id, "unused", created_at);
    WarmSandbox {
        id: becomes.id,
        spec_id: becomes.spec_id,
        host: becomes.host,
        recipe: "recipe-1".to_owned(),
        state: WarmState::Booting,
        key_hash: becomes.key_hash,
        session_key: Sealed::from_text(format!("sealed session key of {id}")),
        secret_key: Sealed::from_text(format!("sealed secret key of {id}")),
        endpoints: None,
        created_at,
        updated_at: created_at,
    }
}

/// The addresses of a sandbox.
pub fn endpoints(port: u16) -> SandboxEndpoints {
    let url: Url = format!("http://127.0.0.1:{port}/")
        .parse()
        .expect("valid URL");
    SandboxEndpoints {
        agent_url: url.clone(),
        exposed_urls: vec![ExposedUrl {
            name: domain::sandbox::AGENT_SERVER.to_owned(),
            url,
            port,
        }],
        workspace: "/work/space".to_owned(),
        has_proxy: true,
    }
}

/// A minimal conversation.
pub fn conversation(n: u64, owner: &str, sandbox: &str, created_at: Timestamp) -> Conversation {
    Conversation {
        id: conversation_id(n),
        owner: user(owner),
        sandbox_id: sandbox_id(sandbox),
        title: None,
        auto_title: true,
        selected_repository: None,
        selected_branch: None,
        git_provider: None,
        trigger: None,
        pr_numbers: Vec::new(),
        llm_model: None,
        agent_kind: AgentKind::OpenHands,
        metrics: Metrics::default(),
        parent: None,
        public: None,
        tags: BTreeMap::new(),
        execution_status: None,
        created_at,
        updated_at: created_at,
    }
}

/// A start of conversation `n` in a new sandbox of its own.
pub fn start(n: u64, owner: &str, sandbox_name: &str, created_at: Timestamp) -> NewStartTask {
    NewStartTask {
        task: StartTask {
            id: task_id(n),
            owner: user(owner),
            host: host(),
            status: StartStatus::Working,
            detail: None,
            notes: Vec::new(),
            conversation_id: conversation_id(n),
            sandbox_id: sandbox_id(sandbox_name),
            owns_sandbox: true,
            agent_server_url: None,
            request: StartRequest::default(),
            sealed_secrets: Some(Sealed::from_text("sealed secrets")),
            timings: BTreeMap::new(),
            attempts: 0,
            created_at,
            updated_at: created_at,
        },
        assignment: SandboxAssignment::New(sandbox(sandbox_name, owner, created_at)),
        response: None,
    }
}

/// A start of conversation `n` in an existing sandbox.
pub fn start_in(n: u64, owner: &str, sandbox_name: &str, created_at: Timestamp) -> NewStartTask {
    let mut new = start(n, owner, sandbox_name, created_at);
    new.assignment = SandboxAssignment::Named;
    new.task.owns_sandbox = false;
    new
}

/// An update that only sets `status`.
pub fn status_update(status: StartStatus) -> StartTaskUpdate {
    StartTaskUpdate {
        status,
        detail: None,
        notes: Vec::new(),
        agent_server_url: None,
        timings: BTreeMap::new(),
    }
}

/// An event.
pub fn event(id: &str, kind: &str, timestamp: Timestamp) -> Event {
    Event {
        id: EventId::parse(id).expect("valid event id"),
        kind: kind.to_owned(),
        timestamp,
        body: json!({"id": id, "kind": kind, "timestamp": timestamp}),
    }
}

/// A report of the agent's state.
pub fn report(status: ExecutionStatus, when: Timestamp) -> ConversationReport {
    ConversationReport {
        execution_status: Some((status, when)),
        ..ConversationReport::default()
    }
}

/// A first page.
pub fn page(limit: i64) -> PageRequest {
    after(limit, None)
}

/// A page from a token on.
pub fn after(limit: i64, token: Option<PageToken>) -> PageRequest {
    PageRequest {
        after: token,
        limit: PageLimit::new(limit).expect("valid page limit"),
    }
}

/// Page tokens that no store issued.
pub fn foreign_tokens() -> Vec<PageToken> {
    [
        "",
        "2",
        "x",
        "é",
        "MTIz",
        "../../etc/passwd",
        "\u{0}",
        "djF8",
        // In the form of the SQL stores, with invalid positions: `v1|sandboxes|5|` and NUL, and so on.
        "djF8c2FuZGJveGVzfDV8AA",
        "djF8Y29udmVyc2F0aW9uc3w1fAA",
        "djF8Y29udmVyc2F0aW9uc3w1fHg",
        "djF8c3RhcnQtdGFza3MtY3JlYXRlZHw1fHg",
    ]
    .map(|text| PageToken(text.to_owned()))
    .into()
}

/// Reads all pages and collects the items. Panics after `max_pages` pages.
pub async fn read_all_pages<T, F>(
    max_pages: usize,
    mut fetch: impl FnMut(Option<PageToken>) -> F,
) -> Vec<T>
where
    F: Future<Output = Page<T>>,
{
    let (mut items, mut token) = (Vec::new(), None);
    for _ in 0..max_pages {
        let page = fetch(token).await;
        items.extend(page.items);
        token = page.next;
        if token.is_none() {
            return items;
        }
    }
    panic!("paging does not end after {max_pages} pages");
}
