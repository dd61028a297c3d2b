//! Databases with data, of every released schema version that has a file in `tests/fixtures`. A file holds `INSERT`s that both
//! databases accept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use domain::conversation::pending::{EnqueueOutcome, MessageTarget};
use domain::conversation::{Conversation, ConversationFilter, ExecutionStatus, Metrics};
use domain::encryption::cipher::Sealed;
use domain::event::{Event, EventFilter, EventOrder};
use domain::git::GitProvider;
use domain::id::ApiKeyId;
use domain::sandbox::{DesiredState, SandboxEndpoints, SandboxFacts};
use domain::start_task::{ClaimLimit, StartStatus, StartTaskFilter, StartTaskOrder};
use domain::user::administration::AdminChange;
use domain::user::identity::{ApiKey, Role};
use domain::user::scope::Scope;
use port_conformance::suites::conversations::pending_messages::message;
use port_conformance::{StorePorts, fixtures};

use fixtures::{
    at, conversation, conversation_id, endpoints, event, host, page, report, sandbox_id, scope,
    start, start_in, status_update, task_id, user,
};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Names of the directory's entries, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("readable directory");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("readable entry")
                .file_name()
                .into_string()
                .unwrap()
        })
        .collect();
    names.sort();
    names
}

/// The versions that have a fixture, oldest first.
pub(crate) fn versions() -> Vec<String> {
    let files = names(&directory("tests/fixtures"));
    let versions: Vec<_> = files
        .iter()
        .filter_map(|name| name.strip_suffix(".sql"))
        .map(str::to_owned)
        .collect();
    assert!(!versions.is_empty());
    versions
}

/// SQL that turns an empty database (`sqlite` or `postgres`) into one of that version with data.
pub(crate) fn database_of(kind: &str, version: &str) -> String {
    let migrations = directory("migrations").join(kind);
    let mut sql =
        "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL, \
                   run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);"
            .to_owned();
    for name in names(&migrations) {
        let (migration, _) = name
            .split_once('_')
            .expect("a migration is named VERSION_NAME");
        if migration <= version {
            let up = std::fs::read_to_string(migrations.join(&name).join("up.sql"));
            sql += &up.expect("readable up.sql");
            sql += "INSERT INTO __diesel_schema_migrations (version) VALUES ('";
            sql += migration;
            sql += "');";
        }
    }
    let data = directory("tests/fixtures").join(format!("{version}.sql"));
    sql + &std::fs::read_to_string(data).expect("readable fixture")
}

/// Stores the same objects as the fixtures. A new fixture is a dump of a database that this function has filled.
pub(crate) async fn fill(ports: &StorePorts) {
    let key = ApiKey {
        id: ApiKeyId::new(fixtures::uuid(7)),
        user: user("alice"),
        hash: "a".repeat(64).parse().expect("valid hash"),
        prefix: "aw_12345".to_owned(),
        created_at: at(0),
        expires_at: Some(at(9_999)),
        last_used_at: None,
        name: None,
        made_by: None,
        is_automation: false,
        organization: None,
    };
    ports.keys.insert(&key).await.unwrap();
    let document = Sealed::from_text("sealed settings");
    let alice = user("alice");
    let saved = ports.settings.save(&alice, &document, None, at(1));
    saved.await.unwrap();
    for (id, owner) in [("12345678901234567890", "alice"), ("b", "bob")] {
        ports.insert_sandbox(id, owner).await;
    }
    let facts = SandboxFacts::Running {
        // Rows of older releases do not say whether the sandbox uses the proxy.
        endpoints: SandboxEndpoints {
            has_proxy: false,
            ..endpoints(8000)
        },
    };
    let s = sandbox_id("12345678901234567890");
    let recorded = ports
        .host_sandboxes
        .record_facts(&s, DesiredState::Running, &facts, at(2));
    assert!(recorded.await.unwrap());
    starts(ports).await;
    conversations(ports).await;
}

/// One start that is ready, one that has failed, one that is unfinished.
async fn starts(ports: &StorePorts) {
    for (n, end) in [(11, StartStatus::Ready), (12, StartStatus::Error)] {
        let sandbox = format!("own-{n}");
        let claimed = ports
            .insert_and_claim_start(&start(n, "alice", &sandbox, at(3)))
            .await;
        let conversation = conversation(n, "alice", &sandbox, at(4));
        let update = status_update(StartStatus::StartingConversation);
        let begun = ports.start_queue.begin_conversation(
            task_id(n),
            claimed.fence,
            &conversation,
            &update,
            at(5),
        );
        begun.await.unwrap();
        let mut last = status_update(end);
        last.notes = vec!["a note – é".to_owned()];
        last.detail = (end == StartStatus::Error).then(|| "it failed".to_owned());
        let ended = ports
            .start_queue
            .advance(task_id(n), claimed.fence, &last, at(6));
        ended.await.unwrap();
    }
    let open = start_in(13, "alice", "12345678901234567890", at(7));
    ports.insert_start(&open).await;
}

async fn conversations(ports: &StorePorts) {
    let full = Conversation {
        title: Some("Größe 100 %_".to_owned()),
        selected_repository: Some("octo/cat".to_owned()),
        selected_branch: Some("main".to_owned()),
        git_provider: Some(GitProvider::Github),
        pr_numbers: vec![1, 23],
        llm_model: Some("model".to_owned()),
        metrics: Metrics {
            accumulated_cost: 0.1,
            prompt_tokens: 9_007_199_254_740_993,
            ..Metrics::default()
        },
        public: Some(true),
        tags: BTreeMap::from([("k".to_owned(), "v – é".to_owned())]),
        ..conversation(1, "alice", "12345678901234567890", at(8))
    };
    let child = Conversation {
        parent: Some(conversation_id(1)),
        ..conversation(2, "alice", "12345678901234567890", at(9))
    };
    let deleted = conversation(3, "alice", "12345678901234567890", at(10));
    let other = conversation(4, "bob", "b", at(8));
    for conversation in [&full, &child, &deleted, &other] {
        ports.insert_conversation(conversation).await;
    }
    let unusual: serde_json::Value = serde_json::from_str(
        r#"{"z": 1, "a": [null, true, 1.5, 1e300, -9007199254740993, "\u0000 ' \" 🦀"], "": {}}"#,
    )
    .unwrap();
    let batch = [
        event("1", "MessageEvent", at(8)),
        Event {
            body: unusual,
            ..event("2", "Odd Kind é", at(8))
        },
    ];
    let report = report(ExecutionStatus::Running, at(9));
    let s = &full.sandbox_id;
    let stored = ports.events.append(s, full.id, &batch, &report, at(9));
    stored.await.unwrap();
    let alice = scope("alice");
    let is_deleted = ports.conversations.delete(&alice, deleted.id, at(11));
    assert!(is_deleted.await.unwrap());
}

/// Everything that the ports return, as text.
pub(crate) async fn describe(ports: &StorePorts) -> Vec<String> {
    let system = Scope::System;
    let mut texts = Vec::new();
    for owner in ["alice", "bob"] {
        let filter = ConversationFilter {
            include_sub_conversations: true,
            ..ConversationFilter::default()
        };
        let page_of_all = ports
            .conversations
            .search(&scope(owner), &filter, &page(100))
            .await
            .unwrap();
        for view in page_of_all.items {
            let (scope, id) = (scope(owner), view.conversation.id);
            texts.push(format!("{view:#?}"));
            let (all, order, page) = (EventFilter::default(), EventOrder::Timestamp, page(100));
            let events = ports.events.search(&scope, id, &all, order, &page);
            texts.push(format!("{:#?}", events.await.unwrap().items));
        }
        texts.push(format!("{:#?}", ports.settings.load(&user(owner)).await));
    }
    let sandboxes = ports.sandboxes.search(&system, &page(100)).await.unwrap();
    texts.push(format!("{:#?}", sandboxes.items));
    let (all, order) = (StartTaskFilter::default(), StartTaskOrder::CreatedAt);
    let tasks = ports.tasks.search(&system, &all, order, &page(100)).await;
    texts.push(format!("{:#?}", tasks.unwrap().items));
    let claimed = ports
        .start_queue
        .claim(&host(), at(100), at(200), ClaimLimit::tasks(100))
        .await;
    texts.push(format!("{:#?}", claimed.unwrap()));
    texts.push(format!("{:#?}", ports.keys.list(None).await.unwrap()));
    texts.push(format!("{:#?}", ports.users.list(None, 100).await.unwrap()));
    let pending_deletions = ports
        .conversation_deletions
        .list_pending_agent_deletions(100)
        .await
        .unwrap();
    texts.push(format!("{pending_deletions:#?}"));
    texts.push(secrets(ports).await);
    texts.push(messages(ports).await);
    texts.push(warm(ports).await);
    texts
}

/// The first version had no warm sandboxes. Their table exists and can be used.
async fn warm(ports: &StorePorts) -> String {
    assert_eq!(ports.warm.list_on_host(&host()).await.unwrap(), []);
    let stored = ports.warm.insert(&fixtures::warm("warm", at(1)), 1).await;
    assert!(stored.unwrap());
    format!("{:#?}", ports.warm.list_on_host(&host()).await)
}

/// The first version had no pending messages. One can be queued for a conversation of that version.
async fn messages(ports: &StorePorts) -> String {
    let target = MessageTarget::Conversation(conversation_id(1));
    let message = message(1, "alice", target);
    let queued = ports.pending.enqueue(&message).await.unwrap();
    assert_eq!(queued, EnqueueOutcome::Queued(1));
    format!(
        "{:#?}",
        ports.pending.list_waiting(conversation_id(1)).await
    )
}

/// The first version had no secrets. Their table exists and can be used.
async fn secrets(ports: &StorePorts) -> String {
    let alice = user("alice");
    assert_eq!(ports.secrets.all(&alice).await.unwrap(), []);
    let secret = fixtures::secret(1, "alice", "A", at(1));
    ports.secrets.insert(&secret).await.unwrap();
    format!("{:#?}", ports.secrets.all(&alice).await)
}

/// SQL that adds a user `admin` to a database of an older version.
pub(crate) const WITH_ADMIN: &str =
    "INSERT INTO users (id, created_at) SELECT 'admin', created_at FROM users;";

/// Checks that the user `admin` is the only administrator.
pub(crate) async fn check_roles(ports: &StorePorts) {
    let users = ports.users.list(None, 100).await.unwrap();
    let roles: Vec<_> = users
        .iter()
        .map(|user| (user.id.as_str(), user.role))
        .collect();
    assert_eq!(roles, [("admin", Role::Admin), ("alice", Role::User)]);
}

/// A change of the audit log, which every database refuses if the log has an entry.
pub(crate) const FORGERY: &str = "UPDATE audit_log SET actor = 'cli'";

/// Adds an entry to the audit log.
pub(crate) async fn add_audit_entry(ports: &StorePorts) {
    let change = AdminChange::CreateUser {
        user: user("bob"),
        role: Role::User,
    };
    let entry = port_conformance::suites::users::audit_log::entry(1, 1);
    let administered = ports.administration.administer(&change, &entry).await;
    administered.unwrap();
}

/// Asserts that the texts are equal. The message of a failure keeps their lines.
pub(crate) fn assert_same(version: &str, actual: &[String], expected: &[String]) {
    for (actual, expected) in actual.iter().zip(expected) {
        assert!(
            actual == expected,
            "{version}: {actual}\ninstead of {expected}"
        );
    }
    assert_eq!(actual.len(), expected.len(), "{version}");
}
