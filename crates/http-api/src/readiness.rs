//! Caches the checks behind `/ready`: they run at most about once a second.
//!
//! Anyone may request `/ready`, and the checks take a transaction and a call of the container engine. Their cost must not
//! depend on how often they are requested.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::clock::{Clock, Timestamp};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Age at which cached checks are repeated, measured from their start.
const CHECKS_TTL: Duration = Duration::from_secs(1);

/// The check of one part of the service that must work before requests are worth sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// The part: `store`, `sandboxes`.
    pub name: &'static str,
    /// What is wrong, in a public text; `None` if the part works.
    pub failure: Option<String>,
}

/// Runs the checks behind `/ready`.
#[async_trait]
pub trait Readiness: Send + Sync + 'static {
    /// Checks every part. Called under a timeout, by one caller at a time and not for every request. Must not hold anything when
    /// dropped.
    async fn checks(&self) -> Vec<ReadinessCheck>;

    /// Why nothing new can be stored at this moment, in a public text. Must be cheap: called for every request that changes
    /// something.
    fn refuses_writes(&self) -> Option<String> {
        None
    }
}

/// The cached checks, and the lock for repeating them; one for all workers.
#[derive(Default)]
pub(crate) struct ReadinessCache(Mutex<Option<CachedChecks>>);

struct CachedChecks {
    began: Timestamp,
    checks: Arc<[ReadinessCheck]>,
}

impl ReadinessCache {
    /// Returns checks that started at most [`CHECKS_TTL`] before this call: the cached ones or new ones. Callers that arrive
    /// while checks run wait for these, however long they take. Checks that exceed `deadline` count as failed. If the running
    /// caller goes away, a waiting one starts again, so a call takes at most twice the deadline.
    pub(crate) async fn checks(
        &self,
        readiness: &dyn Readiness,
        clock: &dyn Clock,
        deadline: Duration,
    ) -> Arc<[ReadinessCheck]> {
        let asked = clock.now();
        let Ok(mut last) = timeout(deadline, self.0.lock()).await else {
            return late();
        };
        let began = clock.now();
        if let Some(look) = last.as_ref()
            // A clock that was set back must not prolong the cache.
            && look.began <= began
            && asked.since(look.began) <= CHECKS_TTL
        {
            return Arc::clone(&look.checks);
        }
        let checks = match timeout(deadline, readiness.checks()).await {
            Ok(checks) => checks.into(),
            Err(_) => late(),
        };
        let look = last.insert(CachedChecks { began, checks });
        Arc::clone(&look.checks)
    }
}

fn late() -> Arc<[ReadinessCheck]> {
    let failure = Some("the checks did not finish in time".into());
    [ReadinessCheck {
        name: "deadline",
        failure,
    }]
    .into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use store_memory::FixedClock;
    use tokio::sync::Semaphore;

    use super::*;

    /// For checks that hang; the others do not wait.
    const DEADLINE: Duration = Duration::from_millis(20);

    /// A store that responds when permitted, and counts its calls.
    struct Store {
        asked: AtomicUsize,
        may_answer: Semaphore,
    }

    impl Store {
        fn answering(times: usize) -> Self {
            Self {
                asked: AtomicUsize::new(0),
                may_answer: Semaphore::new(times),
            }
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl Readiness for Store {
        async fn checks(&self) -> Vec<ReadinessCheck> {
            let nth = self.asked.fetch_add(1, Ordering::Relaxed);
            self.may_answer.acquire().await.unwrap().forget();
            let failure = Some(nth.to_string());
            let name = "store";
            vec![ReadinessCheck { name, failure }]
        }
    }

    fn nth(checks: &[ReadinessCheck]) -> &str {
        checks[0].failure.as_deref().unwrap()
    }

    #[tokio::test]
    async fn checks_are_shared_for_a_second() {
        let (readiness_cache, store, clock) = (
            ReadinessCache::default(),
            Store::answering(9),
            FixedClock::default(),
        );
        let ask = || readiness_cache.checks(&store, &clock, DEADLINE);
        let all = join_all((0..100).map(|_| ask())).await;
        assert!(all.iter().all(|checks| nth(checks) == "0"));
        clock.advance(CHECKS_TTL);
        assert_eq!(nth(&ask().await), "0");
        clock.advance(Duration::from_millis(1));
        assert_eq!(nth(&ask().await), "1");
        assert_eq!(store.asked(), 2);
    }

    #[tokio::test]
    async fn waiting_callers_take_the_result_of_slow_checks() {
        let (readiness_cache, store, clock) = (
            ReadinessCache::default(),
            Store::answering(0),
            FixedClock::default(),
        );
        let long = Duration::from_secs(60);
        let mut first = Box::pin(readiness_cache.checks(&store, &clock, long));
        let mut others: Vec<_> = (0..9)
            .map(|_| Box::pin(readiness_cache.checks(&store, &clock, long)))
            .collect();
        assert!(futures::poll!(&mut first).is_pending());
        for other in &mut others {
            assert!(futures::poll!(other).is_pending());
        }
        clock.advance(2 * CHECKS_TTL);
        store.may_answer.add_permits(1);
        assert_eq!(nth(&first.await), "0");
        assert!(
            join_all(others)
                .await
                .iter()
                .all(|checks| nth(checks) == "0")
        );
        assert_eq!(store.asked(), 1);
    }

    #[tokio::test]
    async fn hanging_checks_fail_for_all_waiting_callers() {
        let (readiness_cache, store, clock) = (
            ReadinessCache::default(),
            Store::answering(0),
            FixedClock::default(),
        );
        let ask = || readiness_cache.checks(&store, &clock, DEADLINE);
        let all = join_all((0..100).map(|_| ask())).await;
        assert!(all.iter().all(|checks| checks[0].name == "deadline"));
        assert_eq!(store.asked(), 1);
        store.may_answer.add_permits(1);
        clock.advance(2 * CHECKS_TTL);
        assert_eq!(nth(&ask().await), "1");
    }

    #[tokio::test]
    async fn a_waiting_caller_restarts_abandoned_checks() {
        let (readiness_cache, store, clock) = (
            ReadinessCache::default(),
            Store::answering(0),
            FixedClock::default(),
        );
        let mut first = Box::pin(readiness_cache.checks(&store, &clock, DEADLINE));
        let mut second = Box::pin(readiness_cache.checks(&store, &clock, DEADLINE));
        assert!(
            futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending()
        );
        drop(first);
        // Measured from the start: the waiting took long.
        store.may_answer.add_permits(1);
        assert_eq!(nth(&second.await), "1");
        assert_eq!(store.asked(), 2);
    }
}
