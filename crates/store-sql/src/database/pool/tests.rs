use std::sync::{Mutex, mpsc};

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{sleep, timeout};

use super::*;

/// The caller gets an error at the deadline, `is_stuck` reports the job, and other jobs run.
#[tokio::test]
async fn a_stuck_job_fails_at_its_deadline_and_is_reported() {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        connections: 2,
        job_timeout: Duration::from_secs(2),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Database::new(&target, &config, &Handle::current());
    let (end, ended) = mpsc::channel::<()>();
    let stuck = db
        .for_workload(Workload::Requests)
        .run(JobMode::Query, move |_| {
            let _ = ended.recv();
            Ok(())
        });
    let result = timeout(Duration::from_secs(30), stuck).await;
    let result = result.expect("a result at the deadline");
    assert!(
        matches!(result, Err(StoreError::Unavailable { .. })),
        "{result:?}"
    );
    // The job's thread may start later than its caller.
    wait_until_stuck_is(&db, true).await;
    assert!(
        db.for_workload(Workload::Requests)
            .run(JobMode::Query, |_| Ok(()))
            .await
            .is_ok(),
        "other jobs run"
    );
    drop(end);
    wait_until_stuck_is(&db, false).await;
}

#[tokio::test]
async fn a_stuck_job_of_a_cancelled_caller_is_reported() {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        job_timeout: Duration::from_millis(200),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Database::new(&target, &config, &Handle::current());
    let (end, ended) = mpsc::channel::<()>();
    let stuck = db
        .for_workload(Workload::Requests)
        .run(JobMode::Query, move |_| {
            let _ = ended.recv();
            Ok(())
        });
    assert!(timeout(Duration::from_millis(50), stuck).await.is_err());
    wait_until_stuck_is(&db, true).await;
    drop(end);
}

fn user(name: &str) -> OwnerId {
    OwnerId::parse(name).unwrap()
}

/// Queues `jobs` jobs of user `many`, then one of user `one`. Returns the users in the order in which their jobs ran.
async fn execution_order(jobs: usize, is_write: bool) -> Vec<&'static str> {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        // With several connections, other threads may run many jobs while one thread is delayed.
        connections: 1,
        slot_timeout: Duration::from_secs(60),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Database::new(&target, &config, &Handle::current());
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let done = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str| {
        let (jobs, gate, done) = (db.for_owner(&user(name)), gate.clone(), done.clone());
        let job = move |_: &mut AnyConnection| {
            // Blocks until the test drops `open`.
            let _ = gate.lock().unwrap().recv();
            done.lock().unwrap().push(name);
            Ok(())
        };
        async move {
            if is_write {
                jobs.run(JobMode::Write, job).await
            } else {
                jobs.run(JobMode::Read, job).await
            }
        }
    };
    let mut all = FuturesUnordered::new();
    for _ in 0..jobs {
        all.push(call("many"));
    }
    // All jobs of `many` are queued before that of `one`.
    assert!(futures::poll!(all.next()).is_pending());
    let mut one = Box::pin(call("one"));
    assert!(futures::poll!(&mut one).is_pending());
    drop(open);
    one.await.unwrap();
    while let Some(answer) = all.next().await {
        answer.unwrap();
    }
    let done = done.lock().unwrap();
    done.clone()
}

#[tokio::test]
async fn many_jobs_of_one_user_do_not_delay_another_user() {
    for is_write in [false, true] {
        let order = execution_order(200, is_write).await;
        assert_eq!(order.len(), 201);
        let position = order.iter().position(|user| *user == "one");
        // It runs after the job that had started, and one in turn.
        assert!(position.is_some_and(|at| at <= 2), "{position:?}");
    }
}

#[tokio::test]
async fn scans_leave_the_slots_of_other_reads_alone() {
    let directory = tempfile::TempDir::new().unwrap();
    let target = Target::Sqlite(directory.path().join("a.db"));
    let config = StoreConfig::new("sqlite://unused");
    let db = Database::new(&target, &config, &Handle::current());
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let scan = || {
        let gate = gate.clone();
        Box::pin(db.for_owner(&user("many")).run(JobMode::Scan, move |_| {
            let _ = gate.lock().unwrap().recv();
            Ok(())
        }))
    };
    let (mut first, mut second) = (scan(), scan());
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    for _ in 0..8 {
        db.for_owner(&user("many"))
            .run(JobMode::Query, |_| Ok(()))
            .await
            .unwrap();
    }
    let waiting = |name: &str| {
        let stats = db.stats();
        stats.iter().find(|it| it.name == name).unwrap().waiting
    };
    assert_eq!((waiting("scan"), waiting("read")), (1, 0));
    drop(open);
    first.await.unwrap();
    second.await.unwrap();
}

async fn wait_until_stuck_is(db: &Database, stuck: bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while db.is_stuck() != stuck {
        assert!(Instant::now() < deadline, "stuck never became {stuck}");
        sleep(Duration::from_millis(10)).await;
    }
}
