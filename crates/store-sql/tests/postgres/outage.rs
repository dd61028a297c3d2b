//! A server that goes away, comes back, or is busy with something else.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::conversation::ConversationReport;
use domain::error::{Classify, ErrorClass, StoreError};
use domain::page::PageRequest;
use domain::scope::Scope;
use domain::start_task::ClaimLimit;
use futures::future::join_all;
use port_conformance::{StorePorts, fixtures};
use store_sql::{MigrationError, OpenError, SqlStore, StoreConfig};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, Database};

/// More than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn open(url: String) -> Result<StorePorts, OpenError> {
    let config = StoreConfig {
        // So long that a busy machine has made a connection by then.
        wait: Duration::from_secs(5),
        ..StoreConfig::new(url)
    };
    Ok(StorePorts::of(
        SqlStore::open(config, Handle::current()).await?,
    ))
}

/// One call through each pool: a user's read, a user's write, intake, background work.
async fn calls(ports: &StorePorts, n: i64) -> [Result<(), StoreError>; 4] {
    let page = PageRequest::default();
    let (sandbox, conversation) = (fixtures::sandbox_id("s"), fixtures::conversation_id(1));
    let name = format!("user-{n}");
    let (user, document) = (
        fixtures::user(&name),
        domain::cipher::Sealed::from_text("x"),
    );
    let batch = [fixtures::event(&name, "A", fixtures::at(n))];
    let (nothing, at, host) = (
        ConversationReport::default(),
        fixtures::at(n),
        fixtures::host(),
    );
    let answers = tokio::join!(
        ports.sandboxes.search(&Scope::System, &page),
        ports.settings.save(&user, &document, None, at),
        ports
            .events
            .append(&sandbox, conversation, &batch, &nothing, at),
        ports.tasks.claim(&host, at, at, ClaimLimit::tasks(1)),
    );
    [
        answers.0.map(drop),
        answers.1.map(drop),
        answers.2.map(drop),
        answers.3.map(drop),
    ]
}

async fn seeded(ports: &StorePorts) {
    ports.sandbox("s", "alice").await;
    let it = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    ports.conversation(&it).await;
}

fn assert_away(answer: &Result<(), StoreError>) {
    let Err(error) = answer else {
        panic!("it was answered");
    };
    assert_eq!(error.class(), ErrorClass::Unavailable, "{error:?}");
    assert!(error.retry_after().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_away_nothing_fails_for_good() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let ports = open(database.url()).await.unwrap();
    let usual = StoreConfig::new(database.url());
    let ready = SqlStore::open(usual, Handle::current()).await.unwrap();
    ready.ping().await.unwrap();
    seeded(&ports).await;
    for (round, mode) in (1..).zip(["immediate", "fast"]) {
        for answer in calls(&ports, round * 10).await {
            answer.unwrap();
        }
        cluster.stop(mode);
        // What `/ready` asks: the answer comes while its caller still waits.
        let answer = timeout(Duration::from_secs(2), ready.ping()).await;
        assert_away(&answer.expect("an answer in time"));
        for n in 1..3 {
            let answers = timeout(LONG, calls(&ports, round * 10 + n)).await;
            for answer in answers.expect("an answer in time") {
                assert_away(&answer);
            }
        }
        cluster.start();
        let back = Instant::now();
        loop {
            let answers = timeout(LONG, calls(&ports, round * 10 + 5)).await;
            let answers = answers.expect("an answer in time");
            // The write may have been done in an earlier turn of this loop.
            let done =
                |it: &Result<(), StoreError>| matches!(it, Ok(()) | Err(StoreError::Stale { .. }));
            if answers.iter().all(done) {
                break;
            }
            answers.iter().filter(|it| !done(it)).for_each(assert_away);
            assert!(back.elapsed() < LONG, "it does not come back: {answers:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(ports.view(fixtures::conversation_id(1)).await.is_some());
}

/// Known to be away: nobody waits for it, however long a call may wait for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_it_is_known_to_be_away_nobody_waits_for_it() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let config = StoreConfig {
        wait: LONG * 60,
        ..StoreConfig::new(database.url())
    };
    let ports = StorePorts::of(SqlStore::open(config, Handle::current()).await.unwrap());
    seeded(&ports).await;
    cluster.stop("fast");
    // More than there are connections, so that some wait for their turn and others for a connection.
    for n in 0..3 {
        let many = (0..10).map(|m| calls(&ports, n * 10 + m));
        let answers = timeout(LONG, join_all(many)).await.expect("no waiting");
        answers.iter().flatten().for_each(assert_away);
    }
    cluster.start();
    // Whoever asks while it is still taken for away is refused; that ends by itself.
    let back = async {
        let page = PageRequest::default();
        while ports.sandboxes.search(&Scope::System, &page).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, back).await.expect("it is back");
}

/// Connections are cut while the server goes on: nobody is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_replaced_before_anything_fails() {
    let database = Cluster::shared().database();
    let ports = open(database.url()).await.unwrap();
    seeded(&ports).await;
    let mut admin = PgConnection::establish(&database.url()).unwrap();
    for n in 1..5 {
        // All of them have just been used, so none is asked beforehand whether it works.
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

/// Waits until so many statements wait for locks. Over a connection of its own: a transaction sees what it saw first.
async fn waiting(database: &Database, expected: i64) {
    let admin = &mut PgConnection::establish(&database.url()).unwrap();
    let began = Instant::now();
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    loop {
        let count: i64 = diesel::dsl::sql::<diesel::sql_types::BigInt>(&format!("({query})"))
            .get_result(admin)
            .unwrap();
        if count >= expected {
            return;
        }
        assert!(began.elapsed() < LONG, "{count} wait");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_cut_off_may_be_tried_again() {
    let cluster = Cluster::private("");
    let database = cluster.database();
    let ports = open(database.url()).await.unwrap();
    seeded(&ports).await;
    let cancel =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for cut in [cancel, ""] {
        let mut holder = PgConnection::establish(&database.url()).unwrap();
        holder
            .batch_execute("BEGIN; LOCK TABLE sandboxes, settings, conversations, start_tasks")
            .unwrap();
        let under_way = Handle::current().spawn({
            let ports = ports.clone();
            async move { calls(&ports, 1).await }
        });
        waiting(&database, 4).await;
        if cut.is_empty() {
            cluster.stop("fast");
        } else {
            let mut admin = PgConnection::establish(&database.url()).unwrap();
            admin.batch_execute(cut).unwrap();
        }
        let answers = timeout(LONG, under_way).await.expect("answers in time");
        for answer in &answers.unwrap() {
            // A server that turns everybody out may let go of the lock first, and then one of them gets through.
            if !(cut.is_empty() && answer.is_ok()) {
                assert_away(answer);
            }
        }
    }
}

/// What sandboxes send waits for a lock, in any number; users and background work have connections of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_one_pool_does_not_hold_up_the_others() {
    let database = Cluster::shared().database();
    let ports = open(database.url()).await.unwrap();
    seeded(&ports).await;
    let mut holder = PgConnection::establish(&database.url()).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE events").unwrap();
    let flood = Handle::current().spawn({
        let ports = ports.clone();
        async move { join_all((0..50).map(|n| flooding(&ports, n))).await }
    });
    waiting(&database, 2).await;
    for n in 100..110 {
        let page = PageRequest::default();
        let user = fixtures::user(&format!("user-{n}"));
        let document = domain::cipher::Sealed::from_text("x");
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
            .tasks
            .claim(&fixtures::host(), now, until, ClaimLimit::tasks(1))
            .await
            .expect("a claim");
    }
    holder.batch_execute("ROLLBACK").unwrap();
    for answer in flood.await.unwrap() {
        match answer {
            Ok(()) => {}
            refused => assert_away(&refused),
        }
    }
}

async fn flooding(ports: &StorePorts, n: i64) -> Result<(), StoreError> {
    let batch = [fixtures::event(&format!("flood-{n}"), "A", fixtures::at(n))];
    let (sandbox, conversation) = (fixtures::sandbox_id("s"), fixtures::conversation_id(1));
    let nothing = ConversationReport::default();
    let appended = ports
        .events
        .append(&sandbox, conversation, &batch, &nothing, fixtures::at(n));
    appended.await.map(drop)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let url = "postgres://alice:hunter22@127.0.0.1:1/workspace";
    let refused = timeout(LONG, open(url.to_owned())).await.expect("in time");
    let Err(error @ OpenError::Connect(_)) = refused else {
        panic!("it was opened");
    };
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let told = format!("{error} {error:?} {}", source.unwrap_or_default());
    assert!(told.contains("127.0.0.1"), "{told}");
    assert!(!told.contains("hunter22"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_may_open_the_same_new_database_at_once() {
    let database = Cluster::shared().database();
    // As if another replica were at it.
    let mut other = PgConnection::establish(&database.url()).unwrap();
    other
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(4707318202611210)")
        .unwrap();
    let opening = Handle::current().spawn(join_all((0..5).map(|_| open(database.url()))));
    waiting(&database, 5).await;
    other.batch_execute("ROLLBACK").unwrap();
    for opened in timeout(LONG, opening).await.expect("in time").unwrap() {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_untouched() {
    let database = Cluster::shared().database();
    drop(open(database.url()).await.unwrap());
    let mut raw = PgConnection::establish(&database.url()).unwrap();
    raw.batch_execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29990101000000')")
        .unwrap();
    let Err(OpenError::Migrate(error @ MigrationError::FromTheFuture { .. })) =
        open(database.url()).await
    else {
        panic!("it was opened");
    };
    assert!(error.to_string().contains("29990101000000"), "{error}");
}
