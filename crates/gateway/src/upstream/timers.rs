//! Pooled timers for deadlines that rarely expire.
//!
//! Creating and dropping a timer for each request takes the lock of the timer wheel twice. The worker keeps these timers
//! registered. A timer that fires for an outdated deadline is reset, at most once per deadline.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::time::{Duration, Instant, Sleep, sleep_until};

const MAX_IDLE_TIMERS: usize = 64;

/// The timers of one worker.
#[derive(Clone, Default)]
pub(crate) struct TimerPool(Rc<RefCell<Vec<Pin<Box<Sleep>>>>>);

/// A timer in use.
pub(crate) struct PooledTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    until: Instant,
    all: TimerPool,
}

impl TimerPool {
    /// A timer that fires after this time.
    pub(crate) fn start(&self, after: Duration) -> PooledTimer {
        PooledTimer {
            sleep: self.0.borrow_mut().pop(),
            until: Instant::now() + after,
            all: self.clone(),
        }
    }
}

impl Future for PooledTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}

impl Drop for PooledTimer {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        if all.len() < MAX_IDLE_TIMERS
            && let Some(sleep) = self.sleep.take()
        {
            all.push(sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reused_timer_fires_at_its_new_deadline() {
        let timers = TimerPool::default();
        let began = Instant::now();
        let second = Duration::from_secs(1);
        timers.start(second).await;
        assert_eq!(began.elapsed(), second);
        // Registered for a later deadline, and dropped before it.
        let mut long = timers.start(10 * second);
        assert!(futures::poll!(&mut long).is_pending());
        drop(long);
        timers.start(second).await;
        assert_eq!(began.elapsed(), 2 * second);
        let mut short = timers.start(second);
        assert!(futures::poll!(&mut short).is_pending());
        drop(short);
        timers.start(5 * second).await;
        assert_eq!(began.elapsed(), 7 * second);
        assert_eq!(timers.0.borrow().len(), 1);
    }
}
