//! Mails with the links of invitations.

use domain::error::chain;
use domain::user::mail::{Mail, MailDelivery};
use secrecy::SecretString;

use super::{NewInvitation, OrganizationService};
use crate::AppError;
use crate::authenticate::AuthenticatedUser;
use crate::identity::mail::MailService;

impl OrganizationService {
    /// Whether invitations are sent by mail.
    pub const fn mails_invitations(&self) -> bool {
        self.mail.is_some()
    }

    /// Mails new invitations, whose links the caller makes, and returns what is known of each mail. `None`: no mail is meant,
    /// because the invitation has no address, or the service sends none. The invitations stand whatever happens.
    pub async fn mail_invitations(
        &self,
        caller: &AuthenticatedUser,
        made: &[(NewInvitation, SecretString)],
    ) -> Vec<Option<MailDelivery>> {
        let Some(mail) = &self.mail else {
            return vec![None; made.len()];
        };
        let mails = match self.invitation_mails(mail, caller, made).await {
            Ok(mails) => mails,
            Err(error) => {
                tracing::error!(error = %chain(&error), "cannot write the mails of invitations");
                let failed = |(it, _): &(NewInvitation, _)| {
                    it.invitation.email.as_ref().map(|_| MailDelivery::Failed)
                };
                return made.iter().map(failed).collect();
            }
        };
        let mut known = mail.send_all(mails).await.into_iter();
        let deliveries = made
            .iter()
            .map(|(it, _)| it.invitation.email.as_ref().and_then(|_| known.next()));
        deliveries.collect()
    }

    /// A mail for each invitation with an address.
    async fn invitation_mails(
        &self,
        mail: &MailService,
        caller: &AuthenticatedUser,
        made: &[(NewInvitation, SecretString)],
    ) -> Result<Vec<Mail>, AppError> {
        let organization = self.current(caller).await?;
        let mails = made
            .iter()
            .filter_map(|(NewInvitation { invitation, .. }, link)| {
                let to = invitation.email.as_deref()?;
                Some(mail.invitation(to, invitation, &organization.name, link))
            });
        Ok(mails.collect())
    }
}
