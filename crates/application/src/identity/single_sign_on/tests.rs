//! Logins and links over the store in memory and a provider without a network.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::clock::Clock;
use domain::user::identity::UserRepository;
use domain::user::sign_in::PasswordHash;
use store_memory::{FakeIdentityProviders, FixedClock, MarkerCipher, MemoryStore, SequentialIds};

use super::*;
use crate::sign_in::new_link;
use crate::sign_in::tests::sign_in_over;

struct Fixture {
    service: SingleSignOnService,
    store: Arc<MemoryStore>,
    clock: Arc<FixedClock>,
    fake: Arc<FakeIdentityProviders>,
}

fn corp() -> ProviderName {
    ProviderName::parse("corp").unwrap()
}

fn person(subject: &str, address: &str, is_verified: bool) -> ProvenIdentity {
    ProvenIdentity {
        subject: subject.to_owned(),
        email: Some(UserEmail {
            address: address.to_owned(),
            is_verified,
        }),
        preferred_name: Some(subject.to_owned()),
        groups: vec!["ops".to_owned()],
    }
}

impl Fixture {
    fn new(rules: &ProviderRules) -> Self {
        let (store, clock) = (MemoryStore::new(), Arc::new(FixedClock::default()));
        let fake = Arc::new(FakeIdentityProviders::new(&["corp", "other"]));
        let ids: Arc<dyn IdGenerator> = Arc::new(SequentialIds::default());
        let sign_in = sign_in_over(&store, &clock, &ids);
        let all = ["corp", "other"].map(|name| {
            let name = ProviderName::parse(name).unwrap();
            (name, rules.clone())
        });
        let service = SingleSignOnService {
            providers: fake.clone(),
            identities: store.clone(),
            cipher: Arc::new(MarkerCipher),
            ids,
            sign_in,
            single_user: SingleUserCheck::unrestricted(store.clone()),
            policy: SingleSignOnPolicy {
                public_url: "https://agents.example/base/".parse().ok(),
                rules: BTreeMap::from(all),
            },
            used: UsedStates::default(),
        };
        Self {
            service,
            store,
            clock,
            fake,
        }
    }

    async fn start(&self, link_for: Option<&AuthenticatedUser>) -> (String, SecretString) {
        let client = LoginClient::default();
        let started = self
            .service
            .start(&corp(), Some("/x"), link_for, &client)
            .await;
        let started = started.unwrap();
        let query: BTreeMap<_, _> = started.url.query_pairs().into_owned().collect();
        assert_eq!(
            query["redirect_uri"],
            "https://agents.example/base/oauth/corp/callback"
        );
        (query["state"].clone(), started.sealed)
    }

    async fn complete(
        &self,
        (state, sealed): &(String, SecretString),
        code: Option<&str>,
        caller: Option<&AuthenticatedUser>,
    ) -> Result<CompletedLogin, AppError> {
        let answer = LoginAnswer {
            state: state.clone(),
            code: code.map(SecretString::from),
            issuer: None,
        };
        let login = self.service.resume(&corp(), Some(sealed), &answer)?;
        assert_eq!(login.return_to.as_deref(), Some("/x"));
        let (origin, client) = (Origin::service("test"), LoginClient::default());
        self.service
            .complete(origin, &login, answer, &client, caller)
            .await
    }

    /// A whole login of this person.
    async fn log_in(&self, person: ProvenIdentity) -> Result<AuthenticatedUser, AppError> {
        let started = self.start(None).await;
        self.fake.add("code", person);
        match self.complete(&started, Some("code"), None).await? {
            CompletedLogin::SignedIn(new) => {
                use secrecy::ExposeSecret as _;
                let found = self.service.sign_in.user(new.token.expose_secret()).await;
                Ok(found.unwrap().expect("a session"))
            }
            CompletedLogin::Linked => panic!("no link was asked for"),
        }
    }

    async fn link(
        &self,
        person: ProvenIdentity,
        caller: &AuthenticatedUser,
    ) -> Result<(), AppError> {
        let started = self.start(Some(caller)).await;
        self.fake.add("code", person);
        let done = self.complete(&started, Some("code"), Some(caller)).await?;
        assert!(matches!(done, CompletedLogin::Linked));
        Ok(())
    }

    async fn administer(&self, change: SignInChange) {
        let origin = Origin::service("test");
        self.service
            .sign_in
            .administer(&origin, change)
            .await
            .unwrap();
    }

    /// A user with a password, and perhaps an address.
    async fn add_user(&self, name: &str, email: Option<UserEmail>) {
        let user = UserId::parse(name).unwrap();
        let new = new_link(self.service.ids.as_ref(), self.clock.now(), &user);
        let link = new.link.hash;
        self.administer(SignInChange::CreateLink {
            link: new.link,
            new_user: Some(Role::User),
        })
        .await;
        self.administer(SignInChange::RedeemLink {
            link,
            user: user.clone(),
            password: PasswordHash::from_text("$test"),
        })
        .await;
        self.administer(SignInChange::SetEmail { user, email })
            .await;
    }
}

fn open() -> ProviderRules {
    ProviderRules {
        new_users: NewUserRule::Open,
        ..ProviderRules::default()
    }
}

#[tokio::test]
async fn a_first_login_creates_the_user_and_a_second_finds_it() {
    let it = Fixture::new(&open());
    let first = it
        .log_in(person("ada", "ada@x.example", true))
        .await
        .unwrap();
    assert_eq!((first.user.as_str(), first.role), ("ada", Role::User));
    // The identity is known by its subject, whatever else changes.
    let mut changed = person("ada", "new@x.example", true);
    changed.preferred_name = Some("lovelace".to_owned());
    let second = it.log_in(changed).await.unwrap();
    assert_eq!(second.user, first.user);
    let email = it.store.email(&first.user).await.unwrap().unwrap();
    assert_eq!(email.address, "new@x.example");
    // Another person with the same name and address is another user.
    let other = it.log_in(ProvenIdentity {
        subject: "ada2".to_owned(),
        ..person("ada", "new@x.example", true)
    });
    assert_eq!(other.await.unwrap().user.as_str(), "ada-2");
}

#[tokio::test]
async fn a_login_of_a_stranger_follows_the_rules() {
    let it = Fixture::new(&ProviderRules::default());
    it.add_user(
        "ada",
        Some(person("", "ada@x.example", true).email.unwrap()),
    )
    .await;
    let refused = it
        .log_in(person("ada", "ada@x.example", true))
        .await
        .unwrap_err();
    assert_eq!(refused.class(), ErrorClass::Unauthenticated);
    assert_eq!(
        UserRepository::list(it.store.as_ref(), None, 9)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn an_address_finds_a_user_only_where_both_sides_are_verified() {
    let rules = ProviderRules {
        link_verified_email: true,
        ..ProviderRules::default()
    };
    let it = Fixture::new(&rules);
    let email = |is_verified| person("", "ada@x.example", is_verified).email;
    it.add_user("ada", email(true)).await;
    // Eve typed in the address of Ada.
    it.add_user("eve", email(false)).await;
    it.log_in(person("sub", "ada@x.example", false))
        .await
        .unwrap_err();
    it.log_in(person("sub", "other@x.example", true))
        .await
        .unwrap_err();
    let found = it
        .log_in(person("sub", "ada@x.example", true))
        .await
        .unwrap();
    assert_eq!(found.user.as_str(), "ada");
    it.add_user("twin", email(true)).await;
    let ambiguous = it.log_in(person("sub2", "ada@x.example", true)).await;
    assert_eq!(ambiguous.unwrap_err().class(), ErrorClass::Conflict);
}

#[tokio::test]
async fn groups_set_the_role_at_each_login() {
    let it = Fixture::new(&ProviderRules {
        administrators: vec!["ops".to_owned()],
        ..open()
    });
    let ada = || person("ada", "ada@x.example", true);
    assert_eq!(it.log_in(ada()).await.unwrap().role, Role::Admin);
    let left = ProvenIdentity {
        groups: Vec::new(),
        ..ada()
    };
    assert_eq!(it.log_in(left).await.unwrap().role, Role::User);
}

#[tokio::test]
async fn a_login_comes_back_once_in_time_and_to_its_own_browser() {
    let it = Fixture::new(&open());
    let is_refused = async |started: &(String, SecretString)| {
        it.fake.add("code", person("ada", "ada@x.example", true));
        let done = it.complete(started, Some("code"), None).await;
        matches!(done, Err(error) if error.class() == ErrorClass::Unauthenticated)
    };
    let (one, two) = (it.start(None).await, it.start(None).await);
    assert!(
        is_refused(&(one.0.clone(), two.1.clone())).await,
        "another browser"
    );
    assert!(is_refused(&(String::new(), one.1.clone())).await);
    assert!(is_refused(&(one.0.clone(), "made up".into())).await);
    assert!(!is_refused(&one).await);
    assert!(is_refused(&one).await, "replayed");
    let other = ProviderName::parse("other").unwrap();
    let answer = LoginAnswer {
        state: two.0.clone(),
        code: None,
        issuer: None,
    };
    assert!(it.service.resume(&other, Some(&two.1), &answer).is_err());
    it.clock.advance(PENDING_LOGIN_TTL + Duration::from_secs(1));
    assert!(is_refused(&two).await, "too late");
}

#[tokio::test]
async fn refusals_and_absence_of_the_provider_have_plain_texts() {
    let it = Fixture::new(&open());
    let started = it.start(None).await;
    let refused = it.complete(&started, None, None).await.unwrap_err();
    assert_eq!(refused.public(), REFUSED);
    let started = it.start(None).await;
    let invalid = it
        .complete(&started, Some("unknown"), None)
        .await
        .unwrap_err();
    assert_eq!(invalid.class(), ErrorClass::Unauthenticated);
    assert!(!invalid.public().contains("unknown"));
    it.fake.set_away(true);
    let away = it
        .service
        .start(&corp(), None, None, &LoginClient::default())
        .await;
    assert_eq!(away.unwrap_err().class(), ErrorClass::Unavailable);
}

#[tokio::test]
async fn a_user_links_and_unlinks_identities() {
    let it = Fixture::new(&open());
    let ada = it
        .log_in(person("ada", "ada@x.example", true))
        .await
        .unwrap();
    it.link(person("second", "x@x.example", false), &ada)
        .await
        .unwrap();
    it.link(person("second", "x@x.example", false), &ada)
        .await
        .unwrap();
    let bob = it
        .log_in(person("bob", "bob@x.example", true))
        .await
        .unwrap();
    let stolen = it.link(person("second", "x@x.example", false), &bob).await;
    assert_eq!(stolen.unwrap_err().class(), ErrorClass::Forbidden);
    let found = it
        .log_in(person("second", "x@x.example", false))
        .await
        .unwrap();
    assert_eq!(found.user, ada.user);

    // The session that began the link must complete it.
    let started = it.start(Some(&ada)).await;
    for caller in [None, Some(&bob)] {
        it.fake.add("code", person("third", "x@x.example", false));
        let done = it.complete(&started, Some("code"), caller).await;
        assert!(done.is_err());
    }
    let all = it.service.identities(&ada.user).await.unwrap();
    let origin = Origin::service("test");
    it.service.unlink(&origin, &ada, all[0].id).await.unwrap();
    let last = it
        .service
        .unlink(&origin, &ada, all[1].id)
        .await
        .unwrap_err();
    assert_eq!(last.class(), ErrorClass::Conflict);
    let foreign = it
        .service
        .unlink(&origin, &bob, all[1].id)
        .await
        .unwrap_err();
    assert_eq!(foreign.class(), ErrorClass::NotFound);
}

/// The store's lock decides which of two first logins creates the user; both get a session.
#[tokio::test]
async fn two_first_logins_at_once_create_one_user() {
    let it = Fixture::new(&open());
    let (one, two) = (it.start(None).await, it.start(None).await);
    it.fake.add("one", person("ada", "ada@x.example", true));
    it.fake.add("two", person("ada", "ada@x.example", true));
    let (one, two) = tokio::join!(
        it.complete(&one, Some("one"), None),
        it.complete(&two, Some("two"), None)
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(
        UserRepository::list(it.store.as_ref(), None, 9)
            .await
            .unwrap()
            .len(),
        1
    );
}
