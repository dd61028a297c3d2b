//! The configuration of a provider.

use std::fmt;
use std::str::FromStr;

use domain::id::ProviderName;
use secrecy::SecretString;
use url::{Host, Url};

/// What the service knows of a provider before it asks.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The name in addresses and in links of users.
    pub name: ProviderName,
    /// The text of the button.
    pub label: String,
    /// The provider's own URL.
    pub issuer: Issuer,
    /// This service, as the provider knows it.
    pub client_id: String,
    /// `None` for a public client.
    pub client_secret: Option<SecretString>,
    /// Asked for in addition to `openid`.
    pub scopes: Vec<String>,
    /// The claim with the groups of a person.
    pub groups_claim: String,
}

/// The URL of a provider, letter by letter as its tokens name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    text: String,
    is_https: bool,
}

/// The text is not the URL of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an https URL without query and fragment (http only on a loopback address)")]
pub struct InvalidIssuer;

impl Issuer {
    /// The text without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        self.text.trim_end_matches('/')
    }

    /// Whether the provider's requests are encrypted. Then all its endpoints must be.
    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whether this is the issuer; a slash at the end makes no difference.
    pub(crate) fn is(&self, text: &str) -> bool {
        text.strip_suffix('/').unwrap_or(text) == self.base()
    }

    /// Whether the service may send secrets to this endpoint.
    pub(crate) fn permits(&self, endpoint: &Url) -> bool {
        endpoint.scheme() == "https" || (!self.is_https && endpoint.scheme() == "http")
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Issuer {
    type Err = InvalidIssuer;

    fn from_str(text: &str) -> Result<Self, InvalidIssuer> {
        let url = Url::parse(text).map_err(|_| InvalidIssuer)?;
        let is_loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => return Err(InvalidIssuer),
        };
        let is_permitted = url.scheme() == "https" || (url.scheme() == "http" && is_loopback);
        let is_plain = url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !is_permitted || !is_plain {
            return Err(InvalidIssuer);
        }
        Ok(Self {
            text: text.to_owned(),
            is_https: url.scheme() == "https",
        })
    }
}
