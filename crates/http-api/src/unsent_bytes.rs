//! Bounds the bytes of responses that clients have requested and not read yet, per caller and in total.
//!
//! A response stays in memory until the client has read it, which only the client controls. Small responses are not counted:
//! the number of connections bounds what the kernel does not take of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::http::StatusCode;
use domain::audit::AuditActor;

use crate::problem::Problem;

/// Responses up to this size are not counted.
pub(crate) const MIN_COUNTED_BYTES: usize = 64 * 1024;

/// The caller that unsent bytes are counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum UnsentOwner {
    Known(AuditActor),
    /// Without a key, from this address (IPv6: its /64 network).
    Unidentified(Option<IpAddr>),
}

/// Bounds on unsent bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsentLimits {
    /// Of one user, one sandbox, or one address without a key.
    pub per_caller: usize,
    /// In all.
    pub total: usize,
}

impl Default for UnsentLimits {
    fn default() -> Self {
        Self {
            per_caller: 64 * 1024 * 1024,
            total: 256 * 1024 * 1024,
        }
    }
}

/// Counts unsent bytes; one counter for all workers.
#[derive(Clone)]
pub(crate) struct UnsentBytes(Arc<UnsentCounter>);

struct UnsentCounter {
    limits: UnsentLimits,
    unsent: Mutex<UnsentTotals>,
}

#[derive(Default)]
struct UnsentTotals {
    total: usize,
    /// Only callers with unsent bytes.
    per_caller: HashMap<UnsentOwner, usize>,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct UnsentShare {
    inner: Arc<UnsentCounter>,
    caller: UnsentOwner,
    bytes: usize,
}

impl UnsentBytes {
    pub(crate) fn new(limits: UnsentLimits) -> Self {
        Self(Arc::new(UnsentCounter {
            limits,
            unsent: Mutex::default(),
        }))
    }

    /// Counts a response if it fits. A caller that has read everything gets a response of any size, unless the total is
    /// exhausted.
    pub(crate) fn try_take(
        &self,
        caller: UnsentOwner,
        bytes: usize,
    ) -> Result<UnsentShare, Problem> {
        let limits = self.0.limits;
        let mut unsent = self.0.lock();
        let per_caller = unsent.per_caller.get(&caller).copied().unwrap_or_default();
        if per_caller > 0 && per_caller.saturating_add(bytes) > limits.per_caller {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many responses are unread; read or close them, then retry",
            ));
        }
        if unsent.total > 0 && unsent.total.saturating_add(bytes) > limits.total {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The service holds too many unread responses; retry later",
            ));
        }
        Ok(self.0.count(&mut unsent, caller, bytes))
    }

    /// Counts a response even if it does not fit: the request has already changed something.
    pub(crate) fn take(&self, caller: UnsentOwner, bytes: usize) -> UnsentShare {
        let mut unsent = self.0.lock();
        self.0.count(&mut unsent, caller, bytes)
    }
}

impl UnsentCounter {
    fn lock(&self) -> MutexGuard<'_, UnsentTotals> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(
        self: &Arc<Self>,
        unsent: &mut UnsentTotals,
        caller: UnsentOwner,
        bytes: usize,
    ) -> UnsentShare {
        unsent.total += bytes;
        *unsent.per_caller.entry(caller.clone()).or_default() += bytes;
        UnsentShare {
            inner: Arc::clone(self),
            caller,
            bytes,
        }
    }
}

impl Drop for UnsentShare {
    fn drop(&mut self) {
        let mut unsent = self.inner.lock();
        unsent.total -= self.bytes;
        if let Some(per_caller) = unsent.per_caller.get_mut(&self.caller) {
            *per_caller -= self.bytes;
            if *per_caller == 0 {
                unsent.per_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::id::UserId;

    use super::*;

    fn user(name: &str) -> UnsentOwner {
        UnsentOwner::Known(AuditActor::User(UserId::parse(name).unwrap()))
    }

    fn status(answer: Result<UnsentShare, Problem>) -> u16 {
        answer.map_or_else(|problem| problem.status().as_u16(), |_share| 200)
    }

    #[test]
    fn unread_bytes_are_bounded_per_caller_and_in_total() {
        let unsent = UnsentBytes::new(UnsentLimits {
            per_caller: 10,
            total: 25,
        });
        let first = unsent.try_take(user("a"), 6).unwrap();
        assert_eq!(status(unsent.try_take(user("a"), 5)), 429);
        let second = unsent.try_take(user("a"), 4).unwrap();
        // This caller has no unread bytes.
        let large = unsent.try_take(user("b"), 12).unwrap();
        assert_eq!(status(unsent.try_take(user("b"), 1)), 429);
        assert_eq!(status(unsent.try_take(user("c"), 4)), 503);
        assert_eq!(status(unsent.try_take(user("c"), 3)), 200);
        // The change has happened, so the client gets its response.
        let written = unsent.take(user("a"), 100);
        assert_eq!(status(unsent.try_take(user("c"), 1)), 503);
        drop((written, large));
        assert_eq!(status(unsent.try_take(user("c"), 4)), 200);
        drop((first, second));
        assert_eq!(status(unsent.try_take(user("a"), 1_000)), 200);
        let left = unsent.0.lock();
        assert_eq!((left.total, left.per_caller.len()), (0, 0));
    }
}
