//! Rotation of the master key: crashes in the middle, and parallel saves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use application::master_key_rotation::MasterKeyRotation;
use async_trait::async_trait;
use domain::clock::{Clock as _, SystemClock, Timestamp};
use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedLocation, SealedRecord, SealedRecordRepository,
};
use domain::encryption::vault::{KeyHolder, VaultRepository as _};
use domain::error::{Entity, StoreError};
use domain::user::settings::{SettingsOwner, SettingsRepository, StoredSettings};
use secrecy::{ExposeSecret as _, SecretString};
use store_memory::MemoryStore;

/// A cipher that a test can read: `KEY|CONTEXT|SECRET`.
struct TestKeyring {
    present: &'static str,
    known: &'static [&'static str],
}

impl Cipher for TestKeyring {
    fn seal(&self, context: &str, secret: &SecretString) -> Result<Sealed, CipherError> {
        let plain = secret.expose_secret();
        Ok(Sealed::from_text(format!(
            "{}|{context}|{plain}",
            self.present
        )))
    }

    fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretString, CipherError> {
        let (key, rest) = sealed.as_text().split_once('|').expect("a sealed text");
        if !self.known.contains(&key) {
            return Err(CipherError::UnknownKey { key_id: key.into() });
        }
        let plain = rest.strip_prefix(context).ok_or(CipherError::Damaged)?;
        Ok(plain[1..].into())
    }

    fn is_outdated(&self, sealed: &Sealed) -> bool {
        !sealed.as_text().starts_with(&format!("{}|", self.present))
    }
}

const OLD_KEYRING: TestKeyring = TestKeyring {
    present: "old",
    known: &["old", "new"],
};
const NEW_KEYRING: TestKeyring = TestKeyring {
    present: "new",
    known: &["old", "new"],
};

fn user(n: usize) -> SettingsOwner {
    format!("user-{n:04}").parse().expect("a name")
}

fn document(n: usize, keys: &TestKeyring, text: &str) -> Sealed {
    let context = StoredSettings::context(&user(n));
    keys.seal(&context, &text.into()).expect("seals")
}

async fn filled(users: usize) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    for n in 0..users {
        let sealed = document(n, &OLD_KEYRING, &format!("secret {n}"));
        let (user, at) = (user(n), SystemClock.now());
        let saved = store.save(&user, &sealed, None, at).await;
        saved.expect("saves");
    }
    store
}

/// The settings of every user, opened with either key.
async fn opened(store: &MemoryStore, users: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for n in 0..users {
        let stored = store
            .load(&user(n))
            .await
            .expect("loads")
            .expect("is there");
        let context = StoredSettings::context(&user(n));
        let text = OLD_KEYRING.open(&context, &stored.document).expect("opens");
        texts.push(text.expose_secret().to_owned());
    }
    texts
}

fn rotation<'a>(
    store: &'a MemoryStore,
    records: &'a dyn SealedRecordRepository,
) -> MasterKeyRotation<'a> {
    MasterKeyRotation {
        vault: store,
        records,
        cipher: &NEW_KEYRING,
        clock: &SystemClock,
    }
}

/// A store whose calls fail from the `left`-th on, before or after the call, like those of a process that dies there.
struct FailingRecords {
    store: Arc<MemoryStore>,
    left: AtomicUsize,
    after: bool,
}

impl FailingRecords {
    fn is_dead(&self) -> bool {
        let alive = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        alive.is_err()
    }
}

fn dead<T>() -> Result<T, StoreError> {
    Err(StoreError::Stale {
        entity: Entity::Record,
    })
}

#[async_trait]
impl SealedRecordRepository for FailingRecords {
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError> {
        if self.is_dead() {
            return dead();
        }
        self.store.page(kind, after, limit).await
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        let is_dead = self.is_dead();
        if is_dead && !self.after {
            return dead();
        }
        let count = self.store.replace(batch).await;
        if is_dead { dead() } else { count }
    }
}

#[tokio::test]
async fn after_a_crash_all_secrets_open_and_the_next_run_finishes() {
    const USERS: usize = 45;
    let expected: Vec<_> = (0..USERS).map(|n| format!("secret {n}")).collect();
    let mut deaths = 0;
    for point in 0.. {
        let mut finished = 0;
        for after in [false, true] {
            let store = filled(USERS).await;
            let dying = FailingRecords {
                store: store.clone(),
                left: AtomicUsize::new(point),
                after,
            };
            let ended = rotation(&store, &dying)
                .reseal(Duration::ZERO, &mut |_| {})
                .await;
            finished += usize::from(ended.is_ok());
            deaths += usize::from(ended.is_err());
            assert_eq!(opened(&store, USERS).await, expected, "{point} {after}");
            let next = rotation(&store, store.as_ref());
            next.reseal(Duration::ZERO, &mut |_| {})
                .await
                .expect("finishes");
            assert_eq!(opened(&store, USERS).await, expected, "{point} {after}");
            let left: u64 = next
                .count()
                .await
                .expect("counts")
                .iter()
                .map(|it| it.outdated)
                .sum();
            assert_eq!(left, 0, "{point} {after}");
        }
        if finished == 2 {
            break;
        }
    }
    // Pages and batches of settings, and the second pass.
    assert!(deaths > 20, "{deaths}");
}

/// A store in which every user saves again between a page and its replacement.
struct BusyRecords {
    store: Arc<MemoryStore>,
    rounds: AtomicUsize,
    saves: AtomicUsize,
    users: usize,
}

#[async_trait]
impl SealedRecordRepository for BusyRecords {
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError> {
        self.store.page(kind, after, limit).await
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        // At first by services with the old key, at last with the new one.
        let round = self.rounds.fetch_add(1, Ordering::SeqCst);
        if round < 12 {
            let keys = if round < 8 {
                &OLD_KEYRING
            } else {
                &NEW_KEYRING
            };
            for n in 0..self.users {
                let stored = self.store.load(&user(n)).await?.expect("is there");
                let text = format!("round {round} of {n}");
                let at = SystemClock.now();
                let sealed = document(n, keys, &text);
                self.store
                    .save(&user(n), &sealed, Some(stored.revision), at)
                    .await?;
            }
            self.saves.store(round, Ordering::SeqCst);
        }
        self.store.replace(batch).await
    }
}

#[tokio::test]
async fn parallel_saves_are_never_lost() {
    const USERS: usize = 150;
    let store = filled(USERS).await;
    let busy = BusyRecords {
        store: store.clone(),
        rounds: AtomicUsize::new(0),
        saves: AtomicUsize::new(0),
        users: USERS,
    };
    rotation(&store, &busy)
        .reseal(Duration::ZERO, &mut |_| {})
        .await
        .expect("ends");
    let last = busy.saves.load(Ordering::SeqCst);
    assert!(last >= 8, "{last}");
    let expected: Vec<_> = (0..USERS).map(|n| format!("round {last} of {n}")).collect();
    assert_eq!(opened(&store, USERS).await, expected);
    let counts = rotation(&store, store.as_ref())
        .count()
        .await
        .expect("counts");
    assert!(counts.iter().all(|it| it.outdated == 0), "{counts:?}");
}

/// A write sealed with the old key waits for the database while its service changes to the new key, and is stored
/// after everything was resealed.
#[tokio::test(start_paused = true)]
async fn a_pending_write_does_not_keep_the_old_key() {
    let store = filled(3).await;
    let writer = store.clone();
    let tasks = application::BackgroundTasks::new(tokio::runtime::Handle::current());
    tasks.spawn(async move {
        let sealed = document(7, &OLD_KEYRING, "late");
        tokio::time::sleep(Duration::from_secs(50)).await;
        let (user, now) = (user(7), SystemClock.now());
        let saved = writer.save(&user, &sealed, None, now).await;
        saved.expect("saves");
    });
    let rotation = rotation(&store, store.as_ref());
    let under_way = Duration::from_secs(60);
    let counts = rotation.reseal(under_way, &mut |_| {}).await.expect("ends");
    assert_eq!((counts[0].total, counts[0].outdated), (4, 4));
    let left = rotation.count().await.expect("counts");
    assert!(left.iter().all(|it| it.outdated == 0), "{left:?}");
    let stored = store.load(&user(7)).await.expect("loads");
    let document = stored.expect("the late write is there").document;
    assert!(!NEW_KEYRING.is_outdated(&document));
}

/// Records the sizes of pages and batches of settings.
struct PageSizeRecorder(Arc<MemoryStore>, std::sync::Mutex<Vec<usize>>);

#[async_trait]
impl SealedRecordRepository for PageSizeRecorder {
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError> {
        let page = self.0.page(kind, after, limit).await?;
        self.1.lock().expect("a lock").push(page.len());
        Ok(page)
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        self.0.replace(batch).await
    }
}

/// A document may have a megabyte, and sealed a third more.
#[tokio::test]
async fn pages_of_settings_are_small() {
    let store = filled(45).await;
    let sizes = PageSizeRecorder(store.clone(), std::sync::Mutex::default());
    let rotation = rotation(&store, &sizes);
    let ended = rotation.reseal(Duration::ZERO, &mut |_| {}).await;
    assert_eq!(ended.expect("ends")[0].outdated, 45);
    let sizes = sizes.1.into_inner().expect("a lock");
    assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
}

#[tokio::test]
async fn broken_records_are_counted_and_left_unchanged() {
    let store = filled(3).await;
    let lost = Sealed::from_text("lost|user/user-0009/settings|x");
    let saved = store.save(&user(9), &lost, None, SystemClock.now()).await;
    saved.expect("saves");
    let counts = rotation(&store, store.as_ref())
        .reseal(Duration::ZERO, &mut |_| {})
        .await
        .expect("ends");
    let settings = counts[0];
    assert_eq!(
        (settings.total, settings.outdated, settings.broken),
        (4, 4, 1)
    );
    let stored = store
        .load(&user(9))
        .await
        .expect("loads")
        .expect("is there");
    assert_eq!(stored.document, lost);
}

fn holder(id: &str, keys: &[&str], seen: i64) -> KeyHolder {
    KeyHolder {
        id: id.to_owned(),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
        seals_with: None,
        seen_at: Timestamp::from_micros(SystemClock.now().micros() + seen),
    }
}

#[tokio::test(start_paused = true)]
async fn the_rotation_waits_for_live_services_only() {
    let store = MemoryStore::new();
    let has_new = |it: &KeyHolder| it.keys.iter().any(|key| key == "new");
    for id in ["dead", "alive"] {
        store
            .announce(&holder(id, &["old"], 0))
            .await
            .expect("announces");
    }
    let beating = store.clone();
    let tasks = application::BackgroundTasks::new(tokio::runtime::Handle::current());
    tasks.spawn(async move {
        for beat in 1.. {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let keys: &[&str] = if beat < 20 { &["old"] } else { &["old", "new"] };
            let said = beating.announce(&holder("alive", keys, beat)).await;
            said.expect("announces");
        }
    });
    let rotation = rotation(&store, store.as_ref());
    let mut waiting_counts = Vec::new();
    let mut tell = |missing: &[KeyHolder]| waiting_counts.push(missing.len());
    let missing = rotation
        .wait_for_services(has_new, Duration::from_secs(60), &mut tell)
        .await
        .expect("looks");
    let ids: Vec<_> = missing.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["alive"]);
    let missing = rotation
        .wait_for_services(has_new, Duration::from_secs(60), &mut tell)
        .await
        .expect("looks");
    assert_eq!(missing, []);
    assert_eq!(waiting_counts[..2], [2, 1]);
}
