//! Followers of start tasks: the streams of `stream-start`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::StartTaskId;
use domain::start_task::{StartTask, StartTaskRepository};
use domain::user::scope::Scope;
use tokio::sync::mpsc;

/// Longest queue: more than the states of a task, even if it is started twice.
const MAX_BUFFERED_STATES: usize = 64;

/// Delivers every state of a task, in order, to its followers in this process, after it was stored. An mpsc queue and
/// not a watch, because no state of a local task may be skipped. Tasks of other processes are read from the store when
/// they change (`list_remote`).
#[derive(Debug, Default, Clone)]
pub struct StartUpdates(Arc<Mutex<UpdateSubscriptions>>);

#[derive(Debug, Default)]
struct UpdateSubscriptions {
    followed: HashMap<StartTaskId, FollowedTask>,
    /// Tasks that this process runs.
    here: HashSet<StartTaskId>,
}

#[derive(Debug, Default)]
struct FollowedTask {
    senders: Vec<mpsc::Sender<StartTask>>,
    last: Option<StartTask>,
}

/// While this guard lives, the task's states come from this process.
#[derive(Debug)]
pub(crate) struct LocalRun(StartUpdates, StartTaskId);

impl Drop for LocalRun {
    fn drop(&mut self) {
        self.0.lock().here.remove(&self.1);
    }
}

impl StartUpdates {
    fn lock(&self) -> MutexGuard<'_, UpdateSubscriptions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a task from the state `known` on. The stream ends with the task.
    pub fn subscribe(&self, known: &StartTask) -> mpsc::Receiver<StartTask> {
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_STATES);
        let mut state = self.lock();
        // Forget disconnected followers of tasks without a new state.
        state.followed.retain(|_, followed| {
            followed.senders.retain(|sender| !sender.is_closed());
            !followed.senders.is_empty()
        });
        let followed = state.followed.entry(known.id).or_default();
        followed.last.get_or_insert_with(|| known.clone());
        followed.senders.push(sender);
        receiver
    }

    /// Marks the task as run by this process while the guard lives.
    pub(crate) fn track_local(&self, id: StartTaskId) -> LocalRun {
        self.lock().here.insert(id);
        LocalRun(self.clone(), id)
    }

    pub(crate) fn list_remote(&self) -> Vec<StartTaskId> {
        let state = self.lock();
        let ids = state.followed.keys().copied();
        ids.filter(|id| !state.here.contains(id)).collect()
    }

    /// Sends a state to the followers, unless they have it. A follower that disconnected or does not read is dropped.
    pub fn publish(&self, task: &StartTask) {
        let mut state = self.lock();
        let Some(followed) = state.followed.get_mut(&task.id) else {
            return;
        };
        let is_new = followed
            .last
            .as_ref()
            .is_none_or(|last| last != task && last.status <= task.status);
        if is_new {
            followed.last = Some(task.clone());
            followed
                .senders
                .retain(|sender| sender.try_send(task.clone()).is_ok());
        }
        if followed.senders.is_empty() || task.status.is_terminal() {
            state.followed.remove(&task.id);
        }
    }

    pub fn end(&self, id: StartTaskId) {
        self.lock().followed.remove(&id);
    }

    /// Publishes the end of a task that was ended elsewhere: its conversation was deleted, or another worker was
    /// faster.
    pub(super) async fn publish_if_ended(&self, tasks: &dyn StartTaskRepository, id: StartTaskId) {
        let found = tasks.find_many(&Scope::System, &[id]).await;
        match found.map(|mut found| found.pop().flatten()) {
            Ok(Some(task)) if task.status.is_terminal() => self.publish(&task),
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => self.end(id),
        }
    }
}
