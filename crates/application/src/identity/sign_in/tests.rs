//! Passwords and sessions over the store in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::user::identity::Role;
use domain::user::sign_in::PasswordHasher;
use store_memory::{FixedClock, MarkerPasswords, MemoryStore, SequentialIds};
use tokio::runtime::Handle;

use super::*;

const PASSWORD: &str = "correct horse battery";

/// Counts verifications.
#[derive(Default)]
struct CountingPasswords(AtomicUsize);

impl PasswordHasher for CountingPasswords {
    fn hash(&self, password: &SecretString) -> PasswordHash {
        MarkerPasswords.hash(password)
    }

    fn verify(&self, password: &SecretString, hash: Option<&PasswordHash>) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        MarkerPasswords.verify(password, hash)
    }
}

struct SignInFixture {
    service: SignInService,
    store: Arc<MemoryStore>,
    clock: Arc<FixedClock>,
    hasher: Arc<CountingPasswords>,
}

/// The service over this store, with passwords that cost nothing.
pub(crate) fn sign_in_over(
    store: &Arc<MemoryStore>,
    clock: &Arc<FixedClock>,
    ids: &Arc<dyn IdGenerator>,
) -> SignInService {
    SignInService {
        sessions: store.clone(),
        passwords: store.clone(),
        organizations: store.clone(),
        users: store.clone(),
        identities: store.clone(),
        mail: None,
        single_user: None,
        administration: store.clone(),
        clock: clock.clone(),
        ids: Arc::clone(ids),
        cache: KeyCache::default(),
        work: PasswordWork::new(Arc::new(MarkerPasswords)),
        attempts: Arc::default(),
        lifetimes: SessionLifetimes::default(),
        is_enabled: true,
        tasks: BackgroundTasks::new(Handle::current()),
    }
}

impl SignInFixture {
    /// Ada has a password, Bob has none.
    async fn new() -> Self {
        let (store, clock) = (MemoryStore::new(), Arc::new(FixedClock::default()));
        let hasher = Arc::<CountingPasswords>::default();
        let ids: Arc<dyn IdGenerator> = Arc::new(SequentialIds::default());
        let service = SignInService {
            work: PasswordWork::new(hasher.clone()),
            ..sign_in_over(&store, &clock, &ids)
        };
        let fixture = Self {
            service,
            store,
            clock,
            hasher,
        };
        for name in ["ada", "bob"] {
            let link = fixture.link(name).await;
            if name == "ada" {
                fixture.redeem(&link).await.unwrap();
            }
        }
        fixture
    }

    async fn link(&self, name: &str) -> SecretString {
        let user = UserId::parse(name).unwrap();
        let new = new_link(self.service.ids.as_ref(), self.clock.now(), &user);
        let change = SignInChange::CreateLink {
            link: new.link,
            new_user: Some(Role::User),
        };
        let origin = Origin::service("test");
        self.service.administer(&origin, change).await.unwrap();
        new.token
    }

    async fn redeem(&self, token: &SecretString) -> Result<NewSession, AppError> {
        let origin = Origin::service("test");
        let (token, client) = (token.expose_secret(), LoginClient::default());
        self.service
            .redeem_link(origin, token, &PASSWORD.into(), &client)
            .await
    }

    async fn log_in(&self, name: &str, password: &str) -> Result<NewSession, AppError> {
        let origin = Origin::service("test");
        self.service
            .log_in(origin, name, &password.into(), &LoginClient::default())
            .await
    }

    async fn is_active(&self, begun: &NewSession) -> bool {
        let found = self.service.user(begun.token.expose_secret()).await;
        found.unwrap().is_some()
    }

    async fn last_seen(&self, begun: &NewSession) -> Timestamp {
        let found = self.store.find_by_hash(&begun.session.hash).await.unwrap();
        found.unwrap().session.last_seen_at
    }
}

/// So the time that a login takes says nothing about the name.
#[tokio::test]
async fn every_failed_login_verifies_one_password() {
    let fixture = SignInFixture::new().await;
    for (name, password) in [
        ("ada", "wrong"),
        ("bob", PASSWORD),
        ("stranger", PASSWORD),
        ("not a name", PASSWORD),
        ("", ""),
    ] {
        let before = fixture.hasher.0.load(Ordering::SeqCst);
        let error = fixture.log_in(name, password).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unauthenticated, "{name}");
        assert_eq!(error.public(), LOGIN_REFUSED, "{name}");
        let verified = fixture.hasher.0.load(Ordering::SeqCst) - before;
        assert_eq!(verified, 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_idle_and_its_use_is_stored_once_a_minute() {
    let fixture = SignInFixture::new().await;
    let begun = fixture.log_in("ada", PASSWORD).await.unwrap();
    let start = begun.session.created_at;
    // The cache ends with the runtime's clock.
    let pass = async |seconds| {
        fixture.clock.advance(Duration::from_secs(seconds));
        tokio::time::advance(Duration::from_secs(seconds)).await;
    };
    pass(59).await;
    assert!(fixture.is_active(&begun).await);
    tokio::task::yield_now().await;
    assert_eq!(fixture.last_seen(&begun).await, start);
    pass(1).await;
    assert!(fixture.is_active(&begun).await);
    tokio::task::yield_now().await;
    assert_eq!(
        fixture.last_seen(&begun).await,
        start.plus(Duration::from_secs(60))
    );
    pass(12 * 60 * 60 - 1).await;
    assert!(fixture.is_active(&begun).await);
    tokio::task::yield_now().await;
    pass(12 * 60 * 60).await;
    assert!(!fixture.is_active(&begun).await);
}

#[tokio::test]
async fn a_session_that_this_process_ends_is_refused_at_once() {
    let fixture = SignInFixture::new().await;
    let (one, two) = (
        fixture.log_in("ada", PASSWORD).await.unwrap(),
        fixture.log_in("ada", PASSWORD).await.unwrap(),
    );
    assert!(fixture.is_active(&one).await && fixture.is_active(&two).await);
    let origin = Origin::service("test");
    fixture.service.log_out(origin, &one.token).await.unwrap();
    assert!(!fixture.is_active(&one).await && fixture.is_active(&two).await);
    let origin = Origin::service("test");
    fixture.service.log_out(origin, &one.token).await.unwrap();
    let link = fixture.link("ada").await;
    let reset = fixture.redeem(&link).await.unwrap();
    assert!(!fixture.is_active(&two).await && fixture.is_active(&reset).await);
    let again = fixture.redeem(&link).await.unwrap_err();
    assert_eq!(again.class(), ErrorClass::Unauthenticated);
}

/// Two logins with the same link: one sets the password.
#[tokio::test]
async fn a_link_is_redeemed_by_one_of_two() {
    let fixture = SignInFixture::new().await;
    let link = fixture.link("bob").await;
    let (one, two) = tokio::join!(fixture.redeem(&link), fixture.redeem(&link));
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1);
}

#[tokio::test]
async fn sessions_exist_only_where_users_sign_in() {
    let mut fixture = SignInFixture::new().await;
    let begun = fixture.log_in("ada", PASSWORD).await.unwrap();
    fixture.service.is_enabled = false;
    assert!(!fixture.is_active(&begun).await);
}
