//! Mails with links: invitations, and new passwords.
//!
//! A mail is sent beside the request that causes it, so that a slow mail server holds up neither the request nor other mails.
//! Mails are tried again for some minutes, and not stored. A lost one costs no invitation, because the inviter has the link too;
//! and a person without a password asks again.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Timestamp;
use domain::error::chain;
use domain::id::{IdGenerator, UserId};
use domain::user::mail::{Mail, MailDelivery, Mailer};
use domain::user::organization::Invitation;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::{BackgroundTasks, Ports};

/// How long a request waits for its mails. Requests end after ten seconds.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// When a mail server is tried again that is out of reach or refuses for the moment. Many refuse the first attempt of a sender
/// that they do not know.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// Mails, and requests for new passwords, that are not completed.
const MAX_PENDING_MAILS: usize = 200;

/// Sends mails beside requests.
#[derive(Clone)]
pub(crate) struct MailService {
    mailer: Arc<dyn Mailer>,
    ids: Arc<dyn IdGenerator>,
    slots: Arc<Semaphore>,
    tasks: BackgroundTasks,
}

impl MailService {
    /// `None` where the service sends no mail.
    pub(crate) fn new(ports: &Ports, tasks: BackgroundTasks) -> Option<Self> {
        Some(Self {
            mailer: ports.mailer.clone()?,
            ids: Arc::clone(&ports.ids),
            slots: Arc::new(Semaphore::new(MAX_PENDING_MAILS)),
            tasks,
        })
    }

    /// A place among the pending mails; `None` if there are too many.
    pub(super) fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Sends mails at the same time, and returns what is known of each after a few seconds.
    pub(super) async fn send_all(&self, mails: Vec<Mail>) -> Vec<MailDelivery> {
        let results: Vec<_> = mails.into_iter().map(|mail| self.start(mail)).collect();
        let deadline = Instant::now() + DELIVERY_TIMEOUT;
        let mut known = Vec::with_capacity(results.len());
        for result in results {
            known.push(match tokio::time::timeout_at(deadline, result).await {
                Ok(Ok(true)) => MailDelivery::Sent,
                Ok(_) => MailDelivery::Failed,
                Err(_) => MailDelivery::Pending,
            });
        }
        known
    }

    /// Begins to send a mail; the receiver gets whether it was sent.
    fn start(&self, mail: Mail) -> oneshot::Receiver<bool> {
        let (done, result) = oneshot::channel();
        let Some(slot) = self.reserve() else {
            tracing::warn!(mail.id = %mail.id, "a mail is not sent: {MAX_PENDING_MAILS} are pending");
            return result;
        };
        let service = self.clone();
        self.tasks.spawn_uncancelled(async move {
            // The request may have ended.
            let _ = done.send(service.send(&mail).await);
            drop(slot);
        });
        result
    }

    /// Sends a mail, within minutes; the log has the reason if it fails.
    pub(super) async fn send(&self, mail: &Mail) -> bool {
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            let Err(error) = self.mailer.send(mail).await else {
                return true;
            };
            let delay = delays.next().filter(|_| error.is_temporary());
            let Some(delay) = delay else {
                tracing::warn!(mail.id = %mail.id, error = %chain(&error), "a mail was not sent");
                return false;
            };
            tracing::info!(mail.id = %mail.id, error = %chain(&error), "a mail is tried again in {} s", delay.as_secs());
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.tasks.stopping().cancelled() => {
                    tracing::warn!(mail.id = %mail.id, "a mail was not sent: the service stops");
                    return false;
                }
            }
        }
    }

    /// The mail with the link of an invitation.
    pub(super) fn invitation(
        &self,
        to: &str,
        invitation: &Invitation,
        organization: &str,
        link: &SecretString,
    ) -> Mail {
        let inviter = &invitation.inviter;
        let text = format!(
            "{inviter} invites you to the organization \"{organization}\".\n\n\
             Open this link to join:\n\n{}\n\n\
             It works once, until {}. If you do not know {inviter}, ignore this mail.\n",
            link.expose_secret(),
            minute(invitation.expires_at),
        );
        let subject = format!("Invitation to {organization}");
        self.mail(to, subject, text)
    }

    /// The mail with a link by which a user sets a new password.
    pub(super) fn new_password(
        &self,
        to: &str,
        user: &UserId,
        link: &SecretString,
        expires_at: Timestamp,
    ) -> Mail {
        let text = format!(
            "A new password was requested for the account {user}.\n\n\
             Open this link to set one:\n\n{}\n\n\
             It works once, until {}. If you did not ask for it, ignore this mail: your password stays.\n",
            link.expose_secret(),
            minute(expires_at),
        );
        self.mail(to, format!("A new password for {user}"), text)
    }

    fn mail(&self, to: &str, subject: String, text: String) -> Mail {
        Mail {
            id: self.ids.uuid(),
            to: to.to_owned(),
            subject,
            text: text.into(),
        }
    }
}

fn minute(at: Timestamp) -> String {
    at.to_utc().format("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use store_memory::{FakeMailer, SequentialIds};
    use tokio::runtime::Handle;

    use super::*;

    fn service(mailer: &Arc<FakeMailer>, slots: usize) -> MailService {
        MailService {
            mailer: mailer.clone(),
            ids: Arc::new(SequentialIds::default()),
            slots: Arc::new(Semaphore::new(slots)),
            tasks: BackgroundTasks::new(Handle::current()),
        }
    }

    fn to(service: &MailService, addresses: &[&str]) -> Vec<Mail> {
        let mail = |to: &&str| service.mail(to, "s".to_owned(), "t".to_owned());
        addresses.iter().map(mail).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_mail_server_holds_up_neither_the_request_nor_other_mails() {
        let mailer = Arc::<FakeMailer>::default();
        let service = service(&mailer, 10);
        let addresses = ["slow@example.org", "refused@example.org", "mia@example.org"];
        let known = service.send_all(to(&service, &addresses)).await;
        let expected = [
            MailDelivery::Pending,
            MailDelivery::Failed,
            MailDelivery::Sent,
        ];
        assert_eq!(known, expected);
        assert_eq!(mailer.take().len(), 1);
        assert_eq!(service.slots.available_permits(), 9, "one is pending");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_mail_server_is_tried_again_and_a_refusal_is_not() {
        let mailer = Arc::<FakeMailer>::default();
        let service = service(&mailer, 10);
        let addresses = ["busy-3@example.org", "refused@example.org"];
        let known = service.send_all(to(&service, &addresses)).await;
        assert_eq!(known, [MailDelivery::Pending, MailDelivery::Failed]);
        let all = service.slots.acquire_many(10).await;
        assert_eq!(mailer.take().len(), 1);
        drop(all);
        let begun_at = Instant::now();
        let [given_up, sent] = [4, 0].map(|n| format!("busy-{n}@example.org"));
        let mails = to(&service, &[&given_up, &sent]);
        assert!(!service.send(&mails[0]).await);
        assert_eq!(begun_at.elapsed(), RETRY_DELAYS.into_iter().sum());
        assert!(service.send(&mails[1]).await);
        // A service that stops does not wait.
        let again = to(&service, &["busy-9@example.org"]);
        let stopping = async { service.tasks.stop(Duration::from_secs(1)).await };
        let (sent, stopped) = tokio::join!(service.send(&again[0]), stopping);
        assert!(!sent && stopped);
    }

    #[tokio::test]
    async fn the_number_of_pending_mails_is_bounded() {
        let mailer = Arc::<FakeMailer>::default();
        let service = service(&mailer, 2);
        let slots = (service.reserve(), service.reserve());
        assert!(slots.0.is_some() && slots.1.is_some() && service.reserve().is_none());
        let known = service.send_all(to(&service, &["mia@example.org"])).await;
        assert_eq!(known, [MailDelivery::Failed]);
        drop(slots);
        let known = service.send_all(to(&service, &["mia@example.org"])).await;
        assert_eq!(known, [MailDelivery::Sent]);
    }
}
