//! The automations service, as this crate sees it: a server that the composition root runs, at an address that changes.

use std::fmt;
use std::sync::Arc;

use actix_web::web;
use domain::id::ApiKeyId;
use gateway::{Gateway, SharedGateway};
use secrecy::SecretString;
use tokio::sync::{Notify, mpsc, watch};
use url::Url;

/// The automations service of this installation.
#[derive(Clone)]
pub struct AutomationsSite {
    /// Whether and where it answers.
    pub status: watch::Receiver<AutomationsStatus>,
    /// Notified when a user asks for automations while they are unavailable: the first one starts them.
    pub wanted: Arc<Notify>,
    /// Takes the key of each run that reports its end. Where it is full, the end is not passed on.
    pub run_ends: mpsc::Sender<ApiKeyId>,
    /// The name by which `gateway` proves that this server listens at the address, and no other process.
    pub name: Arc<str>,
    /// Forwards requests to it.
    pub gateway: SharedGateway,
    /// The secret with which it asks for keys of users.
    pub service_key: SecretString,
    /// The URL by which it and the sandboxes of its runs call this service, without a trailing slash.
    pub internal_url: String,
}

/// The state of the automations service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AutomationsStatus {
    /// It does not answer yet, or not any more. The text is for users.
    Unavailable(String),
    /// It answers at this address.
    Running(Url),
}

impl fmt::Debug for AutomationsSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutomationsSite")
            .field("status", &*self.status.borrow())
            .field("internal_url", &self.internal_url)
            .finish_non_exhaustive()
    }
}

/// The gateway of one worker to the automations service.
pub(crate) struct AutomationsGateway(pub(crate) Gateway);

impl AutomationsGateway {
    pub(crate) fn new(site: &AutomationsSite) -> web::Data<Self> {
        web::Data::new(Self(Gateway::new(site.gateway.clone())))
    }
}
