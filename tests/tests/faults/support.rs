//! Shared by the modules of this suite.

use std::time::Duration;

use acceptance::Client;
use acceptance::wait::wait_for;
use serde_json::Value;

pub(crate) use acceptance::world::{
    RECONCILE_TIMEOUT, World, configure_model, count_finished_runs, count_user_messages,
};

/// Longest wait until the service notices an event of its backend; it usually takes milliseconds. Less than the 30 s between
/// two comparisons of rows and backend, so only an event is fast enough.
pub(crate) const NOTICE_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until a conversation has exactly this many messages of its user and finished runs; returns its events. Reports are lost
/// when the service or the agent server dies. The service fetches lost events, perhaps after it has received the last status.
pub(crate) async fn wait_for_messages_and_runs(
    user: &Client,
    id: &str,
    messages: usize,
    runs: usize,
) -> Vec<Value> {
    let what = format!("{messages} messages and {runs} finished runs in {id}");
    wait_for(&what, RECONCILE_TIMEOUT, || async {
        let events = user.events(id).await;
        ((count_user_messages(&events), count_finished_runs(&events)) == (messages, runs))
            .then_some(events)
    })
    .await
}
