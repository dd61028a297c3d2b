//! Whether the parts of the service work: looked at for whoever asks, at most about once a second.
//!
//! Anybody may ask `/ready`, and a look is a transaction and a call of the engine: what it costs must not depend on how often
//! it is asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::clock::{Clock, Timestamp};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// What a look says may be so old before it is looked again. Measured from the look's beginning.
const CHECKS_TTL: Duration = Duration::from_secs(1);

/// One part of the service that must work before requests are worth sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name: `store`, `sandboxes`.
    pub name: &'static str,
    /// What is wrong, in words for the public.
    pub failure: Option<String>,
}

/// Answers `/ready`.
#[async_trait]
pub trait Readiness: Send + Sync + 'static {
    /// Looks at every part. Called under a deadline, by one caller at a time and not for every request; must not hold
    /// anything when dropped.
    async fn checks(&self) -> Vec<Check>;

    /// Why nothing new can be stored at this moment, in words for the public. Cheap: asked for each request that changes
    /// something.
    fn refuses_writes(&self) -> Option<String> {
        None
    }
}

/// The last look, and the turn to look again; one for all workers.
#[derive(Default)]
pub(crate) struct ReadinessCache(Mutex<Option<CachedChecks>>);

struct CachedChecks {
    began: Timestamp,
    checks: Arc<[Check]>,
}

impl ReadinessCache {
    /// What a look says that began at most [`CHECKS_TTL`] before it is asked for: the last one, or a new one. Whoever comes while
    /// somebody looks waits for that, however long it takes. A look that is not done within `deadline` is one that failed; the whole takes at most twice that, if
    /// who looked went away meanwhile and it is done again.
    pub(crate) async fn checks(
        &self,
        readiness: &dyn Readiness,
        clock: &dyn Clock,
        deadline: Duration,
    ) -> Arc<[Check]> {
        let asked = clock.now();
        let Ok(mut last) = timeout(deadline, self.0.lock()).await else {
            return late();
        };
        let began = clock.now();
        if let Some(look) = last.as_ref()
            // A clock that was set back makes no look last longer.
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

fn late() -> Arc<[Check]> {
    let failure = Some("the checks did not finish in time".into());
    [Check {
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

    /// For looks that hang; the others do not wait.
    const DEADLINE: Duration = Duration::from_millis(20);

    /// A store that answers when it may, and counts how often it was asked.
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
        async fn checks(&self) -> Vec<Check> {
            let nth = self.asked.fetch_add(1, Ordering::Relaxed);
            self.may_answer.acquire().await.unwrap().forget();
            let failure = Some(nth.to_string());
            let name = "store";
            vec![Check { name, failure }]
        }
    }

    fn nth(checks: &[Check]) -> &str {
        checks[0].failure.as_deref().unwrap()
    }

    #[tokio::test]
    async fn a_look_is_for_everybody_who_asks_within_a_second() {
        let (readiness_cache, store, clock) = (ReadinessCache::default(), Store::answering(9), FixedClock::default());
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
    async fn who_waits_takes_also_a_look_that_was_slow() {
        let (readiness_cache, store, clock) = (ReadinessCache::default(), Store::answering(0), FixedClock::default());
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
        assert!(join_all(others).await.iter().all(|checks| nth(checks) == "0"));
        assert_eq!(store.asked(), 1);
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_one_that_failed_for_all_who_wait() {
        let (readiness_cache, store, clock) = (ReadinessCache::default(), Store::answering(0), FixedClock::default());
        let ask = || readiness_cache.checks(&store, &clock, DEADLINE);
        let all = join_all((0..100).map(|_| ask())).await;
        assert!(all.iter().all(|checks| checks[0].name == "deadline"));
        assert_eq!(store.asked(), 1);
        store.may_answer.add_permits(1);
        clock.advance(2 * CHECKS_TTL);
        assert_eq!(nth(&ask().await), "1");
    }

    #[tokio::test]
    async fn who_waits_looks_when_who_looked_goes_away() {
        let (readiness_cache, store, clock) = (ReadinessCache::default(), Store::answering(0), FixedClock::default());
        let mut first = Box::pin(readiness_cache.checks(&store, &clock, DEADLINE));
        let mut second = Box::pin(readiness_cache.checks(&store, &clock, DEADLINE));
        assert!(
            futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending()
        );
        drop(first);
        // From the beginning: it is the waiting that took long.
        store.may_answer.add_permits(1);
        assert_eq!(nth(&second.await), "1");
        assert_eq!(store.asked(), 2);
    }
}
