//! The service over a store that keeps revisions, and a cipher that only marks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::clock::{SystemClock, Timestamp};
use domain::encryption::cipher::Sealed;
use domain::error::{Classify, Entity, ErrorClass, StoreError};
use domain::git::{GitError, GitProvider, GitUser};
use domain::id::OwnerId;
use domain::user::settings::{Revision, SettingsOwner, SettingsRepository, StoredSettings};
use secrecy::ExposeSecret;
use serde_json::json;
use store_memory::{FakeGitHosting, FakeProvider, MarkerCipher};

use super::service::MAX_DOCUMENT_BYTES;
use super::*;

#[derive(Default)]
struct RevisionStore {
    rows: std::sync::Mutex<BTreeMap<String, StoredSettings>>,
    /// How many saves are beaten by another replica.
    beaten: AtomicUsize,
    latency_ms: AtomicU64,
}

impl RevisionStore {
    async fn answers_after_a_while(&self) {
        tokio::task::yield_now().await;
        let latency = Duration::from_millis(self.latency_ms.load(Ordering::SeqCst));
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }
}

#[async_trait]
impl SettingsRepository for RevisionStore {
    async fn load(&self, owner: &SettingsOwner) -> Result<Option<StoredSettings>, StoreError> {
        self.answers_after_a_while().await;
        Ok(self.rows.lock().unwrap().get(&owner.to_string()).cloned())
    }

    async fn save(
        &self,
        owner: &SettingsOwner,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        self.answers_after_a_while().await;
        let mut rows = self.rows.lock().unwrap();
        let now = rows.get(&owner.to_string()).map(|r| r.revision);
        let beaten = self
            .beaten
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if now != expected || beaten.is_ok() {
            return Err(StoreError::Stale {
                entity: Entity::Settings,
            });
        }
        let revision = Revision(now.map_or(1, |r| r.0 + 1));
        let row = StoredSettings {
            document: document.clone(),
            revision,
            updated_at: at,
        };
        rows.insert(owner.to_string(), row);
        Ok(revision)
    }
}

fn service() -> (Arc<RevisionStore>, SettingsService) {
    let store = Arc::new(RevisionStore::default());
    let service =
        SettingsService::new(store.clone(), Arc::new(MarkerCipher), Arc::new(SystemClock));
    (store, service)
}

fn alice() -> OwnerId {
    OwnerId::parse("alice").unwrap()
}

fn skill(name: String) -> impl FnMut(Settings) -> Result<Settings, ()> + Send {
    move |mut s| {
        s.disabled_skills.get_or_insert_default().push(name.clone());
        Ok(s)
    }
}

#[tokio::test]
async fn fifty_changes_at_once_lose_nothing_even_from_two_replicas() {
    let (store, one) = service();
    let other = SettingsService::new(store, Arc::new(MarkerCipher), Arc::new(SystemClock));
    let user = alice();
    let changes = (0..50).map(|n| {
        let service = if n % 5 == 0 { &other } else { &one };
        service.update(&user, skill(format!("s{n}")))
    });
    for saved in futures::future::join_all(changes).await {
        saved.unwrap();
    }
    let mut skills = one
        .load(&user)
        .await
        .unwrap()
        .unwrap()
        .disabled_skills
        .unwrap();
    skills.sort();
    skills.dedup();
    assert_eq!(skills.len(), 50);
}

/// The store takes as long as stores do, so that a whole queue of changes at one replica is a long time.
#[tokio::test(start_paused = true)]
async fn a_long_queue_at_one_replica_does_not_keep_another_one_out() {
    let (store, busy) = service();
    store.latency_ms.store(5, Ordering::SeqCst);
    let other = SettingsService::new(store, Arc::new(MarkerCipher), Arc::new(SystemClock));
    let user = alice();
    let began = tokio::time::Instant::now();
    let queue = (0..100).map(|n| busy.update(&user, skill(format!("s{n}"))));
    let queue = futures::future::join_all(queue);
    let change = async {
        other.update(&user, skill("other".into())).await.unwrap();
        began.elapsed()
    };
    let (saved, waited) = futures::join!(queue, change);
    assert!(saved.iter().all(Result::is_ok));
    assert!(
        waited * 4 < began.elapsed(),
        "{waited:?} of {:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_is_tried_again_for_a_while() {
    let (store, service) = service();
    store.latency_ms.store(20, Ordering::SeqCst);
    store.beaten.store(100, Ordering::SeqCst);
    assert!(service.update(&alice(), skill("a".into())).await.is_ok());
    store.beaten.store(usize::MAX, Ordering::SeqCst);
    match service.update(&alice(), skill("b".into())).await {
        Err(UpdateError::Failed(error)) => {
            assert_eq!(error.class(), ErrorClass::Unavailable);
            assert!(error.retry_after().is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refused_change_stores_nothing() {
    let (store, service) = service();
    let outcome = service.update(&alice(), |_| Err::<Settings, _>("no")).await;
    assert!(matches!(outcome, Err(UpdateError::Refused("no"))));
    assert!(store.rows.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_damaged_document_is_an_internal_error_and_belongs_to_its_user() {
    let (store, service) = service();
    for text in [
        "rubbish",
        "user/alice/settings|rubbish",
        "user/bob/settings|{}",
    ] {
        let row = StoredSettings {
            document: Sealed::from_text(text),
            revision: Revision(1),
            updated_at: Timestamp::from_micros(0),
        };
        store.rows.lock().unwrap().insert("alice".into(), row);
        let error = service.load(&alice()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Internal, "{text}");
        let error = service.launch_profile(&alice(), None).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Internal, "{text}");
    }
}

#[tokio::test]
async fn a_document_that_is_too_large_is_refused() {
    let (_, service) = service();
    match service
        .update(&alice(), skill("x".repeat(MAX_DOCUMENT_BYTES)))
        .await
    {
        Err(UpdateError::Failed(error)) => assert_eq!(error.class(), ErrorClass::TooLarge),
        other => panic!("{other:?}"),
    }
}

fn tokens(tokens: &[(GitProvider, &str, Option<&str>)]) -> GitProvidersInput {
    let entry = |(provider, token, host): &(GitProvider, &str, Option<&str>)| {
        let input = TokenInput {
            token: Some((*token).into()),
            host: host.map(str::to_owned),
            user_id: None,
        };
        (*provider, input)
    };
    GitProvidersInput {
        provider_tokens: tokens.iter().map(entry).collect(),
        mcp_config: None,
    }
}

/// GitHub accepts every token, GitLab none; Forgejo is away, and Bitbucket may not be called.
fn providers() -> FakeGitHosting {
    let git = FakeGitHosting::default();
    let user = GitUser {
        id: "1".into(),
        login: "alice".into(),
        avatar_url: String::new(),
        company: None,
        name: None,
        email: None,
    };
    let away = |provider| GitError::Unavailable {
        provider,
        source: "no route to host".into(),
    };
    let forbidden = |provider| GitError::Forbidden {
        provider,
        reason: "a private address".into(),
    };
    let has = |user, fault| FakeProvider {
        user,
        fault,
        ..FakeProvider::default()
    };
    git.set(GitProvider::Github, has(Some(user), None));
    git.set(GitProvider::Gitlab, has(None, None));
    git.set(GitProvider::Forgejo, has(None, Some(away)));
    git.set(GitProvider::Bitbucket, has(None, Some(forbidden)));
    git
}

#[tokio::test]
async fn a_new_token_is_shown_to_its_own_provider_and_kept_unless_that_says_no() {
    use GitProvider::{Bitbucket, Forgejo, Github, Gitlab};
    let git = Arc::new(providers());
    let (_, service) = service();
    let service = service.verifying(git.clone());
    let user = alice();
    let accepted = tokens(&[(Github, "gh", None), (Forgejo, "fj", Some("git.example"))]);
    let unverified = service.add_git_providers(&user, &accepted).await.unwrap();
    assert_eq!(unverified, [Forgejo], "its provider does not answer");
    let asked = [(Github, "gh".to_owned()), (Forgejo, "fj".to_owned())];
    assert_eq!(
        git.calls(),
        asked,
        "each token goes to its own provider only"
    );

    let refused = |outcome| match outcome {
        Err(UpdateError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let rejected = tokens(&[(Gitlab, "gl", None), (Github, "new", None)]);
    let outcome = service.add_git_providers(&user, &rejected).await;
    assert_eq!(refused(outcome), TokenRefusal::Rejected(vec![Gitlab]));
    let private = tokens(&[(Bitbucket, "bb", Some("10.0.0.1"))]);
    let outcome = service.add_git_providers(&user, &private).await;
    let TokenRefusal::Invalid(issues) = refused(outcome) else {
        panic!()
    };
    assert_eq!(issues[0].at, ["provider_tokens", "bitbucket", "host"]);
    let stored = service.load(&user).await.unwrap().unwrap().provider_tokens;
    let kept: Vec<GitProvider> = stored.keys().copied().collect();
    assert_eq!(kept, [Github, Forgejo]);
    assert_eq!(stored[&Github].token.expose_secret(), "gh");

    // No provider is called for kept or refused tokens.
    let before = git.calls().len();
    let same = tokens(&[(Github, "", None), (Gitlab, "", None)]);
    service.add_git_providers(&user, &same).await.unwrap();
    let moved = tokens(&[(Github, "", Some("evil.example")), (Gitlab, "gl", None)]);
    let outcome = service.add_git_providers(&user, &moved).await;
    assert!(matches!(refused(outcome), TokenRefusal::Invalid(_)));
    assert_eq!(git.calls().len(), before);
}

#[test]
fn a_token_opens_its_own_host() {
    let host = |provider, host: Option<&str>| {
        let token = ProviderToken {
            token: "t".into(),
            user_id: None,
            host: host.map(str::to_owned),
        };
        token.access(provider).host.map(String::from)
    };
    assert_eq!(host(GitProvider::Github, None), None);
    assert_eq!(host(GitProvider::Github, Some("github.com")), None);
    let own = host(GitProvider::Github, Some("ghe.example:8443"));
    assert_eq!(own.as_deref(), Some("https://ghe.example:8443/"));
    let plain = host(GitProvider::Gitlab, Some("http://git.example/base"));
    assert_eq!(plain.as_deref(), Some("http://git.example/base"));
}

#[tokio::test]
async fn the_use_cases_reach_the_same_document() {
    let (store, service) = service();
    let user = alice();
    service.unset_git_providers(&user).await.unwrap();
    assert!(
        store.rows.lock().unwrap().is_empty(),
        "nothing to forget, nothing to store"
    );
    let token = TokenInput {
        token: Some("gh".into()),
        ..TokenInput::default()
    };
    let input = GitProvidersInput {
        provider_tokens: vec![(GitProvider::Github, token)],
        mcp_config: None,
    };
    service.add_git_providers(&user, &input).await.unwrap();
    let legacy = LegacySettings {
        llm_model: Some("openai/m".into()),
        ..LegacySettings::default()
    };
    service.store_legacy(&user, &legacy).await.unwrap();
    let body = json!({"agent_settings_diff": {"llm": {"api_key": "sk"}}});
    service
        .update_v1(&user, body.as_object().unwrap(), McpConfigUpdate::Replace)
        .await
        .unwrap();
    let profile = service.launch_profile(&user, None).await.unwrap();
    assert_eq!(profile.llm.model, "openai/m");
    assert!(profile.llm.api_key.is_some() && profile.secrets.contains_key("GITHUB_TOKEN"));
    service.unset_git_providers(&user).await.unwrap();
    let settings = service.load(&user).await.unwrap().unwrap();
    assert!(settings.provider_tokens.is_empty() && settings.agent.llm_api_key().is_some());
}
