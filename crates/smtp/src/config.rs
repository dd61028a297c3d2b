//! How the mail server is reached.

use std::fmt;
use std::str::FromStr;

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, Error};
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use secrecy::{ExposeSecret as _, SecretString};

/// How the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// It begins in plain text; without STARTTLS nothing is sent.
    StartTls,
    /// From the first byte.
    Tls,
    /// Not at all.
    None,
}

/// A mail server and how the service uses it.
#[derive(Debug, Clone)]
pub struct Config {
    /// A name, or an IP address.
    pub host: String,
    /// Where it takes mail, usually 587, or 465 with [`Encryption::Tls`].
    pub port: u16,
    /// Whether what is sent can be read on the way.
    pub encryption: Encryption,
    /// User and password.
    pub credentials: Option<(String, SecretString)>,
    /// Who the mails come from.
    pub from: Sender,
    /// A PEM file with authorities that are trusted in addition to those of the system.
    pub authorities: Option<Vec<u8>>,
}

impl Config {
    pub(crate) fn into_transport(self) -> Result<AsyncSmtpTransportBuilder, Error> {
        let tls = match self.encryption {
            Encryption::StartTls => Tls::Required(self.tls()?),
            Encryption::Tls => Tls::Wrapper(self.tls()?),
            Encryption::None => Tls::None,
        };
        let transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(self.host);
        let transport = transport.port(self.port).tls(tls);
        Ok(match self.credentials {
            Some((user, password)) => {
                let password = password.expose_secret().to_owned();
                transport.credentials(Credentials::new(user, password))
            }
            None => transport,
        })
    }

    fn tls(&self) -> Result<TlsParameters, Error> {
        let parameters = TlsParameters::builder(self.host.clone());
        match &self.authorities {
            Some(pem) => parameters.add_root_certificate(Certificate::from_pem(pem)?),
            None => parameters,
        }
        .build_rustls()
    }
}

/// The address that mails come from, perhaps with a name: `Agents <agents@example.org>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender(pub(crate) Mailbox);

impl Sender {
    pub(crate) fn domain(&self) -> &str {
        self.0.email.domain()
    }
}

/// The text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSender;

impl fmt::Display for InvalidSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address, or a name and an address in angle brackets")
    }
}

impl std::error::Error for InvalidSender {}

impl FromStr for Sender {
    type Err = InvalidSender;

    fn from_str(text: &str) -> Result<Self, InvalidSender> {
        text.parse().map(Self).map_err(|_| InvalidSender)
    }
}
