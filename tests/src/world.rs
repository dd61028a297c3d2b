//! A service whose sandboxes run the stub agent server.

use std::time::Duration;

use serde_json::Value;

use crate::wait::{wait_for, wait_until};
use crate::{Builder, Client, Sandboxing, Service, Stub};

/// For everything that the service does by itself sooner or later, such as a pass of the reconciler.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_secs(90);

/// A service, its first user, and the stub in its sandboxes. Fields are dropped in order: the service removes its sandboxes before
/// the stub's directory is removed.
pub struct World {
    /// The service.
    pub service: Service,
    /// The first user, with a model in the settings.
    pub user: Client,
    /// The stub.
    pub stub: Stub,
}

impl World {
    /// Starts a service with process sandboxes and these faults of the stub.
    pub async fn with_faults(faults: &str) -> Self {
        Self::configured(faults, |builder| builder).await
    }

    /// Starts such a service with further configuration.
    pub async fn configured(faults: &str, configure: impl FnOnce(Builder) -> Builder) -> Self {
        Self::with_sandboxing(&Sandboxing::Process, faults, configure).await
    }

    /// Starts such a service with this kind of sandboxes.
    pub async fn with_sandboxing(
        sandboxing: &Sandboxing,
        faults: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let stub = Stub::with_faults(faults);
        let builder = Service::builder().sandboxing(sandboxing).stub(&stub);
        let service = configure(builder).start().await;
        let user = service.admin();
        configure_model(&user).await;
        Self {
            service,
            user,
            stub,
        }
    }

    /// Waits until no process, file, container, volume or row of a sandbox is left.
    ///
    /// # Panics
    /// When something is left in the end.
    pub async fn assert_nothing_left(&self) {
        wait_for(
            "the removal of all rows of sandboxes",
            RECONCILE_TIMEOUT,
            || async { self.user.sandboxes().await.is_empty().then_some(()) },
        )
        .await;
        wait_until(
            "the removal of all processes and files of sandboxes",
            RECONCILE_TIMEOUT,
            || self.service.processes().is_empty() && self.service.sandbox_directories().is_empty(),
        )
        .await;
        self.service.assert_no_orphans(&[&self.user]).await;
    }
}

/// Stores a model, which a start needs although the stub calls none.
pub async fn configure_model(user: &Client) {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-stub")
        .await;
}

/// The number of the user's messages among events.
#[must_use]
pub fn count_user_messages(events: &[Value]) -> usize {
    let messages = events
        .iter()
        .filter(|event| event["kind"] == "MessageEvent" && event["source"] == "user");
    messages.count()
}

/// The number of finished runs among events.
#[must_use]
pub fn count_finished_runs(events: &[Value]) -> usize {
    let ends = events.iter().filter(|event| event["tool_name"] == "finish");
    ends.count()
}
