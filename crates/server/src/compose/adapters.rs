//! Names of adapters that the rest of this program uses.

pub(crate) use agent_client::{AutomationsClient, probe};
/// The store under a neutral name, for commands that inspect or administer it.
pub(crate) use store_sql::{SchemaStatus, SqlStore as Store, StoreInspection};

/// Whether mails can come from this text.
pub(crate) fn is_mail_sender(text: &str) -> bool {
    text.parse::<smtp::Sender>().is_ok()
}

/// Whether a text can be the URL of a provider.
pub(crate) fn is_issuer(text: &str) -> bool {
    text.parse::<oidc::Issuer>().is_ok()
}
