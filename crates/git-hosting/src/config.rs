//! Configuration by the operator.

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
    /// Establishing a connection.
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

/// Certificates of authorities.
#[derive(Clone, Default)]
pub struct CaCertificates(pub(crate) Vec<CertificateDer<'static>>);

impl fmt::Debug for CaCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}

impl CaCertificates {
    /// Those of a PEM file.
    ///
    /// # Errors
    /// Nothing in it is a certificate, or something cannot be read as one.
    pub fn from_pem(text: &[u8]) -> Result<Self, &'static str> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        match found {
            Ok(found) if found.is_empty() => Err("holds no certificate in PEM form"),
            Ok(found) => {
                let mut store = rustls::RootCertStore::empty();
                for certificate in &found {
                    let added = store.add(certificate.clone());
                    added.map_err(|_| "holds a certificate that cannot be read")?;
                }
                Ok(Self(found))
            }
            Err(_) => Err("is no PEM file"),
        }
    }
}
