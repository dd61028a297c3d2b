//! Limits of sizes, times and concurrency.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::ForwardError;
use crate::target::ForwardTarget;

/// Limits of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the head of a response, from the end of the request. An upstream may work long before it answers,
    /// e.g. until a shell command ends.
    pub response_timeout: Duration,
    /// Longest time without a byte: none of the response arrives or is read, or the upstream reads none of the request.
    pub idle_timeout: Duration,
    /// Idle time after which a pooled connection is closed. Shorter than the upstream's own (uvicorn: 5 s), so that the
    /// upstream does not close a connection while a request is in transit.
    pub pool_idle_timeout: Duration,
    /// Idle connections per upstream and worker.
    pub max_idle_connections: usize,
    /// Interval of TCP keep-alive probes.
    pub tcp_keep_alive: Duration,
    /// Longest time in which a client sends nothing of a body. If the length is known, longest time with less than
    /// [`Self::min_upload_bytes`]. The clock stops while the upstream does not read.
    pub upload_timeout: Duration,
    /// Bytes that must arrive within [`Self::upload_timeout`] of a body with a known length, i.e. a file, except at its
    /// end. A chunked body may be a conversation with pauses.
    pub min_upload_bytes: u64,
    /// Largest request body in bytes; `None`: unlimited.
    pub max_upload_bytes: Option<u64>,
    /// Chunks of an upload that wait to be sent. A chunk is at most as large as one read of the listener.
    pub max_chunks: usize,
    /// Bytes of one read of a response; also the maximum size of its head.
    pub read_buffer_bytes: usize,
    /// Concurrent requests.
    pub max_requests: usize,
    /// Concurrent requests of one sandbox.
    pub max_requests_per_sandbox: usize,
    /// Concurrent requests of all sandboxes of one owner.
    pub max_requests_per_owner: usize,
    /// Open tunnels.
    pub max_tunnels: usize,
    /// Open tunnels of one sandbox.
    pub max_tunnels_per_sandbox: usize,
    /// Open tunnels of all sandboxes of one owner.
    pub max_tunnels_per_owner: usize,
    /// Tunnels of one sandbox whose clients have not authenticated ([`ForwardTarget::unauthenticated`]). One more evicts
    /// another.
    pub max_unauthenticated_per_sandbox: usize,
    /// The same per client address.
    pub max_unauthenticated_per_client: usize,
    /// The same in total.
    pub max_unauthenticated: usize,
    /// Longest wait for the first frame of such a client. Longer than the upstream waits (10 s), so that the upstream
    /// reports the reason.
    pub authentication_timeout: Duration,
    /// Time after that frame in which the upstream may refuse the client, and in which the client may react to the refusal.
    pub authentication_grace: Duration,
    /// Longest time a tunnel stays open in one direction after the other one has ended.
    pub half_open_timeout: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            pool_idle_timeout: Duration::from_secs(3),
            max_idle_connections: 32,
            tcp_keep_alive: Duration::from_secs(60),
            upload_timeout: Duration::from_secs(60),
            min_upload_bytes: 64 * 1024,
            max_upload_bytes: None,
            max_chunks: 4,
            read_buffer_bytes: 64 * 1024,
            max_requests: 1_024,
            max_requests_per_sandbox: 128,
            max_requests_per_owner: 256,
            max_tunnels: 4_096,
            max_tunnels_per_sandbox: 1_024,
            max_tunnels_per_owner: 1_024,
            max_unauthenticated_per_sandbox: 32,
            max_unauthenticated_per_client: 64,
            max_unauthenticated: 1_024,
            authentication_timeout: Duration::from_secs(12),
            authentication_grace: Duration::from_secs(2),
            half_open_timeout: Duration::from_secs(30),
        }
    }
}

/// Requests and tunnels have separate limits and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TrafficKind {
    Request,
    Tunnel,
}

/// Slots that share a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SlotGroup {
    All,
    Owner(Arc<str>),
    Sandbox(Arc<str>),
}

/// The slots in use.
#[derive(Debug)]
pub(crate) struct ForwardSlots {
    limits: GatewayLimits,
    /// Only groups with slots in use.
    taken: Mutex<HashMap<(TrafficKind, SlotGroup), usize>>,
}

/// One slot in each of its groups, released on drop.
#[derive(Debug)]
pub(crate) struct ForwardSlot {
    slots: Arc<ForwardSlots>,
    groups: Vec<(TrafficKind, SlotGroup)>,
}

impl ForwardSlots {
    pub(crate) fn new(limits: &GatewayLimits) -> Self {
        Self {
            limits: limits.clone(),
            taken: Mutex::default(),
        }
    }

    /// Takes a slot, or fails at once: there is no queue, because a client that retries later costs nothing meanwhile.
    pub(crate) fn take(
        self: &Arc<Self>,
        kind: TrafficKind,
        target: &ForwardTarget,
    ) -> Result<ForwardSlot, ForwardError> {
        let is_authenticated = kind == TrafficKind::Request || target.unauthenticated.is_none();
        let all = (SlotGroup::All, self.max_slots(kind), ForwardError::Full);
        let shares = self.shares(kind, &target.owner, &target.sandbox);
        let shares = shares.into_iter().filter(|_| is_authenticated);
        self.take_all(kind, [all].into_iter().chain(shares))
    }

    /// Takes the slots of the owner and the sandbox, once the client of a tunnel has authenticated. The tunnel has its slot in
    /// [`SlotGroup::All`] already.
    pub(crate) fn take_owner_and_sandbox_slots(
        self: &Arc<Self>,
        owner: &Arc<str>,
        sandbox: &Arc<str>,
    ) -> Result<ForwardSlot, ForwardError> {
        let kind = TrafficKind::Tunnel;
        self.take_all(kind, self.shares(kind, owner, sandbox).into_iter())
    }

    fn take_all(
        self: &Arc<Self>,
        kind: TrafficKind,
        shares: impl Iterator<Item = (SlotGroup, usize, ForwardError)>,
    ) -> Result<ForwardSlot, ForwardError> {
        let mut taken = self.taken();
        let mut groups = Vec::with_capacity(3);
        for (group, max, failure) in shares {
            let group = (kind, group);
            if taken.get(&group).is_some_and(|count| *count >= max) || max == 0 {
                return Err(failure);
            }
            groups.push(group);
        }
        for group in &groups {
            *taken.entry(group.clone()).or_default() += 1;
        }
        drop(taken);
        Ok(ForwardSlot {
            slots: Arc::clone(self),
            groups,
        })
    }

    /// Requests or tunnels in progress.
    pub(crate) fn in_use(&self, kind: TrafficKind) -> u64 {
        let taken = self.taken().get(&(kind, SlotGroup::All)).copied();
        taken.unwrap_or_default() as u64
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<(TrafficKind, SlotGroup), usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn max_slots(&self, kind: TrafficKind) -> usize {
        match kind {
            TrafficKind::Request => self.limits.max_requests,
            TrafficKind::Tunnel => self.limits.max_tunnels,
        }
    }

    /// The groups in which authenticated clients need a slot, with their limits and errors.
    fn shares(
        &self,
        kind: TrafficKind,
        owner: &Arc<str>,
        sandbox: &Arc<str>,
    ) -> [(SlotGroup, usize, ForwardError); 2] {
        let limits = &self.limits;
        let (per_owner, per_sandbox) = match kind {
            TrafficKind::Request => (
                limits.max_requests_per_owner,
                limits.max_requests_per_sandbox,
            ),
            TrafficKind::Tunnel => (limits.max_tunnels_per_owner, limits.max_tunnels_per_sandbox),
        };
        let owner = SlotGroup::Owner(Arc::clone(owner));
        let sandbox = SlotGroup::Sandbox(Arc::clone(sandbox));
        [
            (owner, per_owner, ForwardError::OwnerFull),
            (sandbox, per_sandbox, ForwardError::SandboxFull),
        ]
    }
}

impl Drop for ForwardSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        for group in &self.groups {
            if let Some(count) = taken.get_mut(group) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(group);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(sandbox: &str, owner: &str, is_unauthenticated: bool) -> ForwardTarget {
        ForwardTarget {
            sandbox: sandbox.into(),
            owner: owner.into(),
            unauthenticated: is_unauthenticated.then_some([192, 0, 2, 1].into()),
            base_url: "http://127.0.0.1:1".parse().unwrap(),
            path_and_query: "/".to_owned(),
            headers: Vec::new(),
            cookies: false,
            prefix: String::new(),
        }
    }

    #[test]
    fn slots_are_limited_per_sandbox_per_owner_and_in_total() {
        let limits = GatewayLimits {
            max_requests: 5,
            max_requests_per_sandbox: 2,
            max_requests_per_owner: 3,
            max_tunnels: 1,
            ..GatewayLimits::default()
        };
        let slots = Arc::new(ForwardSlots::new(&limits));
        let take = |kind, sandbox, owner| slots.take(kind, &target(sandbox, owner, false));
        let first = take(TrafficKind::Request, "a", "ada").unwrap();
        let _second = take(TrafficKind::Request, "a", "ada").unwrap();
        let refused = take(TrafficKind::Request, "a", "ada");
        assert!(matches!(refused, Err(ForwardError::SandboxFull)));
        let third = take(TrafficKind::Request, "b", "ada").unwrap();
        let refused = take(TrafficKind::Request, "b", "ada");
        assert!(matches!(refused, Err(ForwardError::OwnerFull)));
        let fourth = take(TrafficKind::Request, "c", "bob").unwrap();
        let _fifth = take(TrafficKind::Request, "c", "bob").unwrap();
        let refused = take(TrafficKind::Request, "d", "eve");
        assert!(matches!(refused, Err(ForwardError::Full)));
        let tunnel = take(TrafficKind::Tunnel, "a", "ada").unwrap();
        let refused = take(TrafficKind::Tunnel, "b", "bob");
        assert!(matches!(refused, Err(ForwardError::Full)));
        drop((first, third, fourth, tunnel));
        let _again = take(TrafficKind::Request, "a", "ada").unwrap();
        // All, two owners and their sandboxes. Unused groups are removed.
        assert_eq!(slots.taken.lock().unwrap().len(), 5);
    }

    #[test]
    fn an_unauthenticated_tunnel_takes_no_slot_of_owner_and_sandbox() {
        let limits = GatewayLimits {
            max_tunnels: 2,
            max_tunnels_per_sandbox: 1,
            ..GatewayLimits::default()
        };
        let slots = Arc::new(ForwardSlots::new(&limits));
        let take = |is_unauthenticated| {
            slots.take(TrafficKind::Tunnel, &target("a", "ada", is_unauthenticated))
        };
        let shares = || slots.take_owner_and_sandbox_slots(&"ada".into(), &"a".into());
        let unauthenticated = take(true).unwrap();
        let authenticated = take(false).unwrap();
        assert!(matches!(take(true), Err(ForwardError::Full)));
        assert!(matches!(shares(), Err(ForwardError::SandboxFull)));
        drop(authenticated);
        let accepted = shares().unwrap();
        assert!(matches!(take(false), Err(ForwardError::SandboxFull)));
        drop((unauthenticated, accepted));
        assert!(slots.taken.lock().unwrap().is_empty());
    }
}
