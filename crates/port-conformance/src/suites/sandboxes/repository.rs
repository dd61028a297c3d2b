//! Conformance tests of `SandboxRepository`.

use domain::error::StoreError;
use domain::id::{ApiKeyId, HostId};
use domain::sandbox::{DesiredState, Sandbox, SandboxFacts, SandboxStatus, SandboxView};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;

use crate::fixtures::{
    AMPLE_CAPS, after, at, conversation, endpoints, foreign_tokens, host, page, read_all_pages,
    sandbox, sandbox_id, scope, user, uuid,
};
use crate::{StorePorts, assert_is};

fn names<T: Clone + Into<SandboxView>>(sandboxes: &[T]) -> Vec<String> {
    let views = sandboxes.iter().cloned().map(Into::into);
    views.map(|it| it.id.to_string()).collect()
}

/// An inserted sandbox is found with every field, by id, by key and by callback token. An id cannot be inserted twice. A
/// callback token is not a session key, and no token finds a sandbox without one.
pub async fn every_field_is_stored(ports: &StorePorts) {
    let endpoints = endpoints(8000);
    let stored = Sandbox {
        desired: DesiredState::Paused,
        status: SandboxStatus::Error,
        status_detail: Some("exit code 1 – é".to_owned()),
        agent_url: Some(endpoints.agent_url.into()),
        exposed_urls: endpoints.exposed_urls.into(),
        workspace: Some(endpoints.workspace),
        has_proxy: endpoints.has_proxy,
        egress: Some("git example.org:8443".parse().unwrap()),
        automation_key: Some(ApiKeyId::new(uuid(3))),
        updated_at: at(2),
        paused_at: Some(at(1)),
        callback_token_hash: Some(KeyHash::of("callback token")),
        ..sandbox("12345678901234567890", "alice", at(0))
    };
    ports.sandboxes.insert(&stored, &AMPLE_CAPS).await.unwrap();
    let alice = scope("alice");
    let found = ports.sandboxes.find(&alice, &stored.id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&stored));
    let by_key = ports.sandbox_keys.find_by_key(&stored.key_hash).await;
    assert_eq!(by_key.unwrap().as_ref(), Some(&stored));
    let token = stored.callback_token_hash.unwrap();
    let by_token = ports.sandbox_keys.find_by_callback_token(&token).await;
    assert_eq!(by_token.unwrap().as_ref(), Some(&stored));
    assert_eq!(ports.sandbox_keys.find_by_key(&token).await.unwrap(), None);
    let crossed = ports.sandbox_keys.find_by_callback_token(&stored.key_hash);
    assert_eq!(crossed.await.unwrap(), None);
    for id in ["old-1", "old-2"] {
        let older = sandbox(id, "alice", at(0));
        ports.sandboxes.insert(&older, &AMPLE_CAPS).await.unwrap();
        assert_eq!(ports.sandbox_row(&older.id).await, Some(older));
    }
    let other = sandbox("other", "alice", at(0));
    assert_eq!(
        ports
            .sandbox_keys
            .find_by_key(&other.key_hash)
            .await
            .unwrap(),
        None
    );
    let again = ports.sandboxes.insert(&stored, &AMPLE_CAPS).await;
    assert_is!(again, Err(StoreError::Conflict { .. }));
}

/// No method finds another user's sandbox; the system sees all.
pub async fn scopes_are_isolated(ports: &StorePorts) {
    let id = ports.insert_sandbox("a1", "alice").await.id;
    let bob = scope("bob");
    let repo = &ports.sandboxes;
    assert_eq!(repo.find(&bob, &id).await.unwrap(), None);
    let many = repo.find_many(&bob, std::slice::from_ref(&id)).await;
    assert_eq!(many.unwrap(), [None]);
    assert_eq!(repo.search(&bob, &page(10)).await.unwrap().items, []);
    for desired in [
        DesiredState::Running,
        DesiredState::Paused,
        DesiredState::Deleted,
    ] {
        let changed = repo
            .set_desired(&bob, &id, desired, &AMPLE_CAPS, at(1))
            .await;
        assert_eq!(changed.unwrap(), None);
    }
    let row = ports.sandbox_row(&id).await.unwrap();
    assert_eq!(row, sandbox("a1", "alice", at(0)));
    let all = repo.search(&Scope::System, &page(10)).await.unwrap();
    assert_eq!(names(&all.items), ["a1"]);
}

/// A sandbox that is marked for deletion is hidden from its owner at once and stays marked. The system still sees it,
/// and it is found by its key.
pub async fn deleted_is_hidden_and_final(ports: &StorePorts) {
    let stored = ports.insert_sandbox("a1", "alice").await;
    let (alice, repo) = (scope("alice"), &ports.sandboxes);
    let deleted = repo
        .set_desired(
            &alice,
            &stored.id,
            DesiredState::Deleted,
            &AMPLE_CAPS,
            at(1),
        )
        .await;
    assert!(deleted.unwrap().is_some());
    assert_eq!(repo.find(&alice, &stored.id).await.unwrap(), None);
    let many = repo
        .find_many(&alice, std::slice::from_ref(&stored.id))
        .await;
    assert_eq!(many.unwrap(), [None]);
    assert_eq!(repo.search(&alice, &page(10)).await.unwrap().items, []);
    for scope in [alice, Scope::System] {
        for desired in [DesiredState::Running, DesiredState::Paused] {
            let revived = repo
                .set_desired(&scope, &stored.id, desired, &AMPLE_CAPS, at(2))
                .await;
            assert_eq!(revived.unwrap(), None);
        }
    }
    let row = ports.sandbox_row(&stored.id).await.unwrap();
    assert_eq!(
        (row.desired, row.updated_at),
        (DesiredState::Deleted, at(1))
    );
    let by_key = ports
        .sandbox_keys
        .find_by_key(&stored.key_hash)
        .await
        .unwrap();
    assert_eq!(by_key, Some(row));
}

/// `find_many` keeps order, length and repetition.
pub async fn find_many_keeps_order(ports: &StorePorts) {
    for id in ["a", "b", "c"] {
        ports.insert_sandbox(id, "alice").await;
    }
    let ids = ["c", "x", "a", "c"].map(sandbox_id);
    let found = ports.sandboxes.find_many(&scope("alice"), &ids).await;
    let found: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|it| it.map(|it| it.id.to_string()))
        .collect();
    let expected = [Some("c"), None, Some("a"), Some("c")].map(|it| it.map(str::to_owned));
    assert_eq!(found, expected);
    let none = ports.sandboxes.find_many(&scope("alice"), &[]).await;
    assert_eq!(none.unwrap(), []);
}

/// Pages are ordered newest first, ties by id, and stay stable when rows are added and deleted in between.
pub async fn paging_is_stable(ports: &StorePorts) {
    for (id, created) in [("a", 1), ("b", 2), ("c", 2), ("d", 2), ("e", 3)] {
        let row = sandbox(id, "alice", at(created));
        ports.sandboxes.insert(&row, &AMPLE_CAPS).await.unwrap();
    }
    let (alice, repo) = (scope("alice"), &ports.sandboxes);
    let first = repo.search(&alice, &page(2)).await.unwrap();
    assert_eq!(names(&first.items), ["e", "d"]);
    let newer = sandbox("f", "alice", at(9));
    repo.insert(&newer, &AMPLE_CAPS).await.unwrap();
    assert!(ports.host_sandboxes.remove(&sandbox_id("d")).await.unwrap());
    let second = repo.search(&alice, &after(2, first.next)).await.unwrap();
    assert_eq!(names(&second.items), ["c", "b"]);
    let third = repo.search(&alice, &after(2, second.next)).await.unwrap();
    assert_eq!(names(&third.items), ["a"]);
    assert_eq!(third.next, None);
    let expected = repo.find(&alice, &sandbox_id("a")).await.unwrap();
    assert_eq!(third.items, [expected.expect("an existing sandbox").into()]);
    let exact = repo.search(&alice, &page(5)).await.unwrap();
    assert_eq!((exact.items.len(), exact.next), (5, None));
    let walked = read_all_pages(9, async |token| {
        repo.search(&alice, &after(1, token)).await.unwrap()
    });
    assert_eq!(names(&walked.await), ["f", "e", "c", "b", "a"]);
}

/// A foreign token, or one of another list, is refused.
pub async fn foreign_page_tokens_are_refused(ports: &StorePorts) {
    ports.insert_sandbox("a", "alice").await;
    for n in [1, 2] {
        ports
            .insert_conversation(&conversation(n, "alice", "a", at(0)))
            .await;
    }
    let filter = domain::conversation::ConversationFilter::default();
    let conversations = ports
        .conversations
        .search(&scope("alice"), &filter, &page(1))
        .await
        .unwrap();
    let mut tokens = foreign_tokens();
    tokens.extend(conversations.next);
    assert_eq!(tokens.len(), foreign_tokens().len() + 1);
    for token in tokens {
        let answer = ports
            .sandboxes
            .search(&scope("alice"), &after(5, Some(token)))
            .await;
        assert_is!(answer, Err(StoreError::InvalidPageToken));
    }
}

/// All sandboxes of a host are listed by id, in any state.
pub async fn a_host_is_walked_by_id(ports: &StorePorts) {
    for (id, owner) in [("c", "alice"), ("a", "bob"), ("b", "alice")] {
        ports.insert_sandbox(id, owner).await;
    }
    let mut elsewhere = sandbox("d", "alice", at(0));
    elsewhere.host = HostId::parse("host-2").unwrap();
    let repo = &ports.sandboxes;
    repo.insert(&elsewhere, &AMPLE_CAPS).await.unwrap();
    repo.set_desired(
        &Scope::System,
        &sandbox_id("b"),
        DesiredState::Deleted,
        &AMPLE_CAPS,
        at(1),
    )
    .await
    .unwrap();
    let first = ports
        .host_sandboxes
        .list_on_host(&host(), None, 2)
        .await
        .unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    let rest = ports
        .host_sandboxes
        .list_on_host(&host(), Some(&first[1].id), 2)
        .await
        .unwrap();
    assert_eq!(names(&rest), ["c"]);
}

/// Rows that differ from what is wanted are listed by their last change, those of the host alone.
pub async fn unsettled_sandboxes_are_listed(ports: &StorePorts) {
    let running = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    let cases = [
        ("settled", DesiredState::Running, true),
        ("starting", DesiredState::Running, false),
        ("running-on", DesiredState::Paused, true),
        ("not-deleted", DesiredState::Deleted, true),
    ];
    for (n, (id, desired, runs)) in cases.into_iter().enumerate() {
        ports.insert_sandbox(id, "alice").await;
        let (id, n) = (sandbox_id(id), i64::try_from(n).unwrap());
        if runs {
            let hosts = &ports.host_sandboxes;
            let recorded = hosts.record_facts(&id, DesiredState::Running, &running, at(1));
            assert!(recorded.await.unwrap());
        }
        if desired != DesiredState::Running {
            let repo = &ports.sandboxes;
            // The latest ones first, so that the order is not that of the insertions.
            let wanted = repo.set_desired(&Scope::System, &id, desired, &AMPLE_CAPS, at(20 - n));
            wanted.await.unwrap();
        }
    }
    let mut elsewhere = sandbox("elsewhere", "alice", at(0));
    elsewhere.host = HostId::parse("host-2").unwrap();
    let repo = &ports.sandboxes;
    repo.insert(&elsewhere, &AMPLE_CAPS).await.unwrap();
    let listed = async |limit| {
        let found = ports.host_sandboxes.list_unsettled(&host(), limit).await;
        found.unwrap()
    };
    let all = listed(10).await;
    assert_eq!(names(&all), ["starting", "not-deleted", "running-on"]);
    assert_eq!(names(&listed(1).await), ["starting"]);
}

/// A removed row is gone; its conversations stay and show no sandbox.
pub async fn conversations_outlive_their_sandbox(ports: &StorePorts) {
    let stored = ports.insert_sandbox("a", "alice").await;
    let id = ports
        .insert_conversation(&conversation(1, "alice", "a", at(0)))
        .await;
    assert_eq!(ports.view(id).await.unwrap().sandbox, Some(stored.clone()));
    // It is hidden already while it is only marked.
    ports
        .sandboxes
        .set_desired(
            &scope("alice"),
            &stored.id,
            DesiredState::Deleted,
            &AMPLE_CAPS,
            at(1),
        )
        .await
        .unwrap();
    assert_eq!(ports.view(id).await.unwrap().sandbox, None);
    assert!(ports.host_sandboxes.remove(&stored.id).await.unwrap());
    assert!(!ports.host_sandboxes.remove(&stored.id).await.unwrap());
    assert_eq!(ports.sandbox_row(&stored.id).await, None);
    let view = ports.view(id).await.unwrap();
    assert_eq!(
        (view.sandbox, view.conversation.owner),
        (None, user("alice"))
    );
}

/// Generates the conformance tests of `SandboxRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! sandbox_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (sandboxes::repository),
            $fresh,
            [
                every_field_is_stored,
                scopes_are_isolated,
                deleted_is_hidden_and_final,
                find_many_keeps_order,
                paging_is_stable,
                foreign_page_tokens_are_refused,
                a_host_is_walked_by_id,
                unsettled_sandboxes_are_listed,
                conversations_outlive_their_sandbox,
            ]
        );
        $crate::conformance_tests!(
            (sandboxes::lifecycle),
            $fresh,
            [
                a_race_never_exceeds_a_cap,
                the_caps_count_what_runs,
                intents_are_committed,
                facts_are_fenced_by_the_intent,
                a_session_key_is_replaced_once,
                facts_replace_each_other,
                a_preparation_reports_its_progress,
                sandboxes_of_an_unreachable_host_are_annotated,
                a_fact_clears_an_annotation,
            ]
        );
        $crate::conformance_tests!(
            (sandboxes::retirement),
            $fresh,
            [
                idle_sandboxes_are_paused,
                old_sandboxes_are_deleted,
                the_longest_unchanged_come_first,
                retiring_commits_an_intent,
                reports_count_as_use,
            ]
        );
        $crate::conformance_tests!(
            (sandboxes::retirement_races),
            $fresh,
            [
                a_start_or_a_deletion_wins,
                a_start_prevents_or_follows_a_pause,
                a_starting_conversation_keeps_its_sandbox,
                an_adoption_or_a_deletion_wins,
                a_run_prevents_or_follows_a_retirement,
                a_race_to_retire_has_one_winner,
            ]
        );
    };
}
