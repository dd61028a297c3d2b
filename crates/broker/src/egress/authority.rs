//! The certificate authority of a sandbox, with which the proxy stands for hosts that get secrets.
//!
//! Its key is derived, so that it outlives the service and needs no store. The key never enters the sandbox, which has the
//! certificate alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use p256::SecretKey;
use p256::pkcs8::EncodePrivateKey as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use url::Host;

/// Before now, for sandboxes whose clocks are late.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60 * 60);
/// A sandbox gets a new certificate whenever it starts.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
const HOST_LIFETIME: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The derived bytes are no key.
    #[error("the key of a sandbox's certificate authority cannot be derived")]
    Key,
    /// The certificate is not valid.
    #[error("a certificate of a sandbox's certificate authority cannot be made")]
    Certificate(#[from] rcgen::Error),
    /// TLS refuses the certificate.
    #[error("a certificate of a sandbox's certificate authority is not usable")]
    Tls(#[from] rustls::Error),
}

/// Signs certificates of hosts for one sandbox.
pub(super) struct SandboxAuthority(Issuer<'static, KeyPair>);

impl SandboxAuthority {
    /// Equal seeds give equal keys.
    pub(super) fn derive(seed: &SecretString) -> Result<Self, AuthorityError> {
        let pkcs8 = secret_key(seed)?.to_pkcs8_der();
        let pkcs8 = pkcs8.map_err(|_| AuthorityError::Key)?;
        let der = PrivatePkcs8KeyDer::from(pkcs8.as_bytes());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)?;
        Ok(Self(Issuer::new(authority_params(), key)))
    }

    /// The certificate that a sandbox trusts, as PEM.
    pub(super) fn certificate(&self) -> Result<String, AuthorityError> {
        Ok(authority_params().self_signed(self.0.key())?.pem())
    }

    /// TLS as this host.
    pub(super) fn server_config(&self, host: &Host) -> Result<Arc<ServerConfig>, AuthorityError> {
        let name = match host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let mut params = CertificateParams::new([name])?;
        lasts(&mut params, HOST_LIFETIME);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// The first text whose hash is a key; practically always the first one.
fn secret_key(seed: &SecretString) -> Result<SecretKey, AuthorityError> {
    (0..=u8::MAX)
        .find_map(|attempt| {
            let hash = Sha256::new()
                .chain_update(b"certificate authority of a sandbox\0")
                .chain_update([attempt])
                .chain_update(seed.expose_secret());
            SecretKey::from_slice(&hash.finalize()).ok()
        })
        .ok_or(AuthorityError::Key)
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    lasts(&mut params, AUTHORITY_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "agent-workspace, for one sandbox");
    params
}

fn lasts(params: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - CLOCK_TOLERANCE).into();
    params.not_after = (now + lifetime).into();
}
