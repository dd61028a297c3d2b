//! The certificate authorities that a client trusts.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

/// Certificate authorities. Without any, no https connection succeeds.
#[derive(Clone)]
pub struct CaCertificates(RootCertStore);

impl Default for CaCertificates {
    fn default() -> Self {
        Self(RootCertStore::empty())
    }
}

impl fmt::Debug for CaCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}

impl CaCertificates {
    /// Reads those that this machine trusts. Omits files and certificates that are not usable.
    pub fn of_system() -> Self {
        Self::parsable(rustls_native_certs::load_native_certs().certs)
    }

    /// Those of the system for an https URL, none for other URLs, which need none.
    pub fn for_url(url: &Url) -> Self {
        match url.scheme() {
            "https" => Self::of_system(),
            _ => Self::default(),
        }
    }

    /// Parses a PEM file, and omits certificates that are not usable.
    pub fn usable_in_pem(text: &[u8]) -> Self {
        Self::parsable(CertificateDer::pem_slice_iter(text).flatten())
    }

    fn parsable(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        Self(roots)
    }

    /// Parses a PEM file.
    ///
    /// # Errors
    /// The file contains no certificate or an invalid one.
    pub fn from_pem(text: &[u8]) -> Result<Self, &'static str> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let added = roots.add(certificate.map_err(|_| "is not a PEM file")?);
            added.map_err(|_| "contains an invalid certificate")?;
        }
        if roots.is_empty() {
            return Err("contains no PEM block `BEGIN CERTIFICATE`");
        }
        Ok(Self(roots))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of `more`.
    #[must_use]
    pub fn and(mut self, more: &Self) -> Self {
        self.0.extend(more.0.roots.iter().cloned());
        self
    }

    /// The configuration of a client that trusts them.
    ///
    /// # Errors
    /// The TLS library has no usable protocol version.
    pub fn into_client_config(self) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(config.with_root_certificates(self.0).with_no_client_auth())
    }
}
