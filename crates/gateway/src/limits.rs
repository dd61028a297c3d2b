//! How much, how long and how many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{ForwardError, ForwardTarget};

/// Bounds on what is forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the head of an answer once the whole request is sent. Servers behind may work long before they say
    /// anything: commands of a shell are waited for.
    pub response_timeout: Duration,
    /// Longest time in which no byte of an answer comes or is taken, or the server behind takes none of a request.
    pub idle_timeout: Duration,
    /// Connections that nobody uses are closed after this time. Shorter than what the servers behind allow (uvicorn: 5 s), so
    /// that it is not they who close one while a request is on its way.
    pub pool_idle_timeout: Duration,
    /// Connections for each server and worker that may wait for use.
    pub max_idle_connections: usize,
    /// How often the other side of a silent connection is asked whether it is there.
    pub tcp_keep_alive: Duration,
    /// Longest time in which a client sends nothing of a body; or, of one whose length it has announced, less than
    /// [`Self::min_upload_bytes`]. The time in which the server behind takes nothing does not count.
    pub upload_timeout: Duration,
    /// Bytes that come in that time of a body whose length is known, but at its end: a file. What comes in chunks may be a
    /// conversation, which has pauses and short words.
    pub min_upload_bytes: u64,
    /// Largest body of a request in bytes; `None`: any.
    pub max_upload_bytes: Option<u64>,
    /// Pieces of an upload that wait to be sent. Each is at most as large as what the listener reads at once.
    pub max_chunks: usize,
    /// Most that is read of an answer at once, in bytes; also its largest head.
    pub read_buffer_bytes: usize,
    /// Requests under way in all.
    pub max_requests: usize,
    /// Requests under way of one sandbox.
    pub max_requests_per_sandbox: usize,
    /// Requests under way of all sandboxes of one owner.
    pub max_requests_per_owner: usize,
    /// Open tunnels in all.
    pub max_tunnels: usize,
    /// Open tunnels of one sandbox.
    pub max_tunnels_per_sandbox: usize,
    /// Open tunnels of all sandboxes of one owner.
    pub max_tunnels_per_owner: usize,
    /// Tunnels to one sandbox whose clients have yet to authenticate ([`ForwardTarget::unauthenticated`]). One more closes another one.
    pub max_unauthenticated_per_sandbox: usize,
    /// The same of one client.
    pub max_unauthenticated_per_client: usize,
    /// The same in all.
    pub max_unauthenticated: usize,
    /// Longest wait for the first frame of such a client. Longer than the servers behind wait (10 s), so that they say why.
    pub authentication_timeout: Duration,
    /// Time after that frame in which the server behind refuses a client, and in which a client answers to the refusal.
    pub authentication_grace: Duration,
    /// How long a tunnel may go on in one direction once the other one is at its end.
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

/// What is slot spawn_connection_task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TrafficKind {
    Request,
    Tunnel,
}

/// Whose slots are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SlotGroup {
    All,
    Owner(Arc<str>),
    Sandbox(Arc<str>),
}

/// The slots that are taken.
#[derive(Debug)]
pub(crate) struct ForwardSlots {
    limits: GatewayLimits,
    /// Only groups that have something under way.
    taken: Mutex<HashMap<(TrafficKind, SlotGroup), usize>>,
}

/// One place in each of its groups, until it is dropped.
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

    /// Takes a place, if there is one. Nobody waits: a client that is told when to come back costs nothing meanwhile.
    pub(crate) fn take(self: &Arc<Self>, kind: TrafficKind, target: &ForwardTarget) -> Result<ForwardSlot, ForwardError> {
        let is_known = kind == TrafficKind::Request || target.unauthenticated.is_none();
        let all = (SlotGroup::All, self.all(kind), ForwardError::Full);
        let shares = self.shares(kind, &target.owner, &target.sandbox);
        self.take_all(
            kind,
            [all]
                .into_iter()
                .chain(shares.into_iter().filter(|_| is_known)),
        )
    }

    /// Takes the slots of the owner and of the sandbox for a tunnel that has one of all, and whose client is known now.
    pub(crate) fn take_shares(
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
        wanted: impl Iterator<Item = (SlotGroup, usize, ForwardError)>,
    ) -> Result<ForwardSlot, ForwardError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = Vec::with_capacity(3);
        for (group, most, failure) in wanted {
            let group = (kind, group);
            if taken.get(&group).is_some_and(|it| *it >= most) || most == 0 {
                return Err(failure);
            }
            groups.push(group);
        }
        for group in &groups {
            match taken.get_mut(group) {
                Some(of_group) => *of_group += 1,
                None => _ = taken.insert(group.clone(), 1),
            }
        }
        drop(taken);
        Ok(ForwardSlot {
            slots: Arc::clone(self),
            groups,
        })
    }

    fn all(&self, kind: TrafficKind) -> usize {
        match kind {
            TrafficKind::Request => self.limits.max_requests,
            TrafficKind::Tunnel => self.limits.max_tunnels,
        }
    }

    /// The groups in which known clients need a place, the most that each has, and what is said if it has none.
    fn shares(
        &self,
        kind: TrafficKind,
        owner: &Arc<str>,
        sandbox: &Arc<str>,
    ) -> [(SlotGroup, usize, ForwardError); 2] {
        let it = &self.limits;
        let (of_owner, of_sandbox) = match kind {
            TrafficKind::Request => (it.max_requests_per_owner, it.max_requests_per_sandbox),
            TrafficKind::Tunnel => (it.max_tunnels_per_owner, it.max_tunnels_per_sandbox),
        };
        let (owner, sandbox) = (Arc::clone(owner), Arc::clone(sandbox));
        [
            (SlotGroup::Owner(owner), of_owner, ForwardError::OwnerFull),
            (SlotGroup::Sandbox(sandbox), of_sandbox, ForwardError::SandboxFull),
        ]
    }
}

impl Drop for ForwardSlot {
    fn drop(&mut self) {
        let mut taken = self
            .slots
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for group in &self.groups {
            if let Some(of_group) = taken.get_mut(group) {
                *of_group -= 1;
                if *of_group == 0 {
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
    fn a_lane_an_owner_and_all_have_their_places() {
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
        // All, two owners and their sandboxes; b and what was a tunnel are forgotten.
        assert_eq!(slots.taken.lock().unwrap().len(), 5);
    }

    #[test]
    fn an_unauthenticated_client_takes_nothing_of_the_owner_until_it_is_known() {
        let limits = GatewayLimits {
            max_tunnels: 2,
            max_tunnels_per_sandbox: 1,
            ..GatewayLimits::default()
        };
        let slots = Arc::new(ForwardSlots::new(&limits));
        let take =
            |is_unauthenticated| slots.take(TrafficKind::Tunnel, &target("a", "ada", is_unauthenticated));
        let shares = || slots.take_shares(&"ada".into(), &"a".into());
        let stranger = take(true).unwrap();
        let known = take(false).unwrap();
        assert!(matches!(take(true), Err(ForwardError::Full)));
        assert!(matches!(shares(), Err(ForwardError::SandboxFull)));
        drop(known);
        let accepted = shares().unwrap();
        assert!(matches!(take(false), Err(ForwardError::SandboxFull)));
        drop((stranger, accepted));
        assert!(slots.taken.lock().unwrap().is_empty());
    }
}
