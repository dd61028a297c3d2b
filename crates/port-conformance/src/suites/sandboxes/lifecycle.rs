//! Conformance tests of `SandboxRepository` and `HostSandboxRepository`: caps, intents and facts.

use domain::encryption::cipher::Sealed;
use domain::error::{ReachedCap, StoreError};
use domain::id::HostId;
use domain::sandbox::{
    DesiredState, NewSessionKey, Sandbox, SandboxCaps, SandboxFacts, SandboxStatus,
};
use domain::user::identity::KeyHash;
use futures::future::join_all;
use futures::join;

use crate::fixtures::{AMPLE_CAPS, at, endpoints, host, sandbox, sandbox_id, scope};
use crate::{StorePorts, assert_is};

/// 50 concurrent inserts under a cap of 7: exactly 7 succeed, for each cap.
pub async fn a_race_never_exceeds_a_cap(ports: &StorePorts) {
    let per_user = SandboxCaps {
        per_user: 7,
        overall: 1000,
    };
    let overall = SandboxCaps {
        per_user: 1000,
        overall: 12,
    };
    for (who, caps, winners) in [("alice", per_user, 7), ("bob", overall, 5)] {
        let rows: Vec<_> = (0..50)
            .map(|n| sandbox(&format!("{who}-{n}"), who, at(n)))
            .collect();
        let answers = join_all(rows.iter().map(|row| ports.sandboxes.insert(row, &caps))).await;
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(won, winners, "{who}");
        for lost in answers.into_iter().filter(Result::is_err) {
            assert_is!(
                lost,
                Err(StoreError::CapReached(
                    ReachedCap::PerUser(7) | ReachedCap::Overall(12)
                ))
            );
        }
    }
}

/// The caps count sandboxes that are desired to run and starting or running. 0 allows none.
pub async fn the_caps_count_what_runs(ports: &StorePorts) {
    let (repo, alice) = (&ports.sandboxes, scope("alice"));
    let two = SandboxCaps {
        per_user: 2,
        overall: 2,
    };
    let (one, other) = (
        ports.insert_sandbox("a", "alice").await,
        sandbox("b", "alice", at(0)),
    );
    repo.insert(&other, &two).await.unwrap();
    let third = sandbox("c", "alice", at(0));
    assert_is!(
        repo.insert(&third, &two).await,
        Err(StoreError::CapReached(ReachedCap::PerUser(2)))
    );
    // Paused and failed sandboxes do not count.
    repo.set_desired(&alice, &one.id, DesiredState::Paused, &two, at(1))
        .await
        .unwrap();
    repo.insert(&third, &two).await.unwrap();
    let failed = SandboxFacts::Error {
        detail: "it died".to_owned(),
    };
    assert!(
        ports
            .host_sandboxes
            .record_facts(&other.id, DesiredState::Running, &failed, at(1))
            .await
            .unwrap()
    );
    // A resume is checked like an insert, and a refused one changes nothing.
    repo.set_desired(&alice, &one.id, DesiredState::Running, &two, at(2))
        .await
        .unwrap();
    let refused = repo
        .set_desired(&alice, &other.id, DesiredState::Running, &two, at(3))
        .await;
    assert_is!(refused, Err(StoreError::CapReached(ReachedCap::PerUser(2))));
    let row = ports.sandbox_row(&other.id).await.unwrap();
    assert_eq!((row.status, row.updated_at), (SandboxStatus::Error, at(1)));
    let nothing = SandboxCaps {
        per_user: 0,
        overall: 9,
    };
    let refused = repo.insert(&sandbox("z", "zoe", at(0)), &nothing).await;
    assert_is!(refused, Err(StoreError::CapReached(ReachedCap::PerUser(0))));
}

/// Pause and resume, each repeated.
pub async fn intents_are_committed(ports: &StorePorts) {
    let id = ports.insert_sandbox("a", "alice").await.id;
    let (repo, host) = (&ports.sandboxes, &ports.host_sandboxes);
    let alice = scope("alice");
    let set = async |desired, when| {
        repo.set_desired(&alice, &id, desired, &AMPLE_CAPS, when)
            .await
            .unwrap()
            .unwrap()
    };
    let none = SandboxCaps {
        per_user: 0,
        overall: 0,
    };
    // It is starting already and stays so, whatever the caps are.
    let same = repo
        .set_desired(&alice, &id, DesiredState::Running, &none, at(1))
        .await;
    assert_eq!(same.unwrap().unwrap().updated_at, at(0));

    let paused = set(DesiredState::Paused, at(2)).await;
    assert_eq!(
        (paused.desired, paused.paused_at),
        (DesiredState::Paused, Some(at(2)))
    );
    assert_eq!(
        paused.status,
        SandboxStatus::Starting,
        "the status is a fact, not an intent"
    );
    assert_eq!(paused.updated_at, at(2));
    let again = set(DesiredState::Paused, at(3)).await;
    assert_eq!(again.paused_at, Some(at(2)), "already paused");

    host.record_facts(&id, DesiredState::Paused, &SandboxFacts::Paused, at(4))
        .await
        .unwrap();
    let resumed = set(DesiredState::Running, at(5)).await;
    assert_eq!(resumed.desired, DesiredState::Running);
    assert_eq!(resumed.status, SandboxStatus::Starting);
    let once_more = set(DesiredState::Paused, at(6)).await;
    assert_eq!(once_more.paused_at, Some(at(6)), "paused again");

    let failed = SandboxFacts::Error {
        detail: "it died".to_owned(),
    };
    set(DesiredState::Running, at(7)).await;
    host.record_facts(&id, DesiredState::Running, &failed, at(8))
        .await
        .unwrap();
    let revived = set(DesiredState::Running, at(9)).await;
    assert_eq!(revived.status, SandboxStatus::Starting);
    assert_eq!(revived.status_detail, None);
    assert_eq!(ports.sandbox_row(&id).await, Some(revived));
    let (unknown, caps) = (sandbox_id("x"), &AMPLE_CAPS);
    let unknown = repo
        .set_desired(&alice, &unknown, DesiredState::Paused, caps, at(1))
        .await;
    assert_eq!(unknown.unwrap(), None);
}

/// Facts are recorded only while the intent is the expected one.
pub async fn facts_are_fenced_by_the_intent(ports: &StorePorts) {
    let hosted = &ports.host_sandboxes;
    let id = ports.insert_sandbox("a", "alice").await.id;
    let (repo, alice) = (&ports.sandboxes, scope("alice"));
    let running = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    assert!(
        !hosted
            .record_facts(&id, DesiredState::Paused, &running, at(1))
            .await
            .unwrap()
    );
    assert!(
        hosted
            .record_facts(&id, DesiredState::Running, &running, at(1))
            .await
            .unwrap()
    );
    repo.set_desired(&alice, &id, DesiredState::Paused, &AMPLE_CAPS, at(2))
        .await
        .unwrap();
    let late = SandboxFacts::Error {
        detail: "late".to_owned(),
    };
    assert!(
        !hosted
            .record_facts(&id, DesiredState::Running, &late, at(3))
            .await
            .unwrap()
    );
    let row = ports.sandbox_row(&id).await.unwrap();
    assert_eq!(
        (row.status, row.updated_at),
        (SandboxStatus::Running, at(2))
    );
    let unknown = sandbox_id("x");
    assert!(
        !hosted
            .record_facts(&unknown, DesiredState::Running, &late, at(3))
            .await
            .unwrap()
    );
}

/// A session key is replaced once, while the intent is to run and the row has the old key. The sandbox is then STARTING with
/// the new key and without addresses, and the old key finds nothing. The callback token stays.
pub async fn a_session_key_is_replaced_once(ports: &StorePorts) {
    let keys = &ports.sandbox_keys;
    let token = KeyHash::of("callback token");
    let before = Sandbox {
        callback_token_hash: Some(token),
        ..sandbox("a", "alice", at(0))
    };
    let (id, repo, alice) = (&before.id, &ports.sandboxes, scope("alice"));
    repo.insert(&before, &AMPLE_CAPS).await.unwrap();
    let running = SandboxFacts::Running {
        endpoints: endpoints(8000),
    };
    let recorded = ports
        .host_sandboxes
        .record_facts(id, DesiredState::Running, &running, at(1))
        .await;
    assert!(recorded.unwrap());
    let new = |text: &str| NewSessionKey {
        hash: KeyHash::of(text),
        sealed: Sealed::from_text(format!("sealed {text}")),
    };
    let (first, second) = (new("first"), new("second"));
    let (one, two) = join!(
        keys.replace_session_key(id, &before.key_hash, &first, at(2)),
        keys.replace_session_key(id, &before.key_hash, &second, at(2)),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.is_some() != two.is_some(), "one of them wins");
    let (won, row) = match one {
        Some(row) => (first, row),
        None => (second, two.unwrap()),
    };
    let expected = Sandbox {
        key_hash: won.hash,
        session_key: won.sealed,
        workspace: Some(endpoints(8000).workspace),
        has_proxy: true,
        updated_at: at(2),
        ..before.clone()
    };
    assert_eq!(row, expected);
    assert_eq!(ports.sandbox_row(id).await, Some(expected));
    assert_eq!(keys.find_by_key(&before.key_hash).await.unwrap(), None);
    let found = keys.find_by_key(&won.hash).await.unwrap();
    assert_eq!(found.as_ref(), Some(&row));
    let found = keys.find_by_callback_token(&token).await.unwrap();
    assert_eq!(found.as_ref(), Some(&row));

    repo.set_desired(&alice, id, DesiredState::Paused, &AMPLE_CAPS, at(3))
        .await
        .unwrap();
    let third = new("third");
    let paused = keys.replace_session_key(id, &won.hash, &third, at(4));
    assert_eq!(paused.await.unwrap(), None);
    let unknown = sandbox_id("x");
    let unknown = keys.replace_session_key(&unknown, &won.hash, &third, at(4));
    assert_eq!(unknown.await.unwrap(), None);
    let row = ports.sandbox_row(id).await.unwrap();
    assert_eq!((row.key_hash, row.updated_at), (won.hash, at(3)));
}

/// A running sandbox has addresses. A paused, failed or missing one has none, and only the last two have a cause.
pub async fn facts_replace_each_other(ports: &StorePorts) {
    let id = ports.insert_sandbox("a", "alice").await.id;
    let record = async |facts: SandboxFacts, when| {
        let known = ports
            .host_sandboxes
            .record_facts(&id, DesiredState::Running, &facts, when)
            .await;
        assert!(known.unwrap());
        ports.sandbox_row(&id).await.unwrap()
    };
    let addresses = endpoints(8000);
    let starting = SandboxFacts::Starting {
        endpoints: addresses.clone(),
    };
    let row = record(starting, at(1)).await;
    assert_eq!(row.status, SandboxStatus::Starting);
    assert_eq!(row.agent_url.as_deref(), Some(&addresses.agent_url));
    let running = SandboxFacts::Running {
        endpoints: addresses.clone(),
    };
    let row = record(running.clone(), at(2)).await;
    assert_eq!(
        (row.status, row.updated_at),
        (SandboxStatus::Running, at(2))
    );
    assert_eq!(*row.exposed_urls, addresses.exposed_urls);
    assert_eq!(row.workspace, Some(addresses.workspace.clone()));
    assert!(row.has_proxy);
    let detail = "gone".to_owned();
    let ends = [
        (SandboxFacts::Paused, SandboxStatus::Paused, None),
        (
            SandboxFacts::Error {
                detail: detail.clone(),
            },
            SandboxStatus::Error,
            Some(detail.clone()),
        ),
        (
            SandboxFacts::Missing {
                detail: detail.clone(),
            },
            SandboxStatus::Missing,
            Some(detail),
        ),
    ];
    for (facts, status, detail) in ends {
        record(running.clone(), at(3)).await;
        let row = record(facts, at(4)).await;
        assert_eq!((row.status, row.status_detail), (status, detail));
        assert_eq!((row.agent_url, row.exposed_urls.len()), (None, 0));
        assert_eq!(row.workspace.as_ref(), Some(&addresses.workspace));
    }
    let row = record(running, at(5)).await;
    assert_eq!(row.status_detail, None);
}

/// A preparation keeps the sandbox STARTING and stores each line of progress; the facts that follow clear it.
pub async fn a_preparation_reports_its_progress(ports: &StorePorts) {
    let id = ports.insert_sandbox("a", "alice").await.id;
    let record = async |facts, when| {
        let known = ports
            .host_sandboxes
            .record_facts(&id, DesiredState::Running, &facts, at(when))
            .await;
        assert!(known.unwrap());
        let row = ports.sandbox_row(&id).await.unwrap();
        (row.status, row.status_detail, row.agent_url.is_some())
    };
    for (n, line) in [(1, "pulling: 10 %"), (2, "pulling: 90 %")] {
        let detail = line.to_owned();
        let row = record(SandboxFacts::Preparing { detail }, n).await;
        assert_eq!(row, (SandboxStatus::Starting, Some(line.to_owned()), false));
    }
    let endpoints = endpoints(8000);
    let starting = SandboxFacts::Starting {
        endpoints: endpoints.clone(),
    };
    let row = record(starting, 3).await;
    assert_eq!(row, (SandboxStatus::Starting, None, true));
    // A container that is created again has no addresses meanwhile.
    record(SandboxFacts::Running { endpoints }, 4).await;
    let detail = "pulling".to_owned();
    let row = record(SandboxFacts::Preparing { detail }, 5).await;
    assert_eq!(
        row,
        (SandboxStatus::Starting, Some("pulling".to_owned()), false)
    );
}

/// One sandbox of each status, all on the host of the fixtures.
async fn one_of_each(ports: &StorePorts) -> Vec<Sandbox> {
    use SandboxStatus::{Error, Missing, Paused, Running, Starting};
    let mut rows = Vec::new();
    for status in [Starting, Running, Paused, Error, Missing] {
        let row = Sandbox {
            status,
            status_detail: matches!(status, Error | Missing).then(|| "it died".to_owned()),
            ..sandbox(&status.to_string(), "alice", at(0))
        };
        ports.sandboxes.insert(&row, &AMPLE_CAPS).await.unwrap();
        rows.push(row);
    }
    rows
}

/// Only STARTING, RUNNING and PAUSED sandboxes of the host are annotated, and only their detail changes.
pub async fn sandboxes_of_an_unreachable_host_are_annotated(ports: &StorePorts) {
    let hosted = &ports.host_sandboxes;
    let rows = one_of_each(ports).await;
    let mut elsewhere = sandbox("elsewhere", "alice", at(0));
    elsewhere.host = HostId::parse("host-2").unwrap();
    ports
        .sandboxes
        .insert(&elsewhere, &AMPLE_CAPS)
        .await
        .unwrap();
    for detail in [Some("the engine is down"), Some("still down"), None] {
        let annotated = hosted.annotate(&host(), detail).await;
        assert_eq!(annotated.unwrap(), 3, "{detail:?}");
        for (row, is_annotated) in rows.iter().zip([true, true, true, false, false]) {
            let mut expected = row.clone();
            if is_annotated {
                expected.status_detail = detail.map(str::to_owned);
            }
            assert_eq!(ports.sandbox_row(&row.id).await, Some(expected));
        }
    }
    let row = ports.sandbox_row(&elsewhere.id).await;
    assert_eq!(row, Some(elsewhere));
    let nowhere = HostId::parse("host-3").unwrap();
    let annotated = hosted.annotate(&nowhere, Some("down")).await;
    assert_eq!(annotated.unwrap(), 0);
}

/// Every fact that is recorded after an annotation clears it, also an unchanged one.
pub async fn a_fact_clears_an_annotation(ports: &StorePorts) {
    let hosted = &ports.host_sandboxes;
    let id = ports.insert_sandbox("a", "alice").await.id;
    let endpoints = endpoints(8000);
    for facts in [
        SandboxFacts::Starting {
            endpoints: endpoints.clone(),
        },
        SandboxFacts::Running { endpoints },
        SandboxFacts::Paused,
    ] {
        for annotated in [false, true] {
            if annotated {
                hosted.annotate(&host(), Some("down")).await.unwrap();
            }
            let known = hosted
                .record_facts(&id, DesiredState::Running, &facts, at(5))
                .await;
            assert!(known.unwrap());
            let row = ports.sandbox_row(&id).await.unwrap();
            assert_eq!(row.status_detail, None, "{facts:?}");
        }
    }
}
