//! The operator's configuration.

use std::time::Duration;

use outbound_http::{CaCertificates, PrivateHosts};

/// Limits of requests to providers.
#[derive(Debug, Clone)]
pub struct Config {
    /// Hosts that may be called beside public ones.
    pub private_hosts: PrivateHosts,
    /// Certificate authorities beside the system's.
    pub authorities: CaCertificates,
    /// Deadline of one call, over all its requests.
    pub timeout: Duration,
    /// Timeout of establishing a connection.
    pub connect: Duration,
    /// Largest response body, in bytes.
    pub max_body: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            private_hosts: PrivateHosts::default(),
            authorities: CaCertificates::default(),
            timeout: Duration::from_secs(15),
            connect: Duration::from_secs(5),
            max_body: 2 << 20,
        }
    }
}
