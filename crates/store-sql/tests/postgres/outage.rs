//! Outages of the server: stops, cut connections, locks, and concurrent migrations.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::conversation::ConversationReport;
use domain::error::{Classify, ErrorClass, StoreError};
use domain::page::PageRequest;
use domain::start_task::ClaimLimit;
use domain::user::scope::Scope;
use futures::future::join_all;
use port_conformance::{StorePorts, fixtures};
use store_sql::{MigrationError, OpenError, SqlStore, StoreConfig};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, TestDatabase};

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn open(url: String) -> Result<StorePorts, OpenError> {
    let config = StoreConfig {
        // Enough time to connect on a busy machine.
        slot_timeout: Duration::from_secs(5),
        ..StoreConfig::new(url)
    };
    Ok(StorePorts::of(
        SqlStore::open(config, Handle::current()).await?,
    ))
}

/// One call through each pool: a read and a write of a user, a report, and background work.
async fn calls(ports: &StorePorts, n: i64) -> [Result<(), StoreError>; 4] {
    let page = PageRequest::default();
    let (sandbox, conversation) = (fixtures::sandbox_id("s"), fixtures::conversation_id(1));
    let name = format!("user-{n}");
    let (user, document) = (
        fixtures::user(&name),
        domain::encryption::cipher::Sealed::from_text("x"),
    );
    let batch = [fixtures::event(&name, "A", fixtures::at(n))];
    let (report, at, host) = (
        ConversationReport::default(),
        fixtures::at(n),
        fixtures::host(),
    );
    let results = tokio::join!(
        ports.sandboxes.search(&Scope::System, &page),
        ports.settings.save(&user, &document, None, at),
        ports
            .events
            .append(&sandbox, conversation, &batch, &report, at),
        ports.start_queue.claim(&host, at, at, ClaimLimit::tasks(1)),
    );
    [
        results.0.map(drop),
        results.1.map(drop),
        results.2.map(drop),
        results.3.map(drop),
    ]
}

async fn seed(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let conversation = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    ports.insert_conversation(&conversation).await;
}

fn assert_unavailable(result: &Result<(), StoreError>) {
    let Err(error) = result else {
        panic!("the call succeeded");
    };
    assert_eq!(error.class(), ErrorClass::Unavailable, "{error:?}");
    assert!(error.retry_after().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_as_unavailable_during_an_outage() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let ports = open(database.url()).await.unwrap();
    let usual = StoreConfig::new(database.url());
    let ready = SqlStore::open(usual, Handle::current()).await.unwrap();
    ready.ping().await.unwrap();
    seed(&ports).await;
    for (round, mode) in (1..).zip(["immediate", "fast"]) {
        for answer in calls(&ports, round * 10).await {
            answer.unwrap();
        }
        cluster.stop(mode);
        // `/ready` calls this and needs a quick result.
        let answer = timeout(Duration::from_secs(2), ready.ping()).await;
        assert_unavailable(&answer.expect("a result in time"));
        for n in 1..3 {
            let answers = timeout(LONG, calls(&ports, round * 10 + n)).await;
            for answer in answers.expect("a result in time") {
                assert_unavailable(&answer);
            }
        }
        cluster.start();
        let restarted = Instant::now();
        loop {
            let answers = timeout(LONG, calls(&ports, round * 10 + 5)).await;
            let answers = answers.expect("a result in time");
            // An earlier iteration may have saved the settings.
            let done = |result: &Result<(), StoreError>| {
                matches!(result, Ok(()) | Err(StoreError::Stale { .. }))
            };
            if answers.iter().all(done) {
                break;
            }
            answers
                .iter()
                .filter(|result| !done(result))
                .for_each(assert_unavailable);
            assert!(
                restarted.elapsed() < LONG,
                "the store does not recover: {answers:?}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(ports.view(fixtures::conversation_id(1)).await.is_some());
}

/// Calls fail without waiting, although the configured wait is an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_at_once_in_a_known_outage() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let config = StoreConfig {
        slot_timeout: LONG * 60,
        ..StoreConfig::new(database.url())
    };
    let ports = StorePorts::of(SqlStore::open(config, Handle::current()).await.unwrap());
    seed(&ports).await;
    cluster.stop("fast");
    // More calls than connections, so that some wait for a slot and others for a connection.
    for n in 0..3 {
        let many = (0..10).map(|m| calls(&ports, n * 10 + m));
        let answers = timeout(LONG, join_all(many))
            .await
            .expect("results without waiting");
        answers.iter().flatten().for_each(assert_unavailable);
    }
    cluster.start();
    // The store still refuses calls until it has noticed that the server is back.
    let recovery = async {
        let page = PageRequest::default();
        while ports.sandboxes.search(&Scope::System, &page).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, recovery).await.expect("the store recovers");
}

/// The server cuts all connections and continues to run. No call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_replaced_without_a_failure() {
    let database = Cluster::shared().database();
    let ports = open(database.url()).await.unwrap();
    seed(&ports).await;
    let mut admin = PgConnection::establish(&database.url()).unwrap();
    for n in 1..5 {
        // All connections have just been used, so the pool does not ping them.
        for answer in calls(&ports, n * 10).await {
            answer.unwrap();
        }
        admin
            .batch_execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .unwrap();
        for answer in calls(&ports, n * 10 + 1).await {
            answer.unwrap();
        }
    }
}

/// Waits until so many statements wait for locks. Uses a new connection, because a transaction keeps its first view of the
/// statistics.
async fn wait_for_blocked(database: &TestDatabase, expected: i64) {
    let admin = &mut PgConnection::establish(&database.url()).unwrap();
    let started = Instant::now();
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    loop {
        let count: i64 = diesel::dsl::sql::<diesel::sql_types::BigInt>(&format!("({query})"))
            .get_result(admin)
            .unwrap();
        if count >= expected {
            return;
        }
        assert!(started.elapsed() < LONG, "only {count} statements wait");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_fails_as_unavailable() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let ports = open(database.url()).await.unwrap();
    seed(&ports).await;
    let cancel =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for sql in [cancel, ""] {
        let mut holder = PgConnection::establish(&database.url()).unwrap();
        holder
            .batch_execute("BEGIN; LOCK TABLE sandboxes, settings, conversations, start_tasks")
            .unwrap();
        let blocked = Handle::current().spawn({
            let ports = ports.clone();
            async move { calls(&ports, 1).await }
        });
        wait_for_blocked(&database, 4).await;
        if sql.is_empty() {
            cluster.stop("fast");
        } else {
            let mut admin = PgConnection::establish(&database.url()).unwrap();
            admin.batch_execute(sql).unwrap();
        }
        let answers = timeout(LONG, blocked).await.expect("results in time");
        for answer in &answers.unwrap() {
            // A server that stops may release the lock first, so that a call succeeds.
            if !(sql.is_empty() && answer.is_ok()) {
                assert_unavailable(answer);
            }
        }
    }
}

/// Many reports wait for a lock. Calls of users and background work have their own connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_in_one_pool_do_not_delay_others() {
    let database = Cluster::shared().database();
    let ports = open(database.url()).await.unwrap();
    seed(&ports).await;
    let mut holder = PgConnection::establish(&database.url()).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE events").unwrap();
    let flood = Handle::current().spawn({
        let ports = ports.clone();
        async move { join_all((0..50).map(|n| append_event(&ports, n))).await }
    });
    wait_for_blocked(&database, 2).await;
    for n in 100..110 {
        let page = PageRequest::default();
        let user = fixtures::user(&format!("user-{n}"));
        let document = domain::encryption::cipher::Sealed::from_text("x");
        ports
            .sandboxes
            .search(&Scope::System, &page)
            .await
            .expect("a read");
        let saved = ports
            .settings
            .save(&user, &document, None, fixtures::at(n))
            .await;
        saved.expect("a write");
        let (now, until) = (fixtures::at(n), fixtures::at(n + 1));
        ports
            .start_queue
            .claim(&fixtures::host(), now, until, ClaimLimit::tasks(1))
            .await
            .expect("a claim");
    }
    holder.batch_execute("ROLLBACK").unwrap();
    for answer in flood.await.unwrap() {
        match answer {
            Ok(()) => {}
            failed => assert_unavailable(&failed),
        }
    }
}

async fn append_event(ports: &StorePorts, n: i64) -> Result<(), StoreError> {
    let batch = [fixtures::event(&format!("flood-{n}"), "A", fixtures::at(n))];
    let (sandbox, conversation) = (fixtures::sandbox_id("s"), fixtures::conversation_id(1));
    let report = ConversationReport::default();
    let appended = ports
        .events
        .append(&sandbox, conversation, &batch, &report, fixtures::at(n));
    appended.await.map(drop)
}

#[tokio::test]
async fn an_unreachable_server_is_named_without_the_password() {
    let url = "postgres://alice:hunter22@127.0.0.1:1/workspace";
    let refused = timeout(LONG, open(url.to_owned())).await.expect("in time");
    let Err(error @ OpenError::Connect(_)) = refused else {
        panic!("the store opened");
    };
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let text = format!("{error} {error:?} {}", source.unwrap_or_default());
    assert!(text.contains("127.0.0.1"), "{text}");
    assert!(!text.contains("hunter22"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_stores_open_a_new_database_at_once() {
    let database = Cluster::shared().database();
    // Holds the lock of migrations, like another replica.
    let mut other = PgConnection::establish(&database.url()).unwrap();
    other
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(4707318202611210)")
        .unwrap();
    let opening = Handle::current().spawn(join_all((0..5).map(|_| open(database.url()))));
    wait_for_blocked(&database, 5).await;
    other.batch_execute("ROLLBACK").unwrap();
    for opened in timeout(LONG, opening).await.expect("in time").unwrap() {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = Cluster::shared().database();
    drop(open(database.url()).await.unwrap());
    let mut raw = PgConnection::establish(&database.url()).unwrap();
    raw.batch_execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29990101000000')")
        .unwrap();
    let Err(OpenError::Migrate(error @ MigrationError::NewerSchema { .. })) =
        open(database.url()).await
    else {
        panic!("the store opened");
    };
    assert!(error.to_string().contains("29990101000000"), "{error}");
}
