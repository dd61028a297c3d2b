//! The operator's configuration.

use std::fmt;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::hosts::private_hosts::PrivateHosts;

/// Limits of requests to providers.
#[derive(Clone)]
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

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("private_hosts", &self.private_hosts)
            .field("authorities", &self.authorities.0.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Certificate authorities that are trusted beside those of the system.
#[derive(Clone, Default)]
pub struct CaCertificates(pub(crate) Vec<CertificateDer<'static>>);

impl fmt::Debug for CaCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}

impl CaCertificates {
    /// Parses a PEM file.
    ///
    /// # Errors
    /// The file contains no certificate or an invalid one.
    pub fn from_pem(text: &[u8]) -> Result<Self, &'static str> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = certificates.map_err(|_| "is not a PEM file")?;
        if certificates.is_empty() {
            return Err("contains no PEM block `BEGIN CERTIFICATE`");
        }
        let mut store = rustls::RootCertStore::empty();
        for certificate in &certificates {
            let added = store.add(certificate.clone());
            added.map_err(|_| "contains an invalid certificate")?;
        }
        Ok(Self(certificates))
    }
}
