//! What all modules use.

use std::time::Duration;

use acceptance::Client;
use acceptance::wait::wait_for;
use serde_json::Value;

pub(crate) use acceptance::world::{
    RECONCILE_TIMEOUT, World, configure_model, finishes, said_by_user,
};

/// By an event, that is: rows and backend are compared every 30 s only. Usually it takes milliseconds.
pub(crate) const NOTICE_TIMEOUT: Duration = Duration::from_secs(20);

/// The events of a conversation, once so much was said by its user and so many runs have finished: reports get lost
/// with either side, and what was lost is fetched, which may be after the status of the last one was heard.
pub(crate) async fn heard(user: &Client, id: &str, said: usize, ends: usize) -> Vec<Value> {
    let what = format!("{said} messages and {ends} ends of runs in {id}");
    wait_for(&what, RECONCILE_TIMEOUT, || async {
        let events = user.events(id).await;
        ((said_by_user(&events), finishes(&events)) == (said, ends)).then_some(events)
    })
    .await
}
