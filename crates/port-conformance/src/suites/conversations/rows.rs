//! Conformance tests of `ConversationRepository` and `ConversationReportRepository::adopt`: finding, changing and
//! adopting single conversations.

use std::collections::BTreeMap;

use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationView, ExecutionStatus,
    MAX_PULL_REQUESTS, Metrics, Trigger, UnsettledConversation,
};
use domain::event::AppendOutcome;
use domain::git::GitProvider;
use domain::id::HostId;
use domain::patch::Patch;
use domain::sandbox::{DesiredState, SandboxFacts};
use domain::user::scope::Scope;

use crate::StorePorts;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, endpoints, host, page, sandbox_id, scope, start,
    start_in, user,
};

fn titled(n: u64, title: Option<&str>) -> Conversation {
    Conversation {
        title: title.map(str::to_owned),
        ..conversation(n, "alice", "s", at(0))
    }
}

fn all() -> ConversationFilter {
    ConversationFilter {
        include_sub_conversations: true,
        ..ConversationFilter::default()
    }
}

/// Every field is stored, times to the microsecond, and read together with the sandbox.
pub async fn every_field_is_stored(ports: &StorePorts) {
    let sandbox = ports.insert_sandbox("s", "alice").await;
    let stored = Conversation {
        title: Some("Größe % _ \\ 'x' \"y\" 🦀".to_owned()),
        auto_title: false,
        selected_repository: Some("owner/repo".to_owned()),
        selected_branch: Some("main".to_owned()),
        git_provider: Some(GitProvider::BitbucketDataCenter),
        trigger: Some(Trigger::SuggestedTask),
        pr_numbers: vec![3, -1, i64::MAX],
        llm_model: Some("openai/gpt-5".to_owned()),
        metrics: Metrics {
            accumulated_cost: 0.125,
            max_budget_per_task: Some(7.5),
            prompt_tokens: i64::MAX,
            per_turn_token: 5,
            ..Metrics::default()
        },
        parent: Some(conversation_id(99)),
        public: Some(false),
        tags: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        execution_status: Some(ExecutionStatus::WaitingForConfirmation),
        updated_at: at(5),
        ..conversation(1, "alice", "s", at(0))
    };
    ports.insert_conversation(&stored).await;
    let view = ports.conversations.find(&scope("alice"), stored.id).await;
    let expected = ConversationView {
        conversation: stored.clone(),
        sandbox: Some(sandbox),
        children: Vec::new(),
    };
    assert_eq!(view.unwrap(), Some(expected));
    let inside = ports
        .conversation_reports
        .list_in_sandbox(&stored.sandbox_id, 10)
        .await
        .unwrap();
    assert_eq!(inside, [stored]);
}

/// Pull requests are recorded in order, each once, also concurrently, up to the limit.
pub async fn pull_requests_are_recorded(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let stored = Conversation {
        pr_numbers: vec![3],
        ..titled(1, None)
    };
    let id = ports.insert_conversation(&stored).await;
    let (alice, repo) = (scope("alice"), &ports.conversations);
    let noted = async |scope: &Scope, id, number: i64, second| {
        let noted = repo.add_pull_request(scope, id, number, at(second));
        noted.await.unwrap()
    };
    assert!(noted(&alice, id, 7, 1).await);
    assert!(
        noted(&alice, id, 3, 2).await,
        "a recorded number changes nothing"
    );
    let row = ports.view(id).await.unwrap().conversation;
    assert_eq!((row.pr_numbers, row.updated_at), (vec![3, 7], at(1)));
    assert!(!noted(&scope("bob"), id, 8, 3).await);
    assert!(!noted(&alice, conversation_id(9), 8, 3).await);

    let most = i64::try_from(MAX_PULL_REQUESTS).unwrap();
    let all = (100..100 + most).map(|number| noted(&alice, id, number, 4));
    let all = futures::future::join_all(all).await;
    assert!(all.into_iter().all(|noted| noted));
    let mut numbers = ports.view(id).await.unwrap().conversation.pr_numbers;
    assert_eq!(
        (numbers.len(), &numbers[..2]),
        (MAX_PULL_REQUESTS, &[3, 7][..])
    );
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(
        numbers.len(),
        MAX_PULL_REQUESTS,
        "each number once, up to the limit"
    );
}

/// No method finds another user's conversation; the system sees all.
pub async fn scopes_are_isolated(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let id = ports.insert_conversation(&titled(1, Some("title"))).await;
    let (bob, repo) = (scope("bob"), &ports.conversations);
    assert_eq!(repo.find(&bob, id).await.unwrap(), None);
    assert_eq!(repo.find_many(&bob, &[id]).await.unwrap(), [None]);
    assert_eq!(repo.search(&bob, &all(), &page(9)).await.unwrap().items, []);
    assert_eq!(repo.count(&bob, &all()).await.unwrap(), 0);
    let change = ConversationChange {
        title: Patch::Set("bob was here".to_owned()),
        ..ConversationChange::default()
    };
    let changed = repo.update(&bob, id, &change, at(1)).await.unwrap();
    assert_eq!(changed, None);
    let nothing = ConversationChange::default();
    let read = repo.update(&bob, id, &nothing, at(1)).await;
    assert_eq!(read.unwrap(), None);
    assert!(!repo.delete(&bob, id, at(1)).await.unwrap());
    assert_eq!(
        ports.view(id).await.unwrap().conversation,
        titled(1, Some("title"))
    );
    assert_eq!(repo.count(&Scope::System, &all()).await.unwrap(), 1);
}

/// `find_many` keeps order, length and repetition.
pub async fn find_many_keeps_order(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for n in [1, 2, 3] {
        ports.insert_conversation(&titled(n, None)).await;
    }
    let ids = [3, 9, 1, 3].map(conversation_id);
    let found = ports.conversations.find_many(&scope("alice"), &ids).await;
    let found: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|view| view.map(|view| view.conversation.id))
        .collect();
    assert_eq!(found, [Some(ids[0]), None, Some(ids[2]), Some(ids[3])]);
    let none = ports.conversations.find_many(&scope("alice"), &[]).await;
    assert_eq!(none.unwrap(), []);
}

/// A change sets only its fields and `updated_at`. Setting or clearing a title ends automatic titles.
pub async fn a_change_applies_only_to_its_fields(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let before = Conversation {
        selected_branch: Some("main".to_owned()),
        git_provider: Some(GitProvider::Github),
        ..titled(1, Some("title"))
    };
    let id = ports.insert_conversation(&before).await;
    let update = async |change: ConversationChange, when| {
        let view = ports
            .conversations
            .update(&scope("alice"), id, &change, when)
            .await;
        let view = view.unwrap().expect("an existing conversation");
        assert_eq!(ports.view(id).await.as_ref(), Some(&view));
        assert!(view.sandbox.is_some());
        view.conversation
    };
    let change = ConversationChange {
        public: Patch::Set(true),
        selected_repository: Patch::Set("o/r".to_owned()),
        selected_branch: Patch::Clear,
        ..ConversationChange::default()
    };
    let expected = Conversation {
        public: Some(true),
        selected_repository: Some("o/r".to_owned()),
        selected_branch: None,
        updated_at: at(1),
        ..before
    };
    assert_eq!(update(change, at(1)).await, expected);
    let read = update(ConversationChange::default(), at(2)).await;
    assert_eq!(read, expected, "an empty change only reads");
    let change = ConversationChange {
        title: Patch::Clear,
        public: Patch::Clear,
        git_provider: Patch::Set(GitProvider::Gitlab),
        ..ConversationChange::default()
    };
    let expected = Conversation {
        title: None,
        auto_title: false,
        public: None,
        git_provider: Some(GitProvider::Gitlab),
        updated_at: at(3),
        ..expected
    };
    assert_eq!(update(change, at(3)).await, expected);
    let unknown = ports
        .conversations
        .update(
            &scope("alice"),
            conversation_id(9),
            &ConversationChange::default(),
            at(4),
        )
        .await;
    assert_eq!(unknown.unwrap(), None);
}

/// An agent server may add its own conversation once, for its own sandbox, unless the id is known, deleted or reserved
/// by a start.
pub async fn adoption_takes_only_what_is_free(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    ports.insert_sandbox("t", "alice").await;
    let mine = titled(1, Some("first"));
    assert_eq!(
        ports.conversation_reports.adopt(&mine).await.unwrap(),
        AppendOutcome::Stored { new: 1 }
    );
    let again = titled(1, Some("second"));
    assert_eq!(
        ports.conversation_reports.adopt(&again).await.unwrap(),
        AppendOutcome::Stored { new: 0 }
    );
    let elsewhere = conversation(1, "alice", "t", at(1));
    assert_eq!(
        ports.conversation_reports.adopt(&elsewhere).await.unwrap(),
        AppendOutcome::Foreign
    );
    assert_eq!(ports.view(mine.id).await.unwrap().conversation, mine);

    assert!(
        ports
            .conversations
            .delete(&scope("alice"), mine.id, at(1))
            .await
            .unwrap()
    );
    assert_eq!(
        ports.conversation_reports.adopt(&mine).await.unwrap(),
        AppendOutcome::Deleted
    );
    assert_eq!(ports.view(mine.id).await, None);

    ports.insert_start(&start_in(2, "alice", "t", at(1))).await;
    let reserved = conversation(2, "alice", "t", at(1));
    assert_eq!(
        ports.conversation_reports.adopt(&reserved).await.unwrap(),
        AppendOutcome::Stored { new: 0 }
    );
    ports.insert_start(&start(3, "bob", "u", at(1))).await;
    let squatted = conversation(3, "alice", "t", at(1));
    assert_eq!(
        ports.conversation_reports.adopt(&squatted).await.unwrap(),
        AppendOutcome::Foreign
    );
    assert_eq!(ports.view(squatted.id).await, None);
}

/// No conversation is adopted for a sandbox that is gone, marked for deletion, or another user's.
pub async fn adoption_needs_the_sandbox(ports: &StorePorts) {
    let nowhere = conversation(1, "alice", "x", at(0));
    let id = ports.insert_sandbox("s", "alice").await.id;
    let others = conversation(2, "bob", "s", at(0));
    let going = conversation(3, "alice", "s", at(0));
    for row in [&nowhere, &others] {
        let adopted = ports.conversation_reports.adopt(row).await.unwrap();
        assert_eq!(adopted, AppendOutcome::Unknown);
    }
    ports
        .sandboxes
        .set_desired(
            &scope("alice"),
            &id,
            domain::sandbox::DesiredState::Deleted,
            &AMPLE_CAPS,
            at(1),
        )
        .await
        .unwrap();
    let adopted = ports.conversation_reports.adopt(&going).await.unwrap();
    assert_eq!(adopted, AppendOutcome::Unknown);
    assert_eq!(
        ports
            .conversations
            .count(&Scope::System, &all())
            .await
            .unwrap(),
        0
    );
}

/// The conversations of a sandbox are listed newest first, up to the limit, for all owners.
pub async fn a_sandbox_lists_its_conversations(ports: &StorePorts) {
    for id in ["s", "t"] {
        ports.insert_sandbox(id, "alice").await;
    }
    for (n, sandbox, created) in [(1, "s", 2), (2, "s", 1), (3, "t", 0), (4, "s", 2)] {
        ports
            .insert_conversation(&conversation(n, "alice", sandbox, at(created)))
            .await;
    }
    let ids = async |limit| {
        let found = ports
            .conversation_reports
            .list_in_sandbox(&sandbox_id("s"), limit)
            .await;
        let found = found.unwrap();
        found.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(10).await, [4, 1, 2].map(conversation_id));
    assert_eq!(ids(1).await, [conversation_id(4)]);
    let owner = user("alice");
    let found = ports
        .conversation_reports
        .list_in_sandbox(&sandbox_id("s"), 9)
        .await;
    assert!(found.unwrap().iter().all(|it| it.owner == owner));
}

/// The unsettled conversations of a host's running sandboxes are listed, and no others.
pub async fn unsettled_conversations_are_listed(ports: &StorePorts) {
    let reports = &ports.conversation_reports;
    for id in ["a", "b", "starts", "paused"] {
        ports.insert_sandbox(id, "alice").await;
    }
    for id in ["a", "b", "paused"].map(sandbox_id) {
        let facts = SandboxFacts::Running {
            endpoints: endpoints(8000),
        };
        let running = ports
            .host_sandboxes
            .record_facts(&id, DesiredState::Running, &facts, at(0));
        assert!(running.await.unwrap());
    }
    let (alice, paused) = (scope("alice"), sandbox_id("paused"));
    let pausing =
        ports
            .sandboxes
            .set_desired(&alice, &paused, DesiredState::Paused, &AMPLE_CAPS, at(0));
    assert!(pausing.await.unwrap().is_some());
    let stored = [
        ("b", 1, Some(ExecutionStatus::Running), false, 0),
        ("b", 2, Some(ExecutionStatus::Finished), true, 0),
        ("a", 9, None, false, 0),
        ("a", 3, Some(ExecutionStatus::Idle), true, 6),
        ("a", 4, Some(ExecutionStatus::Idle), true, 5),
        ("a", 5, Some(ExecutionStatus::Idle), false, 6),
        ("starts", 6, None, true, 9),
        ("paused", 7, None, true, 9),
    ];
    for (sandbox, n, execution_status, auto_title, created) in stored {
        let row = Conversation {
            execution_status,
            auto_title,
            title: Some("Größe".to_owned()),
            ..conversation(n, "alice", sandbox, at(created))
        };
        ports.insert_conversation(&row).await;
    }
    let found = reports.list_unsettled(&host(), at(5), 10).await.unwrap();
    let unsettled = |n, sandbox, execution_status| UnsettledConversation {
        id: conversation_id(n),
        sandbox_id: sandbox_id(sandbox),
        title: Some("Größe".to_owned()),
        execution_status,
    };
    let expected = [
        unsettled(3, "a", Some(ExecutionStatus::Idle)),
        unsettled(9, "a", None),
        unsettled(1, "b", Some(ExecutionStatus::Running)),
    ];
    assert_eq!(found, expected);
    let first = reports.list_unsettled(&host(), at(5), 2).await.unwrap();
    assert_eq!(first, expected[..2], "at most `limit` rows");
    let elsewhere = HostId::parse("elsewhere").unwrap();
    assert_eq!(
        reports.list_unsettled(&elsewhere, at(5), 10).await.unwrap(),
        []
    );
}
