//! Who follows which start task: the stream of `stream-start`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::id::StartTaskId;
use domain::start_task::StartTask;
use tokio::sync::mpsc;

/// More than a task has states, also when it is started twice.
const STATES: usize = 64;

/// Delivers every state of a task, in order, to those who follow it in this process. Published only after the store has
/// it. An mpsc queue, not a watch: no state may be skipped.
#[derive(Debug, Default)]
pub struct Updates(Mutex<HashMap<StartTaskId, Vec<mpsc::Sender<StartTask>>>>);

impl Updates {
    /// Follows a task from now on. The stream ends when the task does.
    pub fn subscribe(&self, id: StartTaskId) -> mpsc::Receiver<StartTask> {
        let (sender, receiver) = mpsc::channel(STATES);
        self.sweep();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(id)
            .or_default()
            .push(sender);
        receiver
    }

    /// Drops followers that went away without their task having said anything more.
    fn sweep(&self) {
        let mut followers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
    }

    /// Tells the followers; a follower that went away or does not read is dropped.
    pub fn publish(&self, task: &StartTask) {
        let mut followers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(senders) = followers.get_mut(&task.id) {
            senders.retain(|sender| sender.try_send(task.clone()).is_ok());
            if senders.is_empty() || task.status.is_terminal() {
                followers.remove(&task.id);
            }
        }
    }

    /// Nobody will hear of this task again.
    pub fn end(&self, id: StartTaskId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
    }
}
