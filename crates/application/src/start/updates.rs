//! Who follows which start task: the stream of `stream-start`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::StartTaskId;
use domain::start_task::StartTask;
use tokio::sync::mpsc;

/// More than a task has states, also when it is started twice.
const MAX_BUFFERED_STATES: usize = 64;

/// Delivers every state of a task, in order, to those who follow it in this process. Published only after the store has
/// it. An mpsc queue, not a watch: no state of a task that runs here may be skipped. One that runs in another process is
/// read from the store when it changes (`elsewhere`).
#[derive(Debug, Default, Clone)]
pub struct StartUpdates(Arc<Mutex<UpdateSubscriptions>>);

#[derive(Debug, Default)]
struct UpdateSubscriptions {
    followed: HashMap<StartTaskId, FollowedTask>,
    /// Tasks whose worker is in this process.
    here: HashSet<StartTaskId>,
}

#[derive(Debug, Default)]
struct FollowedTask {
    senders: Vec<mpsc::Sender<StartTask>>,
    /// What was said last.
    told: Option<StartTask>,
}

/// While it lives, the task's states come from this process.
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

    /// Follows a task from now on; its follower knows it as it is given here. The stream ends when the task does.
    pub fn subscribe(&self, known: &StartTask) -> mpsc::Receiver<StartTask> {
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_STATES);
        let mut state = self.lock();
        // Those who went away without their task having said anything more.
        state.followed.retain(|_, followed| {
            followed.senders.retain(|sender| !sender.is_closed());
            !followed.senders.is_empty()
        });
        let followed = state.followed.entry(known.id).or_default();
        followed.told.get_or_insert_with(|| known.clone());
        followed.senders.push(sender);
        receiver
    }

    /// The task is worked on in this process as long as the answer lives.
    pub(crate) fn track_local(&self, id: StartTaskId) -> LocalRun {
        self.lock().here.insert(id);
        LocalRun(self.clone(), id)
    }

    /// Followed tasks whose states do not come from this process.
    pub(crate) fn list_remote(&self) -> Vec<StartTaskId> {
        let state = self.lock();
        let ids = state.followed.keys().copied();
        ids.filter(|id| !state.here.contains(id)).collect()
    }

    /// Tells the followers, unless that was the last they heard; a follower that went away or does not read is dropped.
    pub fn publish(&self, task: &StartTask) {
        let mut state = self.lock();
        let Some(followed) = state.followed.get_mut(&task.id) else {
            return;
        };
        let is_news = followed
            .told
            .as_ref()
            .is_none_or(|told| told != task && told.status <= task.status);
        if is_news {
            followed.told = Some(task.clone());
            followed
                .senders
                .retain(|sender| sender.try_send(task.clone()).is_ok());
        }
        if followed.senders.is_empty() || task.status.is_terminal() {
            state.followed.remove(&task.id);
        }
    }

    /// Nobody will hear of this task again.
    pub fn end(&self, id: StartTaskId) {
        self.lock().followed.remove(&id);
    }
}
