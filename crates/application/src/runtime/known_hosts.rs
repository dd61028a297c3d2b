//! The hosts that share a store, as this process knows them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::clock::{Clock, Timestamp};
use domain::coordination::host::{Host, HostRepository, HostStatus};
use domain::coordination::lease::LeaseRepository;
use domain::error::ErrorClass;
use domain::id::HostId;

use crate::AppError;
use crate::policy::Policy;
use crate::ports::Ports;

/// The lease of the host that keeps the automations of the installation, in files of its own.
const AUTOMATIONS_LEASE: &str = "automations";
/// A hundred years: it ends when its host gives it up or is removed.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The hosts, as of this process's last look.
#[derive(Clone)]
pub struct KnownHosts {
    pub(super) repository: Arc<dyn HostRepository>,
    leases: Arc<dyn LeaseRepository>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) own: HostId,
    seen: Arc<Mutex<Vec<Host>>>,
}

/// Numbers of hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Those that take starts.
    pub available: u64,
    pub draining: u64,
    pub lost: u64,
}

impl KnownHosts {
    pub(crate) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            repository: Arc::clone(&ports.hosts),
            leases: Arc::clone(&ports.leases),
            clock: Arc::clone(&ports.clock),
            own: policy.host.clone(),
            seen: Arc::default(),
        }
    }

    /// All hosts, by id, with the time of the look.
    pub async fn list(&self) -> Result<(Vec<Host>, Timestamp), AppError> {
        Ok((self.repository.list().await?, self.clock.now()))
    }

    /// Sets whether a host takes no new starts; other processes follow within seconds. Returns the host.
    pub async fn set_draining(
        &self,
        host: &HostId,
        is_draining: bool,
    ) -> Result<(Host, Timestamp), AppError> {
        self.repository.set_draining(host, is_draining).await?;
        let (all, now) = self.look().await?;
        let found = all.into_iter().find(|it| it.id == *host);
        let found = found.ok_or_else(|| AppError::not_found("Host not found"))?;
        Ok((found, now))
    }

    /// Removes a lost host, with its sandboxes. This process fails or finishes its starts.
    pub async fn remove(&self, host: &HostId) -> Result<(), AppError> {
        let (all, now) = self.look().await?;
        let found = all.into_iter().find(|it| it.id == *host);
        let found = found.ok_or_else(|| AppError::not_found("Host not found"))?;
        let is_lost = found.status(now) == HostStatus::Lost && found.id != self.own;
        if !is_lost || !self.repository.remove(&found, &self.own).await? {
            return Err(AppError::conflict(
                "Only a lost host can be removed: stop its service and wait for 30 seconds",
            ));
        }
        let released = self.leases.release(AUTOMATIONS_LEASE, host.as_str());
        released.await?;
        self.look().await?;
        Ok(())
    }

    /// Whether this process's host keeps the automations of the installation: the first one that asks does.
    pub async fn keeps_automations(&self) -> Result<bool, AppError> {
        let (leases, own) = (&self.leases, self.own.as_str());
        let now = self.clock.now();
        let acquired = leases.acquire(AUTOMATIONS_LEASE, own, now, now.plus(FOR_EVER));
        Ok(acquired.await?)
    }

    /// Leaves the automations to the next host that asks. Without effect if another host keeps them.
    pub async fn give_up_automations(&self) -> Result<(), AppError> {
        let released = self.leases.release(AUTOMATIONS_LEASE, self.own.as_str());
        Ok(released.await?)
    }

    pub(super) async fn look(&self) -> Result<(Vec<Host>, Timestamp), AppError> {
        let (all, now) = self.list().await?;
        self.with_seen(|seen| seen.clone_from(&all));
        Ok((all, now))
    }

    fn with_seen<T>(&self, read: impl FnOnce(&mut Vec<Host>) -> T) -> T {
        read(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn counts(&self) -> HostCounts {
        let now = self.clock.now();
        let mut counts = HostCounts::default();
        self.with_seen(|seen| {
            for host in seen {
                match host.status(now) {
                    HostStatus::Available => counts.available += 1,
                    HostStatus::Draining => counts.draining += 1,
                    HostStatus::Lost => counts.lost += 1,
                    HostStatus::Unknown => {}
                }
            }
        });
        counts
    }

    /// Whether this process's host takes no new starts.
    pub(crate) fn is_draining(&self) -> bool {
        self.with_seen(|seen| seen.iter().any(|it| it.id == self.own && it.is_draining))
    }

    /// The host of a new sandbox: this process's, or while that is drained the least busy other one.
    pub(crate) fn for_new_sandbox(&self) -> Result<HostId, AppError> {
        if !self.is_draining() {
            return Ok(self.own.clone());
        }
        let now = self.clock.now();
        let least_busy = self.with_seen(|seen| {
            let others = seen
                .iter()
                .filter(|it| it.status(now) == HostStatus::Available);
            let chosen = others.min_by_key(|it| it.sandboxes + it.open_starts);
            chosen.map(|it| it.id.clone())
        });
        least_busy.ok_or_else(|| {
            let detail =
                "The service takes no new starts: its host is drained, and there is no other one.";
            AppError::refused(ErrorClass::Unavailable, detail)
        })
    }

    /// Fails if the host is lost: what it would have to do would wait for it.
    pub(crate) fn check_alive(&self, host: &HostId) -> Result<(), AppError> {
        let now = self.clock.now();
        let lost = self.with_seen(|seen| {
            let found = seen.iter().find(|it| it.id == *host);
            let lost = found.filter(|it| it.status(now) == HostStatus::Lost);
            lost.map(silence)
        });
        match lost.filter(|_| *host != self.own) {
            None => Ok(()),
            Some(silence) => Err(AppError::refused(
                ErrorClass::Unavailable,
                format!("The sandbox cannot be used: {silence}. Try again when the host is back."),
            )),
        }
    }
}

/// Says since when a host is lost.
pub(super) fn silence(host: &Host) -> String {
    let since = host.seen_at.map(|at| format!(" since {at}"));
    format!(
        "its host {} has not answered{}",
        host.id,
        since.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::coordination::host::HOST_TIMEOUT;
    use store_memory::{FixedClock, MemoryStore};

    use super::*;

    fn id(name: &str) -> HostId {
        HostId::parse(name).unwrap()
    }

    async fn known(clock: &Arc<FixedClock>) -> KnownHosts {
        on(&MemoryStore::new(), clock).await
    }

    async fn on(store: &Arc<MemoryStore>, clock: &Arc<FixedClock>) -> KnownHosts {
        let now = clock.now();
        let long_ago = now.minus(HOST_TIMEOUT).minus(Duration::from_secs(1));
        for (name, seen_at) in [("own", now), ("lost", long_ago), ("other", now)] {
            store.register(&id(name), now).await.unwrap();
            store.note_alive(&id(name), seen_at).await.unwrap();
        }
        let known = KnownHosts {
            repository: store.clone(),
            leases: store.clone(),
            clock: clock.clone(),
            own: id("own"),
            seen: Arc::default(),
        };
        known.look().await.unwrap();
        known
    }

    #[tokio::test]
    async fn a_drained_host_gives_new_sandboxes_to_living_ones() {
        let hosts = known(&Arc::default()).await;
        assert_eq!(hosts.for_new_sandbox().unwrap(), id("own"));
        let (own, _) = hosts.set_draining(&id("own"), true).await.unwrap();
        assert!(own.is_draining && hosts.is_draining());
        assert_eq!(hosts.for_new_sandbox().unwrap(), id("other"));
        let counts = HostCounts {
            available: 1,
            draining: 1,
            lost: 1,
        };
        assert_eq!(hosts.counts(), counts);
        hosts.set_draining(&id("other"), true).await.unwrap();
        let refused = hosts.for_new_sandbox().unwrap_err();
        assert!(refused.to_string().contains("drained"), "{refused}");
        hosts.set_draining(&id("own"), false).await.unwrap();
        assert_eq!(hosts.for_new_sandbox().unwrap(), id("own"));
        assert!(hosts.set_draining(&id("nowhere"), true).await.is_err());
    }

    #[tokio::test]
    async fn one_host_keeps_the_automations_until_it_gives_them_up_or_is_removed() {
        let (store, clock) = (MemoryStore::new(), Arc::<FixedClock>::default());
        let own = on(&store, &clock).await;
        let of = |name: &str| KnownHosts {
            own: id(name),
            ..own.clone()
        };
        let (lost, other) = (of("lost"), of("other"));
        let keepers = async || {
            let asked = [&lost, &own, &other].map(KnownHosts::keeps_automations);
            let kept = futures::future::try_join_all(asked).await.unwrap();
            (kept[0], kept[1], kept[2])
        };
        assert_eq!(keepers().await, (true, false, false));
        clock.advance(HOST_TIMEOUT * 100);
        assert_eq!(keepers().await, (true, false, false));
        store.note_alive(&id("own"), clock.now()).await.unwrap();
        own.remove(&id("lost")).await.unwrap();
        assert!(own.keeps_automations().await.unwrap());
        other.give_up_automations().await.unwrap();
        assert_eq!(keepers().await, (false, true, false));
        own.give_up_automations().await.unwrap();
        assert!(other.keeps_automations().await.unwrap());
    }

    #[tokio::test]
    async fn only_sandboxes_of_lost_hosts_cannot_be_used() {
        let clock = Arc::<FixedClock>::default();
        let hosts = known(&clock).await;
        for (name, is_usable) in [
            ("own", true),
            ("lost", false),
            ("other", true),
            ("unknown", true),
        ] {
            assert_eq!(hosts.check_alive(&id(name)).is_ok(), is_usable, "{name}");
        }
        // This process runs, whatever the store knows.
        clock.advance(HOST_TIMEOUT * 2);
        assert!(hosts.check_alive(&id("own")).is_ok());
        let refused = hosts.check_alive(&id("other")).unwrap_err();
        assert!(refused.to_string().contains("its host other"), "{refused}");
    }
}
