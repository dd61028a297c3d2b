//! One-time links on the wire. An addition: the reference has none of them.

use application::sign_in::NewLink;
use domain::clock::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::addresses::Addresses;
use crate::decode::model;
use crate::dto::secret_text::SecretText;

/// A one-time link by which a user sets a password.
#[model(response = PasswordLink, from(made: NewLink, addresses: &Addresses))]
pub(crate) struct PasswordLinkDto {
    /// The link. It cannot be shown again.
    #[from(text(&made.token, addresses))]
    link: SecretText,
    /// When the link stops working.
    #[from(made.link.expires_at)]
    expires_at: Timestamp,
}

/// The code is in the fragment, which browsers do not send.
fn text(token: &SecretString, addresses: &Addresses) -> SecretText {
    let link = format!(
        "{}/password#{}",
        addresses.public_base(),
        token.expose_secret()
    );
    SecretString::from(link).into()
}
