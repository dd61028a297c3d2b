//! Ends long responses when their caller could not open them again.
//!
//! Event streams, followed logs, downloads, followed starts, forwarded responses and sockets all use this mechanism. Each
//! rechecks its access at an interval. The application caches a key for a second, so thousands of streams with the same key
//! cause one query a second. A key that another replica revokes is noticed in the same way.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use application::authenticate::AuthenticatedUser as Actor;
use secrecy::SecretString;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::browser_session;
use crate::extract::keys::{bearer_of, key_of};
use crate::extract::request_part::{RequestInput, RequestPart};
use crate::problem::Problem;
use crate::state::{HttpState, state_of};

/// Longest wait for one query. A store that does not respond ends no response.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Responses that started at the same moment (after a restart, all of them) spread their rechecks over this many offsets.
const STAGGER_SLOTS: u32 = 32;

/// Returns when `is_refused` returns true. Calls it at this interval.
pub(crate) async fn poll_until_refused<F>(interval: Duration, is_refused: impl Fn() -> F)
where
    F: Future<Output = bool>,
{
    let mut ticks = interval_at(Instant::now() + staggered_wait(interval), interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if timeout(QUERY_TIMEOUT, is_refused()).await == Ok(true) {
            return;
        }
    }
}

/// The time until the first recheck: at most one interval, with another offset at each call.
fn staggered_wait(interval: Duration) -> Duration {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let phase = STARTED.fetch_add(1, Ordering::Relaxed) % STAGGER_SLOTS + 1;
    interval * phase / STAGGER_SLOTS
}

/// The keys or the session of a request, to check later whether they still give access. As a part of an [`ApiCall`](crate::extract::ApiCall):
/// the keys that [`Actor`] tries.
pub struct AccessRecheck {
    state: HttpState,
    /// One valid key is enough. Empty if an open service required no key.
    keys: Vec<SecretString>,
    /// The session's token, if the request has no key.
    session: Option<SecretString>,
}

impl AccessRecheck {
    pub(crate) fn new(state: HttpState, keys: Vec<SecretString>) -> Self {
        Self {
            state,
            keys,
            session: None,
        }
    }

    /// Returns when neither a key nor the session belongs to this user any more: revoked, expired, or the user was deleted.
    pub(crate) async fn until_refused(self, actor: Actor) {
        let interval = self.state.limits.access_recheck_interval;
        poll_until_refused(interval, || self.is_refused(&actor)).await;
    }

    /// Whether neither a key nor the session belongs to this user any more. False while the store cannot be reached.
    pub(crate) async fn is_refused(&self, actor: &Actor) -> bool {
        let authenticator = &self.state.ports.authenticator;
        if let Some(token) = &self.session {
            return match authenticator.session(token).await {
                Ok(found) => self.is_other(found, actor).await,
                Err(_) => false,
            };
        }
        let keyless = self.keys.is_empty().then_some(None);
        for key in self.keys.iter().map(Some).chain(keyless) {
            match authenticator.user(key).await {
                Ok(found) => {
                    if !self.is_other(found, actor).await {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether this caller is another user than `actor`, or no longer a member of the organization in which `actor` acts.
    async fn is_other(&self, found: Option<Actor>, actor: &Actor) -> bool {
        let Some(found) = found.filter(|it| it.user == actor.user) else {
            return true;
        };
        let id = actor.owner.organization();
        let placed = self.state.ports.authenticator.act_in(found, id).await;
        placed.is_ok_and(|placed| placed.is_none())
    }
}

impl RequestPart for AccessRecheck {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let key = key_of(input.req);
        let bearer = key.as_ref().and_then(|_| bearer_of(input.req));
        let keys = key.into_iter().chain(bearer).collect();
        let session = match key_of(input.req) {
            None => browser_session::token_of(input.req),
            Some(_) => None,
        };
        let recheck = Self::new(state_of(input.req)?.clone(), keys);
        Ok(Some(Self { session, ..recheck }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn responses_that_start_together_recheck_at_different_times() {
        let interval = Duration::from_secs(3);
        let all: HashSet<Duration> = (0..STAGGER_SLOTS)
            .map(|_| staggered_wait(interval))
            .collect();
        assert_eq!(all.len(), STAGGER_SLOTS as usize);
        assert!(all.iter().all(|it| !it.is_zero() && *it <= interval));
    }
}
