//! Tunnels whose client has not authenticated to the upstream yet. A client authenticates in its first frame.
//!
//! Their number is limited, but a new one is never refused: at the limit it evicts another one. So a client that authenticates
//! immediately is admitted, however many silent tunnels are open.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::GatewayLimits;

/// The unauthenticated tunnels of all workers.
#[derive(Debug)]
pub(crate) struct UnauthenticatedTunnels {
    limits: GatewayLimits,
    open: Mutex<OpenTunnels>,
}

#[derive(Debug, Default)]
struct OpenTunnels {
    /// Ids grow, so the oldest tunnel comes first.
    next_id: u64,
    clients: BTreeMap<u64, WaitingClient>,
}

#[derive(Debug)]
struct WaitingClient {
    sandbox: Arc<str>,
    address: IpAddr,
    has_spoken: bool,
    evicted: CancellationToken,
}

/// One unauthenticated tunnel, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<UnauthenticatedTunnels>,
    id: u64,
    evicted: CancellationToken,
}

impl UnauthenticatedTunnels {
    pub(crate) fn new(limits: &GatewayLimits) -> Self {
        Self {
            limits: limits.clone(),
            open: Mutex::default(),
        }
    }

    /// Admits one more client, and evicts another one if a limit is exceeded.
    pub(crate) fn admit(self: &Arc<Self>, sandbox: &Arc<str>, address: IpAddr) -> Admission {
        let limits = &self.limits;
        let evicted = CancellationToken::new();
        let mut open = self.open();
        open.make_room(limits.max_unauthenticated_per_client, |client| {
            client.address == address
        });
        open.make_room(limits.max_unauthenticated_per_sandbox, |client| {
            client.sandbox == *sandbox
        });
        open.make_room(limits.max_unauthenticated, |_| true);
        let id = open.next_id;
        open.next_id += 1;
        open.clients.insert(
            id,
            WaitingClient {
                sandbox: Arc::clone(sandbox),
                address,
                has_spoken: false,
                evicted: evicted.clone(),
            },
        );
        drop(open);
        Admission {
            all: Arc::clone(self),
            id,
            evicted,
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenTunnels> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenTunnels {
    /// Evicts clients of a group until it has fewer than `max`.
    fn make_room(&mut self, max: usize, is_in_group: impl Fn(&WaitingClient) -> bool) {
        loop {
            let group = self
                .clients
                .iter()
                .filter(|(_, client)| is_in_group(client));
            if group.clone().count() < max.max(1) {
                return;
            }
            let mut count_by_address = HashMap::<IpAddr, usize>::new();
            for (_, client) in group.clone() {
                *count_by_address.entry(client.address).or_default() += 1;
            }
            // Prefer the address with most clients, then silent clients, then the oldest.
            let victim = group.max_by_key(|(id, client)| {
                let count = count_by_address.get(&client.address);
                (count, !client.has_spoken, Reverse(**id))
            });
            let victim = victim.map(|(id, _)| *id);
            let Some(victim) = victim.and_then(|id| self.clients.remove(&id)) else {
                return;
            };
            victim.evicted.cancel();
        }
    }
}

impl Admission {
    /// Records the client's first frame.
    pub(crate) fn record_first_frame(&self) {
        if let Some(client) = self.all.open().clients.get_mut(&self.id) {
            client.has_spoken = true;
        }
    }

    /// Completes when the client is evicted.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.all.open().clients.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(per_sandbox: usize, per_client: usize, overall: usize) -> Arc<UnauthenticatedTunnels> {
        Arc::new(UnauthenticatedTunnels::new(&GatewayLimits {
            max_unauthenticated_per_sandbox: per_sandbox,
            max_unauthenticated_per_client: per_client,
            max_unauthenticated: overall,
            ..GatewayLimits::default()
        }))
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// For each admission, whether it was not evicted.
    fn kept(admissions: &[Admission]) -> Vec<bool> {
        let kept = admissions
            .iter()
            .map(|admission| !admission.evicted.is_cancelled());
        kept.collect()
    }

    #[test]
    fn each_limit_evicts_the_oldest_client() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for (limits, sandboxes, addresses) in [
            ((2, 9, 9), [&a, &a, &a], [1, 2, 3]),
            ((9, 2, 9), [&a, &b, &a], [1, 1, 1]),
            ((9, 9, 2), [&a, &b, &a], [1, 2, 3]),
        ] {
            let all = all(limits.0, limits.1, limits.2);
            let clients = sandboxes.into_iter().zip(addresses);
            let admitted = clients.map(|(sandbox, last)| all.admit(sandbox, address(last)));
            let admitted: Vec<Admission> = admitted.collect();
            assert_eq!(kept(&admitted), [false, true, true], "{limits:?}");
            drop(admitted);
            assert!(all.open().clients.is_empty());
        }
    }

    #[test]
    fn silent_clients_of_the_busiest_address_are_evicted_first() {
        let (all, sandbox) = (all(4, 9, 9), "a".into());
        let admit = |last| all.admit(&sandbox, address(last));
        let owner = admit(1);
        let same_address = [admit(2), admit(2), admit(2)];
        same_address[0].record_first_frame();
        let fifth = admit(3);
        assert_eq!(kept(&same_address), [true, false, true]);
        let sixth = admit(4);
        assert_eq!(kept(&same_address), [true, false, false]);
        assert_eq!(kept(&[owner, fifth, sixth]), [true, true, true]);
    }
}
