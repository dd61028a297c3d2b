//! The certificate of the proxies of this process.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Host names in the certificate.
const HOST_NAMES: [&str; 2] = [super::EXAMPLE_HOST, super::FRONT_HOST];

/// A self-signed certificate.
pub struct Authority {
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its private key, as PEM.
    pub key: String,
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
}

impl Authority {
    /// The certificate of all proxies of this process, so that a client needs only a URL to trust one.
    #[must_use]
    pub fn of_this_process() -> &'static Self {
        static AUTHORITY: OnceLock<Authority> = OnceLock::new();
        AUTHORITY.get_or_init(|| Self::of(&HOST_NAMES))
    }

    /// Creates a certificate for these host names.
    fn of(names: &[&str]) -> Self {
        let key = KeyPair::generate().expect("cannot create a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names).expect("a host name is invalid");
        let certificate = certificate
            .self_signed(&key)
            .expect("cannot sign the certificate");
        Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            public_key: key.subject_public_key_info(),
            der: certificate.der().clone(),
        }
    }

    /// The digest by which browsers identify a key: SHA-256 of its `SubjectPublicKeyInfo`, in base64.
    #[must_use]
    pub fn key_digest(&self) -> String {
        STANDARD.encode(Sha256::digest(&self.public_key))
    }

    /// A connector that trusts only this certificate.
    pub(super) fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.der.clone());
        added.expect("the certificate is invalid");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("no version of TLS is supported")
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}
