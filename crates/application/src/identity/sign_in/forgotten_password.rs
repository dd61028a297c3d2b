//! A person who forgot the password gets a link by mail, at the address that an identity provider or an operator verified.
//!
//! Every request gets the same answer at once. What depends on the account happens afterwards, so that the time tells nothing
//! either. Accounts without a password get no mail: their people sign in elsewhere, and a password would be a second way in.

use std::net::IpAddr;

use domain::error::{ErrorClass, StoreError, chain};
use domain::id::UserId;
use domain::user::mail::Mail;
use domain::user::sign_in::UserEmail;
use secrecy::{ExposeSecret as _, SecretString};

use super::{NewLink, SignInService};
use crate::AppError;
use crate::identity::changes::Origin;
use crate::identity::mail::MailService;

/// Accounts of one address that get a link at the same time.
const MAX_ACCOUNTS_PER_ADDRESS: usize = 5;

impl SignInService {
    /// Whether people get links for new passwords by mail.
    pub fn mails_links(&self) -> bool {
        self.is_enabled && self.mail.is_some()
    }

    /// Mails a link to each account with this name or verified address. `page` is the address of the page that sets
    /// passwords. The result does not depend on the account.
    pub fn mail_link(
        &self,
        origin: Origin,
        named: &str,
        network: Option<IpAddr>,
        page: String,
    ) -> Result<(), AppError> {
        let mail = self.mail.clone().filter(|_| self.is_enabled);
        let mail = mail.ok_or_else(|| AppError::not_found("This service sends no mail"))?;
        self.count_attempt(Some(named), network)?;
        let slot = mail.reserve().ok_or_else(|| {
            let detail = "Too many mails are waiting. Try again in a minute.";
            AppError::refused(ErrorClass::Unavailable, detail)
        })?;
        let (service, named) = (self.clone(), named.to_owned());
        self.tasks.spawn_uncancelled(async move {
            if let Err(error) = service.mail_links(&mail, &origin, &named, &page).await {
                tracing::error!(error = %chain(&error), "cannot make a link for a new password");
            }
            drop(slot);
        });
        Ok(())
    }

    async fn mail_links(
        &self,
        mail: &MailService,
        origin: &Origin,
        named: &str,
        page: &str,
    ) -> Result<(), AppError> {
        for (user, address) in self.accounts(named).await? {
            let may_mail = self.attempts.try_count_mail(&user, self.clock.now());
            if may_mail && self.has_password(&user).await? {
                let made = self.create_link(origin, &user).await?;
                mail.send(&link_mail(mail, &address, &made, page)).await;
            }
        }
        Ok(())
    }

    /// The accounts with this name or address, each with its verified address.
    async fn accounts(&self, named: &str) -> Result<Vec<(UserId, String)>, StoreError> {
        let mut found = Vec::new();
        if let Some(address) = UserEmail::parse_address(named) {
            let limit = MAX_ACCOUNTS_PER_ADDRESS;
            found = self.identities.find_by_email(&address, limit).await?;
        }
        if let Ok(user) = UserId::parse(named)
            && let Some(email) = self.identities.email(&user).await?
            && found.iter().all(|(other, _)| *other != user)
        {
            found.push((user, email));
        }
        let verified = found.into_iter().filter(|(_, email)| email.is_verified);
        Ok(verified
            .map(|(user, email)| (user, email.address))
            .collect())
    }

    /// Whether the user can sign in with a password, if they know it.
    async fn has_password(&self, user: &UserId) -> Result<bool, StoreError> {
        let found = self.users.find(user).await?;
        let is_active = found.is_some_and(|user| user.is_active());
        Ok(is_active && self.passwords.find(user).await?.is_some())
    }
}

fn link_mail(mail: &MailService, to: &str, made: &NewLink, page: &str) -> Mail {
    let NewLink { link, token } = made;
    // The code is in the fragment, which browsers do not send.
    let address = SecretString::from(format!("{page}#{}", token.expose_secret()));
    mail.new_password(to, &link.user, &address, link.expires_at)
}
