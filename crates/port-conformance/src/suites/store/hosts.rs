//! Conformance tests of `HostRepository`.

use crate::StorePorts;
use crate::fixtures::{at, host};
use domain::id::HostId;

/// A host is known once it is registered; the registration can be repeated.
pub async fn a_host_is_known_once_registered(ports: &StorePorts) {
    let hosts = &ports.hosts;
    assert!(!hosts.is_known(&host()).await.unwrap());
    hosts.register(&host(), at(0)).await.unwrap();
    hosts.register(&host(), at(1)).await.unwrap();
    assert!(hosts.is_known(&host()).await.unwrap());
    let other = HostId::parse("another-host").unwrap();
    assert!(!hosts.is_known(&other).await.unwrap());
}

/// Generates the conformance tests of `HostRepository`.
#[macro_export]
macro_rules! host_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!((store::hosts), $fresh, [a_host_is_known_once_registered]);
    };
}
