//! Opening: rights of the file, several at once, a database of a newer version, and how failures are named.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::{ConversationFilter, ConversationRepository};
use domain::error::StoreError;
use domain::id::UserId;
use domain::page::PageRequest;
use domain::scope::Scope;
use domain::settings::SettingsRepository;
use port_conformance::{StorePorts, fixtures};
use store_sql::{MigrationError, OpenError, SqlStore, StoreConfig};
use tempfile::TempDir;
use tokio::runtime::Handle;

fn config(directory: &Path) -> StoreConfig {
    StoreConfig::new(format!("sqlite://{}/new/store.db", directory.display()))
}

fn raw(directory: &Path) -> SqliteConnection {
    let path = directory.join("new/store.db");
    let mut conn =
        SqliteConnection::establish(&path.to_string_lossy()).expect("the database is there");
    // Connections of a store that was dropped are closed a moment later.
    conn.batch_execute("PRAGMA busy_timeout = 30000")
        .expect("a setting");
    conn
}

#[tokio::test]
async fn the_file_and_its_companions_are_private() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    store.ping().await.unwrap();
    let user = UserId::parse("alice").unwrap();
    let document = domain::cipher::Sealed::from_text("x");
    let at = Timestamp::from_micros(0);
    store.save(&user, &document, None, at).await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path().join("new")).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
    }
    names.sort();
    assert_eq!(names, ["store.db", "store.db-shm", "store.db-wal"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_may_open_the_same_new_database_at_once() {
    // Whether two meet where they could hinder each other is chance.
    for _ in 0..20 {
        let directory = TempDir::new().unwrap();
        let opens = (0..8).map(|_| SqlStore::open(config(directory.path()), Handle::current()));
        let stores: Vec<_> = futures::future::join_all(opens)
            .await
            .into_iter()
            .map(|store| store.unwrap())
            .collect();
        // And write at once, each through a writer of its own.
        let at = Timestamp::from_micros(0);
        let document = domain::cipher::Sealed::from_text("x");
        let saves = stores.iter().enumerate().map(|(n, store)| {
            let user = UserId::parse(format!("user-{n}")).unwrap();
            let document = &document;
            async move { store.save(&user, document, None, at).await }
        });
        for saved in futures::future::join_all(saves).await {
            saved.unwrap();
        }
    }
}

#[tokio::test]
async fn a_long_log_is_emptied_and_a_short_one_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    let ports = StorePorts::of(store.clone());
    ports.sandbox("s", "alice").await;
    let log = directory.path().join("new/store.db-wal");
    let size = || std::fs::metadata(&log).unwrap().len();
    let before = size();
    assert!(before > 0);
    store.shorten_log(before).await.unwrap();
    assert_eq!(size(), before);
    store.shorten_log(before - 1).await.unwrap();
    assert_eq!(size(), 0);
}

#[tokio::test]
async fn what_was_stored_is_there_after_opening_again() {
    let directory = TempDir::new().unwrap();
    for _ in 0..2 {
        let store = SqlStore::open(config(directory.path()), Handle::current())
            .await
            .unwrap();
        let ports = StorePorts::of(store);
        if ports
            .sandbox_row(&fixtures::sandbox_id("s"))
            .await
            .is_none()
        {
            ports.sandbox("s", "alice").await;
        }
    }
    let mut raw = raw(directory.path());
    let count: i64 =
        diesel::dsl::sql::<diesel::sql_types::BigInt>("SELECT count(*) FROM sandboxes")
            .get_result(&mut raw)
            .unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_untouched() {
    let directory = TempDir::new().unwrap();
    SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    raw(directory.path())
        .batch_execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29990101000000')")
        .unwrap();
    let refused = SqlStore::open(config(directory.path()), Handle::current()).await;
    let Err(OpenError::Migrate(error @ MigrationError::FromTheFuture { .. })) = refused else {
        panic!("it was opened");
    };
    assert!(error.to_string().contains("29990101000000"), "{error}");
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let url = format!("sqlite://{}/file/store.db", directory.path().display());
    let refused = SqlStore::open(StoreConfig::new(url), Handle::current()).await;
    let Err(OpenError::File { path, .. }) = refused else {
        panic!("it was opened");
    };
    assert!(path.ends_with("file/store.db"), "{path}");
}

#[tokio::test]
async fn a_damaged_row_is_corrupt_and_no_panic() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    let ports = StorePorts::of(store.clone());
    ports.sandbox("s", "alice").await;
    let it = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    let id = ports.conversation(&it).await;
    for damage in [
        "execution_status = 'dancing'",
        "metrics = '{'",
        "owner = ''",
    ] {
        raw(directory.path())
            .batch_execute(&format!("UPDATE conversations SET {damage}"))
            .unwrap();
        let answer = ConversationRepository::find(&*store, &Scope::System, id).await;
        assert!(
            matches!(
                answer,
                Err(StoreError::Corrupt {
                    entity: "conversation",
                    ..
                })
            ),
            "{damage}: {answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_for_the_writer_is_told_to_come_back() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(
        StoreConfig {
            // Longer than a read that may go on waits on a busy machine.
            wait: Duration::from_millis(500),
            ..config(directory.path())
        },
        Handle::current(),
    )
    .await
    .unwrap();
    // Another process holds the write lock: the first save waits for it in the one writer, the second for the writer.
    let mut other = raw(directory.path());
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let (one, two) = (UserId::parse("one").unwrap(), UserId::parse("two").unwrap());
    let document = domain::cipher::Sealed::from_text("x");
    let at = Timestamp::from_micros(0);
    let first = store.save(&one, &document, None, at);
    let second = async {
        let refused = store.save(&two, &document, None, at).await;
        // Reads go on meanwhile.
        let filter = ConversationFilter::default();
        let page = PageRequest::default();
        let read = ConversationRepository::search(&*store, &Scope::System, &filter, &page).await;
        other.batch_execute("ROLLBACK").unwrap();
        (refused, read)
    };
    let (first, (refused, read)) = futures::join!(first, second);
    first.unwrap();
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(read.unwrap().items, []);
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |database: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("migrations")
            .join(database);
        let mut names: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("sqlite"), names("postgres"));
}

/// `.cargo/config.toml` was heeded: `SQLite` does not parse a prepared statement with `LIMIT ?` anew at each use, and takes no
/// lock that all connections share. Nothing else would tell.
#[tokio::test]
async fn sqlite_is_built_as_it_is_wanted() {
    #[derive(QueryableByName)]
    struct Opt {
        #[diesel(sql_type = diesel::sql_types::Text)]
        compile_options: String,
    }
    let mut conn = SqliteConnection::establish(":memory:").unwrap();
    let found: Vec<Opt> = diesel::sql_query("PRAGMA compile_options")
        .load(&mut conn)
        .unwrap();
    let found: Vec<&str> = found.iter().map(|it| it.compile_options.as_str()).collect();
    for wanted in ["ENABLE_QPSG", "THREADSAFE=2", "DEFAULT_MEMSTATUS=0"] {
        assert!(found.contains(&wanted), "{wanted} is not among {found:?}");
    }
    assert!(!found.contains(&"ENABLE_MEMORY_MANAGEMENT"), "{found:?}");
}

/// What each start asks of all that a user ever started is answered by what is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_starts_are_counted_by_their_own_index() {
    #[derive(QueryableByName)]
    struct Step {
        #[diesel(sql_type = diesel::sql_types::Text)]
        detail: String,
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("plan.db");
    let config = StoreConfig::new(format!("sqlite://{}", path.display()));
    let _store = SqlStore::open(config, Handle::current()).await.unwrap();
    let mut conn = SqliteConnection::establish(&path.to_string_lossy()).unwrap();
    let plan: Vec<Step> = diesel::sql_query(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM start_tasks WHERE owner = 'ada' AND is_open",
    )
    .load(&mut conn)
    .unwrap();
    let plan: Vec<&str> = plan.iter().map(|it| it.detail.as_str()).collect();
    let [only] = plan[..] else { panic!("{plan:?}") };
    assert!(only.contains("start_tasks_open"), "{only}");
}
