//! Followers of start tasks: the streams of `stream-start`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// Tasks that this process commits or runs, with the number of their guards.
    here: HashMap<StartTaskId, u32>,
}

#[derive(Debug, Default)]
struct FollowedTask {
    senders: Vec<mpsc::Sender<StartTask>>,
    last: Option<StartTask>,
}

/// While this guard lives, the task's states come from this process, and a poll of the store does not look for it.
#[derive(Debug)]
pub(crate) struct LocalRun(StartUpdates, StartTaskId);

impl Drop for LocalRun {
    fn drop(&mut self) {
        if let Entry::Occupied(mut guards) = self.0.lock().here.entry(self.1) {
            *guards.get_mut() -= 1;
            if *guards.get() == 0 {
                guards.remove();
            }
        }
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

    /// Marks the task as committed or run by this process while the guard lives.
    pub(crate) fn track_local(&self, id: StartTaskId) -> LocalRun {
        *self.lock().here.entry(id).or_default() += 1;
        LocalRun(self.clone(), id)
    }

    pub(crate) fn list_remote(&self) -> Vec<StartTaskId> {
        let state = self.lock();
        let ids = state.followed.keys().copied();
        ids.filter(|id| !state.here.contains_key(id)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_local_until_its_last_guard_is_dropped() {
        let (updates, id) = (StartUpdates::default(), StartTaskId::new(uuid::Uuid::nil()));
        updates.lock().followed.insert(id, FollowedTask::default());
        assert_eq!(updates.list_remote(), [id]);
        let (commit, run) = (updates.track_local(id), updates.track_local(id));
        drop(commit);
        assert!(updates.list_remote().is_empty());
        drop(run);
        assert_eq!(updates.list_remote(), [id]);
    }
}
