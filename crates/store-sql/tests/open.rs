//! Opening an `SQLite` database: permissions, concurrent opens, newer schemas, and error messages.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::{ConversationFilter, ConversationRepository};
use domain::error::{Entity, StoreError};
use domain::page::PageRequest;
use domain::user::scope::Scope;
use domain::user::settings::SettingsRepository;
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
        SqliteConnection::establish(&path.to_string_lossy()).expect("an existing database");
    // A dropped store closes its connections a moment later.
    conn.batch_execute("PRAGMA busy_timeout = 30000")
        .expect("set the timeout");
    conn
}

#[tokio::test]
async fn the_database_files_are_private() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    store.ping().await.unwrap();
    let user = "alice".parse().unwrap();
    let document = domain::encryption::cipher::Sealed::from_text("x");
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
async fn several_stores_open_a_new_database_at_once() {
    // Repeated, because a collision depends on timing.
    for _ in 0..20 {
        let directory = TempDir::new().unwrap();
        let opens = (0..8).map(|_| SqlStore::open(config(directory.path()), Handle::current()));
        let stores: Vec<_> = futures::future::join_all(opens)
            .await
            .into_iter()
            .map(|store| store.unwrap())
            .collect();
        // Each store writes concurrently through its own connection.
        let at = Timestamp::from_micros(0);
        let document = domain::encryption::cipher::Sealed::from_text("x");
        let saves = stores.iter().enumerate().map(|(n, store)| {
            let user = format!("user-{n}").parse().unwrap();
            let document = &document;
            async move { store.save(&user, document, None, at).await }
        });
        for saved in futures::future::join_all(saves).await {
            saved.unwrap();
        }
    }
}

#[tokio::test]
async fn only_a_long_log_is_truncated() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    let ports = StorePorts::of(store.clone());
    ports.insert_sandbox("s", "alice").await;
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
async fn data_survives_a_restart() {
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
            ports.insert_sandbox("s", "alice").await;
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
async fn a_newer_schema_is_refused() {
    let directory = TempDir::new().unwrap();
    SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    raw(directory.path())
        .batch_execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29990101000000')")
        .unwrap();
    let refused = SqlStore::open(config(directory.path()), Handle::current()).await;
    let Err(OpenError::Migrate(error @ MigrationError::NewerSchema { .. })) = refused else {
        panic!("the store opened");
    };
    assert!(error.to_string().contains("29990101000000"), "{error}");
}

#[tokio::test]
async fn an_unwritable_path_is_named() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let url = format!("sqlite://{}/file/store.db", directory.path().display());
    let refused = SqlStore::open(StoreConfig::new(url), Handle::current()).await;
    let Err(OpenError::File { path, .. }) = refused else {
        panic!("the store opened");
    };
    assert!(path.ends_with("file/store.db"), "{path}");
}

#[tokio::test]
async fn a_damaged_row_is_reported_as_corrupt() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(config(directory.path()), Handle::current())
        .await
        .unwrap();
    let ports = StorePorts::of(store.clone());
    ports.insert_sandbox("s", "alice").await;
    let conversation = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    let id = ports.insert_conversation(&conversation).await;
    for damage in [
        "execution_status = 'dancing'",
        "metrics = '{'",
        "owner = ''",
    ] {
        raw(directory.path())
            .batch_execute(&format!("UPDATE conversations SET {damage}"))
            .unwrap();
        let result = ConversationRepository::find(&*store, &Scope::System, id).await;
        assert!(
            matches!(
                result,
                Err(StoreError::Corrupt {
                    entity: Entity::Conversation,
                    ..
                })
            ),
            "{damage}: {result:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_for_the_writer_fails_as_unavailable() {
    let directory = TempDir::new().unwrap();
    let store = SqlStore::open(
        StoreConfig {
            // Longer than a read waits for its slot on a busy machine.
            slot_timeout: Duration::from_millis(500),
            ..config(directory.path())
        },
        Handle::current(),
    )
    .await
    .unwrap();
    // Another connection holds the write lock. The first save waits for the lock, the second for the only writer's slot.
    let mut other = raw(directory.path());
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
    let document = domain::encryption::cipher::Sealed::from_text("x");
    let at = Timestamp::from_micros(0);
    let first = store.save(&one, &document, None, at);
    let second = async {
        let refused = store.save(&two, &document, None, at).await;
        // Reads do not wait for the writer.
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

/// The build uses the options of `.cargo/config.toml`: `SQLite` does not parse a prepared statement with `LIMIT ?` anew at each
/// use, and takes no lock that all connections share.
#[tokio::test]
async fn sqlite_has_the_configured_compile_options() {
    #[derive(QueryableByName)]
    struct CompileOption {
        #[diesel(sql_type = diesel::sql_types::Text)]
        compile_options: String,
    }
    let mut conn = SqliteConnection::establish(":memory:").unwrap();
    let rows: Vec<CompileOption> = diesel::sql_query("PRAGMA compile_options")
        .load(&mut conn)
        .unwrap();
    let options: Vec<&str> = rows
        .iter()
        .map(|row| row.compile_options.as_str())
        .collect();
    for expected in ["ENABLE_QPSG", "THREADSAFE=2", "DEFAULT_MEMSTATUS=0"] {
        assert!(
            options.contains(&expected),
            "{expected} is not among {options:?}"
        );
    }
    assert!(
        !options.contains(&"ENABLE_MEMORY_MANAGEMENT"),
        "{options:?}"
    );
}

/// Each start counts the user's unfinished starts, whose cost must not grow with the finished ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_starts_are_counted_by_their_own_index() {
    #[derive(QueryableByName)]
    struct PlanStep {
        #[diesel(sql_type = diesel::sql_types::Text)]
        detail: String,
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("plan.db");
    let config = StoreConfig::new(format!("sqlite://{}", path.display()));
    let _store = SqlStore::open(config, Handle::current()).await.unwrap();
    let mut conn = SqliteConnection::establish(&path.to_string_lossy()).unwrap();
    let plan: Vec<PlanStep> = diesel::sql_query(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM start_tasks WHERE owner = 'ada' AND is_open",
    )
    .load(&mut conn)
    .unwrap();
    let plan: Vec<&str> = plan.iter().map(|step| step.detail.as_str()).collect();
    let [only] = plan[..] else { panic!("{plan:?}") };
    assert!(only.contains("start_tasks_open"), "{only}");
}
