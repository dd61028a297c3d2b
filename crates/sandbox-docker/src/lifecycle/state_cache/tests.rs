use super::*;

fn id() -> SandboxId {
    SandboxId::parse("s1").unwrap()
}

fn exited() -> BackendState {
    let detail = "it crashed".to_owned();
    BackendState::Exited { detail }
}

/// A cache in which the sandbox runs.
fn running_cache() -> Arc<StateCache> {
    let cache = Arc::new(StateCache::default());
    cache.begin(&id()).set_state(KnownState::Running);
    cache
}

/// The states that are reported when the marked sandbox is observed like this.
fn reported(cache: &Arc<StateCache>, found: impl Into<Option<BackendState>>) -> Vec<BackendState> {
    let found = found.into();
    let mut reported = Vec::new();
    for recheck in cache.take_rechecks() {
        recheck.finish(found.clone(), |fact| reported.push(fact.state));
    }
    reported
}

#[test]
fn an_exit_is_reported_once() {
    let cache = running_cache();
    assert_eq!(reported(&cache, exited()), [], "nothing is marked");
    cache.mark(&id(), false);
    cache.mark(&id(), false);
    assert_eq!(reported(&cache, exited()), [exited()]);
    cache.mark(&id(), false);
    assert_eq!(reported(&cache, exited()), []);
    let cause = Some("it crashed".to_owned());
    assert_eq!(cache.recall(&id()), (KnownState::Exited, cause));
    cache.mark(&id(), false);
    assert_eq!(reported(&cache, None), [BackendState::Absent]);
    assert!(cache.is_empty());
}

#[test]
fn changes_by_an_operation_are_not_reported() {
    let cache = running_cache();
    let stop = cache.begin(&id());
    cache.mark(&id(), false);
    assert_eq!(
        cache.take_rechecks().len(),
        0,
        "marks wait for the operation"
    );
    stop.set_state(KnownState::Stopped);
    drop(stop);
    assert_eq!(reported(&cache, BackendState::Stopped), []);
    let remove = cache.begin(&id());
    cache.mark(&id(), false);
    remove.set_removed();
    drop(remove);
    assert_eq!(reported(&cache, None), []);
    assert!(cache.is_empty());
    cache.mark(&id(), false);
    assert_eq!(reported(&cache, None), [], "a late event");
    assert!(cache.is_empty());
}

#[test]
fn an_inspection_from_before_an_operation_does_not_count() {
    let cache = running_cache();
    cache.mark(&id(), false);
    let recheck = cache.take_rechecks().remove(0);
    cache.begin(&id()).set_state(KnownState::Running);
    recheck.finish(Some(exited()), |fact| panic!("reported: {fact:?}"));
    assert_eq!(cache.recall(&id()).0, KnownState::Running);
    cache.mark(&id(), false);
    assert_eq!(
        reported(&cache, exited()).len(),
        1,
        "the sandbox is rechecked"
    );
}

#[test]
fn rechecks_of_a_sandbox_are_exclusive() {
    let cache = running_cache();
    cache.mark(&id(), false);
    let recheck = cache.take_rechecks().remove(0);
    cache.mark(&id(), false);
    assert_eq!(cache.take_rechecks().len(), 0);
    drop(recheck);
    assert_eq!(
        cache.take_rechecks().len(),
        1,
        "the next recheck starts after a dropped one"
    );
}

#[test]
fn a_list_marks_what_differs() {
    let cache = running_cache();
    let listed = |listed_state: Option<ListedState>| {
        listed_state
            .map(|listed_state| (id(), listed_state))
            .into_iter()
            .collect()
    };
    cache.compare(&listed(Some(ListedState::Running)));
    assert_eq!(cache.take_rechecks().len(), 0);
    for listed_state in [
        Some(ListedState::Stopped),
        Some(ListedState::VolumeOnly),
        None,
    ] {
        cache.compare(&listed(listed_state));
        let rechecks = cache.take_rechecks();
        assert!(
            rechecks.len() == 1 && rechecks[0].is_late,
            "{listed_state:?}"
        );
    }
    cache.mark(&id(), false);
    assert!(!cache.take_rechecks()[0].is_late);
}

#[test]
fn initial_states_are_cached_and_not_reported() {
    let cache = Arc::new(StateCache::default());
    let state = |listed_state: ListedState| {
        cache.compare(&[(id(), listed_state)].into());
        cache.recall(&id()).0
    };
    assert_eq!(
        state(ListedState::Stopped),
        KnownState::Unknown,
        "judged by its exit code"
    );
    assert_eq!(state(ListedState::Running), KnownState::Running);
    assert_eq!(cache.take_rechecks().len(), 0);
    cache.compare(&HashMap::new());
    assert_eq!(reported(&cache, None), [BackendState::Absent]);
    assert_eq!(state(ListedState::VolumeOnly), KnownState::VolumeOnly);
}
