//! A service whose sandboxes run the stub: what fault suites begin with.

use std::time::Duration;

use serde_json::Value;

use crate::wait::{wait_for, wait_until};
use crate::{Builder, Client, Sandboxing, Service, Stub};

/// Everything that the service does by itself sooner or later: a reconciler's pass, a relist.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_secs(90);

/// A service, its first user, and the stub in its sandboxes. Dropped in this order: the service ends what it runs before
/// the stub's directory goes.
pub struct World {
    /// The service.
    pub service: Service,
    /// The first user, who has a model.
    pub user: Client,
    /// The stub.
    pub stub: Stub,
}

impl World {
    /// Process sandboxes, with these faults of the stub.
    pub async fn with(faults: &str) -> Self {
        Self::configured(faults, |builder| builder).await
    }

    /// The same with a service that is configured further.
    pub async fn configured(faults: &str, configure: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(&Sandboxing::Process, faults, configure).await
    }

    /// The same with this kind of sandboxes.
    pub async fn on(
        sandboxing: &Sandboxing,
        faults: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let stub = Stub::with(faults);
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

    /// Neither a process nor a file, a container, a volume or a row of a sandbox is left.
    ///
    /// # Panics
    /// When something is left after a while.
    pub async fn assert_nothing_left(&self) {
        wait_for(
            "the end of the sandbox's row",
            RECONCILE_TIMEOUT,
            || async { self.user.sandboxes().await.is_empty().then_some(()) },
        )
        .await;
        wait_until(
            "the end of its processes and files",
            RECONCILE_TIMEOUT,
            || self.service.processes().is_empty() && self.service.sandbox_directories().is_empty(),
        )
        .await;
        self.service.assert_no_orphans(&[&self.user]).await;
    }
}

/// The stub calls no model, but a start needs one.
pub async fn configure_model(user: &Client) {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-stub")
        .await;
}

/// How many messages of the user are in a log.
#[must_use]
pub fn said_by_user(events: &[Value]) -> usize {
    let messages = events
        .iter()
        .filter(|event| event["kind"] == "MessageEvent" && event["source"] == "user");
    messages.count()
}

/// How often a run came to its end.
#[must_use]
pub fn finishes(events: &[Value]) -> usize {
    let ends = events.iter().filter(|event| event["tool_name"] == "finish");
    ends.count()
}
