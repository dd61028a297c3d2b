//! How the connections of sandboxes to other machines reach the service.

use std::fmt::{Debug, Display};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use domain::sandbox::SandboxError;
use ipnet::Ipv4Net;
use secrecy::ExposeSecret as _;
use settings::SettingReader;
use tokio::net::TcpStream;

use crate::{SandboxVariables, java};

/// What sandboxes reach beside the service (`egress.policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressPolicy {
    /// What the network of their backend reaches.
    Open,
    /// Listed hosts, through the service.
    AllowList,
    /// Nothing.
    None,
}

impl EgressPolicy {
    /// Reads `egress.policy`.
    pub fn read(reader: &SettingReader<'_>) -> Self {
        let values = [
            ("open", Self::Open),
            ("allow_list", Self::AllowList),
            ("none", Self::None),
        ];
        reader.choice("egress.policy", &values)
    }
}

/// The way of sandboxes to the forward proxy.
#[derive(Debug, Clone)]
pub struct EgressRoute {
    /// The service sets it.
    pub gateway: EgressSlot,
    /// Private networks and addresses that sandboxes reach with [`EgressPolicy::Open`].
    pub reachable_networks: Vec<String>,
    /// Whether sandboxes reach private networks behind the machine's default route also without the proxy.
    pub by_default_route: bool,
}

impl EgressRoute {
    /// A route to this gateway.
    pub fn new(gateway: &EgressSlot, networks: &[Ipv4Net]) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            reachable_networks: networks.iter().map(ToString::to_string).collect(),
            by_default_route: false,
        }
    }
}

/// A network in CIDR notation, or one address. Loopback addresses and the `own` networks are those of each sandbox, or of the
/// service's machine.
pub fn reachable_network(text: &str, own: &[Ipv4Net]) -> Option<Ipv4Net> {
    let address = text.parse::<Ipv4Addr>().map(Ipv4Net::from);
    let network = address.or_else(|_| text.parse::<Ipv4Net>()).ok()?.trunc();
    let loopback = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).trunc();
    let is_own = network.contains(&loopback)
        || loopback.contains(&network)
        || own.iter().any(|own| own.contains(&network));
    (!is_own).then_some(network)
}

/// Whether the service sends secrets to their hosts, so that sandboxes have placeholders (`broker.secrets`).
pub fn sends_secrets(reader: &SettingReader<'_>) -> bool {
    reader.switch("broker.secrets")
}

/// The forward proxy of the service, which decides what a sandbox reaches.
#[async_trait]
pub trait EgressGateway: Debug + Send + Sync {
    /// Serves one connection until it ends. The backend knows for certain that it comes from this sandbox.
    async fn serve(&self, sandbox: &SandboxId, stream: TcpStream);

    /// The certificate, as PEM, of the authority with which the proxy stands for hosts that get secrets of the sandbox's owner.
    /// Programs inside must trust it. `None`: the proxy stands for no host.
    ///
    /// # Errors
    /// The certificate cannot be made.
    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError>;
}

/// The gateway, which the service sets when it is complete. Until then connections wait.
pub type EgressSlot = Arc<OnceLock<Arc<dyn EgressGateway>>>;

/// The certificate of a sandbox's authority ([`EgressGateway::authority`]). Empty: the proxy stands for no host, or there is none yet.
///
/// # Errors
/// The certificate cannot be made.
pub fn authority_of(
    gateway: Option<&EgressSlot>,
    sandbox: &SandboxId,
) -> Result<String, SandboxError> {
    let gateway = gateway.and_then(|slot| slot.get());
    let authority = gateway
        .map(|gateway| gateway.authority(sandbox))
        .transpose();
    let authority = authority.map_err(SandboxError::other)?.flatten();
    Ok(authority.unwrap_or_default())
}

/// The variables with the file of all trusted certificates: of OpenSSL and what is built on it, and of programs that read others.
pub const CERTIFICATE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
];

/// Where distributions keep the certificates that a system trusts: Debian and Alpine, Fedora, SUSE, OpenSSL's own.
pub const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];

/// Names the forward proxy (its host and port), what is reached without it, and the file of trusted certificates in the variables
/// that programs read. They enforce nothing: where the policy is not open, a program without them reaches nothing.
pub fn add_proxy_variables(
    all: &mut SandboxVariables,
    proxy: impl Display,
    direct: &str,
    certificates: &str,
) {
    let proxy = proxy.to_string();
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value.into());
    for name in PROXY_VARIABLES {
        set(name, format!("http://{proxy}"));
    }
    // Also servers of the agent.
    let direct = format!("localhost,127.0.0.1,{direct},::1,0.0.0.0");
    for name in ["no_proxy", "NO_PROXY"] {
        set(name, direct.clone());
    }
    for name in CERTIFICATE_VARIABLES {
        set(name, certificates.to_owned());
    }
    let options = java::options(&proxy, &direct, certificates);
    let options = match all.get(java::OPTIONS) {
        Some(former) => format!("{} {options}", former.expose_secret()),
        None => options,
    };
    all.insert(java::OPTIONS.to_owned(), options.into());
}

/// Whether programs find a proxy of the operator by this variable.
pub fn is_proxy_variable(name: &str) -> bool {
    let all = ["http_proxy", "https_proxy", "all_proxy"];
    all.iter().any(|it| name.eq_ignore_ascii_case(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reachable_networks_are_networks_and_addresses_but_not_the_sandboxs_own() {
        let own = [Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 2, 0), 24)];
        let parse = |text| reachable_network(text, &own).map(|net| net.to_string());
        let known = [
            ("10.20.0.0/16", Some("10.20.0.0/16")),
            ("10.20.3.4/16", Some("10.20.0.0/16")),
            ("192.168.1.20", Some("192.168.1.20/32")),
            ("127.0.0.1", None),
            ("127.8.0.0/16", None),
            ("0.0.0.0/0", None),
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.0.2.0/24", None),
            ("10.0.2.2", None),
            ("fd00::/8", None),
            ("example.org", None),
        ];
        for (text, expected) in known {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_proxy_of_the_operator_is_recognized_by_its_variable() {
        for (name, expected) in [
            ("HTTPS_PROXY", true),
            ("http_proxy", true),
            ("All_Proxy", true),
            ("NO_PROXY", false),
            ("MY_HTTPS_PROXY", false),
        ] {
            assert_eq!(is_proxy_variable(name), expected, "{name}");
        }
    }
}
