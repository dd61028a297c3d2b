use std::sync::{Mutex, mpsc};

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{sleep, timeout};

use super::*;

/// Neither a caller nor the readiness waits for a database that says nothing; once it does, all is well again.
#[tokio::test]
async fn a_job_that_does_not_end_is_not_waited_for_and_makes_the_store_unready() {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        connections: 2,
        deadline: Duration::from_secs(2),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Db::new(&target, &config, &Handle::current());
    let (end, ended) = mpsc::channel::<()>();
    let stuck = db.query(move |_| {
        let _ = ended.recv();
        Ok(())
    });
    let answer = timeout(Duration::from_secs(30), stuck).await;
    let answer = answer.expect("the caller is answered");
    assert!(
        matches!(answer, Err(StoreError::Unavailable { .. })),
        "{answer:?}"
    );
    // Its thread may have begun later than its caller.
    becomes(&db, true).await;
    assert!(db.query(|_| Ok(())).await.is_ok(), "others go on");
    drop(end);
    becomes(&db, false).await;
}

/// Also of a caller that went away before.
#[tokio::test]
async fn a_job_whose_caller_went_away_is_known_to_be_stuck() {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        deadline: Duration::from_millis(200),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Db::new(&target, &config, &Handle::current());
    let (end, ended) = mpsc::channel::<()>();
    let stuck = db.query(move |_| {
        let _ = ended.recv();
        Ok(())
    });
    assert!(timeout(Duration::from_millis(50), stuck).await.is_err());
    becomes(&db, true).await;
    drop(end);
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// The users whose jobs were run, in this order: so many of one user were in line when the neighbour's first one came.
async fn order(jobs: usize, is_write: bool) -> Vec<&'static str> {
    let directory = tempfile::TempDir::new().unwrap();
    let config = StoreConfig {
        // With several, a thread may be held up with the neighbour's job while others do many.
        connections: 1,
        wait: Duration::from_secs(60),
        ..StoreConfig::new("sqlite://unused")
    };
    let target = Target::Sqlite(directory.path().join("a.db"));
    let db = Db::new(&target, &config, &Handle::current());
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let done = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str| {
        let (calls, gate, done) = (db.for_user(&user(name)), gate.clone(), done.clone());
        let job = move |_: &mut AnyConnection| {
            // Ends when the gate is opened for good.
            let _ = gate.lock().unwrap().recv();
            done.lock().unwrap().push(name);
            Ok(())
        };
        async move {
            if is_write {
                calls.write(job).await
            } else {
                calls.read(job).await
            }
        }
    };
    let mut all = FuturesUnordered::new();
    for _ in 0..jobs {
        all.push(call("many"));
    }
    // All are in line before the neighbour comes.
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
async fn many_jobs_of_one_user_do_not_keep_a_neighbours_from_its_slot() {
    for is_write in [false, true] {
        let order = order(200, is_write).await;
        assert_eq!(order.len(), 201);
        let neighbour = order.iter().position(|it| *it == "one");
        // After the one that had begun, and one in turn.
        assert!(neighbour.is_some_and(|at| at <= 2), "{neighbour:?}");
    }
}

/// As many scans as there are slots for them are under way, and one waits.
#[tokio::test]
async fn scans_leave_the_slots_of_other_reads_alone() {
    let directory = tempfile::TempDir::new().unwrap();
    let target = Target::Sqlite(directory.path().join("a.db"));
    let config = StoreConfig::new("sqlite://unused");
    let db = Db::new(&target, &config, &Handle::current());
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let scan = || {
        let gate = gate.clone();
        Box::pin(db.for_user(&user("many")).scan(move |_| {
            let _ = gate.lock().unwrap().recv();
            Ok(())
        }))
    };
    let (mut first, mut second) = (scan(), scan());
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    for _ in 0..8 {
        db.for_user(&user("many")).query(|_| Ok(())).await.unwrap();
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

async fn becomes(db: &Db, stuck: bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while db.is_stuck() != stuck {
        assert!(Instant::now() < give_up, "never stuck: {stuck}");
        sleep(Duration::from_millis(10)).await;
    }
}
