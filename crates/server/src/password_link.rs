//! The link with which a person sets a password.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// The code is in the fragment, which browsers do not send.
pub(crate) fn link_text(public_url: &Url, token: &SecretString) -> String {
    let base = public_url.as_str().trim_end_matches('/');
    format!("{base}/password#{}", token.expose_secret())
}
