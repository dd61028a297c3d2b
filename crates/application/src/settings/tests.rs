//! The service over a store that keeps revisions, and a cipher that only marks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use domain::cipher::Sealed;
use domain::clock::{SystemClock, Timestamp};
use domain::conversation::GitProvider;
use domain::error::Classify;
use serde_json::json;
use store_memory::MarkerCipher;

use super::*;

#[derive(Default)]
struct Store {
    rows: std::sync::Mutex<BTreeMap<String, StoredSettings>>,
    /// How many saves are beaten by another replica.
    beaten: AtomicUsize,
}

#[async_trait]
impl SettingsRepository for Store {
    async fn load(&self, owner: &UserId) -> Result<Option<StoredSettings>, StoreError> {
        tokio::task::yield_now().await;
        Ok(self.rows.lock().unwrap().get(owner.as_str()).cloned())
    }

    async fn save(
        &self,
        owner: &UserId,
        document: &Sealed,
        expected: Option<Revision>,
        at: Timestamp,
    ) -> Result<Revision, StoreError> {
        tokio::task::yield_now().await;
        let mut rows = self.rows.lock().unwrap();
        let now = rows.get(owner.as_str()).map(|r| r.revision);
        let beaten = self
            .beaten
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if now != expected || beaten.is_ok() {
            return Err(StoreError::Stale { entity: "settings" });
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

fn service() -> (Arc<Store>, SettingsService) {
    let store = Arc::new(Store::default());
    let service =
        SettingsService::new(store.clone(), Arc::new(MarkerCipher), Arc::new(SystemClock));
    (store, service)
}

fn alice() -> UserId {
    UserId::parse("alice").unwrap()
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

#[tokio::test]
async fn a_change_gives_up_after_many_lost_races() {
    let (store, service) = service();
    store.beaten.store(ATTEMPTS - 1, Ordering::SeqCst);
    assert!(service.update(&alice(), skill("a".into())).await.is_ok());
    store.beaten.store(ATTEMPTS, Ordering::SeqCst);
    match service.update(&alice(), skill("b".into())).await {
        Err(UpdateError::Failed(error)) => assert_eq!(error.class(), ErrorClass::Unavailable),
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
        .update(&alice(), skill("x".repeat(MAX_DOCUMENT)))
        .await
    {
        Err(UpdateError::Failed(error)) => assert_eq!(error.class(), ErrorClass::TooLarge),
        other => panic!("{other:?}"),
    }
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
        .store_v1(&user, body.as_object().unwrap())
        .await
        .unwrap();
    let profile = service.launch_profile(&user, None).await.unwrap();
    assert_eq!(profile.llm.model, "openai/m");
    assert!(profile.llm.api_key.is_some() && profile.secrets.contains_key("GITHUB_TOKEN"));
    service.unset_git_providers(&user).await.unwrap();
    let settings = service.load(&user).await.unwrap().unwrap();
    assert!(settings.provider_tokens.is_empty() && settings.agent.llm_api_key().is_some());
}
