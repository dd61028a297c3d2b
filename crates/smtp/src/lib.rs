//! Mail by SMTP.
//!
//! **Knows** how a mail is written and handed to a mail server, by the library `lettre`. **Must never know** why a mail is sent.
//!
//! Each mail has a connection of its own. A pool would give a connection whose mail was interrupted to the next mail.

mod config;
mod message;

use std::time::Duration;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::user::mail::{Mail, MailError, Mailer};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use tokio::sync::Semaphore;

pub use config::{Config, Encryption, InvalidSender, Sender};

/// Time for a mail, with the time in which it waits for others. Servers delay their answers to strangers.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections at the same time. Mail servers refuse clients with many.
const MAX_CONNECTIONS: usize = 8;

/// Sends mail by one mail server.
#[derive(Debug)]
pub struct SmtpMailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Sender,
    slots: Semaphore,
    timeout: Duration,
}

impl SmtpMailer {
    /// Prepares to send with this configuration. Connects to nothing.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(config: Config) -> Result<Self, MailError> {
        let from = config.from.clone();
        let hello = ClientId::Domain(from.domain().to_owned());
        let transport = config.into_transport().map_err(classify)?;
        Ok(Self {
            transport: transport.hello_name(hello).build(),
            from,
            slots: Semaphore::new(MAX_CONNECTIONS),
            timeout: SEND_TIMEOUT,
        })
    }

    /// Connects, encrypts and logs in as for a mail, and sends none.
    ///
    /// # Errors
    /// The server does not let a mail in.
    pub async fn check(&self) -> Result<(), MailError> {
        let checked = tokio::time::timeout(self.timeout, self.transport.test_connection());
        let is_usable = checked.await.map_err(|_| MailError::TimedOut)?;
        if is_usable.map_err(classify)? {
            return Ok(());
        }
        Err(MailError::Unusable(
            "it refuses the command NOOP".to_owned(),
        ))
    }
}

#[async_trait]
impl Mailer for SmtpMailer {
    async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        let message = message::write(&self.from, mail)?;
        let sent = tokio::time::timeout(self.timeout, async {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            self.transport.send(message).await
        });
        let sent = sent.await.map_err(|_| MailError::TimedOut)?;
        sent.map(drop).map_err(classify)
    }
}

/// Leaves out what the server says: it may quote an address.
fn classify(error: Error) -> MailError {
    if let Some(code) = error.status() {
        return MailError::Refused(code.into());
    }
    if error.is_timeout() {
        return MailError::TimedOut;
    }
    if error.is_response() {
        return MailError::Unusable("its answer is not valid SMTP".to_owned());
    }
    let source = std::error::Error::source(&error).map(ToString::to_string);
    if error.is_client() || error.is_tls() {
        // Texts of the library, such as that the server has no STARTTLS.
        return MailError::Unusable(source.unwrap_or_default());
    }
    MailError::Unreachable(source.map_or_else(|| error.into(), BoxError::from))
}

#[cfg(test)]
mod tests;
