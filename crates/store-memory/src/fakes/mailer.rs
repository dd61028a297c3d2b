//! A mail server that keeps what it gets.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::user::mail::{Mail, MailError, Mailer};

/// Keeps mails instead of sending them. It refuses those to `refused@…`, and never answers about those to `slow@…`.
#[derive(Debug, Default)]
pub struct FakeMailer(Mutex<Vec<Mail>>);

impl FakeMailer {
    /// Takes the mails that were sent since the last call, in their order.
    pub fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Mailer for FakeMailer {
    async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        match mail.to.split('@').next() {
            Some("refused") => return Err(MailError::Refused(550)),
            Some("slow") => std::future::pending().await,
            _ => {}
        }
        let mut mails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mails.push(mail.clone());
        Ok(())
    }
}
