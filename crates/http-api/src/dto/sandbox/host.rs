//! Hosts of sandboxes on the wire. An addition: the reference has none.

use domain::clock::Timestamp;
use domain::coordination::host::{Host, HostStatus};
use domain::id::HostId;

use crate::decode::model;
use crate::extract::NamedParam;

/// A host of sandboxes.
#[model(response = Host, from(host: Host, now: Timestamp))]
pub(crate) struct HostDto {
    #[from(host.id.clone())]
    id: HostId,
    #[from(host.status(now))]
    status: HostStatus,
    /// Whether it takes no new starts.
    #[from(host.is_draining)]
    draining: bool,
    /// When its service was last known to run, to ten seconds.
    #[from(host.seen_at)]
    last_seen_at: Option<Timestamp>,
    /// When it was registered.
    #[from(host.registered_at)]
    created_at: Timestamp,
    /// Sandboxes that run or start on it.
    #[from(host.sandboxes)]
    sandboxes: u64,
    /// Starts of conversations that have not ended.
    #[from(host.open_starts)]
    open_starts: u64,
}

/// A change of a host.
#[model(body = HostUpdate)]
pub(crate) struct HostUpdateDto {
    /// Whether it takes no new starts. Sandboxes on it keep running.
    pub draining: bool,
}

impl NamedParam for HostId {
    const NAME: &'static str = "host_id";
    const UNKNOWN_IF_INVALID: bool = true;
}
