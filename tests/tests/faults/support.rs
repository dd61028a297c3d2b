//! A service whose sandboxes run the stub.

use std::time::Duration;

use acceptance::wait::{wait_for, wait_until};
use acceptance::{Builder, Client, Service, Stub};
use serde_json::Value;

/// Everything that the service does by itself sooner or later: a reconciler's pass, a relist.
pub(crate) const LATE: Duration = Duration::from_secs(45);

pub(crate) struct World {
    pub(crate) stub: Stub,
    pub(crate) service: Service,
    pub(crate) user: Client,
}

impl World {
    /// With these faults of the stub.
    pub(crate) async fn with(faults: &str) -> Self {
        Self::configured(faults, |builder| builder).await
    }

    pub(crate) async fn configured(
        faults: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let stub = Stub::with(faults);
        let builder = configure(Service::builder().stub(&stub));
        let service = builder.start().await;
        let user = service.admin();
        configure_model(&user).await;
        Self {
            stub,
            service,
            user,
        }
    }

    /// Neither a process nor a directory nor a row of a sandbox is left.
    pub(crate) async fn assert_nothing_left(&self) {
        wait_for("the end of the sandbox's row", LATE, || async {
            self.user.sandboxes().await.is_empty().then_some(())
        })
        .await;
        wait_until("the end of its processes and files", LATE, || {
            self.service.processes().is_empty() && self.service.sandbox_directories().is_empty()
        })
        .await;
    }
}

/// The stub calls no model, but a start needs one.
pub(crate) async fn configure_model(user: &Client) {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-stub")
        .await;
}

/// How many messages of the user are in a log.
pub(crate) fn said_by_user(events: &[Value]) -> usize {
    let messages = events
        .iter()
        .filter(|event| event["kind"] == "MessageEvent" && event["source"] == "user");
    messages.count()
}

/// How often a run came to its end.
pub(crate) fn finishes(events: &[Value]) -> usize {
    let ends = events.iter().filter(|event| event["tool_name"] == "finish");
    ends.count()
}
