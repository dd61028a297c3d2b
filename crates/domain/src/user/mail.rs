//! Mail to people: invitations, and links for forgotten passwords.

use std::fmt;

use async_trait::async_trait;
use secrecy::SecretString;
use uuid::Uuid;

use crate::error::BoxError;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// What is known about a mail when the request that causes it is answered.
    MailDelivery {
        /// The mail server has accepted it.
        Sent = "sent",
        /// It was not sent.
        Failed = "failed",
        /// The service is still trying.
        Pending = "pending",
    }
}

/// A mail in plain text to one person.
#[derive(Clone)]
pub struct Mail {
    /// Identifies the mail, in its header `Message-ID`.
    pub id: Uuid,
    pub to: String,
    pub subject: String,
    /// Contains a link, whose holder becomes a member or a user.
    pub text: SecretString,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mail({})", self.id)
    }
}

/// Why a mail was not sent. No text contains an address or a part of the mail, nor what the server says: servers quote the
/// address.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error("this is no address to which a mail can be sent")]
    InvalidAddress,
    #[error("the mail server cannot be reached, or closed the connection")]
    Unreachable(#[source] BoxError),
    #[error("the mail server does not answer in time")]
    TimedOut,
    /// A reply code of SMTP: 4xx may succeed later, 5xx not.
    #[error("the mail server refused with code {0}")]
    Refused(u16),
    /// The server lacks something, such as STARTTLS, or answers not as SMTP says.
    #[error("the mail server is not usable: {0}")]
    Unusable(String),
}

impl MailError {
    /// Whether another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::TimedOut | Self::Refused(400..=499)
        )
    }
}

/// Sends mail.
#[async_trait]
pub trait Mailer: Send + Sync + 'static {
    /// Hands a mail to the mail server, and ends within a deadline of its own. After an error the server may have accepted the
    /// mail nevertheless.
    async fn send(&self, mail: &Mail) -> Result<(), MailError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_text_hides_the_address_and_the_text() {
        let mail = Mail {
            id: Uuid::nil(),
            to: "ada@example.org".to_owned(),
            subject: "secret subject".to_owned(),
            text: "secret link".into(),
        };
        assert_eq!(
            format!("{mail:?}"),
            "Mail(00000000-0000-0000-0000-000000000000)"
        );
    }
}
