//! A mail server that keeps what it gets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::user::mail::{Mail, MailError, Mailer};
use uuid::Uuid;

/// Keeps mails instead of sending them. It refuses those to `refused@…`, for the moment the first N attempts of each to
/// `busy-N@…`, and never answers about those to `slow@…`.
#[derive(Debug, Default)]
pub struct FakeMailer {
    sent: Mutex<Vec<Mail>>,
    attempts: Mutex<BTreeMap<Uuid, u32>>,
}

impl FakeMailer {
    /// Takes the mails that were sent since the last call, in their order.
    pub fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Mailer for FakeMailer {
    async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        let name = mail.to.split('@').next();
        if let Some(n) = name.and_then(|name| name.strip_prefix("busy-")) {
            let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            let attempt = attempts.entry(mail.id).or_default();
            *attempt += 1;
            if n.parse().is_ok_and(|refused: u32| *attempt <= refused) {
                return Err(MailError::Refused(421));
            }
        }
        match name {
            Some("refused") => return Err(MailError::Refused(550)),
            Some("slow") => std::future::pending().await,
            _ => {}
        }
        let mut mails = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        mails.push(mail.clone());
        Ok(())
    }
}
